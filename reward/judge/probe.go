package judge

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"tranche/episode"
	"tranche/reward"
)

// trivia are answers that say nothing; judges fell for such (arXiv 2507.08794). The empty one is 0 without a judge being asked.
func trivia() []string {
	return []string{":", ".", ",", "Solution", "Thought process:", "Let's solve this problem step by step."}
}

// Names of answers that are made of the task.
const (
	cutGold  = "the reference, cut in half"
	echo     = "the question again"
	gold     = "the reference itself"
	probing  = 16  // gradings at once
	passMark = 0.5 // score from which on an answer passes
)

// trial is one answer to one task.
type trial struct {
	name     string
	task     *episode.Task
	text     string
	score    float64
	unjudged error
}

// ProbeTasks is the option.
func (j *Judge) ProbeTasks() int { return j.opt.Probe.Tasks }

// Probe gives the judge trivial answers to tasks. Too many that pass, one that passes on more than half of the tasks, or a reference that does not
// pass on half of them are a *reward.ProbeError.
func (j *Judge) Probe(ctx context.Context, tasks []*episode.Task) (said string, err error) {
	trials := j.trials(tasks)
	j.run(ctx, trials)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return j.judged(trials)
}

func (j *Judge) trials(tasks []*episode.Task) (list []*trial) {
	for _, t := range tasks {
		add := func(name, text string) { list = append(list, &trial{name: name, task: t, text: text}) }
		for _, text := range trivia() {
			add(strconv.Quote(text), text)
		}
		in := probeInput(t, "", "")
		add(echo, strings.TrimSpace(in.Asked()))
		if t.Answer == nil {
			continue
		}
		if runes := []rune(strings.TrimSpace(*t.Answer)); len(runes) > 1 {
			add(cutGold, string(runes[:len(runes)/2]))
		}
		if j.opt.Form == Equal || j.opt.Form == YesNo {
			add(gold, *t.Answer)
		}
	}
	return list
}

func probeInput(t *episode.Task, text, id string) reward.Input {
	return reward.Input{Task: t, Text: text, Said: text != "", Messages: t.Messages, NumPrompt: len(t.Messages), Episode: id}
}

// run grades all trials, some at once.
func (j *Judge) run(ctx context.Context, trials []*trial) {
	room := make(chan struct{}, probing)
	var all sync.WaitGroup
	for i, t := range trials {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			ctx, cancel := context.WithTimeout(ctx, j.opt.Timeout)
			defer cancel()
			f, err := j.Grade(ctx, probeInput(t.task, t.text, fmt.Sprintf("probe-%d", i)))
			t.score, t.unjudged = f.Score, err
		})
	}
	all.Wait()
}

// row is a line of the table.
type row struct {
	name                    string
	passed, judged, refused int
}

// judged draws the conclusion.
func (j *Judge) judged(trials []*trial) (said string, err error) {
	rows, all, ref := table(trials)
	if all.judged == 0 {
		return "", fmt.Errorf("the judge gave no verdict on any of %d trial answers: %w", len(trials), firstFailure(trials))
	}
	share := float64(all.passed) / float64(all.judged)
	said = fmt.Sprintf("%d of %d trivial answers were judged right (allowed are %g %%)", all.passed, all.judged, 100*j.opt.Probe.Most)
	if ref.judged > 0 {
		said += fmt.Sprintf(", and %d of %d references", ref.passed, ref.judged)
	}
	if n := all.refused + ref.refused; n > 0 {
		said += fmt.Sprintf("; no verdict on %d", n)
	}
	bad := share > j.opt.Probe.Most || ref.judged > 0 && 2*ref.passed < ref.judged
	for _, r := range rows {
		bad = bad || r.name != cutGold && r.name != gold && 2*r.passed > r.judged
	}
	if !bad {
		return said, nil
	}
	return "", &reward.ProbeError{Table: fmt.Sprintf("model %s is no judge of these tasks: %s\n%s", j.seat.Name, said, drawn(rows))}
}

// table counts by answer. all is of the trivial ones, ref of the references.
func table(trials []*trial) (rows []*row, all, ref row) {
	byName := map[string]*row{}
	for _, t := range trials {
		r := byName[t.name]
		if r == nil {
			r = &row{name: t.name}
			byName[t.name] = r
			rows = append(rows, r)
		}
		sum := &all
		if t.name == gold {
			sum = &ref
		}
		for _, x := range []*row{r, sum} {
			switch {
			case t.unjudged != nil:
				x.refused++
			case t.score >= passMark:
				x.judged, x.passed = x.judged+1, x.passed+1
			default:
				x.judged++
			}
		}
	}
	return rows, all, ref
}

func drawn(rows []*row) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "  %-42s passed on %d of %d tasks", r.name, r.passed, r.judged)
		if r.refused > 0 {
			fmt.Fprintf(&b, ", no verdict on %d", r.refused)
		}
		b.WriteByte('\n')
	}
	return strings.TrimRight(b.String(), "\n")
}

func firstFailure(trials []*trial) error {
	for _, t := range trials {
		if t.unjudged != nil {
			return t.unjudged
		}
	}
	return nil
}
