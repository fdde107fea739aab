// Package export turns the rows of a run into the records that trainers load. A shape is one such record: its fields, their names and types are those
// that the trainer's own loader reads, which the comment beside each names. Nothing is played or judged again, and nothing is invented: what a shape needs
// and a row does not hold leaves the row out, and the report counts it by the reason.
//
// It will not tokenise, cut or pack: tokens are those that the server saw and sampled, and a sequence is whole or left out. What a row holds is storage's
// business (docs/format.md); where the file goes is the command's.
//
// Open shape.go first: the catalogue. Then export.go (how rows get there) and the file of the shape.
package export
