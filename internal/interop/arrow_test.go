package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tranche/episode"
	"tranche/storage"
	"tranche/storage/arrowrows"
)

// everyKind returns episodes that have what a row can have: breaks of the prompt, logprobs of -inf, credits of turns, actions, raw answers.
func everyKind() []*episode.Episode {
	eps := append(handMade("plain", false, 12), handMade("calls", true, 12)...)
	for i, e := range eps {
		switch i % 6 {
		case 1:
			e.Tokens.Logprobs[2] = episode.Logprob{Value: float32(math.Inf(-1)), Known: true}
		case 2:
			e.Tokens.Breaks = []episode.Broken{{Turn: 1, At: 2, Tokens: e.Tokens}}
			e.Tokens.Break = episode.Ptr(int32(2))
		case 3:
			score := 0.5
			e.Verdict = episode.Verdict{Total: &score, Credit: []float64{1, math.NaN()},
				Rewards: []episode.Reward{{Name: "process", Score: &score, Weight: 1, Outcome: episode.Scored, Credit: []float64{1, math.NaN()}}, {Name: "none"}}}
		case 4:
			e.Actions = []episode.ActionRecord{{Turn: 0, CallID: "c", Name: "f", Status: "ok", ExitCode: episode.Ptr(int32(0)), Wall: time.Second, Footprint: &episode.Footprint{}}}
			e.Raw = []episode.Raw{{Turn: 0, Status: 200, Bytes: 3}}
		case 5:
			e.Submitted = episode.Ptr("")
			e.Tokens = episode.Tokens{}
		}
	}
	return eps
}

