package reward

import (
	"context"
	"fmt"

	"tranche/episode"
)

// Grader judges one closed episode. It is called from many episodes at once and keeps nothing of one.
type Grader interface {
	// ID is its kind and version, "numeric/1"; it is stored with every score. A Spec chooses it by the part before the /.
	ID() string
	// Grade judges. An *Unjudged error says why there is nothing to judge; any other error is the grader's own failure. In
	// both cases there is no verdict, never a zero. It must return soon after ctx is done; one that does not is abandoned.
	Grade(ctx context.Context, in Input) (Finding, error)
}

// Input is what a grader looks at. All of it is read-only and stays unchanged while the grader has it.
type Input struct {
	Task      *episode.Task
	Text      string // the text to judge, as Spec.From says
	Said      bool   // false when the model said nothing at all; Text is "" then
	Messages  []episode.Message
	NumPrompt int // how many of Messages are the prompt
	Stop      episode.Stop
}

// Finding is a judgement.
type Finding struct {
	Score    float64 // from 0 to 1
	Evidence string  // what was looked at and found; cut to 200 bytes
	Grader   string  // id of the grader that really judged; "" = the one that was asked
}

// Unjudged says that there was nothing to judge, for a reason on the task's side.
type Unjudged struct {
	Reason string // one word for outcomes: missing_ground_truth, …
	Detail string // for people
}

func (u *Unjudged) Error() string {
	if u.Detail == "" {
		return u.Reason
	}
	return fmt.Sprintf("%s: %s", u.Reason, u.Detail)
}

// Reasons for having nothing to judge.
const (
	MissingTruth = "missing_ground_truth" // the task states no answer
	BadTruth     = "bad_ground_truth"     // the task's answer is nothing this grader can compare with
	UnknownStyle = "unknown_style"        // the task asks for a grader that is not here
	NotGraded    = "not_graded"           // the run or the task wants no grade
)

// build makes the grader of a spec with a built-in kind.
func build(s Spec) Grader {
	if s.Marker == "" {
		s.Marker = defaultMarker
	}
	if s.Normalize == nil {
		s.Normalize = []string{trim, lower, spaces}
	}
	switch s.Kind {
	case KindExact:
		return exact{s.Marker, s.Normalize}
	case KindNumeric:
		return newNumeric(s.Marker, s.Tolerance)
	case KindContains:
		return contains{s.Normalize}
	case KindRegex:
		return newMatch(s.Pattern)
	case KindNone:
		return none{}
	default:
		return auto{
			exact: exact{s.Marker, s.Normalize}, numeric: newNumeric(s.Marker, s.Tolerance),
			contains: contains{s.Normalize}, match: newMatch(""), marker: s.Marker,
		}
	}
}

// none judges nothing.
type none struct{}

func (none) ID() string { return "none/1" }

func (none) Grade(context.Context, Input) (Finding, error) {
	return Finding{}, &Unjudged{Reason: NotGraded}
}

// auto judges as the task wants.
type auto struct {
	exact    exact
	numeric  numeric
	contains contains
	match    match
	marker   string
}

func (auto) ID() string { return "auto/1" }

func (a auto) Grade(ctx context.Context, in Input) (Finding, error) {
	g, err := a.choose(in.Task)
	if err != nil {
		return Finding{}, err
	}
	f, err := g.Grade(ctx, in)
	f.Grader = g.ID()
	return f, err
}

// choose picks the grader. A style that names none of ours is not guessed at: "model" asks for a judge, and comparing text
// instead would be a wrong reward.
func (a auto) choose(t *episode.Task) (Grader, error) {
	switch t.Style {
	case "", KindAuto, "rule":
		want, err := truth(t)
		if err != nil {
			return nil, err
		}
		if _, ok := statedNumber(want, a.marker); ok {
			return a.numeric, nil
		}
		return a.exact, nil
	case KindExact:
		return a.exact, nil
	case KindNumeric:
		return a.numeric, nil
	case KindContains:
		return a.contains, nil
	case KindRegex:
		return a.match, nil
	case KindNone:
		return none{}, nil
	}
	return nil, &Unjudged{UnknownStyle, fmt.Sprintf("the task asks for style %q", t.Style)}
}

// truth is the task's ground truth. One without any text is as good as missing: every answer contains it.
func truth(t *episode.Task) (string, error) {
	if t.Answer == nil || normalize(*t.Answer, []string{trim}) == "" {
		return "", &Unjudged{Reason: MissingTruth}
	}
	return *t.Answer, nil
}

// silence is the finding on a model that said nothing; ok is false when it said something.
func silence(in Input) (f Finding, ok bool) {
	if normalize(in.Text, []string{trim}) != "" {
		return Finding{}, false
	}
	return Finding{Score: 0, Evidence: "no final text"}, true
}

// grade makes a finding of a comparison.
func grade(right bool, format string, args ...any) Finding {
	f := Finding{Evidence: fmt.Sprintf(format, args...)}
	if right {
		f.Score = 1
	}
	return f
}
