package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tranche/episode"
)

// ended is an episode with an answer.
func ended(line int, body string) *episode.Episode {
	return &episode.Episode{ID: fmt.Sprint(line), Status: episode.StatusCompleted, Task: &episode.Task{ID: fmt.Sprint("r", line), Index: int64(line)}, Answer: &episode.Answer{Status: 200, ID: "x", Body: []byte(body)}}
}

// Cut anywhere, a journal gives back whole results only, all of those before the cut, and goes on from there.
func TestBatchJournalCutAnywhere(t *testing.T) {
	dir := t.TempDir()
	head := batchHead{Input: "in", Lines: 3}
	path := filepath.Join(dir, "j")
	j, _, err := openBatchJournal(path, head, nil)
	if err != nil {
		t.Fatal(err)
	}
	ends := []int64{j.size}
	for _, line := range []int{2, 0, 1} {
		if err := j.Write(t.Context(), ended(line, `{"a":`+strings.Repeat("1", line)+`0}`)); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, j.size)
	}
	j.close()
	if err := j.release(false); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) + 1 {
		if near := slices.ContainsFunc(ends, func(end int64) bool { return int64(n)-end <= 1 && end-int64(n) <= 1 }); !near && n%17 != 0 {
			continue // each cut costs a handful of fsyncs
		}
		if err := os.WriteFile(path, whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		j, dropped, err := openBatchJournal(path, head, nil)
		if err != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		want, at := 0, int64(0)
		for i, end := range ends {
			if end <= int64(n) {
				want, at = i, end
			}
		}
		good, _ := j.counts()
		if good != want || at > 0 && dropped != int64(n)-at {
			t.Fatalf("cut at %d: %d results and %d bytes dropped, want %d and %d", n, good, dropped, want, int64(n)-at)
		}
		for line := range head.Lines {
			if !j.done(line) {
				if err := j.Write(t.Context(), ended(line, `{"a":`+strings.Repeat("1", line)+`0}`)); err != nil {
					t.Fatal(err)
				}
			}
		}
		j.close()
		var ids []string
		err = j.each(func(_ bool, text []byte) error {
			var l outputLine
			ids = append(ids, string(text))
			return json.Unmarshal(text, &l)
		})
		if err != nil || len(ids) != 3 || !strings.Contains(ids[2], `"custom_id":"r2","response":{"status_code":200,"request_id":"x","body":{"a":110}}`) {
			t.Fatalf("cut at %d: %v %q", n, err, ids)
		}
		if err := j.release(true); err != nil {
			t.Fatal(err)
		}
	}
}

