package reward

import (
	"context"
	"fmt"

	"tranche/episode"
)

// Grader judges one closed episode. It is called from many episodes at once and keeps nothing of one.
type Grader interface {
	// ID is its kind and version, "numeric/1"; it is stored with every score.
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
	Turns     []episode.Turn
	Actions   []episode.ActionRecord
	Stop      episode.Stop
	Episode   string // id of the episode: what a grader that draws lots takes them from
}

// Finding is a judgement. What a Finding breaks of the rules below makes it the grader's failure: no verdict.
type Finding struct {
	Score    float64   // from 0 to 1
	Raw      *float64  // the grader's own figure on its own scale (seconds, a distance, passed tests); nil = none
	Evidence string    // what was looked at and found; cut to 200 bytes
	Grader   string    // id of the grader that really judged; "" = the one that was asked
	Tier     string    // what held the code that was run (a sandbox's limit tier); "" = none was run
	Cost     Cost      // counted beside an error too; Wall 0 = the time that Grade took
	Parts    []Part    // further components of the same judgement
	Turns    []float64 // process graders: credit for each model turn, len(Input.Turns) of them, NaN = none; nil = no such grader
}

// Cost is what a judgement cost.
type Cost = episode.Cost

// Part is one more component of a judgement, stored beside the main one as "<component>.<Name>".
type Part struct {
	Name     string   // unique among the parts
	Score    *float64 // from 0 to 1; nil = no verdict
	Weight   float64  // in the total, times the weight of the component; 0 = only recorded
	Raw      *float64
	Evidence string // cut to 200 bytes
}

// Unjudged says that there is no verdict and why: nothing to judge, for a reason on the task's side, or something that a verdict
// needs has failed.
type Unjudged struct {
	Reason string // one word for outcomes: missing_ground_truth, …
	Detail string // for people
	// Retry says that asking again may help: a sandbox died, a judge answered 500. The Scorer asks again, up to
	// Config.Retries times.
	Retry bool
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
	NotJudged    = "not_judged"           // a part of a judgement that the grader left open
)

// build makes the grader of a filled spec with a built-in kind.
func build(s Spec) Grader {
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
	return nil, &Unjudged{Reason: UnknownStyle, Detail: fmt.Sprintf("the task asks for style %q", t.Style)}
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
