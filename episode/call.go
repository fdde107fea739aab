package episode

import (
	"encoding/json"
	"time"
)

// Call is one model call of an episode, complete but for what only the chosen endpoint decides (its model name, its
// dialect). It is immutable once offered: retries and other endpoints send the same Call with another MaxTokens.
type Call struct {
	ID        string // unique per (episode, turn); sent as X-Request-Id with the attempt appended
	Episode   string // episode id, sent as X-Session-ID so that routers keep the episode on its replica
	Group     string // group id: samples of one task draw
	GroupSize int    // how many samples the group has
	Cell      Cell   // where lengths are learned
	Turn      int    // from 0
	Messages  []Message
	Tools     json.RawMessage // OpenAI tool definitions; nil = none
	Sampling  Sampling
	Request   *Request // goes out as it is in the place of all above; nil = none
	Past      *Past    // exact ids to go on from; nil = there are none: the server renders Messages

	PromptTokens int  // length of the rendered prompt, tokens; an estimate unless PromptExact
	PromptExact  bool // the server counted PromptTokens
	Want         int  // tokens this turn may generate by the turn and episode budgets, before the context clamp
}

// Cell is a statistics cell: lengths of one domain at one turn are alike.
type Cell struct {
	DataSource string
	Turn       int
}

// Sampling holds the sampling parameters exactly as they go out. nil = not sent, the server's default holds; a pointer to
// zero is sent as zero.
type Sampling struct {
	Temperature *float64
	TopP        *float64
	TopK        *int
	MinP        *float64
	Seed        *int64 // sent only when asked for: per-request seeds slow some engines and kill one
	Stop        []string
	Priority    int                        // higher = sooner, among the calls a server has from everybody; 0 = not sent, which is neither. Each engine is told in its own direction
	Logprobs    bool                       // ask for the sampled tokens' logprobs
	TokenIDs    bool                       // ask for token ids (return_token_ids and each engine's own way)
	Extra       map[string]json.RawMessage // more body fields, sent as they are; they win over the fields above
}

// Reply is what one successful attempt brought back.
type Reply struct {
	Message Message
	Finish  string  // normalised: FinishStop, FinishLength, FinishToolCalls, FinishAbort, FinishOther, or "" when the server gave none
	RawEnd  string  // finish_reason as the server wrote it
	StopSeq *string // stop_reason where the engine names the stop string or token

	PromptIDs  []int32   // ids of the prompt the server saw; nil = not given
	SampledIDs []int32   // ids the server sampled; nil = not given
	Logprobs   []Logprob // one per sampled token when given, else nil
	LogprobsOf Spread    // what they are of; "" = not known, or none were given
	Version    *int32    // weight version the server named
	Spans      []Span    // of an answer that was cut and gone on with: the version of each part; nil = Version is that of all
	Exchange   Exchange  // how prompt and answer went; "" = not told
	Usage      Usage

	Answer *Answer // to Call.Request: all there is, besides Usage; nil without one

	Endpoint string // name of the endpoint that answered
	Model    string // model name in the answer
	TTFT     *time.Duration
	Service  time.Duration // dispatch to last byte
	Flags    []string      // FlagTextRepaired, FlagLogprobsMissing, …
	Raw      *Raw          // the answer as it came; nil = not kept
}

// Finish reasons after normalisation.
const (
	FinishStop      = "stop"
	FinishLength    = "length"
	FinishToolCalls = "tool_calls"
	FinishAbort     = "abort"
	FinishOther     = "other"
)

// Exchange is what went between client and server, which decides how exact the record of a turn is.
type Exchange string

// Kinds of exchange, the most exact first.
const (
	ExchangeIDs  Exchange = "ids"  // token ids went in and came out
	ExchangeChat Exchange = "chat" // messages went in, the server rendered them, and the sampled ids came out
	ExchangeText Exchange = "text" // messages went in and only text came out: what the tokens were is not known
)

// Past is a conversation as token ids: what the server saw in the last call and what it sampled. It is immutable.
type Past struct {
	IDs      []int32
	Messages int     // how many of the call's messages the ids stand for; the last of these is the answer
	Finish   string  // of the answer, normalised
	Stop     *string // the stop string or token that ended it, where the server named it
	Endpoint string  // who answered, and as which model: to another model they mean nothing
	Model    string
}

// Usage is the server's own count. nil = the server did not say; never a guess.
type Usage struct {
	Prompt, Completion, Cached *int32
}

// Logprob is a log-probability that may be missing (null on the wire). The zero value is "missing", not certainty.
type Logprob struct {
	Value float32
	Known bool
}

// Spread is the distribution over the next token that a logprob is of. A trainer that compares its own logprobs with the server's must know which.
type Spread string

// Distributions that servers tell logprobs of.
const (
	SpreadRaw       Spread = "raw"       // the model's own, whatever was drawn from
	SpreadProcessed Spread = "processed" // the one that was drawn from: after temperature and the like
)

// Turn is the record of one model call that succeeded, as it is stored.
type Turn struct {
	PromptTokens, CompletionTokens, CachedTokens *int32
	Finish                                       string // the server's own finish_reason
	StopSeq                                      *string
	Endpoint                                     string
	Queue                                        time.Duration // offered to dispatched, retries' waits included
	TTFT                                         *time.Duration
	Service                                      time.Duration // the successful attempt
	Retries                                      int16         // failed attempts before this one
	Class                                        int16         // bucket of the call's length: prompt + answer
	VersionStart, VersionEnd                     *int32
	Hedged                                       bool
	Exchange                                     Exchange
	LogprobsOf                                   Spread
	Counted                                      int // tokens of the prompt by this endpoint's own count before the call; 0 = it was not counted
}
