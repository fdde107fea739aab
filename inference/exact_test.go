package inference

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/episode"
	"tranche/inference/enginesim"
)

// toolSet is one tool that the simulated engine likes to call.
const toolSet = `[{"type":"function","function":{"name":"calculator","description":"evaluate","parameters":{"type":"object","properties":{"expression":{"type":"string"}},"required":["expression"]}}}]`

// talk plays turns of a conversation, by the seams a run plays them by, and returns the episode. Every turn's observation is a tool's where a tool was
// called, else a user's question.
func talk(t *testing.T, e *Endpoint, turns int, s episode.Sampling, tools string) *episode.Episode {
	t.Helper()
	s.TokenIDs, s.Logprobs = true, true
	ask := func(role, text string) episode.Message { return episode.Message{Role: role, Content: &text} }
	task := &episode.Task{ID: "t", Messages: []episode.Message{ask(episode.RoleSystem, "Be brief."), ask(episode.RoleUser, "What is 12 + 30? Use <b> & é 😀.")}}
	ep := episode.New("run", episode.Draw{Task: task, Samples: 1}, 0, s, episode.Budget{}, time.Now())
	for turn := range turns {
		c, ok := ep.NextCall()
		if !ok {
			t.Fatalf("turn %d: the episode is closed", turn)
		}
		c.Tools = []byte(tools)
		r, err := e.Generate(context.Background(), &c, 0, 200)
		if err != nil {
			t.Fatalf("turn %d: %v", turn, err)
		}
		checkReply(t, e, turn, r)
		ep.AddReply(r, episode.Turn{PromptTokens: r.Usage.Prompt, CompletionTokens: r.Usage.Completion, Finish: r.RawEnd, Exchange: r.Exchange})
		ep.Status, ep.Stop = episode.StatusOpen, "" // this test goes on whatever the answer was
		for i, call := range r.Message.ToolCalls {
			ep.Messages = append(ep.Messages, episode.Message{Role: episode.RoleTool, Content: episode.Ptr(fmt.Sprintf("result %d: 42", i)), ToolCallID: &call.ID})
		}
		if len(r.Message.ToolCalls) == 0 {
			ep.Messages = append(ep.Messages, ask(episode.RoleUser, fmt.Sprintf("And %d + %d?", turn, turn+7)))
		}
	}
	return ep
}

// checkReply holds a reply to the law of equal lengths, and its ids to the server's own count and decoding.
func checkReply(t *testing.T, e *Endpoint, turn int, r *episode.Reply) {
	t.Helper()
	if len(r.PromptIDs) == 0 || len(r.SampledIDs) == 0 || len(r.Logprobs) != len(r.SampledIDs) {
		t.Fatalf("turn %d: %d prompt ids, %d sampled, %d logprobs", turn, len(r.PromptIDs), len(r.SampledIDs), len(r.Logprobs))
	}
	if r.Usage.Prompt == nil || int(*r.Usage.Prompt) != len(r.PromptIDs) {
		t.Errorf("turn %d: the server counts a prompt of %v tokens, %d are stored", turn, r.Usage.Prompt, len(r.PromptIDs))
	}
	text, err := e.detokenize(t.Context(), r.SampledIDs)
	if err != nil {
		t.Fatal(err)
	}
	if said := r.Message.Text(); len(r.Message.ToolCalls) == 0 && r.Message.ReasoningContent == nil && !strings.HasPrefix(strings.TrimSpace(text), strings.TrimSpace(strings.TrimRight(said, "\uFFFD"))) {
		t.Errorf("turn %d: the message %q is not what the ids say: %q", turn, said, text)
	}
}

func exchanges(ep *episode.Episode) string {
	var list []string
	for _, turn := range ep.Turns {
		list = append(list, string(turn.Exchange))
	}
	return strings.Join(list, " ")
}

