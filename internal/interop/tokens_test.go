package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/episode"
	"tranche/inference"
)

// exactTurns is how many turns a conversation has that goes by token ids.
const exactTurns = 5

// said is the part of an answer, in any engine's own form, that shows whose the stored ids are.
type said struct {
	Choices []struct { // vLLM
		IDs    []int32 `json:"token_ids"`
		Prompt []int32 `json:"prompt_token_ids"`
	} `json:"choices"`
	Prompt    []int32 `json:"prompt_token_ids"`
	Tokens    []int32 `json:"tokens"` // llama-server
	Evaluated int     `json:"tokens_evaluated"`
	Probs     []struct {
		ID      int32   `json:"id"`
		Logprob float32 `json:"logprob"`
	} `json:"completion_probabilities"`
}

// converse plays turns against a real server by exact ids and holds every stored id to the server's own answer, byte for byte.
func converse(t *testing.T, addr string, s episode.Sampling, tools string, caps map[string]json.RawMessage) *episode.Episode {
	t.Helper()
	e, err := inference.Open(t.Context(), inference.Config{
		BaseURL: "http://" + addr + "/v1", AttemptTimeout: 3 * time.Minute, KeepRaw: true, Exchange: episode.ExchangeIDs, Capabilities: caps,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s.TokenIDs, s.Logprobs, s.Temperature, s.TopP, s.TopK = true, true, episode.Ptr(0.8), episode.Ptr(1.0), episode.Ptr(0)
	ask := func(text string) episode.Message { return episode.Message{Role: episode.RoleUser, Content: &text} }
	task := &episode.Task{ID: "t", Messages: []episode.Message{ask("Q: 2+3?\nA: 5\nQ: 4+4? <b> é 😀\nA:")}}
	ep := episode.New("run", episode.Draw{Task: task, Samples: 1}, 0, s, episode.Budget{}, time.Now())
	untold := 0
	for turn := range exactTurns {
		c, ok := ep.NextCall()
		if !ok {
			t.Fatalf("turn %d: the episode is closed", turn)
		}
		c.Tools = []byte(tools)
		r, err := e.Generate(t.Context(), &c, 0, 16)
		if err != nil {
			t.Fatalf("turn %d: %v", turn, err)
		}
		untold += checkWhose(t, turn, r)
		if turn > 0 && !slices.Equal(r.PromptIDs[:len(c.Past.IDs)], c.Past.IDs) {
			t.Errorf("turn %d: the prompt is not the turn before and more", turn)
		}
		t.Logf("turn %d: %d prompt ids, %d sampled, finish %s, %q", turn, len(r.PromptIDs), len(r.SampledIDs), r.RawEnd, r.Message.Text())
		ep.AddReply(r, episode.Turn{PromptTokens: r.Usage.Prompt, CompletionTokens: r.Usage.Completion, Finish: r.RawEnd, Exchange: r.Exchange})
		ep.Status, ep.Stop = episode.StatusOpen, "" // the conversation goes on whatever the answer was
		ep.Messages = append(ep.Messages, ask(fmt.Sprintf("Q: %d+%d?\nA:", turn, turn+7)))
	}
	var flags []string
	if untold > 0 {
		flags = []string{episode.FlagLogprobNull}
	}
	if ep.Tokens.Break != nil || !slices.Equal(ep.Flags, flags) {
		t.Errorf("prefix break at %v, flags %v, notes %q; %d tokens without a logprob", ep.Tokens.Break, ep.Flags, e.Notes(), untold)
	}
	for i, turn := range ep.Turns {
		if turn.Exchange != episode.ExchangeIDs {
			t.Errorf("turn %d went as %q", i, turn.Exchange)
		}
	}
	return ep
}

// checkWhose holds a reply to the body that it was read from. It returns of how many tokens the server told no logprob.
func checkWhose(t *testing.T, turn int, r *episode.Reply) (untold int) {
	t.Helper()
	body, err := r.Raw.Body()
	if err != nil {
		t.Fatal(err)
	}
	var a said
	if err := json.Unmarshal(body, &a); err != nil {
		t.Fatalf("turn %d: %v: %s", turn, err, body)
	}
	ids, saw := a.Tokens, a.Evaluated
	if len(a.Choices) == 1 {
		prompt := slices.Concat(a.Prompt, a.Choices[0].Prompt)
		ids, saw = a.Choices[0].IDs, len(prompt)
		if !slices.Equal(prompt, r.PromptIDs) {
			t.Errorf("turn %d: the server saw other prompt ids than are stored", turn)
		}
	}
	if len(ids) == 0 || !slices.Equal(ids, r.SampledIDs) || saw != len(r.PromptIDs) || len(r.Logprobs) != len(ids) {
		t.Errorf("turn %d: stored %d behind %d with %d logprobs, the server says %d behind %d", turn, len(r.SampledIDs), len(r.PromptIDs), len(r.Logprobs), len(ids), saw)
	}
	if len(a.Choices) == 1 {
		return 0 // vLLM tells of every token
	}
	for i, l := range r.Logprobs {
		if !l.Known {
			untold++
			continue
		}
		if len(a.Probs) == 0 || a.Probs[0].ID != ids[i] || a.Probs[0].Logprob != l.Value {
			t.Fatalf("turn %d: token %d, %d, is stored with %v, the server goes on with %+v", turn, i, ids[i], l.Value, a.Probs)
		}
		a.Probs = a.Probs[1:]
	}
	if len(a.Probs) > 0 {
		t.Errorf("turn %d: %d logprobs of the server are nobody's", turn, len(a.Probs))
	}
	return untold
}

// TestExactTokensOnLlamaServer goes by ids over five turns on a real model whose end-of-turn mark is plain text to it.
func TestExactTokensOnLlamaServer(t *testing.T) {
	alone(t)
	addr := llamaServer(t)
	t.Run("cut", func(t *testing.T) { converse(t, addr, episode.Sampling{}, "", nil) })
	t.Run("stopped", func(t *testing.T) {
		ep := converse(t, addr, episode.Sampling{Stop: []string{"\n", "<|im_end|>"}}, "", nil)
		if text := promptText(t, addr, ep.Tokens.IDs); strings.Contains(text, "<|im_end|><|im_end|>") || strings.Count(text, "<|im_end|>") < 2*exactTurns-1 {
			t.Errorf("the turns are not ended once each: %q", text)
		}
	})
	// What happens by chance above, made to happen: answers of which the server tells no logprob, or one for four tokens.
	t.Run("nothing but a stop string", func(t *testing.T) {
		if ep := converse(t, addr, grammar(`"\n"`, "\n"), "", nil); !slices.Contains(ep.Flags, episode.FlagLogprobNull) {
			t.Errorf("flags %v", ep.Flags)
		}
	})
	t.Run("characters in four tokens", func(t *testing.T) {
		if ep := converse(t, addr, grammar(`"𐎀"+`), "", nil); !slices.Contains(ep.Flags, episode.FlagLogprobNull) {
			t.Errorf("flags %v", ep.Flags)
		}
	})
}

// grammar is a sampling that can say nothing but what it allows.
func grammar(rule string, stop ...string) episode.Sampling {
	raw, _ := json.Marshal("root ::= " + rule)
	return episode.Sampling{Stop: stop, Extra: map[string]json.RawMessage{"grammar": raw}}
}

// TestExactTokensOnVLLM goes by ids over five turns on a real vLLM, by both of its routes. The engine is large: no CI installs it.
func TestExactTokensOnVLLM(t *testing.T) {
	alone(t)
	addr := os.Getenv("TRANCHE_TEST_VLLM") // host:port of one that runs
	if addr == "" {
		if _, err := os.Stat(filepath.Join(engines(t), "vllm", "ready")); err != nil {
			t.Skip("vLLM is not installed; get it with: scripts/vllm.sh install (8 minutes, 6 GB)")
		}
		addr = vllmServer(t)
	}
	t.Run("generate", func(t *testing.T) { converse(t, addr, episode.Sampling{}, "", nil) })
	t.Run("completions", func(t *testing.T) {
		converse(t, addr, episode.Sampling{}, "", map[string]json.RawMessage{"generate": json.RawMessage(`""`)})
	})
	t.Run("generate, stopped", func(t *testing.T) { converse(t, addr, episode.Sampling{Stop: []string{"e", "a"}}, "", nil) })
	t.Run("generate, with tools", func(t *testing.T) {
		converse(t, addr, episode.Sampling{}, `[{"type":"function","function":{"name":"calculator","parameters":{"type":"object","properties":{"expression":{"type":"string"}}}}}]`, nil)
	})
}

// vllmServer starts a real vLLM with the tiny model on a free port; it is stopped when the test ends.
func vllmServer(t *testing.T) string {
	t.Helper()
	addr := freeAddr(t)
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	script := root("scripts", "vllm.sh")
	if out, err := exec.CommandContext(t.Context(), script, "start", port, "33", "--max-model-len", "2048").CombinedOutput(); err != nil {
		t.Fatalf("%s start %s: %v\n%s", script, port, err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command(script, "stop", port).CombinedOutput(); err != nil {
			t.Errorf("%s stop %s: %v\n%s", script, port, err, out)
		}
	})
	return addr
}

// promptText is what the server decodes ids into.
func promptText(t *testing.T, addr string, ids []int32) string {
	t.Helper()
	var out struct{ Content string }
	postJSON(t, "http://"+addr+"/detokenize", map[string]any{"tokens": ids}, &out)
	return out.Content
}

func postJSON(t *testing.T, to string, body, into any) {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(to, "application/json", bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: HTTP %d, %v", to, resp.StatusCode, err)
	}
}
