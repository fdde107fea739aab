package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestOpenAIPackage drives the simulated engine with the official client.
func TestOpenAIPackage(t *testing.T) {
	python(t)
	addr := engine(t, "--speed", "0")
	f := runPython(t, "openai_client.py", "http://"+addr+"/v1", "sim")
	t.Logf("openai %v: %v checks", f["openai"], f["checks"])
}

// report is the part of guidellm's JSON report that we read.
type report struct {
	Benchmarks []struct {
		Metrics struct {
			Requests struct {
				Successful, Errored, Incomplete int
			} `json:"request_totals"`
		}
		Requests struct {
			Successful []struct {
				Output string
				Input  struct {
					Tokens int `json:"text_tokens"`
				} `json:"input_metrics"`
				Answer struct {
					Tokens int `json:"text_tokens"`
				} `json:"output_metrics"`
			}
		}
	}
}

// TestGuidellm lets a load generator count what the engine did, and holds its count against the engine's own.
func TestGuidellm(t *testing.T) {
	const requests = 12
	home := filepath.Dir(python(t))
	addr := engine(t, "--speed", "10")
	dir := t.TempDir()
	var prompts strings.Builder
	for i := range requests {
		fmt.Fprintf(&prompts, "What is %d + %d?\n", 10+i, 3*i)
	}
	write(t, filepath.Join(dir, "prompts.txt"), prompts.String())
	before := counters(t, addr)

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(home, "guidellm"), "run",
		"--backend", "kind=openai_http,model=sim,target=http://"+addr,
		"--profile", "kind=concurrent,streams=3",
		"--constraint", fmt.Sprintf("kind=max_requests,count=%d", requests),
		"--constraint", "kind=max_duration,seconds=20",
		"--data", "kind=text_file,path=prompts.txt",
		"--data-loader", "kind=pytorch,num_workers=0",
		"--output", "kind=json,path=report.json",
		"--disable-console-interactive")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PYTHONPATH="+root("internal", "interop", "torchless"), "PYTHONDONTWRITEBYTECODE=1",
		"USE_TORCH=0", "HF_HUB_OFFLINE=1", "HF_HOME="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("guidellm run: %v\n%s", err, tail(string(out)))
	}

	var r report
	readJSON(t, filepath.Join(dir, "report.json"), &r)
	if len(r.Benchmarks) != 1 {
		t.Fatalf("expected one benchmark in the report, got %d", len(r.Benchmarks))
	}
	b := r.Benchmarks[0]
	if got := b.Metrics.Requests; got.Successful != requests || got.Errored != 0 || got.Incomplete != 0 {
		t.Errorf("expected %d successful requests and nothing else, got %+v", requests, got)
	}
	var prompt, answer int
	for _, q := range b.Requests.Successful {
		prompt += q.Input.Tokens
		answer += q.Answer.Tokens
		if q.Output == "" {
			t.Error("a request succeeded with no text")
		}
	}
	after := counters(t, addr)
	for name, want := range map[string]int{"vllm:prompt_tokens_total": prompt, "vllm:generation_tokens_total": answer} {
		if got := counter(t, after, name) - before[name]; want == 0 || int(got) != want {
			t.Errorf("%s rose by %v, guidellm counted %d", name, got, want)
		}
	}
	t.Logf("%d requests, %d prompt tokens, %d answered", len(b.Requests.Successful), prompt, answer)
}
