package scheduler

import (
	"context"
	"errors"
	"sync"
	"time"

	"tranche/episode"
)

// estimator guesses prompt lengths from bytes, by the bytes per token the servers' own counts have shown. Safe for concurrent
// use; mu guards the two sums.
type estimator struct {
	mu            sync.Mutex
	bytes, tokens float64
}

// Bytes per token before anything was counted: 3.5, below the 4 of English prose so that the first guesses are not too small.
const (
	priorBytes  = 3500
	priorTokens = 1000
	perMessage  = 5 // tokens of a chat template around one message
)

func (e *estimator) learn(c *episode.Call, prompt *int32) {
	if prompt == nil || *prompt <= 0 {
		return
	}
	n := callBytes(c)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bytes += float64(n)
	e.tokens += max(float64(*prompt)-float64(perMessage*len(c.Messages)), 1)
	if e.tokens > 1e6 { // forget slowly: later tasks may be of another kind
		e.bytes, e.tokens = e.bytes/2, e.tokens/2
	}
}

func (e *estimator) tokensFor(bytes int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return int(float64(bytes)*(e.tokens+priorTokens)/(e.bytes+priorBytes)) + 1
}

func callBytes(c *episode.Call) int {
	n := len(c.Tools)
	for _, m := range c.Messages {
		n += m.Bytes()
	}
	return n
}

// measure fills in the call's prompt length: the caller's figure if it has one, else an estimate, and the server's own count
// where the estimate comes near a limit that matters. by is the endpoint that counted; "" = none did.
func (s *Scheduler) measure(ctx context.Context, c *episode.Call, b episode.Budget) (by string) {
	if c.PromptTokens == 0 {
		c.PromptTokens = s.words.tokensFor(callBytes(c)) + perMessage*len(c.Messages)
	}
	if c.PromptExact || !s.nearLimit(c, b) {
		return ""
	}
	for i, e := range s.cfg.Endpoints {
		if e.Counter == nil || s.now() < Time(s.mute[i].Load()) {
			continue
		}
		n, err := s.count(ctx, e.Counter, c)
		switch {
		case err == nil:
			c.PromptTokens, c.PromptExact = n, true
			return e.Name
		case errors.Is(err, episode.ErrUnsupported):
		case ctx.Err() != nil:
			return ""
		default:
			s.mute[i].Store(int64(s.now() + muteFor))
		}
	}
	return ""
}

const (
	// countWait is how long a prompt's count is waited for: an estimate will do, and the call itself waits as long.
	countWait = 5 * time.Second
	// muteFor is how long an endpoint that did not count a prompt is not asked again.
	muteFor = 30 * time.Second
)

func (s *Scheduler) count(ctx context.Context, by episode.Counter, c *episode.Call) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, countWait)
	defer cancel()
	return by.Count(ctx, c)
}

// nearLimit says whether an error of half the estimate could matter to some endpoint's limit.
func (s *Scheduler) nearLimit(c *episode.Call, b episode.Budget) bool {
	need := c.PromptTokens + c.PromptTokens/2 + max(c.Want, b.MinUseful)
	if b.ContextTokens > 0 && need > b.ContextTokens {
		return true
	}
	for _, e := range s.cfg.Endpoints {
		for _, l := range []int{e.Capacity.ContextTokens, e.Capacity.KVTokens} {
			if l > 0 && (need > l || c.Want == 0 && c.Request == nil) {
				return true
			}
		}
	}
	return false
}

// continued estimates the next prompt of an episode from what the server counted for the last one; 0 = nothing to go by.
func (s *Scheduler) continued(e *episode.Episode) int {
	if len(e.Turns) == 0 {
		return 0
	}
	last := e.Turns[len(e.Turns)-1]
	if last.PromptTokens == nil || last.CompletionTokens == nil {
		return 0
	}
	n := int(*last.PromptTokens) + int(*last.CompletionTokens)
	for i := len(e.Messages) - 1; i >= 0 && e.Messages[i].Role != episode.RoleAssistant; i-- {
		n += s.words.tokensFor(e.Messages[i].Bytes()) + perMessage
	}
	return n
}
