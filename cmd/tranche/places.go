package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// places is where a file's keys stand, by how messages begin that are about them: "sandbox", "sandbox: disk", "reward[1]: wall". What is found
// wrong with a value after the file was read then names file and line like what was found while it was read.
type places map[string]string

// deepest is how many keys and places in lists a name may have.
const deepest = 4

// note remembers where a value stands, and what is in it, up to maxVisits places: what a file may hold does not depend on them. A map alone
// may stand for a list of one.
func (y *yamlFile) note(name string, at, value ast.Node, depth int) {
	if at == nil || at.GetToken() == nil || depth == deepest || y.noted >= maxVisits {
		return
	}
	y.noted++
	p := at.GetToken().Position
	y.places[name] = fmt.Sprintf("%s:%d:%d", y.name, p.Line, p.Column)
	list, isList := y.follow(value).(*ast.SequenceNode)
	if isList {
		for i, v := range list.Values {
			if y.noted >= maxVisits {
				return
			}
			y.note(fmt.Sprintf("%s[%d]", name, i), firstKey(y.follow(v)), v, depth+1)
			if name == "reward" { // what reward.Config calls them
				y.note(fmt.Sprintf("%s: graders[%d]", name, i), firstKey(y.follow(v)), v, deepest-1)
			}
		}
		return
	}
	for _, pair := range pairsOf(y.follow(value)) {
		if y.noted >= maxVisits {
			return
		}
		y.note(name+": "+keyName(pair), pair.Key, pair.Value, depth+1)
		if depth == 0 {
			y.note(name+"[0]: "+keyName(pair), pair.Key, pair.Value, depth+1)
		}
	}
}

func pairsOf(n ast.Node) []*ast.MappingValueNode {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}
	}
	return nil
}

// firstKey is where a map begins, or the node itself.
func firstKey(n ast.Node) ast.Node {
	if pairs := pairsOf(n); len(pairs) > 0 {
		return pairs[0].Key
	}
	return n
}

// without forgets keys that the file does not decide.
func (p places) without(keys map[string]bool) places {
	left := places{}
	for name, at := range p {
		if key, _, _ := strings.Cut(name, ":"); !keys[beforeBracket(key)] {
			left[name] = at
		}
	}
	return left
}

func beforeBracket(s string) string {
	before, _, _ := strings.Cut(s, "[")
	return before
}

// placed is a fault with its place in a file.
type placed struct {
	at  string
	err error
}

func (e *placed) Error() string { return e.at + ": " + e.err.Error() }
func (e *placed) Unwrap() error { return e.err }

// locate puts before each fault of a key where that stands in the file.
func (p places) locate(err error) error {
	if err == nil || len(p) == 0 {
		return err
	}
	if c, ok := err.(*coded); ok {
		return &coded{c.code, p.locate(c.err)}
	}
	if list := listed(err); list != nil {
		all := make([]error, len(list))
		for i, e := range list {
			all[i] = p.locate(e)
		}
		return errors.Join(all...)
	}
	if at := p.of(err.Error()); at != "" {
		return &placed{at, err}
	}
	return err
}

// of is the place of the longest key that a message begins with, "" where it begins with none.
func (p places) of(message string) (at string) {
	longest := 0
	for name, where := range p {
		rest, begins := strings.CutPrefix(message, name)
		if begins && (strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, " (")) && len(name) > longest {
			longest, at = len(name), where
		}
	}
	return at
}

// listed are the errors that were joined into a list; nil where err is one, or a chain of them.
func listed(err error) []error {
	many, ok := err.(interface{ Unwrap() []error })
	if !ok || len(many.Unwrap()) == 0 || errors.Join(many.Unwrap()...).Error() != err.Error() {
		return nil
	}
	return many.Unwrap()
}
