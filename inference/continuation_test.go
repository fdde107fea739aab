package inference

import (
	"context"
	"slices"
	"strings"
	"testing"

	"tranche/episode"
	"tranche/inference/enginesim"
	"tranche/internal/mock"
)

// simulated serves an engine and connects to it.
func simulated(t *testing.T, cfg enginesim.Config) *Endpoint {
	t.Helper()
	return simulatedAs(t, cfg, nil)
}

// simulatedAs connects with the configuration changed by edit.
func simulatedAs(t *testing.T, cfg enginesim.Config, edit func(*Config)) *Endpoint {
	t.Helper()
	engine, err := enginesim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server, err := engine.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close(context.Background()) })
	client := Config{BaseURL: "http://" + server.Addr()}
	if edit != nil {
		edit(&client)
	}
	e, err := Open(context.Background(), client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func TestContinueGoesOnFromExactIDs(t *testing.T) {
	e := simulated(t, enginesim.Config{BlockTokens: 16})
	prompt := make([]int32, 100)
	for i := range prompt {
		prompt[i] = int32(300 + i)
	}
	for _, timed := range []bool{false, true} {
		salt := map[bool]string{false: "a", true: "b"}[timed]
		first, err := e.Continue(context.Background(), episode.Continuation{ID: "1", Prompt: prompt, Tokens: 40, Salt: salt, Timed: timed})
		if err != nil {
			t.Fatal(err)
		}
		if len(first.IDs) != 40 || first.Prompt != 100 || first.Cached != 0 || timed != (len(first.Stamps) == 40) || !slices.IsSorted(first.Stamps) {
			t.Errorf("timed %v: %+v, want 40 ids of a prompt of 100, nothing cached, a rising stamp each when timed", timed, first)
		}
		next, err := e.Continue(context.Background(), episode.Continuation{ID: "2", Prompt: append(slices.Clone(prompt), first.IDs...), Tokens: 1, Salt: salt, Timed: timed})
		if err != nil {
			t.Fatal(err)
		}
		if next.Prompt != 140 || next.Cached != 128 {
			t.Errorf("timed %v: %d of %d tokens found cached, want 128 of 140, the whole blocks", timed, next.Cached, next.Prompt)
		}
	}
}

func TestContinueSaysWhatIsWrong(t *testing.T) {
	reply := func(body string) mock.Config {
		return mock.Config{Routes: map[string]mock.Handler{
			"GET /v1/models":       fixed(200, `{"data":[{"id":"q","owned_by":"vllm"}]}`),
			"POST /v1/completions": fixed(200, body),
		}}
	}
	for name, c := range map[string]struct{ body, want string }{
		"no ids":     {`{"choices":[{"index":0,"text":"a","finish_reason":"length"}]}`, "gives no token ids"},
		"too few":    {`{"choices":[{"index":0,"text":"a","finish_reason":"stop","token_ids":[7]}]}`, "asked for exactly 3 tokens (ignore_eos), 1 came"},
		"no answer":  {`{"choices":[]}`, "gives no token ids"},
		"an error":   {`{"error":{"message":"no such thing","code":400}}`, "no such thing"},
		"not at all": {`<html>`, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			s := mock.New(t, reply(c.body))
			_, err := open(t, s, nil).Continue(context.Background(), episode.Continuation{ID: "1", Prompt: []int32{1}, Tokens: 3})
			if f := faultOf(t, err); !strings.Contains(f.Cause.Error(), c.want) {
				t.Errorf("%v, want a word of %q", f.Cause, c.want)
			}
		})
	}
}
