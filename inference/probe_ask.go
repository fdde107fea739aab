package inference

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"tranche/episode"
)

// Question is a group of facts that only trying shows.
type Question string

// Questions.
const (
	AskTokens    Question = "tokens"    // token ids in and out, tokenizer and template routes
	AskChat      Question = "chat"      // logprobs, n, ids and unknown fields in chat completions
	AskLists     Question = "lists"     // several prompts in one request
	AskOverflow  Question = "overflow"  // what a prompt over the limit gets
	AskRetention Question = "retention" // whether a prompt that comes again is found
)

// AllQuestions are all there are.
func AllQuestions() []Question {
	return []Question{AskTokens, AskChat, AskLists, AskOverflow, AskRetention}
}

// ProbeOptions say what Probe asks and for how long. The zero value asks everything.
type ProbeOptions struct {
	// Ask are the questions. Default: all.
	Ask []Question
	// CallTimeout bounds one request. Default 20 s.
	CallTimeout time.Duration
	// Timeout bounds the whole probe; what is not answered by then stays unknown. Default 60 s.
	Timeout time.Duration
	// Paid lets it generate where that costs money (OpenAI's own service). Default false: only GET /v1/models is asked there.
	Paid bool
}

// Defaults of ProbeOptions.
const (
	DefaultProbeCall = 20 * time.Second
	DefaultProbe     = 60 * time.Second
)

// Validate reports every fault at once.
func (o ProbeOptions) Validate() error {
	var faults []error
	for _, q := range o.Ask {
		if !slices.Contains(AllQuestions(), q) {
			faults = append(faults, fmt.Errorf("there is no question %q; there are %v", q, AllQuestions()))
		}
	}
	if o.CallTimeout < 0 || o.Timeout < 0 {
		faults = append(faults, fmt.Errorf("CallTimeout is %v and Timeout %v; expected 0 (the default) or more", o.CallTimeout, o.Timeout))
	}
	return errors.Join(faults...)
}

func (o ProbeOptions) withDefaults() ProbeOptions {
	if o.Ask == nil {
		o.Ask = AllQuestions()
	}
	orDuration(&o.CallTimeout, DefaultProbeCall)
	orDuration(&o.Timeout, DefaultProbe)
	return o
}

// Capabilities is what is known about the server: after Open what GET requests tell and its kind's usual ways, after Probe what
// answers proved.
func (e *Endpoint) Capabilities() Capabilities { return *e.caps.Load() }

// Probe tries what only trying shows and returns the whole record, which Capabilities then returns too. Together with Open it
// sends at most MostCalls requests, which make under 20 tokens. A question that gets no answer in time leaves its facts as they were;
// only ctx's own end and faulty options are errors. One caller at a time; calls may run meanwhile.
func (e *Endpoint) Probe(ctx context.Context, o ProbeOptions) (Capabilities, error) {
	if err := o.Validate(); err != nil {
		return e.Capabilities(), err
	}
	o = o.withDefaults()
	p := newProber(e, o.CallTimeout)
	p.caps = e.Capabilities()
	if len(p.caps.Asked) > 0 { // a probe of its own, not the end of Open's
		p.caps.Calls = 0
	}
	if err := p.try(ctx, o); err != nil {
		return e.Capabilities(), err
	}
	c := p.caps
	e.caps.Store(&c)
	e.learnFrom(&c)
	return c, nil
}

func (p *prober) try(ctx context.Context, o ProbeOptions) error {
	if p.kind() == KindOpenAI && !o.Paid {
		p.unasked("not asked: generating costs money there")
		return nil
	}
	within, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	p.askAll(within, o.Ask)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("probe %s: %w", p.e.cfg.Name, context.Cause(ctx))
	}
	for _, q := range o.Ask {
		if !slices.Contains(p.caps.Asked, q) {
			p.caps.Asked = append(slices.Clone(p.caps.Asked), q)
		}
	}
	return p.caps.override(p.e.cfg.Capabilities)
}

// unasked says of what is not known that it was not asked.
func (p *prober) unasked(why string) {
	for _, f := range p.caps.items() {
		f.wonder(why)
	}
}

// finds is what later rounds need of earlier ones.
type finds struct {
	prompt   []int32 // ids that the server gave for a text or messages, else plain small ones
	own      bool    // they are the server's own
	again    *chat   // the chat request was refused: what is sent once more
	samples  int     // choices that the chat request got
	before   said    // GET /metrics before the first prompt
	sent     int     // prompt tokens sent to be computed
	prompted bool    // the prompt was computed once
	usages   [2]bool // some answer held token counts; some held cached tokens
}

