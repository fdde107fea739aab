package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tranche/internal/mock"
	"tranche/reward/judge"
)

// judgeServer answers a judge's prompts; what the policy asks goes to the embedded engine.
func judgeServer(t *testing.T, handler mock.Handler) string {
	return mock.New(t, mock.Config{Chat: handler}).URL()
}

func judgeSettings(t *testing.T, url, probe string) string {
	return write(t, "run.yaml", fmt.Sprintf("limit: 6\nreward:\n- {kind: judge, name: j, endpoint: [{url: %q}], timeout: 5s, probe: %s}\n- {kind: auto, name: rule, weight: 0}\n", url, probe))
}

// A judge that says yes to everything is refused before anything is written, with the table of what passed.
func TestJudgeThatSaysYesIsRefused(t *testing.T) {
	url := judgeServer(t, func(r *mock.Request, w *mock.Reply) { mock.Text("Verdict: yes").Send(r, w) })
	s := newShell(t)
	dir := newRunDir(t)
	s.do(codeUsage, "run", arithmetic, "-c", judgeSettings(t, url, "{tasks: 3}"), "-o", dir)
	for _, want := range []string{"24 of 24 trivial answers", "Thought process:", "passed on 3 of 3 tasks", "no run was begun"} {
		if !strings.Contains(s.err.String(), want) {
			t.Errorf("stderr lacks %q:\n%s", want, s.err.String())
		}
	}
	if len(rowsIfAny(dir)) > 0 {
		t.Errorf("%s was begun", dir)
	}
}

func rowsIfAny(dir string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, "*"))
	return found
}

// A judge that fails, or says nothing that can be read, leaves no 0 and takes nothing else with it.
func TestJudgeFailureIsNoVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		handler mock.Handler
		outcome string
	}{
		"400":     {func(_ *mock.Request, w *mock.Reply) { w.JSON(400, `{"error":{"message":"no"}}`) }, "no_verdict: " + judge.Failed},
		"garbage": {func(r *mock.Request, w *mock.Reply) { mock.Text("perhaps").Send(r, w) }, "no_verdict: " + judge.Unread},
		"hung":    {func(_ *mock.Request, w *mock.Reply) { w.Hang() }, "no_verdict: score_timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t)
			dir := newRunDir(t)
			s.do(codeOK, "run", arithmetic, "-c", judgeSettings(t, judgeServer(t, c.handler), "{tasks: 0}"), "-o", dir, "-q")
			for key, row := range rowsIn(t, dir) {
				if row.Reward != nil || row.Rewards[0].Score != nil || *row.Rewards[0].Outcome != c.outcome || row.Rewards[1].Score == nil {
					t.Errorf("%s: reward %v, %+v", key, row.Reward, row.Rewards[0])
				}
			}
		})
	}
}

// Where files and servers are is no part of a run's identity; what is in them is.
func TestIdentityOfGraders(t *testing.T) {
	of := func(kind string, with Object) string {
		s := Settings{Reward: RewardSpecs{{Kind: kind, With: with}}}
		return string(encode(s.Reward.decides()))
	}
	text := func(v any) json.RawMessage { return encode(v) }
	a, b, c := write(t, "g.py", "x"), write(t, "g.py", "x"), write(t, "g.py", "y")
	if of("python", Object{"file": text(a)}) != of("python", Object{"file": text(b)}) || of("python", Object{"file": text(a)}) == of("python", Object{"file": text(c)}) {
		t.Error("a Python file counts by where it is, not by what is in it")
	}
	if of("command", Object{"run": text([]string{"x"}), "dir": text("/a")}) != of("command", Object{"run": text([]string{"x"}), "dir": text("/b")}) {
		t.Error("the folder of a program counts")
	}
	server := func(url, model string) Object {
		return Object{"endpoint": text([]judge.Endpoint{{URL: url, Model: model}})}
	}
	if of("judge", server("http://a/v1", "m")) != of("judge", server("http://b/v1", "m")) || of("judge", server("http://a/v1", "m")) == of("judge", server("http://a/v1", "n")) {
		t.Error("a judge counts by its server, not by its model")
	}
}

// The examples run: the judge agrees with the rule, and the graders of the user's own give a verdict on every row.
func TestGraderExamples(t *testing.T) {
	s := newShell(t)
	dir := newRunDir(t)
	s.do(codeOK, "run", "-c", "../../examples/judge/run.yaml", "-o", dir, "-q", "--json")
	for key, row := range rowsIn(t, dir) {
		if row.Reward == nil || len(row.Rewards) != 3 || *row.Rewards[0].Score != *row.Rewards[2].Score || row.Rewards[0].PromptTokens == nil {
			t.Errorf("%s: %+v", key, row.Rewards)
		}
	}
	if !strings.Contains(s.out.String(), `"judge"`) {
		t.Errorf("the summary lacks the judge:\n%s", s.out.String())
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not there")
	}
	s, dir = newShell(t), newRunDir(t)
	s.do(codeOK, "run", "-c", "../../examples/own-grader/run.yaml", "-o", dir, "-q")
	for key, row := range rowsIn(t, dir) {
		if row.Reward == nil || len(row.Rewards) != 2 || row.Rewards[1].Score == nil || len(row.Credits) != 1 {
			t.Errorf("%s: %+v", key, row.Rewards)
		}
	}
}
