// Package inference makes one OpenAI-compatible server a function: a call goes in, a reply or a fault comes out.
//
// An Endpoint is one long-lived client of one server. It finds out what the server is (probe.go) and, when
// asked to, tries what it can do (probe_ask.go, into the record of capability.go), writes the request
// (render.go), sends it (lane.go, transport.go), reads the answer, whole or streamed, without losing what a trainer needs (reply.go, stream.go, sse.go),
// and says of every failure how far things got and whether the same call can help later (fault.go). It also asks the
// server for exact prompt lengths (count.go) and for its load (gauge.go).
//
// It does not retry, queue, choose between servers or hold a rate limit: that is the scheduler's. The only request it
// ever sends twice is one refused as malformed because of a field this package had added by itself (dialect.go).
//
// Open endpoint.go first: Generate is the whole walk on one screen.
package inference
