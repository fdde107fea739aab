package episode

import "time"

// Capacity is what an endpoint can hold, as far as it says or the user told. 0 = unknown.
type Capacity struct {
	ContextTokens int    // longest prompt + answer of one call
	KVTokens      int    // KV cache, tokens, all running sequences together
	Sequences     int    // sequences that run at once
	BlockTokens   int    // size of a KV block, tokens; what a sequence holds is rounded up to whole blocks
	Source        string // where the figures come from, for people: "vllm /metrics cache_config_info", "config", …
}

// Load is one reading of a server's own gauges. nil = the server does not tell.
type Load struct {
	Taken                  time.Time
	Born                   *float64 // when the server's process began, seconds since 1970 by its own clock
	Running, Waiting       *int     // sequences
	KVUsed                 *float64 // share of the KV cache in use, 0..1
	Preemptions            *int64   // counter
	PrefixQueries, Hits    *int64   // counters, tokens
	PromptTokens, Computed *int64   // counters, tokens: asked for, and really prefilled
	GeneratedTokens        *int64   // counter, tokens; some servers count an answer's when it has ended
	Steps                  *int64   // counter that goes on with the engine's steps, whatever its unit; nil = none is known to
	Firsts                 *int64   // counter of first tokens
	FirstSeconds           *float64 // counter: seconds from a call's arrival to its first token
}