// TestArrowIsWhatParquetIs has pyarrow, polars and DuckDB compare an IPC file and a stream with the parts that the rows come from.
func TestArrowIsWhatParquetIs(t *testing.T) {
	python(t)
	dir := t.TempDir()
	runDir := filepath.Join(dir, "run")
	w, err := storage.Open(storage.Config{Dir: runDir})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range everyKind() {
		if err := w.Write(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if i == 9 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	run, err := storage.OpenRun(runDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, zstd := range []bool{false, true} {
		file, stream := filepath.Join(dir, "rows.arrow"), filepath.Join(dir, "rows.arrows")
		for path, to := range map[string]func(io.Writer, iter.Seq2[*storage.Row, error], arrowrows.Config) (int64, error){file: arrowrows.WriteFile, stream: arrowrows.WriteStream} {
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := to(f, run.Rows(), arrowrows.Config{Zstd: zstd, BatchBytes: 4000}); err != nil || n != 24 {
				t.Fatalf("%d rows, %v", n, err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		runPython(t, "read_arrow.py", runDir, file, stream).want(t, map[string]float64{
			"rows": 24, "schemas": 2, "tables": 2, "values": 2, "polars": 2, "duckdb": 2,
			"null_token_ids": 0, "null_breaks": 20, "null_turn_credit": 20, "null_raw": 20, "null_submitted": 20,
		})
	}
}

// endsWithTest kills a program that has not ended by itself when a test fails in the midst.
func endsWithTest(t *testing.T, cmd *exec.Cmd) {
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // both fail where it has ended and was waited for
		_ = cmd.Wait()
	})
}

// served starts a feed of a run directory on an address; it is stopped, or killed, by the caller.
func served(t *testing.T, dir, addr string) *exec.Cmd {
	t.Helper()
	for range 1200 { // the run has to begin
		if _, err := os.Stat(filepath.Join(dir, "manifest.json")); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	cmd := exec.Command(tranche(t), "feed", dir, "--listen", addr)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended
		_ = cmd.Wait()
	})
	for range 1200 {
		if resp, err := http.Get("http://" + addr + "/v1/stats"); err == nil {
			resp.Body.Close()
			return cmd
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("the feed does not answer on %s", addr)
	return nil
}

// TestTheFeedAsDocumented runs the programs of docs/feed.md as they stand there.
func TestTheFeedAsDocumented(t *testing.T) {
	interpreter := python(t)
	dir := filepath.Join(t.TempDir(), "run")
	w, err := storage.Open(storage.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range handMade("plain", false, 30) {
		e.Tokens.Versions = []int32{7, 7, 7, 7, 7}
		if err := w.Write(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	addr := freeAddr(t)
	served(t, dir, addr)
	doc, err := os.ReadFile(root("docs", "feed.md"))
	if err != nil {
		t.Fatal(err)
	}
	var outs []string
	for _, block := range strings.Split(string(doc), "```python\n")[1:] {
		program, _, _ := strings.Cut(block, "```")
		program = "rows = []\ndef train(some):\n    rows.append(some.num_rows)\n" + strings.ReplaceAll(program, "127.0.0.1:8700", addr) + "\nprint(rows)"
		program = strings.ReplaceAll(strings.ReplaceAll(program, "wait=30s", "wait=1s"), "useful=1", "useful=0") // its groups are of one
		cmd := exec.Command(interpreter, "-c", program)
		var diag bytes.Buffer
		cmd.Stderr = &diag
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, diag.String(), program)
		}
		outs = append(outs, strings.TrimSpace(string(out)))
	}
	if !slices.Equal(outs, []string{"[30]", "[30]"}) {
		t.Errorf("the programs of docs/feed.md had rows %q", outs)
	}
	_, text := httpGet(t, "http://"+addr+"/v1/stats")
	var stats struct {
		Consumers map[string]struct{ Behind int }
	}
	if err := json.Unmarshal([]byte(text), &stats); err != nil {
		t.Fatal(err)
	}
	if c, ok := stats.Consumers["trainer"]; !ok || c.Behind != 0 {
		t.Errorf("what the five lines acknowledged: %s", text)
	}
}

func httpGet(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestATrainerFollowsThroughKills has a trainer follow a run to its end while the feed, and then the run, is killed with SIGKILL: it gets every row
// once. Until then the run is at a slow server, so that it does not end before, whatever else the machine does.
func TestATrainerFollowsThroughKills(t *testing.T) {
	python(t)
	dir := t.TempDir()
	var tasks strings.Builder
	for i := range 120 {
		fmt.Fprintf(&tasks, "{\"id\":\"t%d\",\"prompt\":\"task %d\"}\n", i, i)
	}
	const rows = 120 * 2
	out, seen, addr := filepath.Join(dir, "run"), filepath.Join(dir, "seen"), freeAddr(t)
	slow, fast := "http://"+engine(t, "--speed", "0.5")+"/v1", "http://"+engine(t, "--speed", "0")+"/v1"
	args := []string{"run", write(t, filepath.Join(dir, "tasks.jsonl"), tasks.String()), "-n", "2", "--endpoint", slow, "--model", "sim", "-o", out,
		"--progress", "none", "--probe", "quick", "--concurrency", "16", "--part-bytes", "20KiB"}
	start := func(args ...string) (*exec.Cmd, *bytes.Buffer) {
		cmd, diag := exec.Command(tranche(t), args...), new(bytes.Buffer)
		cmd.Stdout, cmd.Stderr = diag, diag
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		endsWithTest(t, cmd)
		return cmd, diag
	}
	run, _ := start(args...)
	feed := served(t, out, addr)
	trainer := exec.Command(python(t), filepath.Join("python", "trainer.py"), "http://"+addr, fmt.Sprint(rows), seen)
	var result, diag bytes.Buffer
	trainer.Stdout, trainer.Stderr = &result, &diag
	if err := trainer.Start(); err != nil {
		t.Fatal(err)
	}
	endsWithTest(t, trainer)
	awaitRows(t, seen, 1)
	_ = feed.Process.Kill()
	_ = feed.Wait()
	at := rowsSeen(seen)
	feed = served(t, out, addr)
	awaitRows(t, seen, at+1)
	killed := run.Process.Kill() == nil
	_ = run.Wait()
	killed = killed && run.ProcessState.ExitCode() == -1
	resumed, said := start("resume", out, "--endpoint", fast, "--progress", "none", "--probe", "quick")
	if err := resumed.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if err := trainer.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, diag.String())
	}
	var got struct {
		IDs             []string
		Streams, Broken int
	}
	if err := json.Unmarshal(result.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, result.String())
	}
	var want []string
	stored, err := storage.OpenRun(out)
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range stored.Rows() {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, r.EpisodeID)
	}
	slices.Sort(want)
	slices.Sort(got.IDs)
	if len(want) != rows || !slices.Equal(got.IDs, want) {
		t.Errorf("the trainer has %d rows, %d of them once, the run %d", len(got.IDs), len(slices.Compact(got.IDs)), len(want))
	}
	if got.Broken == 0 || !killed {
		t.Errorf("nothing was killed in the midst: %d broken streams, run killed %v", got.Broken, killed)
	}
	t.Logf("%d streams, %d broken", got.Streams, got.Broken)
	_, text := httpGet(t, "http://"+addr+"/v1/stats")
	if !strings.Contains(text, `"behind": 0`) {
		t.Errorf("the trainer is behind: %s", text)
	}
	_ = feed.Process.Signal(os.Interrupt)
	if err := feed.Wait(); err != nil {
		t.Errorf("ctrl-c at the feed: %v", err)
	}
}

// TestATrainerFollowsTheRunsOwnFeed has it follow `tranche run --feed`, which waits for it at its end.
func TestATrainerFollowsTheRunsOwnFeed(t *testing.T) {
	interpreter := python(t)
	dir := t.TempDir()
	var tasks strings.Builder
	for i := range 12 {
		fmt.Fprintf(&tasks, "{\"id\":\"t%d\",\"prompt\":\"task %d\"}\n", i, i)
	}
	out, seen, addr := filepath.Join(dir, "run"), filepath.Join(dir, "seen"), freeAddr(t)
	server := "http://" + engine(t, "--speed", "0.5") + "/v1"
	trainer := exec.Command(interpreter, filepath.Join("python", "trainer.py"), "http://"+addr, "24", seen)
	var result, diag bytes.Buffer
	trainer.Stdout, trainer.Stderr = &result, &diag
	if err := trainer.Start(); err != nil {
		t.Fatal(err)
	}
	endsWithTest(t, trainer)
	for range 2400 {
		if _, err := os.Stat(seen); err == nil { // it is ready, and asks until somebody answers
			break
		}
		time.Sleep(25 * time.Millisecond)
	}
	succeed(t, 2*time.Minute, "run", write(t, filepath.Join(dir, "tasks.jsonl"), tasks.String()), "-n", "2", "--endpoint", server, "--model", "sim", "-o", out,
		"--progress", "none", "--probe", "quick", "--feed", addr)
	if err := trainer.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, diag.String())
	}
	var got struct {
		IDs     []string
		Streams int
	}
	if err := json.Unmarshal(result.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, result.String())
	}
	slices.Sort(got.IDs)
	if len(slices.Compact(got.IDs)) != 24 || got.Streams != 1 {
		t.Errorf("%d rows in %d streams, want 24 in one", len(got.IDs), got.Streams)
	}
}

func rowsSeen(path string) (n int) {
	b, _ := os.ReadFile(path) // not there before the first
	_, _ = fmt.Sscan(string(b), &n)
	return n
}

func awaitRows(t *testing.T, path string, n int) {
	t.Helper()
	for range 2400 {
		if rowsSeen(path) >= n {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Fatalf("the trainer has %d rows after a minute, want %d", rowsSeen(path), n)
}
