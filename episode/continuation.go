package episode

import (
	"context"
	"time"
)

// Continuation asks a server to go on from exact token ids, for as many tokens as it says, whatever they mean: what measuring a
// server takes, where lengths must be the same every time.
type Continuation struct {
	ID, Episode string
	Prompt      []int32
	Tokens      int    // generated exactly; at least 1
	Salt        string // only calls with equal salts share cached prefixes; "" = none is sent. vLLM takes no more than 128 characters, none of @ / \ and NUL
	Timed       bool   // tell when each token came; costs more on both sides
}

// Continued is what came of a Continuation.
type Continued struct {
	IDs            []int32
	Prompt, Cached int             // tokens of the prompt, and of it found in the prefix cache, as the server counted; -1 = it does not tell
	Stamps         []time.Duration // when each token came, since the request was sent; only of a timed one
	Took           time.Duration   // until the last byte
}

// Continuer makes one attempt of one continuation. It is called from many goroutines at once. Every error is a *Fault with
// StageModel. It returns soon after ctx is done, having closed the connection.
type Continuer interface {
	Continue(ctx context.Context, c Continuation) (Continued, error)
}
