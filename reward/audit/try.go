package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tranche/episode"
)

// Classes of tasks.
const (
	Weak       = "weak"       // a wrong answer scores
	Impossible = "impossible" // the right answer does not score 1
	Flaky      = "flaky"      // the same answer is judged in two ways
	Ungradable = "ungradable" // there is no verdict on any answer
)

// Trial tries one grader.
type Trial struct {
	Name   string // of its component
	Kind   string
	Scorer episode.Scorer // with this grader alone
	Gold   string         // column with a right answer; "" = the ground truth, or the usual columns
	Above  float64        // a wrong answer scores where it has more
	Tricks Tricks         // of programs
	Repeat int            // how often each answer is judged; below 1 = once
}

// Outcome is what a grader said of one answer.
type Outcome struct {
	Probe    string   `json:"answer"`
	Text     string   `json:"text"` // its beginning
	Score    *float64 `json:"score"`
	Reason   string   `json:"reason,omitempty"` // of there being no verdict
	Evidence string   `json:"evidence,omitempty"`
	Others   []string `json:"others,omitempty"` // what it said when it was asked again, where that differs
}

// Finding is what came of one task.
type Finding struct {
	Task    string    `json:"task"`
	Index   int64     `json:"index"`
	Grader  string    `json:"grader"`
	Classes []string  `json:"classes"` // none = sound
	Gold    *Outcome  `json:"gold"`    // nil = nothing says what is right
	Wrong   []Outcome `json:"wrong"`   // those that score, the best first
	Flaky   []Outcome `json:"flaky,omitempty"`
	Truth   string    `json:"truth"` // its beginning

	All []Judged `json:"-"` // for sums
}

// Judged is one answer for sums: the verdicts on it, as text.
type Judged struct {
	Probe    string
	Score    *float64 // the first
	Verdicts []string
	Right    bool // it is the gold one
}

// Is tells whether a finding has a class.
func (f Finding) Is(class string) bool { return slices.Contains(f.Classes, class) }

// Task tries every answer on one task. An error is one of the scorer, which ended.
func (t Trial) Task(ctx context.Context, task *episode.Task) (Finding, error) {
	f := Finding{Task: task.ID, Index: task.Index, Grader: t.Name, Classes: []string{}, Wrong: []Outcome{}}
	if task.Answer != nil {
		f.Truth = brief(*task.Answer)
	}
	right := gold(t.Kind, t.Gold, task)
	judged, unjudged := 0, ""
	note := func(o Outcome, verdicts []string, isGold bool) {
		f.All = append(f.All, Judged{o.Probe, o.Score, verdicts, isGold})
		if o.Score != nil {
			judged++
		} else if unjudged == "" {
			unjudged = o.Reason
		}
		if len(o.Others) > 0 {
			f.Flaky = append(f.Flaky, o)
		}
	}
	for _, p := range right {
		o, verdicts, err := t.ask(ctx, task, p)
		if err != nil {
			return f, err
		}
		if f.Gold == nil || o.Score != nil && (f.Gold.Score == nil || *o.Score > *f.Gold.Score) {
			f.Gold = &o
		}
		if note(o, verdicts, true); o.Score == nil || *o.Score >= 1 {
			break
		}
	}
	if len(right) > 0 && judged == 0 { // no other answer will do better, and each may cost a sandbox
		f.Classes = append(f.Classes, Ungradable)
		return f.settled(), nil
	}
	for _, p := range wrong(t.Kind, task, right, t.Tricks) {
		o, verdicts, err := t.ask(ctx, task, p)
		if err != nil {
			return f, err
		}
		note(o, verdicts, false)
		if o.Score != nil && *o.Score > t.Above {
			f.Wrong = append(f.Wrong, o)
		}
	}
	slices.SortStableFunc(f.Wrong, func(a, b Outcome) int { return cmp.Compare(*b.Score, *a.Score) })
	switch {
	case judged == 0:
		f.Classes = append(f.Classes, Ungradable)
		f.Gold = &Outcome{Probe: "none", Reason: unjudged}
	case f.Gold != nil && f.Gold.Score != nil && *f.Gold.Score < 1:
		f.Classes = append(f.Classes, Impossible)
	}
	if len(f.Wrong) > 0 {
		f.Classes = append(f.Classes, Weak)
	}
	return f.settled(), nil
}

func (f Finding) settled() Finding {
	if len(f.Flaky) > 0 {
		f.Classes = append(f.Classes, Flaky)
	}
	return f
}

// ask has one answer judged, as often as the trial says.
func (t Trial) ask(ctx context.Context, task *episode.Task, p Probe) (Outcome, []string, error) {
	var first Outcome
	var verdicts []string
	for i := range max(t.Repeat, 1) {
		v, err := t.Scorer.Score(ctx, answered(task, p))
		if err != nil {
			return first, nil, fmt.Errorf("task %s: %w", task.ID, err)
		}
		o := outcome(p, v)
		said := o.verdict()
		verdicts = append(verdicts, said)
		if i == 0 {
			first = o
		} else if said != verdicts[0] && !slices.Contains(first.Others, said) {
			first.Others = append(first.Others, said)
		}
	}
	return first, verdicts, nil
}

// verdict is what two verdicts are compared by.
func (o Outcome) verdict() string {
	if o.Score == nil {
		return "no verdict: " + o.Reason
	}
	return fmt.Sprint(*o.Score)
}

func outcome(p Probe, v episode.Verdict) Outcome {
	o := Outcome{Probe: p.Name, Text: brief(p.Text)}
	if len(v.Rewards) == 0 {
		o.Reason = "no component"
		return o
	}
	main := v.Rewards[0]
	o.Score, o.Evidence = main.Score, main.Evidence
	if o.Score == nil {
		o.Reason = strings.TrimPrefix(main.Outcome, episode.NoVerdict+": ")
	}
	return o
}

// answered is an episode that ended with an answer. Its id is the same each time, and so is what a grader draws by lot from it.
func answered(task *episode.Task, p Probe) *episode.Episode {
	e := episode.New("audit", episode.Draw{Task: task, Samples: 1}, 0, episode.Sampling{}, episode.Budget{}, time.Unix(0, 0).UTC())
	if !p.Silent {
		m := episode.Message{Role: episode.RoleAssistant, ToolCalls: p.Calls}
		if p.Text != "" || len(p.Calls) == 0 {
			m.Content = &p.Text
		}
		e.Messages = append(e.Messages, m)
	}
	e.Turns = []episode.Turn{{Finish: "stop"}}
	why := episode.StopStop
	if len(p.Calls) > 0 {
		why = episode.StopToolCalls
	}
	e.Close(episode.StatusCompleted, why)
	return e
}

const briefRunes = 80

func brief(s string) string {
	r := []rune(strings.Join(strings.Fields(s), " "))
	if len(r) > briefRunes {
		return string(r[:briefRunes-1]) + "…"
	}
	return string(r)
}
