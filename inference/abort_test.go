package inference

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/episode"
	"tranche/inference/enginesim"
)

// trained is an engine whose weights are changed while it answers, and a client of it.
type trained struct {
	t      *testing.T
	engine *enginesim.Engine
	root   string
	client *Endpoint
}

func train(t *testing.T, cfg enginesim.Config) *trained {
	t.Helper()
	cfg.DevRoutes, cfg.WeightVersion, cfg.Speed = true, "7", 1
	engine, err := enginesim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server, err := engine.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close(context.Background()) })
	e, err := Open(t.Context(), Config{BaseURL: "http://" + server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return &trained{t, engine, "http://" + server.Addr(), e}
}

func (d *trained) post(route, body string) {
	d.t.Helper()
	resp, err := http.Post(d.root+route, "application/json", strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		d.t.Fatalf("%s: HTTP %d", route, resp.StatusCode)
	}
}

// generate makes a call, and changes the weights to version 8 once some of its tokens have come: the calls in flight are aborted or kept.
func (d *trained) generate(c *episode.Call, mode string) (*episode.Reply, error) {
	before := d.engine.Stats().GeneratedTokens
	ctx, over := context.WithCancel(d.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); d.update(ctx, mode, before) }()
	r, err := d.client.Generate(ctx, c, 0, 64)
	over()
	<-done
	return r, err
}

func (d *trained) update(ctx context.Context, mode string, before int64) {
	for d.engine.Stats().GeneratedTokens < before+10 {
		if ctx.Err() != nil {
			d.t.Error("the call ended before the weights could change")
			return
		}
		time.Sleep(time.Millisecond)
	}
	d.post("/pause?mode="+mode, "")
	d.post("/update_weight_version", `{"new_version":"8"}`)
	d.post("/resume", "")
}

// An answer that the server breaks off is gone on with: one reply, all its tokens, the weight version of each, and never more tokens than asked for.
func TestAbortIsProgress(t *testing.T) {
	for name, c := range map[string]struct {
		past  bool // the call has ids to go on from
		mode  string
		tools string
	}{
		"by messages": {false, "abort", ""}, "by ids": {true, "abort", ""}, "with tools": {true, "abort", toolSet}, "kept": {true, "keep", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := train(t, enginesim.Config{LengthMean: 200})
			call := call("Tell me of the sea.")
			call.Sampling = episode.Sampling{TokenIDs: true, Logprobs: true, Extra: raws("ignore_eos", "true")}
			call.Tools = []byte(c.tools)
			if c.past {
				call = second(t, d.client, call)
			}
			r, err := d.generate(call, c.mode)
			if err != nil {
				t.Fatal(err)
			}
			checkAborted(t, d.client, r)
		})
	}
}

// second is a call that follows the first one's answer.
func second(t *testing.T, e *Endpoint, c *episode.Call) *episode.Call {
	t.Helper()
	r, err := e.Generate(t.Context(), c, 0, 8)
	if err != nil {
		t.Fatal(err)
	}
	next := *c
	next.ID = "ep/1"
	next.Messages = append(slices.Clone(c.Messages), r.Message.Sendable(), episode.Message{Role: episode.RoleUser, Content: episode.Ptr("Go on.")})
	next.Past = &episode.Past{IDs: slices.Concat(r.PromptIDs, r.SampledIDs), Messages: len(c.Messages) + 1, Finish: r.Finish, Stop: r.StopSeq, Endpoint: r.Endpoint, Model: r.Model}
	return &next
}

func checkAborted(t *testing.T, e *Endpoint, r *episode.Reply) {
	t.Helper()
	if r.Finish != episode.FinishLength || len(r.SampledIDs) != 64 || len(r.Logprobs) != 64 || r.Usage.Completion == nil || *r.Usage.Completion != 64 {
		t.Fatalf("finish %q, %d ids, %d logprobs, usage %+v; want 64 of each", r.Finish, len(r.SampledIDs), len(r.Logprobs), r.Usage)
	}
	var ids episode.Episode
	ids.AddReply(r, episode.Turn{})
	old := 0
	for i, v := range ids.Tokens.Versions[len(r.PromptIDs):] {
		if v == 7 {
			old++
		}
		if v != 7 && v != 8 || v == 7 && i >= old {
			t.Fatalf("weight versions %v, want 7 and then 8", ids.Tokens.Versions)
		}
	}
	if old < 10 || old == 64 {
		t.Errorf("%d of 64 tokens are of the old weights", old)
	}
	if int(*r.Usage.Prompt) != len(r.PromptIDs) {
		t.Errorf("%d prompt ids, the first request counted %d", len(r.PromptIDs), *r.Usage.Prompt)
	}
	text, err := e.detokenize(t.Context(), r.SampledIDs)
	if err != nil || r.Message.Text() != text {
		t.Errorf("%q, want %q; %v", r.Message.Text(), text, err)
	}
}

// An answer that cannot be gone on with as it would have been is a fault that says what was lost.
func TestAbortThatCannotGoOn(t *testing.T) {
	for name, edit := range map[string]func(*episode.Call){
		"a seed would draw anew": func(c *episode.Call) { c.Sampling.Seed = episode.Ptr(int64(1)) },
		"no ids":                 func(c *episode.Call) { c.Sampling.TokenIDs = false },
		"a field of chat alone":  func(c *episode.Call) { c.Sampling.Extra["logit_processors"] = []byte("[]") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := train(t, enginesim.Config{LengthMean: 200})
			c := call("Tell me of the sea.")
			c.Sampling = episode.Sampling{TokenIDs: true, Extra: raws("ignore_eos", "true")}
			edit(c)
			_, err := d.generate(c, "abort")
			if f := faultOf(t, err); f.Class != episode.ClassAborted || !f.Retry || f.Partial == "" || f.Wasted < 10 {
				t.Errorf("%+v", f)
			}
		})
	}
}