// askAll goes through the rounds. Each needs what the one before found; on a server that makes one token a second and one
// request at a time they take under ten seconds.
func (p *prober) askAll(ctx context.Context, want []Question) {
	wants := func(q Question) bool { return slices.Contains(want, q) }
	ids := wants(AskTokens) || wants(AskLists) || wants(AskOverflow) || wants(AskRetention)
	var first, second, third []asking
	if ids {
		first = append(first, p.tokenizeCalls()...)
	}
	if wants(AskRetention) && slices.Contains(p.caps.Metrics.Value, "prefix hits") {
		first = append(first, asking{http.MethodGet, p.e.at("/metrics"), nil, func(s said) { p.before = s }})
	}
	if wants(AskChat) || wants(AskTokens) {
		first = append(first, p.chatCall(chat{own: true, samples: 2}))
	}
	p.round(ctx, first...)

	p.choosePrompt()
	if p.takesIDs() && ids {
		second = append(second, p.completionCall())
	}
	if p.again != nil {
		second = append(second, p.chatCall(*p.again))
	}
	if wants(AskTokens) {
		second = append(second, p.tokenCalls()...)
	}
	p.round(ctx, second...)

	if wants(AskLists) || wants(AskRetention) {
		third = append(third, p.againCalls(wants(AskLists), wants(AskRetention))...)
	}
	if wants(AskOverflow) {
		third = append(third, p.overflowCalls()...)
	}
	p.round(ctx, third...)

	if wants(AskRetention) && !p.caps.PrefixRetained.Sure() && p.before.ok() && p.prompted {
		p.round(ctx, asking{http.MethodGet, p.e.at("/metrics"), nil, p.readHits})
	}
	p.concludeUsage()
	if wants(AskTokens) {
		for _, route := range [...]*Fact[string]{&p.caps.TokenizeText, &p.caps.Render, &p.caps.Generate} {
			if route.From == "" {
				route.wonder("not asked: no route of such a server is known")
			}
		}
	}
}

// takesIDs reports whether it is worth sending token ids.
func (p *prober) takesIDs() bool {
	f := &p.caps.TokenIDsIn
	return !f.Known() || f.Value
}

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
	return asking{http.MethodPost, p.e.at(route), bodyOf(fields), read}
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
		route.wonder(s.label + ": " + s.why())
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
	route.wonder(s.label + ": " + s.why())
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

// chat is a form of the probe's chat request.
type chat struct {
	own     bool // with engines' own fields and one that nobody knows; else only what OpenAI's interface has
	samples int  // n; with more than one at temperature 1, for some engines refuse greedy samples of one prompt
}

func (p *prober) chatCall(form chat) asking {
	text := "Count: one two three"
	limit := fieldMaxTokens
	if p.kind() == KindOpenAI || p.e.dialect.Load().maxCompletionTokens {
		limit = fieldMaxCompletionTokens
	}
	fields := map[string]any{
		"model": p.caps.Model.Value, "messages": []episode.Message{{Role: episode.RoleUser, Content: &text}}, limit: 2, "logprobs": true, "top_logprobs": 1,
	}
	if form.samples > 1 {
		fields["n"], fields["temperature"] = form.samples, 1
	}
	if form.own {
		for _, f := range p.ownFields() {
			fields[f] = true
		}
	}
	return p.post("/v1/chat/completions", fields, func(s said) { p.readChat(s, form) })
}

// ownFields are what the chat request tries beyond OpenAI's interface.
func (p *prober) ownFields() []string {
	switch p.kind() {
	case KindOpenAI:
		return nil
	case KindSGLang:
		return []string{strangeField, "return_prompt_token_ids", "return_meta_info"}
	}
	return []string{strangeField, "return_token_ids"}
}

// strangeField is a field that no server knows.
const strangeField = "tranche_probe"

