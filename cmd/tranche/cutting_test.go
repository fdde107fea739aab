package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"tranche/inference/enginesim"
	"tranche/storage"
)

// storyFile is tasks whose answers are free text of very different lengths.
func storyFile(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":\"t%d\",\"prompt\":\"Tell me story %d: héllo 世界.\"}\n", i, i)
	}
	return write(t, "tasks.jsonl", b.String())
}

// said is what a row keeps of what the model said.
func said(r *storage.Row) []any {
	return []any{r.Messages, r.TokenIDs, r.LossMask, r.Logprobs, r.NumOutputTokens, r.Status, r.StopReason}
}

// Answers that are cut where their batch is, in lists, and gone on with from their token ids, are the answers that come at one go: texts, ids, masks,
// log-probabilities and counts, whatever cut them.
func TestCutAnswersAreTheSameRows(t *testing.T) {
	tasks := storyFile(t, 48)
	engine, err := enginesim.New(enginesim.Config{Seed: 5, Batching: enginesim.Static, MaxSeqs: 8, LengthMean: 200, LengthSigma: 1})
	if err != nil {
		t.Fatal(err)
	}
	server, err := engine.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close(t.Context()) })
	run := func(flags ...string) (map[string]*storage.Row, *cuttingReport) {
		dir, s := newRunDir(t), newShell(t)
		args := append([]string{"run", tasks, "-o", dir, "--temperature", "0", "--endpoint", "http://" + server.Addr(), "--json", "--reward", "none",
			"--token-ids", "--logprobs", "--max-tokens", "400"}, flags...)
		s.do(codeOK, args...)
		return rowsIn(t, dir), s.document().Run.Session.Cutting
	}
	whole, none := run("--padded", "8", "--uncut")
	cut, report := run("--padded", "8")
	if none != nil || report == nil || report.Cuts < 20 || report.Again == 0 || report.Remade != 0 {
		t.Fatalf("cut %+v, uncut %+v", report, none)
	}
	long := 0
	for key, w := range whole {
		if !reflect.DeepEqual(said(w), said(cut[key])) {
			t.Errorf("%s: cut %v\nat one go %v", key, said(cut[key]), said(w))
		}
		if *w.StopReason == "length" {
			long++
		}
	}
	if long == 0 || long == len(whole) || len(cut) != 48 {
		t.Errorf("%d of %d rows end at their limit, %d where answers are cut: this shows little", long, len(whole), len(cut))
	}
}

// A server that does not go on from token ids gets every answer at one go, and the user is told why.
func TestServersThatCannotGoOnAreNotAskedTo(t *testing.T) {
	server := answering(t, 0)
	dir, s := newRunDir(t), newShell(t)
	s.do(codeOK, "run", taskFile(t, 12, ""), "-o", dir, "--endpoint", server.URL(), "--padded", "4", "--json", "--reward", "none")
	if got := s.document().Run.Session.Cutting; got != nil {
		t.Errorf("%+v", got)
	}
	if said := s.err.String(); !strings.Contains(said, "answers are made at one go") || !strings.Contains(said, "without token ids") {
		t.Errorf("stderr: %s", said)
	}
}
