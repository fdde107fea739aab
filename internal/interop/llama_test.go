package interop

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// The run against the real model, as examples/gsm8k/fewshot.yaml states it but shorter, with 8 episodes open at once.
const (
	realTasks     = 10
	realRows      = realTasks * 2
	realMaxTokens = 160
	realContext   = 1024 // tokens a slot of the server holds
	realAtOnce    = 8
	// The example's other stop string, "<|im_end|>", often begins inside a token whose first half ends the answer (":<"): the server then gives no id for that token.
	realStop = "\n\nQuestion:"
)

// llama is the one real server of these tests: llamaServer starts it at the first need, TestMain stops it.
var llama llamaProcess

type llamaProcess struct {
	once sync.Once
	addr string
	port string
	log  string
	err  error
}

// llamaServer returns the address of the real server.
func llamaServer(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(engines(t), "llama", "ready")); err != nil {
		missing(t, "llama-server is not installed; get it with: scripts/llama.sh install")
	}
	llama.once.Do(func() { llama.start(freeAddr(t), filepath.Join(engines(t), "llama")) })
	if llama.err != nil {
		t.Fatal(llama.err)
	}
	return llama.addr
}

func (l *llamaProcess) start(addr, home string) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		l.err = err
		return
	}
	script := root("scripts", "llama.sh")
	if out, err := exec.Command(script, "start", port).CombinedOutput(); err != nil {
		l.err = fmt.Errorf("%s start %s: %w\n%s", script, port, err, out)
		return
	}
	l.addr, l.port, l.log = addr, port, filepath.Join(home, port+".log")
}

// stop ends the server, if there is one. Its log is kept only where someone will want to read it.
func (l *llamaProcess) stop(keep bool) error {
	if l.port == "" {
		return nil
	}
	script := root("scripts", "llama.sh")
	if out, err := exec.Command(script, "stop", l.port).CombinedOutput(); err != nil {
		return fmt.Errorf("%s stop %s: %w\n%s", script, l.port, err, out)
	}
	if keep {
		return nil
	}
	return os.Remove(l.log)
}

// TestRealModel plays gsm8k problems through llama-server, kills the run once with SIGKILL, resumes it and holds the rows
// against the server's own counters.
func TestRealModel(t *testing.T) {
	alone(t)
	python(t)
	tasks := data(t, "tasks-gsm8k", "test.first660.jsonl")
	addr := llamaServer(t)
	out := filepath.Join(t.TempDir(), "run")

	start := idleCounters(t, addr)
	killAt := start.generated + 450 + rand.New(rand.NewPCG(*killSeed, 1)).Float64()*300 // generated tokens; the whole run makes about 1,500
	t.Logf("kill seed %d: SIGKILL once the server has generated %.0f tokens", *killSeed, killAt-start.generated)
	playUntil(t, addr, killAt, "run", tasks, "-c", root("examples", "gsm8k", "fewshot.yaml"),
		"--endpoint", "http://"+addr+"/v1", "--model", "gemma", "--concurrency", fmt.Sprint(realAtOnce), "--open-episodes", fmt.Sprint(realAtOnce),
		"--limit", fmt.Sprint(realTasks), "--stop", realStop, "-o", out, "--progress", "none")
	killed := idleCounters(t, addr)

	resumed := time.Now()
	succeed(t, 8*time.Minute, "resume", out, "--progress", "none")
	end := idleCounters(t, addr)
	f := runPython(t, "read_dataset.py", out, fmt.Sprint(float64(resumed.UnixMicro())/1e6))
	f.want(t, map[string]float64{
		"rows": realRows, "keys": realRows, "failed": 0, "groups": realTasks, "turns": realRows, "retries": 0,
		"completion_tokens": f.number(t, "output_tokens"), "logprobs_given": f.number(t, "sampled"),
	})
	if n := f.number(t, "recent_rows_summed"); n == 0 || n == realRows {
		t.Errorf("expected rows from before and from after the kill, got %v of %d from after it", n, realRows)
	}
	checkIDs(t, f)

	// After the kill nothing was lost: the server's counters rose by exactly what the rows of the resumed run say.
	resumedRun := difference(killed, end)
	exactly := func(what string, server, rows float64) {
		if server != rows {
			t.Errorf("%s of the resumed run: the server counted %v, the rows say %v", what, server, rows)
		}
	}
	exactly("generated tokens", resumedRun.generated, f.number(t, "recent_completion_tokens"))
	exactly("prompt tokens", resumedRun.prompt+resumedRun.cached, f.number(t, "recent_prompt_tokens"))
	exactly("cached tokens", resumedRun.cached, f.number(t, "recent_cached_tokens"))

	whole := difference(start, end)
	// Over the whole run the server counted more, by at most the calls that the kill cut off.
	atMost := func(what string, server, rows, lost float64) {
		if server < rows || server > rows+lost {
			t.Errorf("%s: the server counted %v, the rows say %v; expected at most %v more for %d killed calls", what, server, rows, lost, realAtOnce)
		}
		t.Logf("%s: server %v, rows %v", what, server, rows)
	}
	atMost("generated tokens", whole.generated, f.number(t, "completion_tokens"), realAtOnce*realMaxTokens)
	atMost("prompt tokens", whole.prompt+whole.cached, f.number(t, "prompt_tokens"), realAtOnce*realContext)
}