// What was damaged after it was written is found before it is published.
func TestBatchJournalDamage(t *testing.T) {
	j, _, err := openBatchJournal(filepath.Join(t.TempDir(), "j"), batchHead{Lines: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Write(t.Context(), ended(0, `{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	j.close()
	if _, err := j.file.WriteAt([]byte("9"), j.size-20); err != nil {
		t.Fatal(err)
	}
	if err := j.each(func(bool, []byte) error { return nil }); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("%v", err)
	}
	if err := j.release(true); err != nil {
		t.Fatal(err)
	}
}

func FuzzBatchRecord(f *testing.F) {
	f.Add([]byte("00000000 1 + {}\n"))
	f.Add(appendRecord(nil, 12, true, []byte(`{"a":1}`)))
	f.Fuzz(func(t *testing.T, record []byte) {
		line, failed, text, err := parseRecord(record)
		if err != nil {
			return
		}
		if again := appendRecord(nil, line, failed, text); string(again) != strings.TrimSuffix(string(record), "\n")+"\n" {
			t.Fatalf("%q was read as %q", record, again)
		}
	})
}

// Whatever a line holds, it is refused by name or is a request whose body is those very bytes.
func FuzzBatchLine(f *testing.F) {
	f.Add([]byte(`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"max_tokens":1e9,"n":3}}`))
	f.Add([]byte(`{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":[[1,2],[3]],"max_tokens":-1}}`))
	f.Add([]byte(`{"custom_id":"a","method":"POST","url":"/v1/score","body":{"queries":"q"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		at := episode.Position{File: "f", Line: 1}
		l, bad := batchLine(raw, at, false)
		if (l == nil) == (bad == nil) {
			t.Fatalf("%q: %v, faults %v", raw, l, bad)
		}
		if l == nil {
			return
		}
		task := l.task(at, false)
		r := task.Request
		if task.ID == "" || !bytes.Contains(raw, r.Body) || !json.Valid(r.Body) || r.Most < 0 || r.Most > 1<<30 || r.Route[0] != '/' || len(task.Messages) == 0 && !strings.Contains(string(raw), "messages") {
			t.Fatalf("%q: %+v", raw, r)
		}
	})
}

// One document on one line for every reader, and the same document.
func FuzzOnOneLine(f *testing.F) {
	f.Add([]byte("{\n \"a\": \"\u2028\u0085\u2029\", \"b\":1.0}"))
	f.Add([]byte("{\"a\":\"\xff\"}"))
	f.Add([]byte("[1,\r2]"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		var was any
		if json.Unmarshal(doc, &was) != nil {
			t.Skip()
		}
		line, err := onOneLine(bytes.Clone(doc))
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(string(line), "\n\r\u2028\u2029\u0085\v\f\x1c\x1d\x1e") {
			t.Fatalf("%q became %q", doc, line)
		}
		var is any
		if err := json.Unmarshal(line, &is); err != nil || string(encode(was)) != string(encode(is)) {
			t.Fatalf("%q became %q (%v)", doc, line, err)
		}
	})
}

// kill -9 at any instant, and the same command again: every line has one result, and none that was durable is asked again.
func TestBatchSurvivesKill(t *testing.T) {
	const lines = 500
	inputs := numbered(lines)
	var left atomic.Int64 // requests until the process is killed
	enough := make(chan struct{}, lines)
	e := newEcho(t, func(string) time.Duration {
		if left.Add(-1) == 0 {
			enough <- struct{}{}
		}
		return 5 * time.Millisecond
	})
	in, out := embeddings(t, inputs...), filepath.Join(t.TempDir(), "out.jsonl")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	asked, kills := map[int]int{}, 0
	for tries := 0; ; tries++ {
		if tries > 120 {
			t.Fatal("it does not end")
		}
		cmd := exec.Command(program, "batch", in, "-o", out, "--endpoint", e.URL(), "--concurrency", "4", "--progress", "none")
		var diag bytes.Buffer
		cmd.Args[0], cmd.Stderr = "tranche", &diag // by that name the test binary is the program: TestMain
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// One in four ends at any instant, before its first request or while files are named too; the others get somewhere on a slow machine as well.
		ended := make(chan struct{})
		instant := time.Duration(rnd.IntN(250)) * time.Millisecond
		soon := tries%4 == 3
		left.Store(int64(10 + rnd.IntN(50)))
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			select {
			case <-ended:
				return
			case <-enough:
				time.Sleep(instant / 20)
			case <-when(soon, instant):
			}
			_ = cmd.Process.Kill()
		}()
		err := cmd.Wait()
		close(ended)
		<-killed
		left.Store(0)
		for line, n := range asked {
			if got := e.times(inputs[line]); got != n {
				t.Fatalf("line %d had its result and was asked again", line)
			}
		}
		if err == nil {
			break
		}
		if cmd.ProcessState.Exited() {
			t.Fatalf("%v\n%s", err, diag.String())
		}
		kills++
		asked = durable(t, out, inputs, e)
	}
	t.Logf("killed %d times", kills)
	inOrder(t, results(t, out), inputs)
	nothingLeft(t, out)
	if kills == 0 {
		t.Error("it was never killed: the test shows nothing")
	}
}

// when is a time from now, or never.
func when(set bool, d time.Duration) <-chan time.Time {
	if !set {
		return nil
	}
	return time.After(d)
}

// durable is how often each line was asked whose result the journal or the output holds.
func durable(t *testing.T, out string, inputs []string, e *echo) map[int]int {
	t.Helper()
	asked := map[int]int{}
	raw, err := os.ReadFile(batchJournalPath(out))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for record := range bytes.Lines(raw) {
		if line, _, _, err := parseRecord(record); err == nil && bytes.HasSuffix(record, []byte("\n")) {
			asked[line] = e.times(inputs[line])
		}
	}
	return asked
}
