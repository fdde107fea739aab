package inference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"tranche/episode"
)

// rendering is what a server made of messages: token ids, or the text they will be tokenised from (llama-server), of which one is empty until identify.
type rendering struct {
	ids   []int32
	text  string
	byIDs bool
	ready map[string]json.RawMessage // the whole request as vLLM's render made it
	// inside says that the text is a piece of a prompt and not its beginning.
	inside bool
}

func (r rendering) empty() bool { return len(r.ids) == 0 && r.text == "" }

// since is what a prompt adds to one that ends with an answer: what ends the answer, and what comes behind it. false = it does not begin with it.
func (r rendering) since(base, end rendering) (added rendering, ok bool) {
	if r.byIDs {
		ok = slices.Equal(base.ids, r.ids[:min(len(base.ids), len(r.ids))]) && hasSuffix(base.ids, end.ids)
		if !ok {
			return rendering{}, false
		}
		return rendering{ids: r.ids[len(base.ids)-len(end.ids):], byIDs: true}, true
	}
	ok = strings.HasPrefix(r.text, base.text) && strings.HasSuffix(base.text, end.text)
	if !ok {
		return rendering{}, false
	}
	return rendering{text: r.text[len(base.text)-len(end.text):], inside: true}, true
}

func hasSuffix(ids, end []int32) bool {
	return len(end) <= len(ids) && slices.Equal(ids[len(ids)-len(end):], end)
}

// renderPrompt has the server render the call's messages; generate adds what invites an answer.
func (e *Endpoint) renderPrompt(ctx context.Context, c *episode.Call, w way, generate bool) (rendering, error) {
	switch w {
	case wayGenerate:
		return e.renderReady(ctx, c, generate)
	case wayLlama:
		return e.renderText(ctx, c, generate)
	}
	return e.renderIDs(ctx, c, generate)
}

// renderIDs has the tokenizer's route render and tokenise the messages.
func (e *Endpoint) renderIDs(ctx context.Context, c *episode.Call, generate bool) (rendering, error) {
	if e.noTokenize.Load() || e.facts.kind == KindOllama {
		return rendering{}, errNoWay
	}
	body, err := e.templateBody(c, generate)
	if err != nil {
		return rendering{}, err
	}
	var out struct {
		Tokens []int32 `json:"tokens"`
	}
	if f := e.question(ctx, "/tokenize", body, &out); f != nil {
		if cannotCount(e.facts.kind, f.status) {
			e.noTokenize.Store(true)
			e.note("the server cannot render messages into token ids: POST /tokenize: %s", clip(f.Error(), 120))
			return rendering{}, errNoWay
		}
		return rendering{}, f
	}
	if len(out.Tokens) == 0 { // it only counts
		return rendering{}, errNoWay
	}
	return rendering{ids: out.Tokens, byIDs: true}, nil
}

// renderReady has vLLM make the whole request ready: what chat completions would do with this very body.
func (e *Endpoint) renderReady(ctx context.Context, c *episode.Call, generate bool) (rendering, error) {
	const route = "/v1/chat/completions/render"
	body, err := e.chatBody(c, 1, &generate)
	if err != nil {
		return rendering{}, err
	}
	r := rendering{byIDs: true}
	if f := e.question(ctx, route, body, &r.ready); f != nil {
		if routeMissing(f) {
			e.lose(string(wayGenerate), fmt.Sprintf("POST %s: HTTP %d: %s", route, f.status, clip(readRefusal(f.body).Message, 120)))
			return rendering{}, errNoWay
		}
		return rendering{}, f
	}
	if err := json.Unmarshal(r.ready["token_ids"], &r.ids); err != nil || len(r.ids) == 0 || r.ready["sampling_params"] == nil {
		return rendering{}, fmt.Errorf("POST %s gave no token_ids with sampling_params", route)
	}
	return r, nil
}

// chatBody is the whole chat request that the call would be, in one piece.
func (e *Endpoint) chatBody(c *episode.Call, maxTokens int, generate *bool) ([]byte, error) {
	cfg := e.cfg
	cfg.Stream = false
	if generate != nil && !*generate {
		cfg.ExtraBody = maps.Clone(cfg.ExtraBody)
		if cfg.ExtraBody == nil {
			cfg.ExtraBody = map[string]json.RawMessage{}
		}
		cfg.ExtraBody["add_generation_prompt"] = json.RawMessage("false")
	}
	return render(c, maxTokens, cfg, e.facts, *e.dialect.Load())
}

// renderText has llama-server render the prompt as text.
func (e *Endpoint) renderText(ctx context.Context, c *episode.Call, generate bool) (rendering, error) {
	body, err := e.templateBody(c, generate)
	if err != nil {
		return rendering{}, err
	}
	var out struct {
		Prompt *string `json:"prompt"`
	}
	if f := e.question(ctx, "/apply-template", body, &out); f != nil {
		return rendering{}, f
	}
	if out.Prompt == nil {
		return rendering{}, errors.New("POST /apply-template gave no prompt")
	}
	return rendering{text: *out.Prompt}, nil
}

// identify has the server tokenise what is text so far.
func (e *Endpoint) identify(ctx context.Context, r *rendering) error {
	if r.byIDs || r.text == "" {
		return nil
	}
	var out struct {
		Tokens []int32 `json:"tokens"`
	}
	body := mustEncode(map[string]any{"content": r.text, "add_special": !r.inside, "parse_special": true})
	if f := e.question(ctx, "/tokenize", body, &out); f != nil {
		return f
	}
	if len(out.Tokens) == 0 {
		return errors.New("POST /tokenize gave no tokens")
	}
	r.ids, r.byIDs = out.Tokens, true
	return nil
}

