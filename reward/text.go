package reward

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// What Spec.Normalize may name.
const (
	trim   = "trim"
	lower  = "lower"
	spaces = "spaces"
)

func normalize(s string, how []string) string {
	for _, h := range how {
		switch h {
		case trim:
			s = strings.TrimSpace(s)
		case lower:
			s = strings.ToLower(s)
		case spaces:
			s = collapse(s)
		}
	}
	return s
}

// collapse makes one space of each run of white space, also of one at an end: taking those away is trim's business.
func collapse(s string) string {
	var out strings.Builder
	out.Grow(len(s))
	gap := false
	for _, r := range s {
		if strings.ContainsRune(" \t\n\v\f\r\u0085\u00a0\u2009\u202f", r) {
			gap = true
			continue
		}
		if gap {
			out.WriteByte(' ')
			gap = false
		}
		out.WriteRune(r)
	}
	if gap {
		out.WriteByte(' ')
	}
	return out.String()
}

// answerPart is where an answer stands in a text: the rest of the line after the last marker (the next line, when nothing
// follows it there), else the last \boxed{}, else all of it.
func answerPart(text, marker string) (part, where string) {
	if i := strings.LastIndex(text, marker); i >= 0 {
		return FirstLine(text[i+len(marker):]), fmt.Sprintf(" after %q", marker)
	}
	if inside, ok := Boxed(text); ok {
		return inside, ` in \boxed{}`
	}
	return text, ""
}

// exact: the answer is the ground truth, both taken from where they stand in their text and normalised.
type exact struct {
	marker    string
	normalize []string
}

func (exact) ID() string { return "exact/1" }

func (g exact) Grade(_ context.Context, in Input) (Finding, error) {
	stated, err := truth(in.Task)
	if err != nil {
		return Finding{}, err
	}
	wants, ok := Targets(stated)
	if !ok {
		want, _ := answerPart(stated, g.marker)
		wants = []string{want}
	}
	for i, want := range wants {
		if wants[i] = normalize(want, g.normalize); wants[i] == "" {
			return Finding{}, &Unjudged{Reason: BadTruth, Detail: fmt.Sprintf("nothing is left of %q", clip(stated))}
		}
	}
	if f, silent := silence(in); silent {
		return f, nil
	}
	got, where := answerPart(in.Text, g.marker)
	got = normalize(got, g.normalize)
	return grade(slices.Contains(wants, got), "%q%s, want %q", Clip(got, 80), where, Clip(strings.Join(wants, `" or "`), 80)), nil
}

// Targets are the answers that a ground truth of verl's form for questions with several allows, any of which is right: {"target": ["Paris", "paris city"]}, or one
// text; false where it has another form. The list alone is none: it may be what is asked for.
func Targets(truth string) (list []string, ok bool) {
	var o map[string]json.RawMessage
	if json.Unmarshal([]byte(truth), &o) != nil || len(o) != 1 {
		return nil, false
	}
	var one string
	if json.Unmarshal(o["target"], &one) == nil {
		return []string{one}, true
	}
	return list, json.Unmarshal(o["target"], &list) == nil && len(list) > 0
}

// contains: the ground truth is somewhere in the text, as a plain substring after both were normalised.
type contains struct{ normalize []string }

func (contains) ID() string { return "contains/1" }

func (g contains) Grade(_ context.Context, in Input) (Finding, error) {
	stated, err := truth(in.Task)
	if err != nil {
		return Finding{}, err
	}
	if f, silent := silence(in); silent {
		return f, nil
	}
	want := normalize(stated, g.normalize)
	i := strings.Index(normalize(in.Text, g.normalize), want)
	if i < 0 {
		return grade(false, "%q is not in the text", Clip(want, 80)), nil
	}
	return grade(true, "%q is at byte %d", Clip(want, 80), i), nil
}

// match: the text matches a regular expression. Go's engine takes time in proportion to the text, whatever the pattern.
type match struct{ fixed *regexp.Regexp } // nil = the task's ground truth is the pattern

func newMatch(pattern string) match {
	if pattern == "" {
		return match{}
	}
	return match{regexp.MustCompile(pattern)} // Validate has compiled it
}

func (match) ID() string { return "regex/1" }

func (g match) Grade(_ context.Context, in Input) (Finding, error) {
	re := g.fixed
	if re == nil {
		stated, err := truth(in.Task)
		if err != nil {
			return Finding{}, err
		}
		if re, err = regexp.Compile(stated); err != nil {
			return Finding{}, &Unjudged{Reason: BadTruth, Detail: err.Error()}
		}
	}
	if f, silent := silence(in); silent {
		return f, nil
	}
	at := re.FindStringIndex(in.Text)
	if at == nil {
		return grade(false, "no match of %s", Clip(re.String(), 80)), nil
	}
	return grade(true, "%q at byte %d", Clip(in.Text[at[0]:at[1]], 80), at[0]), nil
}

const maxEvidence = 200 // bytes

func clip(s string) string { return Clip(s, maxEvidence) }