func (p *prober) readChat(s said, form chat) {
	c := &p.caps
	w, ok := p.answer(s)
	if !ok {
		p.readChatRefusal(s, form)
		return
	}
	own := form.own && len(p.ownFields()) > 0
	switch {
	case own:
		c.UnknownFields.prove(Ignores, s.label+": answered with an unknown field in the request")
	case p.again != nil && !c.UnknownFields.Sure() && p.kind() != KindOpenAI:
		c.UnknownFields.claim(Refuses, s.label+": refused with n and the engines' own fields, answered without")
	}
	p.samples = len(w.Choices)
	if form.samples > 1 {
		c.N.prove(p.samples == form.samples, fmt.Sprintf("%s: n = %d gave %d choices", s.label, form.samples, p.samples))
	}
	first := choice{}
	first.take(&w.Choices[0])
	spoke := len(first.content)+len(first.reasoning) > 0
	p.give(&c.Logprobs, len(first.logprobs) > 0 && first.logprobs[0].Known, spoke, s.label+": logprobs")
	switch {
	case own:
		p.readChatIDs(w, &first, spoke, s.label)
	case c.UnknownFields.Sure():
		c.ChatTokenIDs.prove(false, s.label+": refuses the fields that ask for them")
		c.ChatPromptIDs.prove(false, s.label+": refuses the fields that ask for them")
	}
	p.give(&c.WeightVersion, w.Metadata.of != nil && len(w.Metadata.of.WeightVersion) > 0, true, s.label+": metadata.weight_version")
}

func (p *prober) readChatIDs(w *wireAnswer, first *choice, spoke bool, label string) {
	ids, where := first.ids, "token_ids"
	switch {
	case ids != nil && w.Choices[0].MetaInfo != nil:
		where = "meta_info.output_token_logprobs"
	case ids == nil && first.logprobIDs != nil:
		ids, where = first.logprobIDs, "ids beside the logprobs"
	}
	p.give(&p.caps.ChatTokenIDs, len(ids) > 0, spoke, label+": "+where)
	p.give(&p.caps.ChatPromptIDs, len(w.PromptTokenIDs)+len(w.Choices[0].PromptTokenIDs) > 0, true, label+": prompt_token_ids")
}

// readChatRefusal learns from a refusal what was refused. The request is sent once more without it.
func (p *prober) readChatRefusal(s said, form chat) {
	c := &p.caps
	why := s.label + ": " + s.why()
	for _, f := range []factual{&c.Logprobs, &c.N, &c.ChatTokenIDs, &c.ChatPromptIDs, &c.WeightVersion, &c.UnknownFields} {
		f.wonder(why)
	}
	if !s.refused() || p.again != nil {
		return
	}
	body := strings.ToLower(string(s.body))
	named := func(field string) bool { return strings.Contains(body, field) }
	switch said := readRefusal(s.body); {
	case slices.ContainsFunc(p.ownFields(), named):
		c.UnknownFields.prove(Refuses, why)
		p.again = &chat{samples: form.samples}
	case said.Param != nil && *said.Param == "n":
		c.N.prove(false, why)
		p.again = &chat{own: true, samples: 1}
	default:
		p.again = &chat{samples: 1}
	}
}

// give notes what an answer holds. That it does not hold it counts only where it could have.
func (p *prober) give(f *Fact[bool], has, could bool, from string) {
	switch {
	case has:
		f.prove(true, from)
	case could:
		f.prove(false, from+" is not in the answer")
	default:
		f.wonder(from + " is not in the answer, which is empty")
	}
}

// answer decodes a completion of either kind and notes what it tells of usage.
func (p *prober) answer(s said) (*wireAnswer, bool) {
	var w wireAnswer
	if !s.ok() || decode(s.body, &w) != nil || len(w.Choices) == 0 || isError(w.Error) {
		return nil, false
	}
	u := usageOf(&w)
	p.usages[0] = p.usages[0] || u.Prompt != nil && u.Completion != nil
	p.usages[1] = p.usages[1] || u.Cached != nil
	if p.usages[0] {
		p.caps.Usage.prove(true, s.label+": usage")
	}
	if u.Cached != nil {
		p.caps.CachedTokens.prove(true, s.label+": usage")
	}
	return &w, true
}

func usageOf(w *wireAnswer) episode.Usage {
	var a answer
	a.take(w)
	return a.usage
}

// concludeUsage says that no answer held the counts.
func (p *prober) concludeUsage() {
	c := &p.caps
	if p.samples == 0 && !p.prompted {
		return
	}
	if !p.usages[0] {
		c.Usage.prove(false, "no answer held any")
	}
	if !p.usages[1] {
		c.CachedTokens.prove(false, "no answer held any")
	}
}