// Five turns on every way of every engine: no prefix break, though the tokens sampled are not those that their text would be cut into.
func TestExactTokensOverTurns(t *testing.T) {
	for name, c := range map[string]struct {
		engine enginesim.Config
		client func(*Config)
		tools  string
		want   string
	}{
		"vllm generate":                {enginesim.Config{}, nil, "", "chat ids ids ids ids"},
		"vllm generate from the first": {enginesim.Config{}, func(c *Config) { c.Exchange = episode.ExchangeIDs }, "", "ids ids ids ids ids"},
		"vllm generate with tools":     {enginesim.Config{}, nil, toolSet, "chat ids ids ids ids"},
		"vllm generate, must call":     {enginesim.Config{}, func(c *Config) { c.ExtraBody = raws("tool_choice", `"required"`) }, toolSet, "chat ids ids ids ids"},
		"vllm generate, streamed":      {enginesim.Config{}, func(c *Config) { c.Stream = true }, toolSet, "chat ids ids ids ids"},
		"vllm completions":             {enginesim.Config{NoScaleOut: true}, nil, "", "chat ids ids ids ids"},
		"vllm completions, streamed":   {enginesim.Config{NoScaleOut: true}, func(c *Config) { c.Stream = true; c.Exchange = episode.ExchangeIDs }, "", "ids ids ids ids ids"},
		"sglang chat with ids":         {enginesim.Config{Speaks: enginesim.SpeaksSGLang}, nil, toolSet, "chat ids ids ids ids"},
		"sglang generate":              {enginesim.Config{Speaks: enginesim.SpeaksSGLang}, func(c *Config) { c.Exchange = episode.ExchangeIDs }, "", "ids ids ids ids ids"},
		"llama completion":             {enginesim.Config{Speaks: enginesim.SpeaksLlama}, nil, "", "chat ids ids ids ids"},
		"llama completion, first too":  {enginesim.Config{Speaks: enginesim.SpeaksLlama}, func(c *Config) { c.Exchange = episode.ExchangeIDs }, "", "ids ids ids ids ids"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.engine.OddTokens, c.engine.LengthMean = true, 20
			e := simulatedAs(t, c.engine, c.client)
			ep := talk(t, e, 5, episode.Sampling{Temperature: episode.Ptr(1.0), TopP: episode.Ptr(1.0), TopK: episode.Ptr(-1)}, c.tools)
			if got := exchanges(ep); got != c.want {
				t.Errorf("turns went as %q, want %q; notes %q", got, c.want, e.Notes())
			}
			if ep.Tokens.Break != nil || len(ep.Flags) > 0 {
				t.Errorf("prefix break at %v, flags %v, notes %q", ep.Tokens.Break, ep.Flags, e.Notes())
			}
			checkRendering(t, e, ep, c.tools)
		})
	}
}

// llama-server tells no logprobs of a stop string's tokens: those are null, and all the others are what it told.
func TestLlamaLogprobsOfAStopString(t *testing.T) {
	e := simulatedAs(t, enginesim.Config{Speaks: enginesim.SpeaksLlama}, func(c *Config) { c.Exchange = episode.ExchangeIDs })
	c := call("What is 12 + 30?")
	c.Sampling = episode.Sampling{TokenIDs: true, Logprobs: true, Stop: []string{"="}}
	r := generate(t, e, c)
	n := len(r.SampledIDs)
	if r.StopSeq == nil || n < 3 || len(r.Logprobs) != n || r.Logprobs[n-1].Known || !r.Logprobs[n-2].Known || len(r.Flags) > 0 {
		t.Fatalf("%d ids, logprobs %+v, stop %s, flags %v", n, r.Logprobs, text1(r.StopSeq), r.Flags)
	}
}

// An answer that is a stop string and nothing else: its ids are stored, each with no logprob, and nothing is missing.
func TestLlamaLogprobsOfNothingButAStopString(t *testing.T) {
	e := simulatedAs(t, enginesim.Config{Speaks: enginesim.SpeaksLlama}, func(c *Config) { c.Exchange = episode.ExchangeIDs })
	c := call("What is 12 + 30?")
	c.Sampling = episode.Sampling{TokenIDs: true, Logprobs: true}
	first := generate(t, e, c).Message.Text()[:1]
	c.Sampling.Stop = []string{first}
	r := generate(t, e, c)
	if r.Message.Text() != "" || len(r.SampledIDs) != 1 || len(r.Logprobs) != 1 || r.Logprobs[0].Known || len(r.Flags) > 0 {
		t.Fatalf("%q, ids %v, logprobs %+v, flags %v", r.Message.Text(), r.SampledIDs, r.Logprobs, r.Flags)
	}
}

