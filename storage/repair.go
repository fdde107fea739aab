package storage

import (
	"math"
	"strings"
	"unicode/utf8"
)

// repairer makes values storable and remembers whether it had to change any: a Parquet string must be valid UTF-8, and a
// score must be finite.
type repairer struct {
	repaired  bool
	nonFinite bool
}

// text replaces what is no UTF-8 (lone surrogates, cut characters) by U+FFFD.
func (p *repairer) text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	p.repaired = true
	return strings.ToValidUTF8(s, "\uFFFD")
}

// some stores the empty string as null, for fields where the nouns use "" for "none".
func (p *repairer) some(s string) *string {
	if s == "" {
		return nil
	}
	s = p.text(s)
	return &s
}

// opt keeps null null and "" "".
func (p *repairer) opt(s *string) *string {
	if s == nil {
		return nil
	}
	t := p.text(*s)
	return &t
}

func (p *repairer) raw(b []byte) *string {
	if b == nil {
		return nil
	}
	t := p.text(string(b))
	return &t
}

func (p *repairer) finite(v *float64) *float64 {
	if v == nil {
		return nil
	}
	if math.IsNaN(*v) || math.IsInf(*v, 0) {
		p.nonFinite = true
		return nil
	}
	f := *v
	return &f
}