// completionCall sends the prompt as token ids to the completions route.
func (p *prober) completionCall() asking {
	fields := map[string]any{"model": p.caps.Model.Value, "prompt": p.prompt, "max_tokens": 1, "temperature": 0, "logprobs": 1}
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
	why := s.label + ": " + s.why()
	w, ok := p.answer(s)
	if !ok {
		if s.absent() || s.refusedPrompt() {
			c.TokenIDsIn.prove(false, why)
		}
		for _, f := range []*Fact[bool]{&c.TokenIDsIn, &c.PromptKept, &c.TokenIDsOut} {
			f.wonder(why)
		}
		return
	}
	p.prompted = true
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

// againCalls send the prompt again: twice in one request, which shows lists and, by the cached tokens, whether it was kept.
func (p *prober) againCalls(lists, retention bool) []asking {
	var list []asking
	c := &p.caps
	if lists && p.kind() != KindOpenAI {
		n := 1
		if c.N.Sure() {
			n = 2
		}
		fields := map[string]any{"model": c.Model.Value, "prompt": p.prompts(), "max_tokens": 1, "n": n}
		p.sent += 2 * n * len(p.prompt)
		list = append(list, p.post("/v1/completions", fields, func(s said) { p.readList(s, 2*n) }))
	}
	switch {
	case !retention || !p.prompted:
		c.PrefixRetained.wonder("no prompt could be sent twice")
	case p.kind() == KindSGLang:
		p.sent += len(p.prompt)
		list = append(list, p.generateSGLang(p.readAgain))
	case !lists:
		p.sent += len(p.prompt)
		list = append(list, p.post("/v1/completions", map[string]any{"model": c.Model.Value, "prompt": p.prompt, "max_tokens": 1, "temperature": 0}, func(s said) {
			if w, ok := p.answer(s); ok {
				p.readCached(usageOf(w).Cached, s.label)
			}
		}))
	}
	return list
}

// prompts are two prompts for one request: ids where the server takes them, else text.
func (p *prober) prompts() any {
	if p.caps.TokenIDsIn.Sure() {
		return [][]int32{p.prompt, p.prompt}
	}
	return []string{"Count: one two three", "Count: four five six"}
}

func (p *prober) readList(s said, want int) {
	c := &p.caps
	w, ok := p.answer(s)
	switch {
	case ok:
		seen := map[int]bool{}
		for i, ch := range w.Choices {
			if ch.Index != nil {
				i = *ch.Index
			}
			seen[i] = true
		}
		whole := len(w.Choices) == want && len(seen) == want && seen[0] && seen[want-1]
		c.ListPrompts.prove(whole, fmt.Sprintf("%s: %d of %d choices, index = prompt · n + sample", s.label, len(seen), want))
		if c.TokenIDsIn.Sure() {
			p.readCached(usageOf(w).Cached, s.label)
		}
	case s.absent() || s.refusedPrompt():
		c.ListPrompts.prove(false, s.label+": "+s.why())
	default:
		c.ListPrompts.wonder(s.label + ": " + s.why())
	}
}

func (p *prober) readAgain(s said) {
	var a sglangAnswer
	if !s.ok() || json.Unmarshal(s.body, &a) != nil || a.Meta.Cached == nil {
		p.caps.PrefixRetained.wonder(s.label + ": " + s.why())
		return
	}
	n := int32(*a.Meta.Cached)
	p.readCached(&n, s.label)
}

// readCached takes what an answer says of a prompt that had been computed. No hit proves something only where the prompt is longer
// than a block whose size is known.
func (p *prober) readCached(n *int32, label string) {
	f := &p.caps.PrefixRetained
	switch block := p.caps.BlockTokens.Value; {
	case n == nil || f.Sure():
	case *n > 0:
		f.prove(true, fmt.Sprintf("%s: %d tokens of a prompt that came again were cached", label, *n))
	case block > 0 && len(p.prompt) > block:
		f.prove(false, fmt.Sprintf("%s: nothing of a prompt of %d tokens that came again was cached", label, len(p.prompt)))
	default:
		f.wonder(label + ": nothing of a short prompt that came again was cached")
	}
}

// readHits holds the server's counter of prefix hits against what it was before the first prompt. Others' hits count too, so it
// proves something only where nobody else sent prompts meanwhile.
func (p *prober) readHits(s said) {
	var was, is episode.Load
	readLoad(&was, parseMetrics(string(p.before.body)))
	readLoad(&is, parseMetrics(string(s.body)))
	f := &p.caps.PrefixRetained
	if !s.ok() || was.Hits == nil || is.Hits == nil || was.PrefixQueries == nil || is.PrefixQueries == nil {
		f.wonder(s.label + ": no counters of prefix hits")
		return
	}
	hits, queries := *is.Hits-*was.Hits, *is.PrefixQueries-*was.PrefixQueries
	switch {
	case queries > int64(p.sent+chatAllowance):
		f.wonder(s.label + ": others use the server")
	case hits > 0:
		f.prove(true, fmt.Sprintf("%s: %d prefix hits of a prompt that came again", s.label, hits))
	case queries > 0:
		f.prove(false, fmt.Sprintf("%s: no prefix hit of a prompt that came again", s.label))
	}
}

// chatAllowance is more than the tokens of the probe's two chat prompts with any template.
const chatAllowance = 400

// mostOverflow is the longest context that is tried: its prompt makes a request of 2 MiB.
const mostOverflow = 1 << 20

// overflowCalls send one token more than the context holds. A server that takes it makes one token.
func (p *prober) overflowCalls() []asking {
	c := &p.caps
	limit := c.ContextTokens.Value
	switch {
	case p.kind() == KindOllama:
		return nil // it cuts the prompt
	case limit <= 0:
		c.Overflow.wonder("not asked: the context limit is not known")
		return nil
	case !c.TokenIDsIn.Sure():
		c.Overflow.wonder("not asked: an exact length takes token ids")
		return nil
	case limit > mostOverflow:
		c.Overflow.wonder("not asked: the context is too long to try")
		return nil
	}
	// The smallest id makes the shortest request. The first tokens of a prompt may be special ones; this is one of them or of the text.
	prompt := slices.Repeat([]int32{slices.Min(p.prompt)}, limit+1)
	return []asking{p.post("/v1/completions", map[string]any{"model": c.Model.Value, "prompt": prompt, "max_tokens": 1, "temperature": 0}, p.readOverflow)}
}

func (p *prober) readOverflow(s said) {
	c := &p.caps
	if s.err != nil || !canBeOverflow(s.status) && s.status != http.StatusOK {
		c.Overflow.wonder(s.label + ": " + s.why())
		return
	}
	o := Overflow{Status: s.status}
	if s.status == http.StatusOK {
		w, ok := p.answer(s)
		if !ok || usageOf(w).Prompt == nil || int(*usageOf(w).Prompt) > c.ContextTokens.Value {
			c.Overflow.wonder(s.label + ": a prompt over the limit was answered, and its count does not say that it was cut")
			return
		}
	} else {
		said := readRefusal(s.body)
		o.Limit, o.Prompt, o.Recognised = overflow(said, s.body)
		o.Says = clip(said.Message, 200)
	}
	c.Overflow.prove(o, s.label+" with one token more than the limit")
}

// learnFrom has the endpoint act on what is sure: fields that are refused are not sent, a tokenizer that is not there is not asked.
func (e *Endpoint) learnFrom(c *Capabilities) {
	if c.TokenizeMessages.Proof == Proved && c.TokenizeMessages.Value == "" && c.Kind.Value != KindLlama {
		e.noTokenize.Store(true)
	}
	if c.UnknownFields.Value != Refuses || !c.UnknownFields.Sure() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	d := *e.dialect.Load()
	for _, f := range [...]string{"return_token_ids", "return_prompt_token_ids", "return_meta_info"} {
		d, _ = d.without(f)
	}
	e.dialect.Store(&d)
}

// forget drops what refusals taught.
func (e *Endpoint) forget() {
	e.noTokenize.Store(false)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dialect.Store(&dialect{})
}

// Adopt takes over what an earlier record of the same server proved and this one has not asked. It reports false, and takes nothing,
// where the record is of another server, version, model or context.
func (e *Endpoint) Adopt(earlier Capabilities) bool {
	c := e.Capabilities()
	if !c.SameServer(earlier) {
		return false
	}
	was := earlier.items()
	for i, f := range c.items() {
		f.take(was[i].factual)
	}
	for _, q := range earlier.Asked {
		if !slices.Contains(c.Asked, q) {
			c.Asked = append(slices.Clone(c.Asked), q)
		}
	}
	e.caps.Store(&c)
	e.learnFrom(&c)
	return true
}

// Recheck asks again what Open asked, for a server that was away: it may have come back as another. Where it did, what was proved
// is forgotten and asked again. It returns what changed. What calls depend on (kind, model, capacity) stays as Open found it; a run that is
// to use the new figures is opened anew. One caller at a time; calls may run meanwhile.
func (e *Endpoint) Recheck(ctx context.Context, o ProbeOptions) ([]Change, error) {
	was := e.Capabilities()
	p := newProber(e, postTimeout)
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	now := p.caps
	if now.SameServer(was) && now.Version.Known() {
		return nil, nil
	}
	e.forget()
	e.learnFrom(&now)
	e.caps.Store(&now)
	if len(was.Asked) > 0 {
		o.Ask = was.Asked
		if _, err := e.Probe(ctx, o); err != nil {
			return nil, err
		}
		now = e.Capabilities()
	}
	return now.Changes(was), nil
}
