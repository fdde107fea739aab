package main

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"tranche/storage"
)

// failedRow has something in every place the view knows.
func failedRow() *storage.Row {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ended := at.Add(1500 * time.Millisecond)
	tool := storage.ToolCall{ID: "c1", Type: "function", Function: storage.Function{Name: "calculator", Arguments: `{"expression": "1 +`}}
	return &storage.Row{
		EpisodeID: "abc123", TaskID: "t1", DataSource: "maths", SampleIndex: 1, GroupSize: 4, NumPromptMessages: 1, NumTurns: 1,
		Model: ptrTo("m"), Status: ptrTo("failed"), StopReason: ptrTo("fault"),
		Messages: []storage.Message{
			{Role: ptrTo("user"), Content: ptrTo("What is\x1b[31m 1 + 1?")},
			{Role: ptrTo("assistant"), ReasoningContent: ptrTo("let me think"), ToolCalls: []storage.ToolCall{tool}},
			{Role: ptrTo("tool"), Name: ptrTo("calculator"), ToolCallID: ptrTo("c1"), Content: ptrTo("")},
		},
		Turns:       []storage.Turn{{PromptTokens: ptrTo(int32(12)), FinishReason: ptrTo("tool_calls"), Endpoint: ptrTo("a:1"), ServiceMS: ptrTo(float32(1234)), Retries: 2}},
		Actions:     []storage.Action{{CallID: ptrTo("c1"), Name: ptrTo("calculator"), Status: ptrTo("bad_args"), OutBytes: 99, Truncated: true}},
		Rewards:     []storage.Reward{{Name: ptrTo("numeric"), Weight: 1, Outcome: ptrTo("no_verdict: not_graded"), Grader: ptrTo("numeric/1"), Evidence: ptrTo("nothing to look at")}},
		RewardModel: storage.RewardModel{GroundTruth: ptrTo("2")},
		FaultStage:  ptrTo("model"), FaultClass: ptrTo("timeout"), FaultDetail: ptrTo("no answer in 1.5s"), Partial: ptrTo("half a"),
		FaultAttempts: []storage.Attempt{{Endpoint: ptrTo("a:1"), Class: ptrTo("timeout"), Began: &at, Ended: &ended, Cause: ptrTo("deadline")}},
		Flags:         []string{"usage_missing"},
	}
}

func TestTrajectoryShowsEverything(t *testing.T) {
	p := &printer{width: 80}
	p.trajectory(failedRow())
	got := p.b.String()
	for _, want := range []string{
		"episode abc123", "task t1 · maths · sample 2 of 4 · m", "failed", "reward none (no verdict)", "tokens in unknown, out unknown",
		"▌ user (prompt)", "▌ assistant", "thinking:", "let me think", "→ calculator(id c1)", `{"expression": "1 +`,
		"turn 1 · 12 in, unknown out · finish tool_calls · a:1 · queue unknown, first token unknown, service 1.23s · after 2 failed attempts",
		"▌ tool calculator", "(empty)", "bad_args · unknown · 99 bytes, cut", "expected:  2",
		"reward numeric: none (no verdict) · weight 1 · no_verdict: not_graded · numeric/1", "nothing to look at",
		"fault: timeout at stage model", "no answer in 1.5s", "attempt 1: timeout at a:1, began 03:04:05.000, took 1.5s", "deadline",
		"text received before the failure:", "half a", "flags: usage_missing",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Errorf("a control character of a message reached the terminal:\n%q", got)
	}
	p = &printer{width: 80, colour: true}
	p.trajectory(failedRow())
	if n := strings.Count(p.b.String(), "\x1b[31m"); n != 2 { // the status and the fault; not the message's own
		t.Errorf("%d times red, want 2", n)
	}
}