// checkIDs: the server gives an id with every logprob of a chat answer, and none for what it does not put into the answer: the
// tokens of a stop string. Where one token held the answer's last character and the stop string's first,
// it is among those left out: the ids do not spell the text then, and the row must say that it has none.
func checkIDs(t *testing.T, f facts) {
	t.Helper()
	with := f.number(t, "rows_with_ids")
	if without := f.number(t, "rows_without_ids_flagged"); with < 0.9*realRows || with+without != realRows {
		t.Errorf("expected token ids in nearly every row and a flag in the others, got %v and %v of %d", with, without, realRows)
	}
	sampled, counted := f.number(t, "sampled"), f.number(t, "completion_of_ids")
	const ofStop = 10 // tokens of a stop string, at most: generated, and not in the answer
	if sampled < counted-ofStop*with {
		t.Errorf("expected an id for each of the %v tokens generated in rows with ids, but those of stop strings, got %v", counted, sampled)
	}
	t.Logf("%v rows with ids, %v ids for %v generated tokens, mean reward %v over %v", with, sampled, counted, f["reward_mean"], f["reward_n"])
}

// tokenCounters are llama-server's own: prompt tokens it computed, prompt tokens it had in its cache, tokens it generated.
type tokenCounters struct{ prompt, cached, generated float64 }

func difference(from, to tokenCounters) tokenCounters {
	return tokenCounters{to.prompt - from.prompt, to.cached - from.cached, to.generated - from.generated}
}

// idleCounters waits until the server works on nothing (a killed client's calls end only when it notices) and reads them.
func idleCounters(t *testing.T, addr string) tokenCounters {
	t.Helper()
	for range 900 {
		c := counters(t, addr)
		if counter(t, c, "llamacpp:requests_processing")+counter(t, c, "llamacpp:requests_deferred") == 0 {
			return tokenCounters{
				counter(t, c, "llamacpp:prompt_tokens_total"), counter(t, c, "llamacpp:prompt_tokens_cached_total"), counter(t, c, "llamacpp:tokens_predicted_total"),
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Fatal("llama-server was still busy three minutes after its last client")
	return tokenCounters{}
}

// playUntil runs the binary and kills it with SIGKILL as soon as the server has generated so many tokens.
func playUntil(t *testing.T, addr string, tokens float64, args ...string) {
	t.Helper()
	diag := &strings.Builder{}
	cmd := exec.Command(tranche(t), args...)
	cmd.Stdout, cmd.Stderr = diag, diag
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	deadline := time.After(5 * time.Minute)
	for {
		select {
		case err := <-ended:
			t.Fatalf("the run ended (%v) before it could be killed:\n%s", err, tail(diag.String()))
		case <-deadline:
			_ = cmd.Process.Kill()
			<-ended
			t.Fatalf("the server had not generated %.0f tokens within 5 min:\n%s", tokens, tail(diag.String()))
		case <-time.After(200 * time.Millisecond):
		}
		if counter(t, counters(t, addr), "llamacpp:tokens_predicted_total") >= tokens {
			_ = cmd.Process.Kill() // fails only when it has ended, which Wait then tells
			if <-ended; cmd.ProcessState.Exited() {
				t.Fatalf("the run ended before it could be killed:\n%s", tail(diag.String()))
			}
			return
		}
	}
}
