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
	version   *int32
	choices   map[int]*choice // by index; we ask for one, a server may give more
	ended     bool            // the stream's end marker came
	first     time.Duration   // dispatch to the first piece of the answer itself; 0 = none yet
	timed     bool            // stamps are wanted
	stamps    []time.Duration // of each token id, since dispatch
}

type choice struct {
	content, reasoning pieces
	calls              []toolCall
	finish             *string
	stop               *string
	ids                []int32 // nil = not given
	logprobs           []episode.Logprob
	logprobIDs         []int32 // ids that came with the logprobs; as long as logprobs or nil
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
		a.model = w.Model
	}
	if w.PromptTokenIDs != nil {
		a.promptIDs = w.PromptTokenIDs
	}
	if w.Metadata != nil {
		a.takeVersion(w.Metadata.WeightVersion)
	}
	if w.XGroq != nil {
		a.takeUsage(w.XGroq.Usage)
	}
	a.takeUsage(w.Usage)
	for i := range w.Choices {
		a.takeChoice(&w.Choices[i])
	}
}

func (a *answer) takeChoice(w *wireChoice) {
	index := 0
	if w.Index != nil {
		index = *w.Index
	}
	if a.choices == nil {
		a.choices = map[int]*choice{}
	}
	c := a.choices[index]
	if c == nil {
		c = &choice{}
		a.choices[index] = c
	}
	if index == 0 {
		a.takeUsage(w.Usage)
		if w.PromptTokenIDs != nil {
			a.promptIDs = w.PromptTokenIDs
		}
		if w.MetaInfo != nil {
			a.takeVersion(w.MetaInfo.WeightVersion)
		}
	}
	c.take(w)
}

// takeUsage keeps the newest figure of each kind: streams may repeat a running usage.
func (a *answer) takeUsage(u *wireUsage) {
	if u == nil {
		return
	}
	newest(&a.usage.Prompt, u.Prompt)
	newest(&a.usage.Completion, u.Completion)
	newest(&a.usage.Cached, u.CacheHit)
	newest(&a.usage.Cached, u.Cached)
	if u.Details != nil {
		newest(&a.usage.Cached, u.Details.Cached)
	}
}

func newest(p **int32, v *count) {
	if v != nil && *v >= 0 {
		*p = episode.Ptr(int32(*v))
	}
}

// takeVersion keeps a weight version that is a number; servers that were never updated name it "default".
func (a *answer) takeVersion(raw json.RawMessage) {
	s := scalar(raw)
	if s == nil {
		return
	}
	if n, err := strconv.ParseInt(*s, 10, 32); err == nil {
		a.version = episode.Ptr(int32(n))
	}
}

func (c *choice) take(w *wireChoice) {
	if w.Message != nil {
		c.takeMessage(w.Message, true)
	}
	if w.Delta != nil {
		c.takeMessage(w.Delta, false)
	}
	c.content.add(w.Text)
	if w.FinishReason != nil {
		c.finish = w.FinishReason
	}
	for _, raw := range [...]json.RawMessage{w.StopReason, w.MatchedStop} {
		if s := scalar(raw); s != nil {
			c.stop = s
		}
	}
	if w.TokenIDs != nil {
		c.ids = append(notNil(c.ids), w.TokenIDs...)
	}
	if w.Logprobs != nil {
		c.takeLogprobs(w.Logprobs)
	}
	if w.MetaInfo != nil {
		c.takeMeta(w.MetaInfo)
	}
}

func (c *choice) takeMessage(m *wireMessage, whole bool) {
	c.content.add(m.Content)
	if m.Content == nil {
		c.content.add(m.Refusal) // a refusal stands in the content's place
	}
	if m.ReasoningContent != nil { // servers that send both names send the same text twice
		c.reasoning.add(m.ReasoningContent)
	} else {
		c.reasoning.add(m.Reasoning)
	}
	for i := range m.ToolCalls {
		c.takeCall(&m.ToolCalls[i], whole)
	}
}

// pieces is a text that grows; nil = null all along, which is not the same as empty.
type pieces []byte

func (p *pieces) add(t *text) {
	if t != nil {
		*p = append(notNil(*p), *t...)
	}
}

// takeCall adds a tool call, or a piece of one when it is not whole. Pieces of one call share an index; where a server gives none, or gives
// every call the same one, a new id starts a new call and a piece without id goes on with the last.
func (c *choice) takeCall(w *wireToolCall, whole bool) {
	i := c.callOf(w)
	if whole || i < 0 {
		c.calls = append(c.calls, toolCall{index: w.Index})
		i = len(c.calls) - 1
	}
	t := &c.calls[i]
	if w.ID != "" {
		t.id = w.ID
	}
	if w.Type != "" {
		t.kind = w.Type
	}
	name, arguments := string(w.Function.Name), string(w.Function.Arguments)
	if w.Name != nil && name == "" {
		name = string(*w.Name)
	}
	if w.Arguments != nil && arguments == "" {
		arguments = string(*w.Arguments)
	}
	if name != t.name { // some servers repeat the whole name in every piece
		t.name += name
	}
	t.arguments = append(t.arguments, arguments...)
}

