package episode

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Step is what one turn added to an episode that goes on: the answer, the record of its call, what its actions gave. The steps of an episode make
// it again as it was (Rebuild). Of the prompt's ids a step has only those that the turn added, so that the steps of a long episode grow with
// it and not with its square.
type Step struct {
	Reply *Reply        // its PromptIDs are those behind the first Same
	Same  int           // ids of the prompt that the sequence began with before the turn
	Turn  Turn          // record of the call
	Seen  []Observation // of its actions, in order
	Spent time.Duration // from the episode's opening to the end of the turn, over all processes that played it
	// Kept names the tools that hold something of the episode by now, so that its messages are no longer all there is. The turns before are
	// the last to go on from.
	Kept []string
}

// Begun is what is known of an episode that an earlier process began and did not end.
type Begun struct {
	Attempt int
	Created time.Time
	Opening string // Episode.Opening at the time
	Steps   []Step // none = there is nothing to go on from
}

// Step begins the step of a turn that the episode is about to take: call it before AddReply.
func (e *Episode) Step(r *Reply, t Turn) Step {
	s := Step{Turn: t, Same: commonPrefix(e.Tokens.IDs, r.PromptIDs)}
	short := *r
	if r.PromptIDs != nil {
		short.PromptIDs = r.PromptIDs[s.Same:]
	}
	s.Reply = &short
	return s
}

// Opening is a digest of what the episode begins with: its task, its prompt and the sampling parameters. It stays the same while the episode goes on.
func (e *Episode) Opening() string {
	sampling := e.Sampling
	sampling.Priority = 0                                                            // whose turn it is at a server is no part of what is said
	prompt := append([]Message{}, e.Messages[:min(e.NumPrompt, len(e.Messages))]...) // none and an empty list are the same
	return ID(e.Task.Hash, e.Variant, spelled(prompt), spelled(sampling))
}

// spelled is a value as JSON; what cannot be written as JSON is as good as its reason.
func spelled(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Rebuild brings an episode that was just opened to where Begun has it, and forgets Begun. Without steps it begins again, as the next attempt; so it does
// where the steps are not its own, and the error says why.
func (e *Episode) Rebuild() error {
	b := e.Begun
	if b == nil {
		return nil
	}
	e.Begun = nil
	if len(b.Steps) == 0 {
		e.Attempt = b.Attempt + 1
		return nil
	}
	again, err := e.after(b)
	if err != nil {
		e.Attempt = b.Attempt + 1
		return fmt.Errorf("go on with episode %s at turn %d: %w", e.ID, len(b.Steps), err)
	}
	*e = *again
	return nil
}

// after is the episode as it was after the steps. The episode itself stays as it is.
func (e *Episode) after(b *Begun) (*Episode, error) {
	if e.Opening() != b.Opening {
		return nil, errors.New("it has another prompt or other sampling parameters than it had")
	}
	n := *e
	n.Messages, n.Flags = slices.Clip(e.Messages), slices.Clone(e.Flags)
	for i, s := range b.Steps {
		if err := n.take(s); err != nil {
			return nil, fmt.Errorf("turn %d: %w", i, err)
		}
		n.Timing.Total = s.Spent
	}
	n.Attempt, n.Created = b.Attempt, b.Created
	n.Flag(FlagResumed)
	return &n, nil
}

// take adds a turn that was played before.
func (e *Episode) take(s Step) error {
	if s.Reply == nil || s.Same < 0 || s.Same > e.Tokens.Len() {
		return errors.New("it does not go on from the turn before")
	}
	whole := *s.Reply
	if s.Reply.PromptIDs != nil {
		whole.PromptIDs = append(append(make([]int32, 0, s.Same+len(s.Reply.PromptIDs)), e.Tokens.IDs[:s.Same]...), s.Reply.PromptIDs...)
	}
	e.AddReply(&whole, s.Turn)
	for _, o := range s.Seen {
		e.AddObservation(o)
	}
	if !e.Open() {
		return fmt.Errorf("it ended there (%s)", e.Stop)
	}
	return nil
}
