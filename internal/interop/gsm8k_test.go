package interop

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var killSeed = flag.Uint64("kill-seed", 20261130, "seed of the instants at which a run is killed")

// The 660 problems of gsm8k's test file, four samples each.
const (
	gsm8kRows    = 660 * 4
	gsm8kSamples = "4"
)

// gsm8kArgs are the arguments of a run of all problems against the engine at addr.
func gsm8kArgs(t *testing.T, addr, out string, more ...string) []string {
	t.Helper()
	return append([]string{
		"run", data(t, "tasks-gsm8k", "test.first660.jsonl"), "-c", root("examples", "gsm8k", "run.yaml"),
		"--endpoint", "http://" + addr + "/v1", "--model", "sim", "-n", gsm8kSamples, "-o", out, "--progress", "none", "--json",
		"--probe", "quick", // the whole of it generates, and the engine's counters are held against the rows
	}, more...)
}

// gsm8kEngine starts an engine that knows the answers of the problems and gives the right one to a share of them.
func gsm8kEngine(t *testing.T) string {
	t.Helper()
	return engine(t, "--speed", "0", "--answers", data(t, "tasks-gsm8k", "test.first660.jsonl"), "--prompt", "{{.question}}", "--answer", `{{.answer | afterLast "####"}}`)
}

// TestGSM8KOverTCP plays all problems through the simulated engine over TCP and adds everything up: rows, the engine's own
// token counters, and what other readers see. Then it plays them again, killed with SIGKILL at 20 random instants and resumed
// each time, and compares: the same keys once each, and equal rows but for times.
func TestGSM8KOverTCP(t *testing.T) {
	long(t)
	python(t)
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	var took time.Duration
	if !t.Run("whole", func(t *testing.T) { took = playWhole(t, whole) }) {
		return
	}
	t.Run("killed 20 times", func(t *testing.T) { playKilled(t, dir, whole, took) })
}

// playWhole runs without interruption and returns how long it took.
func playWhole(t *testing.T, out string) time.Duration {
	t.Helper()
	addr := gsm8kEngine(t)
	before := counters(t, addr)
	start := time.Now()
	summary := succeed(t, 5*time.Minute, gsm8kArgs(t, addr, out)...)
	took := time.Since(start)
	if !json.Valid([]byte(summary)) {
		t.Errorf("--json printed no JSON document:\n%s", tail(summary))
	}
	f := runPython(t, "read_dataset.py", out)
	f.want(t, map[string]float64{"rows": gsm8kRows, "keys": gsm8kRows, "failed": 0, "groups": 660, "reward_null": 0, "reward_n": gsm8kRows})
	after := counters(t, addr)
	for name, fact := range map[string]string{"vllm:prompt_tokens_total": "prompt_tokens", "vllm:generation_tokens_total": "output_tokens"} {
		if got, want := counter(t, after, name)-before[name], f.number(t, fact); got != want || want == 0 {
			t.Errorf("the engine's %s rose by %v, the rows say %v", name, got, want)
		}
	}
	t.Logf("%d rows in %v, %v turns, %v tokens out, mean reward %v", gsm8kRows, took.Round(time.Millisecond), f["turns"], f["output_tokens"], f["reward_mean"])
	return took
}

// playKilled kills and resumes until 20 kills have happened, then lets the last run end. A run that ends before its time to be
// killed is complete too: it is compared, and the next one begins afresh.
func playKilled(t *testing.T, dir, whole string, took time.Duration) {
	const kills = 20
	t.Logf("kill seed %d (-args -kill-seed N)", *killSeed)
	instants := rand.New(rand.NewPCG(*killSeed, 0))
	addr := gsm8kEngine(t)
	for done, n := 0, 0; done < kills; n++ {
		out := filepath.Join(dir, fmt.Sprintf("killed-%d", n))
		here := 0
		for done < kills {
			after := time.Duration(instants.Int64N(int64(took) / 3))
			if !killAfter(t, after, startOrResume(t, addr, out)...) {
				break
			}
			done++
			here++
			t.Logf("kill %d after %v: %s", done, after.Round(time.Millisecond), onDisk(t, out))
		}
		succeed(t, 5*time.Minute, startOrResume(t, addr, out)...)
		f := runPython(t, "compare_runs.py", whole, out)
		f.want(t, map[string]float64{"rows_a": gsm8kRows, "rows_b": gsm8kRows, "different": 0})
		runPython(t, "read_dataset.py", out).want(t, map[string]float64{"rows": gsm8kRows, "keys": gsm8kRows, "failed": 0})
		t.Logf("run %d: killed %d times, %v rows equal those of the uninterrupted run", n, here, f["rows_b"])
	}
}

// startOrResume is what a person would type: resume where there is a run to resume, run where the kill came before it began.
func startOrResume(t *testing.T, addr, out string) []string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(out, "run.yaml")); err == nil {
		return []string{"resume", out, "--progress", "none", "--json"}
	}
	return gsm8kArgs(t, addr, out, "--part-bytes", "256KiB") // some twenty parts, so that kills meet their making too
}

// onDisk tells what a killed run left: what its manifest lists and how much is in the journal.
func onDisk(t *testing.T, out string) string {
	t.Helper()
	var journal int64
	segments, err := filepath.Glob(filepath.Join(out, "journal", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range segments {
		if info, err := os.Stat(s); err == nil {
			journal += info.Size()
		}
	}
	var m struct {
		Rows  int
		Parts []struct{}
	}
	if _, err := os.Stat(filepath.Join(out, "manifest.json")); err == nil {
		readJSON(t, filepath.Join(out, "manifest.json"), &m)
	}
	return fmt.Sprintf("%d rows in %d parts, %d bytes of journal", m.Rows, len(m.Parts), journal)
}
