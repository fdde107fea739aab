package main

import (
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
