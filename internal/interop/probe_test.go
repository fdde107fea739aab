package interop

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"tranche/inference"
)

// probe runs `tranche probe --json` on a server and returns its record, after looking at it as a person would.
func probe(t *testing.T, addr string) inference.Capabilities {
	t.Helper()
	t.Log(succeed(t, 3*time.Minute, "probe", "http://"+addr))
	var list []inference.Capabilities
	if err := json.Unmarshal([]byte(succeed(t, 3*time.Minute, "probe", "--json", "http://"+addr)), &list); err != nil || len(list) != 1 {
		t.Fatalf("%d records, %v", len(list), err)
	}
	c := list[0]
	if err := c.Check(); err != nil || c.Calls > inference.MostCalls {
		t.Errorf("%d requests, %v", c.Calls, err)
	}
	return c
}

// wantProved holds a record against what is known of a server; "none" is a route that is not there.
func wantProved(t *testing.T, c inference.Capabilities, want map[string]string) {
	t.Helper()
	for _, r := range c.Rows() {
		if w, ok := want[r.Key]; ok && (r.Value != w || r.Proof != inference.Proved) {
			t.Errorf("%s: %q %s (%s), want %q proved", r.Key, r.Value, r.Proof, r.From, w)
		}
	}
}

// TestProbeGuidellmMock probes a server of others that knows little.
func TestProbeGuidellmMock(t *testing.T) {
	home := filepath.Dir(python(t))
	addr, dir := freeAddr(t), t.TempDir()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(home, "guidellm"), "mock-server", "--host", "127.0.0.1", "--port", port, "--model", "mock", "--request-latency", "0.01")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PYTHONPATH="+root("internal", "interop", "torchless"), "PYTHONDONTWRITEBYTECODE=1", "USE_TORCH=0", "HF_HUB_OFFLINE=1", "HF_HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it starts workers
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it has ended: nothing to do
		_ = cmd.Wait()
	})
	for range 600 {
		if healthy(addr) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	wantProved(t, probe(t, addr), map[string]string{
		"model": "mock", "tokenize-text": "/tokenize", "tokenize-messages": "none", "token-ids-in": "no", "chat-token-ids": "no", "logprobs": "no", "n": "no", "usage": "yes",
		"cached-tokens": "no", "unknown-fields": "ignored",
	})
}

// TestProbeLlamaServer probes a real model.
func TestProbeLlamaServer(t *testing.T) {
	alone(t)
	wantProved(t, probe(t, llamaServer(t)), map[string]string{
		"kind": "llama-server", "model": "gemma", "context-tokens": "1024", "kv-tokens": "8192", "sequences": "8", "tokenize-text": "/tokenize", "render": "/apply-template",
		"generate": "/completion", "token-ids-in": "yes", "prompt-kept": "yes", "token-ids-out": "yes", "chat-token-ids": "yes", "chat-prompt-ids": "no", "logprobs": "yes", "n": "yes",
		"list-prompts": "yes", "usage": "yes", "cached-tokens": "yes", "prefix-retained": "yes", "unknown-fields": "ignored", "overflow": "HTTP 400, recognised, names the limit 1024",
	})
}