// Wrapping loses no character but the space it breaks at, and no line is wider than asked for.
func TestWrapLosesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("ab cdé漢 ")), 0, 200, -1).Draw(rt, "text")
		width := rapid.IntRange(20, 60).Draw(rt, "width")
		lines := wrap(text, width)
		for _, l := range lines {
			if utf8.RuneCountInString(l) > width {
				rt.Fatalf("%q is wider than %d", l, width)
			}
		}
		squeeze := func(s string) string { return strings.ReplaceAll(s, " ", "") }
		if got := strings.Join(lines, ""); squeeze(got) != squeeze(text) {
			rt.Fatalf("%q became %q", text, lines)
		}
	})
}

func TestSummaryNeverShowsAMeanAlone(t *testing.T) {
	cases := []struct {
		name    string
		rewards []*float64
		want    string
	}{
		{"nothing scored", []*float64{nil, nil}, "none: no verdict on any of 2 rows"},
		{"one", []*float64{ptrTo(0.5)}, "mean 0.5000, n=1 scored of 1 rows (coverage 100.0%)"},
		{"zero is a score, null is not", []*float64{ptrTo(0.0), ptrTo(1.0), nil, nil}, "mean 0.5000 ± 0.5000 (standard error), n=2 scored of 4 rows (coverage 50.0%)"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var sum storage.Summary
			for _, r := range c.rewards {
				sum.Add(&storage.Row{Status: ptrTo("completed"), Reward: r})
			}
			if got := meanText(sum.Reward); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestTokenCounts(t *testing.T) {
	for _, c := range []struct {
		sum, unknown, good int64
		want               string
	}{{10, 0, 2, "10"}, {0, 0, 0, "0"}, {0, 3, 3, "unknown"}, {10, 1, 3, "10 + unknown of 1 rows"}} {
		if got := tokenCount(c.sum, c.unknown, c.good); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestSelectionKeepsTheFirst(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := viewCmd{Best: true}
		top := selection{limit: rapid.IntRange(1, 5).Draw(rt, "limit"), before: c.order()}
		best := -1.0
		n := rapid.IntRange(1, 20).Draw(rt, "n")
		for range n {
			v := float64(rapid.IntRange(0, 4).Draw(rt, "reward")) / 4
			best = max(best, v)
			top.add(&storage.Row{Reward: &v})
		}
		if len(top.rows) != min(n, top.limit) || *top.rows[0].Reward != best {
			rt.Fatalf("%d rows, the first has %v; the best is %v", len(top.rows), *top.rows[0].Reward, best)
		}
		for i := 1; i < len(top.rows); i++ {
			if *top.rows[i].Reward > *top.rows[i-1].Reward {
				rt.Fatal("not in order")
			}
		}
	})
}

func TestPathsAreSafeToPaste(t *testing.T) {
	for in, want := range map[string]string{"runs/x-1": "runs/x-1", "my run": "'my run'", "it's": `'it'\''s'`, "$(x)": "'$(x)'"} {
		if got := quoted(in); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}

func TestCallsAtOnce(t *testing.T) {
	for _, c := range []struct{ endpoint, run, sequences, want int }{
		{8, 512, 16, 8}, {0, 512, 16, 512}, {0, 0, 16, 16}, {0, 0, 0, 64}, {0, 0, 1 << 20, maxGuessedCalls},
	} {
		if got, why := callsAtOnce(c.endpoint, c.run, c.sequences); got != c.want || why == "" {
			t.Errorf("%+v: %d (%s)", c, got, why)
		}
	}
}

func TestProgramName(t *testing.T) {
	for in, want := range map[string]string{"tranche": "tranche", "./tranche": "./tranche", "/tmp/go-build123/b001/exe/tranche": "go run ./cmd/tranche"} {
		if got := programName(in); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}

// foreign is what a server or a task file may put into any text: a colour, a title, a C1 sequence, a bidirectional override.
const foreign = "\x1b[31m\x1b]0;gotcha\a\u009b2J\u202e\nx"

// Whatever column a text stands in, none of it reaches the terminal.
func TestNoColumnSteersTheTerminal(t *testing.T) {
	row := failedRow()
	poison(reflect.ValueOf(row))
	for _, colour := range []bool{false, true} {
		p := &printer{width: 80, colour: colour}
		p.trajectory(row)
		checkTerminal(t, p.b.String(), colour)
	}
	var sum storage.Summary
	sum.Add(row)
	sum.Add(&storage.Row{DataSource: "b" + foreign, Status: ptrTo("completed")})
	r := &report{
		State: stateIncomplete, RunID: foreign, Dir: foreign, Model: foreign, Ended: foreign, Total: 3, Left: 1, Dataset: sum, Notes: []string{foreign}, program: "tranche",
		Files: filesIn(foreign), Session: &sessionReport{Endpoints: []endpointReport{{Name: foreign, Model: foreign}}},
	}
	checkTerminal(t, r.text(false), false)
	checkTerminal(t, r.text(true), true)
}

// poison puts foreign text into every text of a row.
func poison(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + foreign)
	case reflect.Pointer:
		if !v.IsNil() {
			poison(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				poison(v.Field(i))
			}
		}
	}
}

func checkTerminal(t *testing.T, text string, colour bool) {
	t.Helper()
	if colour { // our own
		text = regexp.MustCompile("\x1b\\[[0-9]+m").ReplaceAllString(text, "")
	}
	if !strings.Contains(text, "gotcha") {
		t.Error("the text was dropped, not cleaned")
	}
	if at := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && steers(r) }); at >= 0 {
		t.Errorf("%q reaches the terminal", text[max(0, at-60):min(len(text), at+20)])
	}
}

func TestNoticesErrorsAndProgressAreCleaned(t *testing.T) {
	s := newShell(t)
	s.app.notice("endpoint %s", foreign)
	s.app.report(errors.New("the server said " + foreign))
	p := &progress{out: &s.err, width: s.app.width, snap: func() snapshot { return snapshot{endpoints: []endpointLoad{{name: foreign}}} }}
	p.draw()
	checkTerminal(t, s.err.String(), false)
	checkTerminal(t, visible((&dryRunReport{Request: []byte(`{"x":"gotcha` + "\u009b" + `"}`), Endpoints: []dryEndpoint{{Name: foreign}}}).text()), false)
}

// The JSON is valid and the same document, whatever numbers and characters are in it.
func TestJSONIsAlwaysValid(t *testing.T) {
	row := failedRow()
	row.TaskID = foreign
	inf, nan := float32(math.Inf(-1)), float32(math.NaN())
	row.Logprobs = []*float32{ptrTo(float32(-0.5)), &inf, &nan, nil}
	row.Advantage, row.Rewards[0].Score = ptrTo(math.Inf(1)), ptrTo(math.NaN())
	s := newShell(t)
	if err := (&viewCmd{JSON: true}).show(s.app, []*storage.Row{row}); err != nil {
		t.Fatal(err)
	}
	checkTerminal(t, s.out.String(), false)
	var doc struct{ Episodes []storage.Row }
	if err := json.Unmarshal(s.out.Bytes(), &doc); err != nil {
		t.Fatalf("%v\n%s", err, s.out.String())
	}
	got := doc.Episodes[0]
	if got.TaskID != foreign || len(got.Logprobs) != 4 || *got.Logprobs[0] != -0.5 || got.Logprobs[1] != nil || got.Logprobs[2] != nil || got.Advantage != nil {
		t.Errorf("task %q, logprobs %v, advantage %v", got.TaskID, got.Logprobs, got.Advantage)
	}
	var sum storage.Summary
	for _, v := range []float64{math.MaxFloat64, -math.MaxFloat64} {
		sum.Add(&storage.Row{Status: ptrTo("completed"), Reward: &v})
	}
	if err := s.app.printJSON(document{sum, &report{StdErr: stdError(sum.Reward)}}); err != nil {
		t.Errorf("huge rewards: %v", err)
	}
}
