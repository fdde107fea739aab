package episode

import (
	"context"
	"slices"
)

// Extender goes on with an answer that was cut by max_tokens, from the token ids that there are. It makes one attempt, of at most maxTokens more
// tokens, and returns the answer as far as it has come, as one reply: what there was and what came. It is called from many
// goroutines at once and changes nothing of what it is given. Every error is a *Fault with StageModel. It returns soon after ctx is done,
// having closed the connection.
type Extender interface {
	Extend(ctx context.Context, c *Call, soFar *Reply, attempt int, maxTokens int) (*Reply, error)
}

// memoryless are body fields under which the next token depends on the tokens before it alone, wherever a request begins.
var memoryless = [...]string{
	"temperature", "top_p", "top_k", "min_p", "typical_p", "top_a", "logit_bias", "ignore_eos", "stop_token_ids", "include_stop_str_in_output",
	"skip_special_tokens", "spaces_between_special_tokens", "priority", "cache_salt", "user", "chat_template", "chat_template_kwargs", "documents",
	"add_generation_prompt", "lora_path",
}

// Memoryless says that a body field leaves an answer what it is when it is made in several requests, each going on from the tokens of the one before.
// Penalties count from where a request begins, a grammar is begun anew, a seed gives the same draws again: these do not.
func Memoryless(field string) bool { return slices.Contains(memoryless[:], field) }

// Cuttable says that the answer to the call may be made in several requests and is what it would have been in one. A stop string may lie
// across a cut, and a tool call is more than text.
func (c *Call) Cuttable() bool {
	if len(c.Tools) > 0 || len(c.Sampling.Stop) > 0 || c.Sampling.Seed != nil {
		return false
	}
	for field := range c.Sampling.Extra {
		if !Memoryless(field) {
			return false
		}
	}
	return true
}

// Extensible says that the reply holds all that it takes to go on with it: every token's id, and text that is nothing but what the tokens say.
// Thinking that stood inside the text was taken out here, and is put back.
func (r *Reply) Extensible() bool {
	m := r.Message
	return len(r.PromptIDs) > 0 && len(r.SampledIDs) > 0 && (m.ReasoningContent == nil || m.Tagged != nil) && len(m.ToolCalls) == 0
}

// Span is so many tokens of one weight version, in the order in which they were sampled.
type Span struct {
	Tokens  int
	Version *int32
}

// spans are those of the sampled ids: one, unless the reply was joined.
func (r *Reply) spans() []Span {
	if r.Spans == nil {
		return []Span{{len(r.SampledIDs), r.Version}}
	}
	return r.Spans
}

// FirstVersion is the weight version of the first token.
func (r *Reply) FirstVersion() *int32 { return r.spans()[0].Version }

// Join returns the reply with what came when it was gone on with. The prompt is that of the first, the end that of the last; Version is that of the
// last, and Spans tell the versions of all. What one of the two does not tell of its tokens is not told of the whole. Their texts are put together as they are:
// thinking must not have been taken out of them, since its tags may lie in both. Raw is that of the last.
func (r *Reply) Join(more *Reply) *Reply {
	j := *more
	j.PromptIDs, j.TTFT, j.Service = r.PromptIDs, r.TTFT, r.Service+more.Service
	j.Message.Role = r.Message.Role
	if r.Message.Content != nil || more.Message.Content != nil {
		j.Message.Content = Ptr(r.Message.Text() + more.Message.Text())
	}
	j.SampledIDs = slices.Concat(r.SampledIDs, more.SampledIDs)
	j.Logprobs = nil
	if len(r.Logprobs) == len(r.SampledIDs) && len(more.Logprobs) == len(more.SampledIDs) && r.Logprobs != nil && more.Logprobs != nil {
		j.Logprobs = slices.Concat(r.Logprobs, more.Logprobs)
	}
	if r.LogprobsOf != more.LogprobsOf || j.Logprobs == nil {
		j.LogprobsOf = ""
	}
	j.Spans = slices.Concat(r.spans(), more.spans())
	j.Usage = Usage{Prompt: r.Usage.Prompt, Completion: plus(r.Usage.Completion, more.Usage.Completion), Cached: r.Usage.Cached}
	j.Flags = slices.Compact(slices.Sorted(slices.Values(slices.Concat(r.Flags, more.Flags))))
	return &j
}

func plus(a, b *int32) *int32 {
	if a == nil || b == nil {
		return nil
	}
	return Ptr(*a + *b)
}

// Row is one answer of several that are asked for together.
type Row struct {
	Call    *Call
	SoFar   *Reply // of an answer that was cut; nil = it is to be begun
	Attempt int
}

// Lister makes one attempt to begin or go on with many answers in one request, so that a server which pads takes them as one batch: of at most maxTokens
// more tokens each, all by the sampling of the first. It returns an answer as Extender does for each row, in order, nil for one whose
// answer cannot be begun in a list, or an error for all, which may be one row's fault. It is called from many goroutines at once and changes nothing of what it is given. Every error is a *Fault with
// StageModel. It returns soon after ctx is done, having closed the connection.
type Lister interface {
	ExtendAll(ctx context.Context, rows []Row, maxTokens int) ([]*Reply, error)
}
