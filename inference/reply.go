package inference

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"tranche/episode"
)

// answer is what is known of a reply so far. A whole answer is taken in one piece, a stream chunk by chunk; both come
// together here, so that the two can never differ in what they keep.
type answer struct {
	model     string
	promptIDs []int32
	usage     episode.Usage
	timings   *wireTimings
	version   *int32
	choices   map[int]*choice // by index; we ask for one, a server may give more
	zero      *choice         // that of index 0, once it has come
	failed    text            // what the server says the model wrote, where it could make no answer of it
	raw       *episode.Raw    // nil = not kept
	ended     bool            // the stream's end marker came
	first     time.Duration   // dispatch to the first piece of the answer itself; 0 = none yet
	shape     func([]byte) (*wireAnswer, error)
	timed     bool            // stamps are wanted
	stamps    []time.Duration // of each token id, since dispatch
	desk      *desk           // where it is read; nil = nothing has been yet
	still     bool            // what is read stays where it is until the desk is given back: a whole answer, not a stream
	wantWhole bool            // it is the answer to a Request
	whole     *episode.Answer // that answer
}

type choice struct {
	still                       bool // the texts that are taken stay where they are: see answer
	content, reasoning, refusal pieces
	calls                       []toolCall
	finish                      string // the server's own word; "" = none came
	stop                        *string
	promptIDs                   []int32 // nil = not given with the choice
	ids                         []int32 // nil = not given
	weights                     []wireWeights
	logprobs                    []episode.Logprob
	logprobIDs                  []int32 // ids that came with the logprobs; as long as logprobs or nil
	said                        bool    // a message, a piece of one or its tokens came, be they empty
}

type toolCall struct {
	index     *int
	id, kind  string
	name      string
	arguments pieces
}

// take adds one wire answer, whole or a chunk.
func (a *answer) take(w *wireAnswer) {
	if w.Model != "" {
		a.model = string(w.Model)
	}
	if w.PromptTokenIDs != nil {
		a.promptIDs = w.PromptTokenIDs
	}
	if w.Metadata.of != nil {
		a.takeVersion(w.Metadata.of.WeightVersion)
	}
	if w.XGroq.of != nil {
		a.takeUsage(w.XGroq.of.Usage.of)
	}
	a.takeUsage(w.Usage.of)
	if w.Timings.of != nil {
		a.timings = w.Timings.of
	}
	for i := range w.Choices {
		a.takeChoice(&w.Choices[i], i)
	}
}

// takeChoice adds one choice, which stood at a place in its list.
func (a *answer) takeChoice(w *wireChoice, place int) {
	index := place
	if w.Index != nil {
		index = *w.Index
	}
	c := a.zero
	if index != 0 || c == nil {
		c = a.choices[index]
	}
	for w.whole() && c != nil { // a server that gives all its whole choices one number
		index++
		c = a.choices[index]
	}
	if c == nil {
		c = a.begin(index)
	}
	if index == 0 {
		a.takeUsage(w.Usage.of)
		if w.MetaInfo != nil {
			a.takeVersion(w.MetaInfo.WeightVersion)
			missing(&a.usage.Prompt, w.MetaInfo.Prompt)
			missing(&a.usage.Completion, w.MetaInfo.Completion)
			missing(&a.usage.Cached, w.MetaInfo.Cached)
		}
	}
	c.take(w)
}

// begin is a new choice.
func (a *answer) begin(index int) *choice {
	if a.choices == nil {
		a.choices = map[int]*choice{}
	}
	c := &choice{still: a.still}
	a.choices[index] = c
	if index == 0 {
		a.zero = c
	}
	return c
}

// whole tells a choice of a whole answer from a piece of one.
func (w *wireChoice) whole() bool { return w.Message != nil && w.Delta == nil }

// takeUsage keeps the newest figure of each kind: streams may repeat a running usage.
func (a *answer) takeUsage(u *wireUsage) {
	if u == nil {
		return
	}
	newest(&a.usage.Prompt, u.Input)
	newest(&a.usage.Prompt, u.Prompt)
	newest(&a.usage.Completion, u.Output)
	newest(&a.usage.Completion, u.generated())
	newest(&a.usage.Cached, u.CacheHit)
	newest(&a.usage.Cached, u.Cached)
	for _, d := range [...]aside[wireParts]{u.InputDetails, u.Details} {
		if d.of != nil {
			newest(&a.usage.Cached, d.of.Cached)
		}
	}
}

