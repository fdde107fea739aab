package inference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"tranche/episode"
)

// probeText is long enough for one or two blocks of a prefix cache, and tokenises into words.
func probeText() string {
	return strings.Repeat("one two three four five six seven eight nine ten ", 10)
}

func probeMessages() []episode.Message {
	text := probeText()
	return []episode.Message{{Role: episode.RoleUser, Content: &text}}
}

func bodyOf(fields map[string]any) []byte {
	b, err := json.Marshal(fields)
	if err != nil {
		panic(fmt.Sprintf("inference: a probe's request does not encode: %v", err)) // own types only: a bug here
	}
	return b
}

// post is one POST request. The endpoint's own extra fields go to the routes of OpenAI's interface, as they do in calls.
func (p *prober) post(route string, fields map[string]any, read func(said)) asking {
	if strings.HasPrefix(route, "/v1/") {
		for name, v := range p.e.cfg.ExtraBody {
			if _, ours := fields[name]; !ours && name != fieldMaxTokens && name != fieldMaxCompletionTokens {
				fields[name] = v
			}
		}
	}
	return asking{method: http.MethodPost, to: p.e.at(route), body: bodyOf(fields), read: read}
}

// tokenizeCalls ask for the ids of a prompt. llama-server renders and tokenises on two routes, which are asked at once.
func (p *prober) tokenizeCalls() []asking {
	c := &p.caps
	switch p.kind() {
	case KindOllama, KindOpenAI, KindTensorRT:
		return nil
	case KindLlama:
		return []asking{
			p.post("/tokenize", map[string]any{"content": probeText(), "add_special": true, "parse_special": true}, func(s said) { p.readTokens(s, &c.TokenizeText) }),
			p.post("/apply-template", map[string]any{"messages": probeMessages()}, p.readTemplate),
		}
	}
	return []asking{p.post("/tokenize", map[string]any{"model": c.Model.Value, "messages": probeMessages(), "add_generation_prompt": true}, func(s said) {
		p.readTokens(s, &c.TokenizeMessages)
		switch {
		case c.TokenizeMessages.Sure():
			c.TokenizeText.claim("/tokenize", s.label+" takes messages")
		case s.absent():
			c.TokenizeText.prove("", s.label+": "+s.why())
		}
	})}
}

// textCall tries /tokenize with a text under the names that engines give it: some mocks and older servers take no messages.
func (p *prober) textCall() asking {
	text := probeText()
	return p.post("/tokenize", map[string]any{"model": p.caps.Model.Value, "prompt": text, "text": text, "content": text}, func(s said) { p.readTokens(s, &p.caps.TokenizeText) })
}

func (p *prober) readTokens(s said, route *Fact[string]) {
	var a struct{ Tokens []int32 }
	switch {
	case s.ok() && json.Unmarshal(s.body, &a) == nil && len(a.Tokens) > 0:
		route.prove("/tokenize", s.label+": tokens")
		p.prompt, p.own = a.Tokens, true
	case s.absent() || s.refused():
		route.prove("", s.label+": "+s.why())
	default:
		p.lacks(s, route)
	}
}

func (p *prober) readTemplate(s said) {
	var a struct{ Prompt string }
	if s.ok() && json.Unmarshal(s.body, &a) == nil && a.Prompt != "" {
		p.caps.Render.prove("/apply-template", s.label+": prompt")
		return
	}
	p.lack(&p.caps.Render, s)
}

// lack notes that a route is not there, or not for us (vLLM answers 403 where a flag has to open it), or why that is not known.
func (p *prober) lack(route *Fact[string], s said) {
	if s.absent() || s.err == nil && s.status == http.StatusForbidden {
		route.prove("", s.label+": "+s.why())
		return
	}
	p.lacks(s, route)
}

