package inference

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
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
func (e *Endpoint) Capabilities() Capabilities {
	c := *e.caps.Load()
	c.Overflow = e.worded(c.Overflow)
	return c
}

// Probe tries what only trying shows and returns the whole record, which Capabilities then returns too. Together with Open it
// sends at most MostCalls requests, which make under 20 tokens. A question that gets no answer leaves its facts as they were and does not count as asked;
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
		if !slices.Contains(p.caps.Asked, q) && !slices.Contains(p.missed, q) {
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

	refusals []string   // of requests that were not too long
	missed   []Question // some request of them had no answer: they are to be asked again
	gap      float64    // between the logprobs of the two likeliest first tokens at temperature 0; 0 = not told
}

// askAll goes through the rounds. Each needs what the one before found; on a server that makes one token a second and one
// request at a time they take under ten seconds.
func (p *prober) askAll(ctx context.Context, want []Question) {
	wants := func(q Question) bool { return slices.Contains(want, q) }
	ids := wants(AskTokens) || wants(AskLists) || wants(AskOverflow) || wants(AskRetention)
	var first, second, third []asking
	if ids {
		first = append(first, about(p.tokenizeCalls(), AskTokens)...)
	}
	if wants(AskRetention) && slices.Contains(p.caps.Metrics.Value, "prefix hits") {
		first = append(first, asking{method: http.MethodGet, to: p.e.at("/metrics"), read: func(s said) { p.before = s }})
	}
	if wants(AskChat) || wants(AskTokens) || wants(AskOverflow) && !p.caps.TokenIDsIn.Sure() { // a prompt over the limit is not sent before one within it was answered
		first = append(first, about([]asking{p.chatCall(chat{own: true, samples: 2})}, AskChat)...)
	}
	p.round(ctx, first...)

	p.choosePrompt()
	if p.takesIDs() && ids {
		second = append(second, about([]asking{p.completionCall()}, AskTokens, AskRetention)...)
	}
	if p.again != nil {
		second = append(second, about([]asking{p.chatCall(*p.again)}, AskChat)...)
	}
	if wants(AskTokens) {
		second = append(second, about(p.tokenCalls(), AskTokens)...)
	}
	p.round(ctx, second...)

	if wants(AskOverflow) { // first: of a server that nobody knows one call may be left
		third = append(third, about(p.overflowCalls(), AskOverflow)...)
	}
	if wants(AskLists) || wants(AskRetention) {
		third = append(third, about(p.againCalls(wants(AskLists), wants(AskRetention)), AskLists, AskRetention)...)
	}
	p.round(ctx, third...)

	if wants(AskRetention) && !p.caps.PrefixRetained.Sure() && p.before.ok() && p.prompted {
		p.round(ctx, asking{method: http.MethodGet, to: p.e.at("/metrics"), read: p.readHits})
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

// learnFrom has the endpoint act on what is sure: fields that are refused are not sent, a tokenizer that is not there is not asked.
func (e *Endpoint) learnFrom(c *Capabilities) {
	if c.TokenizeMessages.Proof == Proved && c.TokenizeMessages.Value == "" && c.Kind.Value != KindLlama {
		e.noTokenize.Store(true)
	}
	for _, w := range c.Overflow.Value.Wordings {
		e.learnWording(w)
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
	e.wordings.Store(nil)
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
// is forgotten and asked again; one that tells no version is the same by its kind, model and context. It returns what changed. What calls depend on (kind, model, capacity) stays as Open found it; a run that is
// to use the new figures is opened anew. One caller at a time; calls may run meanwhile.
func (e *Endpoint) Recheck(ctx context.Context, o ProbeOptions) ([]Change, error) {
	was := e.Capabilities()
	p := newProber(e, postTimeout)
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	now := p.caps
	if now.SameServer(was) {
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