// counts is the usage with what only llama-server's timings tell.
func (a *answer) counts() episode.Usage {
	u := a.usage
	if t := a.timings; t != nil {
		if t.Prompt != nil && t.Cached != nil && *t.Prompt >= 0 && *t.Cached >= 0 {
			all := *t.Prompt + *t.Cached
			missing(&u.Prompt, &all)
		}
		missing(&u.Completion, t.Generated)
		missing(&u.Cached, t.Cached)
	}
	return u
}

func newest(p **int32, v *count) {
	if v != nil && *v >= 0 {
		*p = episode.Ptr(int32(*v))
	}
}

// missing takes a figure from a lesser source: only where there is none yet.
func missing(p **int32, v *count) {
	if *p == nil {
		newest(p, v)
	}
}

// takeVersion keeps a weight version, where it is one.
func (a *answer) takeVersion(raw json.RawMessage) {
	if v := versionOf(raw); v != nil {
		a.version = v
	}
}

// versionOf is a weight version that is a number; servers that were never updated name it "default".
func versionOf(raw json.RawMessage) *int32 {
	s := scalar(raw)
	if s == nil {
		return nil
	}
	if n, err := strconv.ParseInt(*s, 10, 32); err == nil {
		return episode.Ptr(int32(n))
	}
	return nil
}

// spans are the weight versions of the ids, which they cover whole; nil where none were told, or not in order.
func (c *choice) spans() []episode.Span {
	var list []episode.Span
	to := 0
	for _, w := range c.weights {
		if w.Start < to || w.End < w.Start || w.End > len(c.ids) {
			return nil
		}
		if w.Start > to {
			list = append(list, episode.Span{Tokens: w.Start - to})
		}
		list = append(list, episode.Span{Tokens: w.End - w.Start, Version: versionOf(w.Version)})
		to = w.End
	}
	if to < len(c.ids) && list != nil {
		list = append(list, episode.Span{Tokens: len(c.ids) - to})
	}
	return list
}

func (c *choice) take(w *wireChoice) {
	c.said = c.said || w.Delta != nil || w.Message != nil || w.Text != nil || w.TokenIDs != nil || w.MetaInfo != nil
	switch {
	case w.Delta != nil: // Perplexity sends the whole message so far beside each piece
		c.takeMessage(w.Delta, false)
	case w.Message != nil:
		c.takeMessage(w.Message, true)
	}
	c.add(&c.content, w.Text)
	if w.FinishReason != nil && *w.FinishReason != "" {
		c.finish = string(*w.FinishReason)
	}
	for _, raw := range [...]json.RawMessage{w.StopReason, w.MatchedStop} {
		if s := scalar(raw); s != nil {
			c.stop = s
		}
	}
	if w.PromptTokenIDs != nil {
		c.promptIDs = w.PromptTokenIDs
	}
	if w.TokenIDs != nil {
		c.ids = append(notNil(c.ids), w.TokenIDs...)
	}
	if w.Weights != nil { // of the whole answer, in the last piece of a stream
		c.weights = w.Weights
	}
	if w.Logprobs != nil {
		c.takeLogprobs(w.Logprobs)
	}
	if w.MetaInfo != nil {
		c.takeMeta(w.MetaInfo)
	}
}

func (c *choice) takeMessage(m *wireMessage, whole bool) {
	c.add(&c.refusal, m.Refusal)
	c.takeReasoning(m)
	if m.Content != nil {
		c.add(&c.reasoning, m.Content.thought)
		c.add(&c.content, &m.Content.said)
		c.add(&c.refusal, m.Content.refused)
	}
	for i := range m.ToolCalls {
		c.takeCall(&m.ToolCalls[i], whole)
	}
	if f := m.FunctionCall.of; f != nil && len(f.Name)+len(f.Arguments) > 0 {
		c.takeCall(&wireToolCall{Function: *f}, whole)
	}
}

