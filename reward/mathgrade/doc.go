// Package mathgrade judges final answers as mathematics: kind math, written here, and kind math_verify, which asks the Python library of
// that name.
//
// An answer is found in the text (extract.go), cut into tokens (lex.go), read into a tree (parse.go, node.go) and compared with the truth
// by what both are (compare.go, relation.go, region.go). Values are equal as fractions where they are fractions (exact.go), else when
// they agree at two precisions of several hundred bits (eval.go, real.go), and expressions with variables at points that follow from the
// two texts (equal.go). All work is bounded: by the length of what is read, its depth, the digits of its numbers and a budget of steps; nothing
// here runs what a model wrote. It does not do algebra: it never solves, integrates or expands. Open compare.go first.
package mathgrade
