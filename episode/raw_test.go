package episode

import (
	"bytes"
	"compress/flate"
	"strings"
	"testing"
)

func rawOf(t *testing.T, body string) *Raw {
	t.Helper()
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte(body))
	_ = w.Close()
	return &Raw{Status: 200, Bytes: int64(len(body)), Held: int64(len(body)), Deflated: out.Bytes()}
}

// Raw answers are numbered by their turn, the failed one last, and bounded together.
func TestRawAnswersOfAnEpisode(t *testing.T) {
	e := begin(Budget{})
	big := strings.Repeat("x", MaxRawBytes/2)
	calls := []ToolCall{{ID: "a"}}
	for _, body := range []string{"first", big, big} {
		e.AddReply(&Reply{Message: Message{Role: RoleAssistant, ToolCalls: calls}, Finish: FinishToolCalls, Raw: rawOf(t, body)}, Turn{})
	}
	e.AddReply(&Reply{Message: Message{Role: RoleAssistant, ToolCalls: calls}, Finish: FinishToolCalls}, Turn{}) // none was kept
	failed := rawOf(t, "last")
	failed.Class = ClassServerError
	e.Fail(&Fault{Stage: StageModel, Class: ClassServerError, Raw: failed})
	if len(e.Raw) != 4 {
		t.Fatalf("%d raw answers", len(e.Raw))
	}
	for i, want := range []struct {
		turn  int16
		body  string
		bytes int
	}{{0, "first", 5}, {1, big, len(big)}, {2, "", len(big)}, {4, "last", 4}} {
		body, err := e.Raw[i].Body()
		if err != nil || string(body) != want.body || e.Raw[i].Turn != want.turn || e.Raw[i].Bytes != int64(want.bytes) {
			t.Errorf("answer %d: turn %d, %d bytes, %d held, %v", i, e.Raw[i].Turn, e.Raw[i].Bytes, len(body), err)
		}
	}
	if e.Raw[3].Class != ClassServerError || e.Raw[0].Class != "" {
		t.Errorf("classes %q, %q", e.Raw[0].Class, e.Raw[3].Class)
	}
	if _, err := (Raw{Held: 1, Deflated: []byte("no")}).Body(); err == nil {
		t.Error("what was never deflated was inflated")
	}
}

// What was taken out of the content goes out as it came, and is stored apart.
func TestTaggedReasoningGoesOutAsItCame(t *testing.T) {
	for name, c := range map[string]struct {
		m    Message
		want string
	}{
		"closed":           {Message{Content: Ptr("\na"), ReasoningContent: Ptr("r"), Tagged: &Tagged{"<think>", true}}, "<think>r</think>\na"},
		"cut":              {Message{ReasoningContent: Ptr("r"), Tagged: &Tagged{" <think>", false}}, " <think>r"},
		"by the template":  {Message{Content: Ptr("a"), ReasoningContent: Ptr("r"), Tagged: &Tagged{"", true}}, "r</think>a"},
		"with broken call": {Message{Content: Ptr(""), ReasoningContent: Ptr("r"), Tagged: &Tagged{"<think>", true}, ToolCalls: []ToolCall{{}}}, "<think>r</think>"},
	} {
		if sent := c.m.Sendable(); sent.Text() != c.want || sent.ReasoningContent != nil {
			t.Errorf("%s: %q", name, sent.Text())
		}
		if *c.m.ReasoningContent != "r" {
			t.Errorf("%s: the stored message was changed", name)
		}
	}
	plain := Message{Content: Ptr("a"), ReasoningContent: Ptr("r")}
	if sent := plain.Sendable(); sent.Text() != "a" || *sent.ReasoningContent != "r" {
		t.Errorf("reasoning of its own field goes out as %+v", sent)
	}
}