// checkRendering holds the whole sequence to what the messages say: decoded, it is the text that the server renders of them.
func checkRendering(t *testing.T, e *Endpoint, ep *episode.Episode, tools string) {
	t.Helper()
	c, _ := ep.NextCall()
	c.Messages, c.Tools = c.Messages[:c.Past.Messages-1], []byte(tools) // up to the last answer, which the sequence ends with
	w := e.waysFor(&c)[0]
	full, err := e.renderPrompt(t.Context(), &c, w, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.identify(t.Context(), &full); err != nil {
		t.Fatal(err)
	}
	last := len(ep.Tokens.IDs)
	for last > 0 && ep.Tokens.Mask[last-1] == 1 {
		last--
	}
	stored, err := e.detokenize(t.Context(), ep.Tokens.IDs[:last])
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := e.detokenize(t.Context(), full.ids)
	if err != nil {
		t.Fatal(err)
	}
	if stored != rendered {
		t.Errorf("the sequence reads\n%q\nthe server renders\n%q", stored, rendered)
	}
	if slices.Equal(ep.Tokens.IDs[:last], full.ids) {
		t.Error("the ids are those of the text: this test shows nothing")
	}
}

// What the ways are for: sent as messages, the same conversation does not extend itself, and the record says so. Without tools to read and without
// the scale-out routes, and with them forbidden by what is known of the server.
func TestMessagesBreakThePrefix(t *testing.T) {
	for name, c := range map[string]struct {
		engine enginesim.Config
		client func(*Config)
		tools  string
	}{
		"by configuration":        {enginesim.Config{}, func(c *Config) { c.Exchange = episode.ExchangeChat }, toolSet},
		"tools without scale-out": {enginesim.Config{NoScaleOut: true}, nil, toolSet},
		"overridden": {enginesim.Config{}, func(c *Config) {
			c.Capabilities = raws("generate", `""`, "token-ids-in", "false")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.engine.OddTokens, c.engine.LengthMean = true, 20
			e := simulatedAs(t, c.engine, c.client)
			ep := talk(t, e, 4, episode.Sampling{}, c.tools)
			if got := exchanges(ep); got != "chat chat chat chat" {
				t.Errorf("turns went as %q; notes %q", got, e.Notes())
			}
			if ep.Tokens.Break == nil {
				t.Error("the prompts do not extend one another and no prefix break is recorded")
			}
			if said := strings.Join(e.Notes(), "\n"); c.client == nil && !strings.Contains(said, "later turns go as messages") {
				t.Errorf("notes %q do not say that messages went", said)
			}
		})
	}
}

// A server that cannot, where exact ids were asked for, is a fault: nothing else is sent in their place.
func TestExactTokensOrNone(t *testing.T) {
	e := simulatedAs(t, enginesim.Config{NoScaleOut: true}, func(c *Config) { c.Exchange = episode.ExchangeIDs })
	c := call("x")
	c.Sampling.TokenIDs, c.Tools = true, []byte(toolSet)
	_, err := e.Generate(t.Context(), c, 0, 8)
	if f := faultOf(t, err); f.Class != episode.ClassBadRequest || !strings.Contains(f.Error(), "exact token ids were asked for") {
		t.Fatalf("%v", f)
	}
}

// Ids of another model are not sent: they would be other words.
func TestPastOfAnotherModel(t *testing.T) {
	e := simulatedAs(t, enginesim.Config{}, nil)
	for _, c := range []struct {
		past *episode.Past
		want bool
	}{
		{nil, false}, {&episode.Past{Endpoint: "other", Model: "another"}, false}, {&episode.Past{Endpoint: "other", Model: "sim"}, true}, {&episode.Past{Endpoint: e.Name(), Model: "sim-0526"}, true},
	} {
		if got := e.byIDs(&episode.Call{Past: c.past, Sampling: episode.Sampling{TokenIDs: true}}); got != c.want {
			t.Errorf("%+v: by ids %v", c.past, got)
		}
	}
}

// What ends an answer is said once, whoever said it: the model, or the template where the model did not get to it.
func TestSeamBetweenTurns(t *testing.T) {
	const end, nl = 900, 10 // what the template puts behind an answer
	e := &Endpoint{}
	for name, c := range map[string]struct {
		finish string
		stop   *string
		said   []int32
		want   []int32
	}{
		"the model ended it":               {episode.FinishStop, nil, []int32{5, end}, []int32{nl, 7}},
		"by a call":                        {episode.FinishToolCalls, nil, []int32{5, end}, []int32{nl, 7}},
		"cut by its length":                {episode.FinishLength, nil, []int32{5, 6}, []int32{end, nl, 7}},
		"ended, and the end is not told":   {episode.FinishStop, nil, []int32{5, 6}, []int32{end, nl, 7}},
		"by another end token":             {episode.FinishStop, episode.Ptr("901"), []int32{5, 901}, []int32{nl, 7}},
		"by a stop token that is no end's": {episode.FinishStop, episode.Ptr("902"), []int32{5, 6}, []int32{end, nl, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			call := &episode.Call{Past: &episode.Past{IDs: c.said, Finish: c.finish, Stop: c.stop}}
			got, err := e.unsaid(t.Context(), call, []int32{end, nl, 7}, true)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%v, %v; want %v", got, err, c.want)
			}
		})
	}
}
