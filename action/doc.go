// Package action carries out what an episode does between two model calls: a reply's tool calls go in, one observation for
// each comes out, in order.
//
// A Set is an episode.Actor. It knows the tools of the run, decides which of them a task offers (offer.go), checks what the
// model wrote against the tool's schema (args.go), runs the calls of all episodes on one bounded pool (pool.go) and turns
// whatever happened into an observation (observe.go). A call that panics, hangs or returns 10 MB hurts itself only.
//
// It retries nothing, logs nothing, keeps no conversation and never runs model-written code in this process: a tool that
// runs code puts it behind a sandbox of its own (see Tool). Open tool.go first, then Set.Do in set.go.
package action
