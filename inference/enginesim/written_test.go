package enginesim

import (
	"fmt"
	"strings"
	"testing"
)

// told is a conversation in which the tools stand in the system message, as texts.
func told(t testing.TB, question string) []chatMessage {
	rows := make([]string, 0, 2)
	for _, d := range tools(t, calcTools) {
		rows = append(rows, string(d.raw))
	}
	return []chatMessage{says("system", "You can use these tools:\n<tools>\n"+strings.Join(rows, "\n")+"\n</tools>\nTo use one, write …"), says("user", question)}
}

// In each form the model calls the calculator, takes the result from a user's message, and hands in the right number about as often as it is
// told to.
func TestWrittenCallsPlayTheGame(t *testing.T) {
	between := func(text, open, end string) (string, bool) {
		_, rest, ok := strings.Cut(text, open)
		body, _, closed := strings.Cut(rest, end)
		return body, ok && closed
	}
	forms := map[WrittenCalls]struct {
		call, callEnd, hand, handEnd string
	}{
		WritesTags:     {"<calculator>", "</calculator>", "<answer>", "</answer>"},
		WritesPython:   {"{\"expression\": \"", "\"}", "<answer>", "</answer>"},
		WritesFenced:   {"{\"expression\": \"", "\"}", "{\"answer\": \"", "\"}"},
		WritesToolCall: {"{\"expression\": \"", "\"}", "{\"answer\": \"", "\"}"},
	}
	for form, marks := range forms {
		t.Run(string(form), func(t *testing.T) {
			p := testPolicy(NewTokenizer())
			p.calls = form
			right, overran := 0, 0
			const games = 120
			for draw := range uint64(games) {
				messages := told(t, "What is 12 * 7 + 5?")
				for range 6 {
					m, a := reply(p, messages, nil, draw)
					if len(m.ToolCalls) > 0 || a.finish != "stop" {
						t.Fatalf("a tool call of the server's, or cut: %+v", m)
					}
					text := m.Content.text()
					if before, _, over := strings.Cut(text, form.result()); over {
						overran++
						text = before
					}
					if answer, ok := between(text, marks.hand, marks.handEnd); ok {
						if answer == "89" {
							right++
						}
						break
					}
					expression, ok := between(text, marks.call, marks.callEnd)
					f, found := findFormula(expression)
					if !ok || !found {
						t.Fatalf("draw %d: no call in %q", draw, text)
					}
					closing := "</output>"
					if form.result() != "<output>" {
						closing = "```"
					}
					messages = append(messages, says("assistant", text), says("user", form.result()+"\n"+decimal(f.value)+"\n"+closing))
				}
			}
			if share := float64(right) / games; share < 0.55 || share > 0.85 {
				t.Errorf("%.2f of the answers are right, want about 0.7", share)
			}
			if overran == 0 || overran > games {
				t.Errorf("%d answers made up a result", overran)
			}
		})
	}
}

// Without the switch such tools are text like any other.
func TestWrittenCallsAreSwitchedOn(t *testing.T) {
	p := testPolicy(NewTokenizer())
	for draw := range uint64(20) {
		if m, _ := reply(p, told(t, "What is 12 * 7 + 5?"), nil, draw); strings.Contains(m.Content.text(), "<calculator>") || strings.Contains(m.Content.text(), "```tool") {
			t.Fatal(m.Content.text())
		}
	}
	if err := (Config{Calls: "morse"}).Validate(); err == nil || !strings.Contains(fmt.Sprint(err), "Calls is \"morse\"") {
		t.Errorf("an unknown form: %v", err)
	}
}