// takeReasoning takes the thinking from one place: servers that fill several send the same text in each.
func (c *choice) takeReasoning(m *wireMessage) {
	for _, t := range [...]*text{m.ReasoningContent, m.Reasoning} {
		if t != nil && len(*t) > 0 {
			c.add(&c.reasoning, t)
			return
		}
	}
	c.add(&c.reasoning, m.ReasoningContent) // "" is not null
	c.add(&c.reasoning, m.Reasoning)
	for _, d := range m.ReasoningDetails {
		c.add(&c.reasoning, d.Text)
		c.add(&c.reasoning, d.Summary)
	}
}

// pieces is a text that grows; nil = null all along, which is not the same as empty.
type pieces []byte

// firstGrowth is what a text that comes in pieces gets room for at first, bytes.
const firstGrowth = 256

// add adds a piece to one of the texts; nil = null, which adds nothing.
func (c *choice) add(p *pieces, t *text) {
	switch {
	case t == nil:
	case *p == nil && c.still:
		*p = notNil(pieces(slices.Clip(*t)))
	case cap(*p) == 0 && len(*t) > 0:
		*p = append(make(pieces, 0, max(len(*t), firstGrowth)), *t...)
	default:
		*p = append(notNil(*p), *t...)
	}
}

// text is the whole of it; nil = null.
func (p pieces) text() *string {
	if p == nil {
		return nil
	}
	return episode.Ptr(string(p))
}

// takeCall adds a tool call, or a piece of one when it is not whole.
func (c *choice) takeCall(w *wireToolCall, whole bool) {
	said := w.Function.orElse(w.wireFunction)
	i := -1
	if !whole {
		i = c.callOf(w.Index)
	}
	if i < 0 || c.calls[i].endsBefore(string(w.ID), &said) {
		c.calls = append(c.calls, toolCall{index: w.Index})
		i = len(c.calls) - 1
	}
	t := &c.calls[i]
	if t.id == "" {
		t.id = string(w.ID)
	}
	if t.kind == "" {
		t.kind = string(w.Type)
	}
	if name := string(said.Name); name != t.name { // some servers repeat the whole name in every piece
		t.name += name
	}
	t.arguments = append(t.arguments, said.Arguments...)
}

// callOf finds the call that a piece may go on with: the last one of its index, of all where it has none; -1 = none.
func (c *choice) callOf(index *int) int {
	for i := len(c.calls) - 1; i >= 0; i-- {
		if t := &c.calls[i]; index == nil || t.index != nil && *t.index == *index {
			return i
		}
	}
	return -1
}

// endsBefore reports whether a piece of the call's own index begins another call. Servers exist that give every call the same
// index or none, that give no ids, and (old vLLM) that give each piece an id of its own; what they have in common is that a new
// call has a name, and does not come before the last one's arguments are whole.
func (t *toolCall) endsBefore(id string, said *wireFunction) bool {
	sameID := id == "" || t.id == "" || id == t.id
	switch {
	case !sameID && len(said.Name) > 0:
		return true
	case id == t.id && id != "" || len(said.Arguments) == 0 && (len(said.Name) == 0 || string(said.Name) == t.name):
		return false
	case !sameID || len(said.Name) > 0:
		return json.Valid(t.arguments)
	}
	return false
}

func (c *choice) takeLogprobs(w *wireLogprobs) {
	if w.Content == nil && w.Refusal == nil && w.TokenLogprobs == nil {
		return
	}
	c.logprobs = notNil(c.logprobs)
	for i, v := range w.TokenLogprobs {
		l := wireLogprob{Value: v, Token: -1}
		if i < len(w.Tokens) {
			l.Token = w.Tokens[i]
		}
		c.takeLogprob(l)
	}
	for _, list := range [...][]wireLogprob{w.Content, w.Refusal} {
		for _, l := range list {
			c.takeLogprob(l)
		}
	}
}

func (c *choice) takeLogprob(l wireLogprob) {
	c.logprobs = append(c.logprobs, logprob(l.Value))
	switch {
	case l.ID != nil:
		c.logprobIDs = append(c.logprobIDs, *l.ID)
	case l.Token >= 0:
		c.logprobIDs = append(c.logprobIDs, int32(l.Token))
	}
}

