package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLoadersGiveWhatViewShows makes runs of every kind with the binary and holds each value that each reader of others gives, in whole
// directories and over all runs at once, to what `tranche view --json` says of it.
func TestLoadersGiveWhatViewShows(t *testing.T) {
	python(t)
	dir := t.TempDir()
	runs := []string{singleTurns(t, dir), toolTurns(t, dir), failures(t, dir), killedAndResumed(t, dir)}
	if _, _, exit := command(t, time.Minute, "sandbox", "check"); exit == 0 {
		runs = append(runs, programs(t, dir))
	}
	for _, run := range runs {
		write(t, run+".rows.json", succeed(t, time.Minute, "view", run, "-n", "100000", "--json"))
		write(t, run+".summary.json", succeed(t, time.Minute, "view", run, "--json"))
	}
	f := runPython(t, "load_runs.py", runs...)
	about := func(run string) facts { return f[run].(map[string]any) }
	about("text").want(t, map[string]float64{"good": 80, "failed": 0, "tool_calls": 0, "unscored": 20})
	if n := about("text").number(t, "parts"); n < 5 {
		t.Errorf("expected many parts at 16 KiB, got %v", n)
	}
	about("tools").want(t, map[string]float64{"good": 40, "failed": 0, "actions": about("tools").number(t, "tool_calls")})
	about("failing").want(t, map[string]float64{"good": 8, "failed": 8})
	about("resumed").want(t, map[string]float64{"good": 120, "failed": 0})
	for _, kept := range []string{"tools", "failing"} {
		if about(kept).number(t, "raw") == 0 {
			t.Errorf("run %s: expected raw answers", kept)
		}
	}
	t.Logf("%v rows in %v files, %v checks of %v readers", f["rows"], f["files"], f["checks"], f["readers"])
}

// singleTurns is a run of groups of four in many parts; a quarter of the tasks states no answer.
func singleTurns(t *testing.T, dir string) string {
	var tasks strings.Builder
	for i := range 15 {
		fmt.Fprintf(&tasks, `{"id":"sum-%d","prompt":"What is %d + %d?","answer":"%d","data_source":"sums","extra_info":{"index":%d}}`+"\n", i, i, 2*i, 3*i, i)
	}
	for i := range 5 {
		fmt.Fprintf(&tasks, `{"id":"open-%d","messages":[{"role":"system","content":""},{"role":"user","content":"Say something. (%d) \" \\ é 😀"}],"data_source":"open"}`+"\n", i, i)
	}
	out := filepath.Join(dir, "text")
	succeed(t, time.Minute, "run", write(t, filepath.Join(dir, "text.jsonl"), tasks.String()), "-n", "4", "--reward", "numeric", "--engine-solve-rate", "0.5",
		"--part-bytes", "16KiB", "--row-group-bytes", "8KiB", "-o", out, "--progress", "none")
	return out
}

// toolTurns is a run of several turns, with tools, whose answers are kept as they came.
func toolTurns(t *testing.T, dir string) string {
	out := filepath.Join(dir, "tools")
	succeed(t, time.Minute, "run", root("examples", "arithmetic", "tasks.jsonl"), "--keep-raw", "--part-bytes", "64KiB", "-o", out, "--progress", "none")
	return out
}

// failures is a run in which every second task fails.
func failures(t *testing.T, dir string) string {
	var tasks strings.Builder
	for i := range 16 {
		fmt.Fprintf(&tasks, `{"id":"t-%d","prompt":"%s: what is %d + 1?","answer":"%d"}`+"\n", i, []string{"whole", "broken"}[i%2], i, i+1)
	}
	addr := engine(t, "--speed", "0", "--fault", "500=1,match=broken")
	out := filepath.Join(dir, "failing")
	_, stderr, exit := command(t, time.Minute, "run", write(t, filepath.Join(dir, "failing.jsonl"), tasks.String()), "--endpoint", "http://"+addr+"/v1", "--model", "sim",
		"--max-attempts", "2", "--keep-raw", "--probe", "quick", "-o", out, "--progress", "none")
	if exit != 5 {
		t.Fatalf("exit %d, expected 5 (some episodes failed)\n%s", exit, tail(stderr))
	}
	return out
}

// killedAndResumed is a run that was killed by SIGKILL when its first part was published.
func killedAndResumed(t *testing.T, dir string) string {
	out := filepath.Join(dir, "resumed")
	cmd := exec.Command(tranche(t), "run", root("examples", "arithmetic", "tasks.jsonl"), "-n", "3", "--engine-speed", "0.5", "--part-bytes", "64KiB",
		"-o", out, "--progress", "none")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(out, "parts", "part-00000.parquet")); err == nil || time.Now().After(deadline) {
			break
		}
	}
	_ = cmd.Process.Kill()
	if err := <-ended; err == nil {
		t.Fatal("the run ended before it could be killed")
	}
	succeed(t, time.Minute, "resume", out, "--engine-speed", "0", "--progress", "none")
	return out
}

// programs is a run whose tools execute code in a sandbox.
func programs(t *testing.T, dir string) string {
	out := filepath.Join(dir, "code")
	succeed(t, time.Minute, "run", "-c", root("examples", "python-tool", "run.yaml"), "-n", "1", "--limit", "6", "--keep-raw", "-o", out, "--progress", "none")
	return out
}