func (c *choice) callOf(w *wireToolCall) int {
	last := len(c.calls) - 1
	if w.Index == nil {
		if w.ID == "" || (last >= 0 && c.calls[last].id == w.ID) {
			return last
		}
		return -1
	}
	for i := last; i >= 0; i-- {
		t := &c.calls[i]
		if t.index != nil && *t.index == *w.Index {
			if w.ID != "" && t.id != "" && w.ID != t.id {
				return -1
			}
			return i
		}
	}
	return -1
}

func (c *choice) takeLogprobs(w *wireLogprobs) {
	if w.Content == nil && w.TokenLogprobs == nil {
		return
	}
	c.logprobs = notNil(c.logprobs)
	for _, v := range w.TokenLogprobs {
		c.logprobs = append(c.logprobs, logprob(v))
	}
	for _, l := range w.Content {
		c.logprobs = append(c.logprobs, logprob(l.Value))
		if l.ID != nil {
			c.logprobIDs = append(c.logprobIDs, *l.ID)
		}
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

// logprob keeps a value as it was given: null is not known, vLLM's stand-in for minus infinity (-9999) stays -9999, and a
// bare -Infinity, which decode made the smallest float, is minus infinity again.
func logprob(v *float32) episode.Logprob {
	switch {
	case v == nil:
		return episode.Logprob{}
	case *v <= -math.MaxFloat32:
		return episode.Logprob{Value: float32(math.Inf(-1)), Known: true}
	}
	return episode.Logprob{Value: *v, Known: true}
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
	if c := a.choices[0]; c != nil || len(a.choices) == 0 {
		return c
	}
	return a.choices[slices.Min(slices.Collect(maps.Keys(a.choices)))]
}

// said is all text received so far, for failure rows.
func (a *answer) said() string {
	c := a.choice()
	if c == nil {
		return ""
	}
	var b strings.Builder
	b.Write(c.reasoning)
	b.Write(c.content)
	for _, t := range c.calls {
		b.WriteString(t.name)
		b.Write(t.arguments)
	}
	s, _ := repair(b.String())
	return s
}

var errNoChoices = errors.New("the answer holds no choices")

// reply turns the finished answer into a Reply. asked is what the call asked for.
func (a *answer) reply(asked episode.Sampling) (*episode.Reply, error) {
	c := a.choice()
	if c == nil {
		return nil, errNoChoices
	}
	r := &episode.Reply{
		PromptIDs: a.promptIDs, SampledIDs: c.ids, Logprobs: c.logprobs,
		Version: a.version, Usage: a.usage, Model: a.model, StopSeq: c.stop,
	}
	if c.finish != nil {
		r.RawEnd, r.Finish = *c.finish, normalFinish(*c.finish)
	}
	var broken bool
	r.Message, broken = c.message()
	if broken {
		r.Flags = append(r.Flags, episode.FlagTextRepaired)
	}
	if r.SampledIDs != nil && r.Logprobs != nil && len(r.SampledIDs) != len(r.Logprobs) {
		r.Logprobs = nil // nobody can say which value belongs to which token
	}
	if asked.Logprobs && r.Logprobs == nil {
		r.Flags = append(r.Flags, episode.FlagLogprobsMissing)
	}
	return r, nil
}

func (c *choice) message() (m episode.Message, broken bool) {
	fix := func(s string) string {
		s, b := repair(s)
		broken = broken || b
		return s
	}
	m.Role = episode.RoleAssistant
	if c.content != nil {
		m.Content = episode.Ptr(fix(string(c.content)))
	}
	if c.reasoning != nil {
		m.ReasoningContent = episode.Ptr(fix(string(c.reasoning)))
	}
	for _, t := range c.calls {
		kind := t.kind
		if kind == "" {
			kind = string(openai.ToolTypeFunction)
		}
		m.ToolCalls = append(m.ToolCalls, episode.ToolCall{
			ID: fix(t.id), Type: kind, Function: episode.Function{Name: fix(t.name), Arguments: fix(string(t.arguments))},
		})
	}
	return m, broken
}

// normalFinish maps a server's finish_reason to the five of package episode.
func normalFinish(raw string) string {
	switch openai.FinishReason(raw) {
	case "", openai.FinishReasonNull:
		return ""
	case openai.FinishReasonStop, "eos", "end_turn", "stop_sequence":
		return episode.FinishStop
	case openai.FinishReasonLength, "max_tokens":
		return episode.FinishLength
	case openai.FinishReasonToolCalls, openai.FinishReasonFunctionCall, "tool_use":
		return episode.FinishToolCalls
	case "abort":
		return episode.FinishAbort
	}
	return episode.FinishOther
}
