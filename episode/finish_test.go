package episode

import (
	"slices"
	"testing"
	"time"
)

// Why an answer ended is what the server said, and nothing where it said nothing.
func TestStopIsNotGuessed(t *testing.T) {
	text := "42"
	for name, c := range map[string]struct {
		reply   Reply
		want    Stop
		flagged bool
	}{
		"stop":           {Reply{Finish: FinishStop}, StopStop, false},
		"none":           {Reply{}, StopUnknown, true},
		"content filter": {Reply{Finish: FinishOther}, StopOther, false},
		"passed on":      {Reply{Answer: &Answer{Status: 200}}, StopStop, false},
	} {
		e := New("run", Draw{Task: &Task{ID: "t"}, Samples: 1}, 0, Sampling{}, Budget{}, time.Now())
		c.reply.Message = Message{Role: RoleAssistant, Content: &text}
		e.AddReply(&c.reply, Turn{})
		if e.Stop != c.want || e.Status != StatusCompleted || slices.Contains(e.Flags, FlagFinishMissing) != c.flagged {
			t.Errorf("%s: stop %s, status %s, flags %v", name, e.Stop, e.Status, e.Flags)
		}
	}
}