func (c *choice) takeMeta(m *wireMeta) {
	if m.OutputTokenLogprobs == nil {
		return
	}
	ids, values := []int32{}, []episode.Logprob{}
	for _, t := range m.OutputTokenLogprobs {
		ids, values = append(ids, t.id), append(values, logprob(t.value))
	}
	c.ids, c.logprobs = ids, values // the engine's own list: whole, where the chat logprobs may be trimmed
}

// logprob keeps a value as it was given: null is not known, nor is what no probability has (NaN, plus infinity); vLLM's stand-in for minus infinity
// (-9999) stays -9999, and a bare -Infinity, which decode made the smallest float, is minus infinity again.
func logprob(v *nats) episode.Logprob {
	switch {
	case v == nil || math.IsNaN(float64(*v)) || *v > math.MaxFloat32:
		return episode.Logprob{}
	case *v <= -math.MaxFloat32:
		return episode.Logprob{Value: float32(math.Inf(-1)), Known: true}
	}
	return episode.Logprob{Value: float32(*v), Known: true}
}

func notNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// scalar returns a JSON string or number as text, nil for null, absent or anything else.
func scalar(raw json.RawMessage) *string {
	var s text
	if len(raw) == 0 || raw[0] == 'n' || raw[0] == '{' || raw[0] == '[' || s.UnmarshalJSON(raw) != nil {
		return nil
	}
	out, _ := repair(string(s))
	return &out
}

// choice returns the choice we asked for: index 0, or the only one there is under another number.
func (a *answer) choice() *choice {
	if a.zero != nil {
		return a.zero
	}
	if c := a.choices[0]; c != nil || len(a.choices) == 0 {
		return c
	}
	return a.choices[slices.Min(slices.Collect(maps.Keys(a.choices)))]
}

// takeFailed finds in a refusal what the model had written (Groq, when it is no tool call that it can read).
func (a *answer) takeFailed(refusal []byte) {
	var o struct {
		Error struct {
			Generation text `json:"failed_generation"`
		} `json:"error"`
	}
	if json.Unmarshal(refusal, &o) == nil {
		a.failed = o.Error.Generation
	}
}

// said is all text received so far, for failure rows.
func (a *answer) said() string {
	c := a.choice()
	if c == nil {
		c = &choice{}
	}
	var b strings.Builder
	b.Write(c.reasoning)
	b.Write(c.content)
	b.Write(c.refusal)
	for _, t := range c.calls {
		b.WriteString(t.name)
		b.Write(t.arguments)
	}
	b.Write(a.failed)
	s, _ := repair(b.String())
	return s
}

var (
	errNoChoices = errors.New("the answer holds no choices")
	errNoMessage = errors.New("the answer's choice holds no message")
)

// reply turns the finished answer into a Reply. asked is what the call asked for, maxTokens the limit it went out with (0 = none).
func (a *answer) reply(asked episode.Sampling, maxTokens int) (*episode.Reply, error) {
	c := a.choice()
	if c == nil {
		return nil, errNoChoices
	}
	if f := normalFinish(c.finish); !c.said && f != episode.FinishOther && f != episode.FinishAbort { // a filter may leave nothing (Azure)
		return nil, errNoMessage
	}
	return a.replyOf(c, asked, maxTokens), nil
}

// properIDs are token ids, or none where a number among them is no id: a trainer would look it up.
func properIDs(list []int32) []int32 {
	if slices.ContainsFunc(list, func(id int32) bool { return id < 0 }) {
		return nil
	}
	return list
}

// replyOf is the reply of one of the choices.
func (a *answer) replyOf(c *choice, asked episode.Sampling, maxTokens int) *episode.Reply {
	r := &episode.Reply{
		PromptIDs: properIDs(c.promptIDs), SampledIDs: properIDs(c.ids), Logprobs: c.logprobs,
		Version: a.version, Usage: a.counts(), Model: a.model, StopSeq: c.stop,
		RawEnd: c.finish, Finish: normalFinish(c.finish), Raw: a.raw,
	}
	if r.PromptIDs == nil {
		r.PromptIDs = properIDs(a.promptIDs)
	}
	if spans := c.spans(); spans != nil {
		r.Spans, r.Version = spans, spans[len(spans)-1].Version
	}
	if c.cutBy(maxTokens, r.Usage.Completion) {
		r.Finish = episode.FinishLength
	}
	flag := func(name string, on bool) {
		if on {
			r.Flags = append(r.Flags, name)
		}
	}
	var broken bool
	r.Message, broken = c.message()
	flag(episode.FlagTextRepaired, broken)
	flag(episode.FlagRefused, len(c.refusal) > 0)
	flagThinking(r)
	if r.SampledIDs != nil && r.Logprobs != nil && len(r.SampledIDs) != len(r.Logprobs) {
		r.Logprobs = nil // nobody can say which value belongs to which token
	}
	flag(episode.FlagLogprobsMissing, asked.Logprobs && r.Logprobs == nil)
	return r
}

