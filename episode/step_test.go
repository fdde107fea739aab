package episode

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// played is an episode after some turns, with the steps that made it.
func played(turns int) (*Episode, *Begun) {
	e := begin(Budget{})
	b := &Begun{Attempt: 1, Created: time.Unix(5, 0), Opening: e.Opening()}
	for range turns {
		r := &Reply{Message: Message{Role: RoleAssistant, ToolCalls: []ToolCall{{ID: "c"}}}, PromptIDs: append(slices.Clone(e.Tokens.IDs), 1, 2), SampledIDs: []int32{3}}
		s := e.Step(r, Turn{})
		e.AddReply(r, Turn{})
		s.Seen = []Observation{{CallID: "c", Text: "seen"}}
		e.AddObservation(s.Seen[0])
		b.Steps = append(b.Steps, s)
	}
	return e, b
}

// An episode that cannot be what it was begins again, whole and as the next attempt, and says why.
func TestRebuildRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(e *Episode, b *Begun)
		why    string // "" = it goes on
		turns  int
	}{
		"nothing changed":       {func(*Episode, *Begun) {}, "", 3},
		"another priority":      {func(e *Episode, _ *Begun) { e.Sampling.Priority = 7 }, "", 3},
		"another prompt":        {func(e *Episode, _ *Begun) { e.Messages[0].Content = Ptr("other") }, "another prompt", 0},
		"another temperature":   {func(e *Episode, _ *Begun) { e.Sampling.Temperature = Ptr(0.1) }, "other sampling parameters", 0},
		"another task":          {func(e *Episode, _ *Begun) { e.Task.Hash = "other" }, "another prompt", 0},
		"a step of another":     {func(_ *Episode, b *Begun) { b.Steps[1].Same = 99 }, "turn 1: it does not go on", 0},
		"a step without reply":  {func(_ *Episode, b *Begun) { b.Steps[0].Reply = nil }, "turn 0", 0},
		"a step behind the end": {func(_ *Episode, b *Begun) { b.Steps[0].Seen[0].Done = true }, "it ended there (submit)", 0},
		"no steps":              {func(_ *Episode, b *Begun) { b.Steps = nil }, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, b := played(3)
			e := begin(Budget{})
			e.Begun = b
			c.change(e, b)
			before := len(e.Messages)
			err := e.Rebuild()
			if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
				t.Errorf("%v, want %q", err, c.why)
			}
			if len(e.Turns) != c.turns || e.Begun != nil || !e.Open() {
				t.Errorf("%d turns, want %d; begun %v, stop %s", len(e.Turns), c.turns, e.Begun, e.Stop)
			}
			if c.turns == 0 && (e.Attempt != 2 || len(e.Messages) != before || e.Tokens.Len() > 0 || len(e.Flags) > 0 || !e.Created.IsZero()) {
				t.Errorf("it does not begin as it should: %+v", e)
			}
			if c.turns > 0 && (e.Attempt != 1 || !slices.Contains(e.Flags, FlagResumed) || !e.Created.Equal(b.Created)) {
				t.Errorf("attempt %d, flags %v, created %v", e.Attempt, e.Flags, e.Created)
			}
		})
	}
}

// The task's own messages are shared by all its episodes: a rebuilt one adds to none of them.
func TestRebuildSharesNothing(t *testing.T) {
	task := &Task{ID: "t", Messages: append(make([]Message, 0, 8), Message{Role: RoleUser, Content: Ptr("q")})}
	var made [2]*Episode
	for i := range made {
		_, b := played(2)
		e := New("run", Draw{Task: task, Samples: 2}, i, Sampling{TokenIDs: true}, Budget{}, time.Time{})
		e.Messages = task.Messages // as a prompt variant is set
		b.Opening = e.Opening()
		b.Steps[0].Reply.Message.Content = Ptr(strings.Repeat("x", i+1))
		e.Begun = b
		if err := e.Rebuild(); err != nil {
			t.Fatal(err)
		}
		made[i] = e
	}
	if one, two := made[0].Messages[1].Text(), made[1].Messages[1].Text(); one != "x" || two != "xx" || len(task.Messages) != 1 {
		t.Errorf("they share their messages: %q and %q", one, two)
	}
}