// choosePrompt makes the prompt of the next rounds: long enough that a prefix cache can hold some of it, and no longer than
// half of the context.
func (p *prober) choosePrompt() {
	if len(p.prompt) == 0 {
		for i := range 64 { // within any vocabulary, and behind the special tokens of most
			p.prompt = append(p.prompt, int32(300+i))
		}
	}
	most := 1024
	if n := p.caps.ContextTokens.Value; n > 0 {
		most = min(most, n/2)
	}
	want := min(max(64, 2*p.caps.BlockTokens.Value+1), most)
	base := slices.Clone(p.prompt)
	for len(p.prompt) < want {
		p.prompt = append(p.prompt, base...)
	}
	p.prompt = p.prompt[:min(max(1, want), len(p.prompt))]
}

// completionCall sends the prompt as token ids to the completions route.
func (p *prober) completionCall() asking {
	fields := map[string]any{"model": p.caps.Model.Value, "prompt": p.prompt, "max_tokens": 1, "temperature": 0, "logprobs": likeliest}
	if p.asksIDs() {
		fields["return_token_ids"] = true
	}
	p.sent += len(p.prompt)
	return p.post("/v1/completions", fields, p.readCompletion)
}

// asksIDs reports whether a field that asks for ids may be sent without spoiling the request.
func (p *prober) asksIDs() bool {
	return p.caps.UnknownFields.Value != Refuses && (p.again == nil || p.again.own)
}

// tokenCalls ask the engine's own routes, and a tokenizer that refused messages for a text.
func (p *prober) tokenCalls() []asking {
	c := &p.caps
	list := p.generateCalls()
	if c.TokenizeMessages.Proof == Proved && c.TokenizeMessages.Value == "" && !c.TokenizeText.Known() {
		list = append(list, p.textCall())
	}
	return list
}

func (p *prober) readCompletion(s said) {
	c := &p.caps
	w, ok := p.answer(s)
	if !ok {
		if s.absent() || s.refusedPrompt() {
			c.TokenIDsIn.prove(false, s.label+": "+s.why())
		}
		p.lacks(s, &c.TokenIDsIn, &c.PromptKept, &c.TokenIDsOut)
		return
	}
	p.prompted = true
	p.gap = gapOf(s.body)
	first := choice{}
	first.take(&w.Choices[0])
	seen := notNil(w.Choices[0].PromptTokenIDs)
	if len(seen) == 0 {
		seen = w.PromptTokenIDs
	}
	count := -1
	if u := usageOf(w).Prompt; u != nil {
		count = int(*u)
	}
	switch sent := len(p.prompt); {
	case len(seen) > 0:
		kept := slices.Equal(seen, p.prompt)
		c.TokenIDsIn.prove(kept || len(seen) == sent+1, s.label+": prompt_token_ids")
		c.PromptKept.prove(kept, s.label+": prompt_token_ids")
	case count == sent || count == sent+1: // one more: a token that marks the beginning
		c.TokenIDsIn.prove(true, fmt.Sprintf("%s: usage counts %d for %d ids", s.label, count, sent))
		c.PromptKept.prove(count == sent, fmt.Sprintf("%s: usage counts %d for %d ids", s.label, count, sent))
	default:
		c.TokenIDsIn.wonder(fmt.Sprintf("%s: usage counts %d for %d ids, and no ids came back", s.label, count, sent))
		c.PromptKept.wonder(c.TokenIDsIn.From)
	}
	ids, where := first.ids, "token_ids"
	if ids == nil {
		ids, where = first.logprobIDs, "ids beside the logprobs"
	}
	switch asked := p.asksIDs(); {
	case len(ids) == 0 && c.UnknownFields.Sure() && !asked:
		c.TokenIDsOut.prove(false, s.label+": refuses the field that asks for them")
	case len(ids) > 0 || asked:
		p.give(&c.TokenIDsOut, len(ids) > 0, len(first.content) > 0, s.label+": "+where)
	default:
		c.TokenIDsOut.wonder("not asked: other fields were refused")
	}
}

