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

// Every call of a message goes back under an id of its own.
func TestCallsWithoutIDsGetSome(t *testing.T) {
	for name, c := range map[string]struct {
		came, want []string
		made       bool
	}{
		"ids":      {[]string{"a", "b"}, []string{"a", "b"}, false},
		"none":     {[]string{"", ""}, []string{"call00300", "call00301"}, true},
		"one id":   {[]string{"A", "A"}, []string{"A", "call00301"}, true},
		"in use":   {[]string{"call00301", ""}, []string{"call00301", "call00302"}, true},
		"no calls": {nil, nil, false},
	} {
		var m Message
		for _, id := range c.came {
			m.ToolCalls = append(m.ToolCalls, ToolCall{ID: id})
		}
		named, made := withCallIDs(m, 3)
		var got, kept []string
		for i := range named.ToolCalls {
			got, kept = append(got, named.ToolCalls[i].ID), append(kept, m.ToolCalls[i].ID)
		}
		if !slices.Equal(got, c.want) || made != c.made || !slices.Equal(kept, c.came) || (named.ToolCalls == nil) != (c.came == nil) {
			t.Errorf("%s: %v, %v; the reply itself has %v", name, got, made, kept)
		}
	}
}