// flagThinking adds what is to be told of the thinking in a reply.
func flagThinking(r *episode.Reply) {
	if r.Message.Tagged != nil {
		r.Flags = append(r.Flags, episode.FlagThinkingTagged)
	}
	if cutThinking(r) {
		r.Flags = append(r.Flags, episode.FlagThinkingCut)
	}
}

// cutThinking reports whether an answer was cut before it said anything: at its length, inside its tags, or by a stop string, which
// engines look for in the thinking too. A stop token is the model's own end.
func cutThinking(r *episode.Reply) bool {
	if !r.Message.OnlyThinking() {
		return false
	}
	unclosed := r.Message.Tagged != nil && !r.Message.Tagged.Closed
	byText := false
	if r.StopSeq != nil && r.Finish == episode.FinishStop {
		_, err := strconv.Atoi(*r.StopSeq)
		byText = err != nil
	}
	return r.Finish == episode.FinishLength || unclosed || byText
}

// cutBy reports whether the answer ran into its limit inside a tool call, whatever finish reason stands there: engines name that
// tool_calls (vLLM #46303), and a cut call must not be run.
func (c *choice) cutBy(maxTokens int, generated *int32) bool {
	n := len(c.ids)
	if generated != nil {
		n = int(*generated)
	}
	return maxTokens > 0 && n >= maxTokens && c.endsInsideCall()
}

// endsInsideCall reports whether the answer ends with a tool call whose arguments are not whole.
func (c *choice) endsInsideCall() bool {
	last := len(c.calls) - 1
	return last >= 0 && !json.Valid(c.calls[last].arguments)
}

func (c *choice) message() (m episode.Message, broken bool) {
	fix := func(s string) string {
		s, b := repair(s)
		broken = broken || b
		return s
	}
	m.Role = episode.RoleAssistant
	m.Content, m.ReasoningContent = c.content.text(), c.reasoning.text()
	if m.Content != nil && len(c.reasoning) == 0 {
		if u, ok := untag(*m.Content); ok {
			u.into(&m)
		}
	}
	if len(c.refusal) > 0 { // it stands in the content's place
		m.Content = episode.Ptr(m.Text() + string(c.refusal))
	}
	for _, s := range [...]*string{m.Content, m.ReasoningContent} {
		if s != nil {
			*s = fix(*s)
		}
	}
	for _, t := range c.calls {
		kind := t.kind
		if kind == "" {
			kind = string(openai.ToolTypeFunction)
		}
		m.ToolCalls = append(m.ToolCalls, episode.ToolCall{
			ID: fix(t.id), Type: fix(kind), Function: episode.Function{Name: fix(t.name), Arguments: fix(string(t.arguments))},
		})
	}
	return m, broken
}

// normalFinish maps a server's finish_reason to the five of package episode.
func normalFinish(raw string) string {
	switch openai.FinishReason(strings.ToLower(raw)) {
	case "", openai.FinishReasonNull:
		return ""
	case openai.FinishReasonStop, "eos", "eos_token", "word", "stop_sequence", "end_turn", "complete": // llama-server, TGI, Anthropic, Cohere
		return episode.FinishStop
	case openai.FinishReasonLength, "max_tokens", "limit", "model_length": // Anthropic and Gemini, llama-server, Mistral
		return episode.FinishLength
	case openai.FinishReasonToolCalls, openai.FinishReasonFunctionCall, "tool_use":
		return episode.FinishToolCalls
	case "abort", "insufficient_system_resource": // DeepSeek: "interrupted"
		return episode.FinishAbort
	}
	return episode.FinishOther
}