// generateCalls try the engine's own route that knows no text: vLLM's, SGLang's or llama-server's. Of a server whose kind is not
// known vLLM's is tried.
func (p *prober) generateCalls() []asking {
	c := &p.caps
	switch p.kind() {
	case KindSGLang:
		p.sent += len(p.prompt)
		return []asking{p.generateSGLang(func(s said) { p.readOutputIDs(s) })}
	case KindLlama:
		p.sent += len(p.prompt)
		return []asking{p.post("/completion", map[string]any{"prompt": p.prompt, "n_predict": 1, "temperature": 0, "return_tokens": true, "n_probs": 1}, p.readLlama)}
	case KindVLLM, KindSim:
	default:
		if p.kind() != KindGeneric || !p.own {
			return nil
		}
	}
	p.sent += len(p.prompt)
	list := []asking{p.post("/inference/v1/generate", map[string]any{
		"model": c.Model.Value, "token_ids": p.prompt, "sampling_params": map[string]any{"max_tokens": 1, "temperature": 0, "logprobs": 0},
	}, func(s said) {
		var a struct {
			Choices []struct {
				IDs []int32 `json:"token_ids"`
			}
		}
		if s.ok() && json.Unmarshal(s.body, &a) == nil && len(a.Choices) > 0 && len(a.Choices[0].IDs) > 0 {
			c.Generate.prove("/inference/v1/generate", s.label+": choices[0].token_ids")
			return
		}
		p.lack(&c.Generate, s)
	})}
	if p.kind() == KindGeneric {
		return list
	}
	return append(list, p.post("/v1/chat/completions/render", map[string]any{"model": c.Model.Value, "messages": probeMessages(), "max_tokens": 1}, func(s said) {
		var a struct {
			IDs []int32 `json:"token_ids"`
		}
		body := bytes.TrimSuffix(bytes.TrimPrefix(bytes.TrimSpace(s.body), []byte("[")), []byte("]")) // a list of one, or the one
		if s.ok() && json.Unmarshal(body, &a) == nil && len(a.IDs) > 0 {
			c.Render.prove("/v1/chat/completions/render", s.label+": token_ids")
			return
		}
		p.lack(&c.Render, s)
	}))
}

func (p *prober) generateSGLang(read func(said)) asking {
	return p.post("/generate", map[string]any{"input_ids": p.prompt, "sampling_params": map[string]any{"max_new_tokens": 1, "temperature": 0}, "return_logprob": true}, read)
}

// sglangAnswer is what SGLang's own route gives.
type sglangAnswer struct {
	IDs  []int32 `json:"output_ids"`
	Meta struct {
		Prompt  int             `json:"prompt_tokens"`
		Cached  *int            `json:"cached_tokens"`
		Version json.RawMessage `json:"weight_version"`
	} `json:"meta_info"`
}

func (p *prober) readOutputIDs(s said) {
	c := &p.caps
	var a sglangAnswer
	if !s.ok() || json.Unmarshal(s.body, &a) != nil || len(a.IDs) == 0 {
		p.lack(&c.Generate, s)
		return
	}
	p.prompted = true
	c.Generate.prove("/generate", s.label+": output_ids")
	if a.Meta.Prompt > 0 {
		c.PromptKept.prove(a.Meta.Prompt == len(p.prompt), fmt.Sprintf("%s: prompt_tokens is %d for %d ids", s.label, a.Meta.Prompt, len(p.prompt)))
	}
	if len(a.Meta.Version) > 0 {
		c.WeightVersion.prove(true, s.label+": meta_info.weight_version")
	}
}

func (p *prober) readLlama(s said) {
	c := &p.caps
	var a struct {
		Tokens    []int32
		Evaluated int `json:"tokens_evaluated"`
	}
	if !s.ok() || json.Unmarshal(s.body, &a) != nil || len(a.Tokens) == 0 {
		p.lack(&c.Generate, s)
		return
	}
	p.prompted = true
	c.Generate.prove("/completion", s.label+": tokens")
	c.PromptKept.prove(a.Evaluated == len(p.prompt), fmt.Sprintf("%s: tokens_evaluated is %d for %d ids", s.label, a.Evaluated, len(p.prompt)))
}
