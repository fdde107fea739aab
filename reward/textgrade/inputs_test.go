package textgrade

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"tranche/episode"
	"tranche/reward"
)

// grader makes one of a kind with options.
func grader(t testing.TB, kind, options string) reward.Grader {
	t.Helper()
	for _, k := range Kinds() {
		if k.Name == kind {
			g, err := k.Make(reward.Spec{Kind: kind, With: json.RawMessage(options)})
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
	}
	t.Fatalf("no kind %s", kind)
	return nil
}

// answered is an episode in which the model said a text.
func answered(task *episode.Task, text string) reward.Input {
	msgs := append(append([]episode.Message{}, task.Messages...), episode.Message{Role: episode.RoleAssistant, Content: &text})
	return reward.Input{Task: task, Text: text, Said: true, Messages: msgs, NumPrompt: len(task.Messages)}
}

// called is an episode in which the model made calls, all in one message.
func called(task *episode.Task, calls ...episode.ToolCall) reward.Input {
	msgs := append(append([]episode.Message{}, task.Messages...), episode.Message{Role: episode.RoleAssistant, ToolCalls: calls})
	return reward.Input{Task: task, Messages: msgs, NumPrompt: len(task.Messages)}
}

func toolCall(name, args string) episode.ToolCall {
	return episode.ToolCall{ID: "c", Type: "function", Function: episode.Function{Name: name, Arguments: args}}
}

func asked(prompt, answer, extra string) *episode.Task {
	t := &episode.Task{ID: "t", Messages: []episode.Message{{Role: episode.RoleUser, Content: &prompt}}, Extra: json.RawMessage(extra)}
	if answer != "" {
		t.Answer = &answer
	}
	return t
}

func score(t testing.TB, g reward.Grader, in reward.Input) float64 {
	t.Helper()
	f, err := g.Grade(context.Background(), in)
	if err != nil {
		t.Fatalf("no verdict: %v", err)
	}
	return f.Score
}

// reason is why there is no verdict, "" = there is one.
func reason(t testing.TB, g reward.Grader, in reward.Input) string {
	t.Helper()
	_, err := g.Grade(context.Background(), in)
	var u *reward.Unjudged
	if err != nil && !errors.As(err, &u) {
		t.Fatalf("a failure of its own: %v", err)
	}
	if u == nil {
		return ""
	}
	return u.Reason
}

func part(t testing.TB, f reward.Finding, name string) float64 {
	t.Helper()
	for _, p := range f.Parts {
		if p.Name == name && p.Score != nil {
			return *p.Score
		}
	}
	t.Fatalf("no part %s in %+v", name, f.Parts)
	return 0
}

// rows reads a file of the real data.
func rows[T any](t testing.TB, path string) (list []T) {
	t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(cmp.Or(os.Getenv("TRANCHE_DATA"), "../../../shared/data"), path)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Skipf("no data at %s; set TRANCHE_DATA to the folder of the real data sets", path)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var row T
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		list = append(list, row)
	}
	if lines.Err() != nil || len(list) == 0 {
		t.Fatalf("%s: %d rows, %v", path, len(list), lines.Err())
	}
	return list
}