// closing is what the template puts behind an answer: where two conversations that differ in nothing but the last answer's text end alike. It is
// asked for once for each way to render. Empty where a server leaves an answer at the end open.
func (e *Endpoint) closing(ctx context.Context, c *episode.Call, w way) (rendering, error) {
	key := string(w) + e.templateKey(c)
	e.mu.Lock()
	known, ok := e.closings[key]
	e.mu.Unlock()
	if ok {
		return known, nil
	}
	probe := *c // with its tools: the fields that speak of them are refused without
	var made [2]rendering
	for i, said := range [...]string{"yes", "none"} {
		probe.Messages = []episode.Message{{Role: episode.RoleUser, Content: episode.Ptr("Well?")}, {Role: episode.RoleAssistant, Content: &said}}
		var err error
		if made[i], err = e.renderPrompt(ctx, &probe, w, false); err != nil {
			return rendering{}, err
		}
	}
	end := rendering{byIDs: made[0].byIDs, inside: true}
	if end.byIDs {
		end.ids = made[0].ids[len(made[0].ids)-commonEnd(made[0].ids, made[1].ids):]
	} else {
		a, b := []rune(made[0].text), []rune(made[1].text)
		end.text = string(a[len(a)-commonEnd(a, b):])
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closings == nil {
		e.closings = map[string]rendering{}
	}
	e.closings[key] = end
	return end, nil
}

func commonEnd[T comparable](a, b []T) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

// templateKey names what of the extra fields decides how messages are rendered.
func (e *Endpoint) templateKey(c *episode.Call) string {
	var b strings.Builder
	for _, name := range templateFields {
		raw, ok := c.Sampling.Extra[name]
		if !ok {
			raw = e.cfg.ExtraBody[name]
		}
		b.WriteByte(0)
		b.Write(raw)
	}
	return b.String()
}

// question asks a small question below the root. A nil failure means that out holds the answer.
func (e *Endpoint) question(ctx context.Context, route string, body []byte, out any) *failure {
	s := e.exchange(ctx, http.MethodPost, e.at(route), body, postTimeout)
	var dial *net.OpError
	switch {
	case ctx.Err() != nil:
		return &failure{reach: reachSent, err: &callerError{context.Cause(ctx)}}
	case errors.As(s.err, &dial) && dial.Op == "dial":
		return &failure{reach: reachNothing, err: s.err}
	case s.err != nil:
		return &failure{reach: reachSent, err: s.err}
	case s.status != http.StatusOK:
		return &failure{reach: reachAnswer, status: s.status, header: s.header, body: notNil(e.redact(s.body))}
	}
	if err := decode(s.body, out); err != nil {
		return &failure{reach: reachAnswer, status: s.status, err: &malformedError{fmt.Errorf("POST %s: %w", route, describe(s.body, err))}}
	}
	return nil
}

// behindAnswer is what follows the last answer, where the template renders the answer itself another way once something follows it (Qwen3's puts an empty
// thought before an answer at the end alone): where the prompt and one with another answer in its place end alike. Only what came before the answer has to be
// as it was. An answer with reasoning is no such case: a template that drops that means to.
func (e *Endpoint) behindAnswer(ctx context.Context, c *episode.Call, w way, full rendering) (added rendering, ok bool, err error) {
	at := c.Past.Messages - 1
	answer := c.Messages[at]
	if answer.ReasoningContent != nil && *answer.ReasoningContent != "" || strings.Contains(answer.Text(), thinkClose) {
		return rendering{}, false, nil
	}
	before, other := *c, *c
	before.Messages = c.Messages[:at]
	other.Messages = slices.Clone(c.Messages)
	said := "yes"
	if strings.HasSuffix(answer.Text(), "s") {
		said = "none"
	}
	other.Messages[at] = episode.Message{Role: episode.RoleAssistant, Content: &said}
	history, err := e.renderPrompt(ctx, &before, w, false)
	var refused *failure
	if err == nil {
		added, err = e.renderPrompt(ctx, &other, w, true)
	}
	switch {
	case errors.As(err, &refused) && refused.status/100 == 4: // a template that takes no such conversation
		return rendering{}, false, nil
	case err != nil:
		return rendering{}, false, err
	}
	if _, begins := full.since(history, rendering{}); !begins {
		return rendering{}, false, nil
	}
	if full.byIDs {
		n := min(commonEnd(full.ids, added.ids), len(full.ids)-len(history.ids))
		return rendering{ids: full.ids[len(full.ids)-n:], byIDs: true}, n > 0, nil
	}
	a, b := []rune(full.text[len(history.text):]), []rune(added.text)
	n := commonEnd(a, b)
	return rendering{text: string(a[len(a)-n:]), inside: true}, n > 0, nil
}

// PromptIDs has the server render and tokenise the prompt of a call, as it would for a chat completion. episode.ErrUnsupported: it cannot.
func (e *Endpoint) PromptIDs(ctx context.Context, c *episode.Call) ([]int32, error) {
	w := wayCompletions
	if e.facts.kind == KindLlama {
		w = wayLlama
	}
	r, err := e.renderPrompt(ctx, c, w, true)
	if err == nil {
		err = e.identify(ctx, &r)
	}
	if errors.Is(err, errNoWay) {
		return nil, episode.ErrUnsupported
	}
	if err != nil {
		return nil, fmt.Errorf("render the prompt of %s at %s: %w", c.ID, e.cfg.Name, err)
	}
	return r.ids, nil
}

// Text has the server decode token ids, special tokens by their names.
func (e *Endpoint) Text(ctx context.Context, ids []int32) (string, error) {
	if len(ids) == 0 {
		return "", nil
	}
	return e.detokenize(ctx, ids)
}
