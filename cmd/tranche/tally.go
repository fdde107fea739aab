package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"tranche/episode"
)

// tally counts what this invocation did, for the progress line and for the rates of the summary. What the dataset holds is
// storage's to count; the two differ on a resumed run.
type tally struct {
	mu      sync.Mutex // guards everything below
	done    int64      // rows written that did not fail
	failed  int64      // failed rows written
	cut     int64      // rows written of episodes that a quorum cut
	tokens  int64      // generated tokens of the good rows, where the server told
	unknown int64      // good rows whose generated tokens are unknown
	reward  float64    // sum
	scored  int64      // rows with a reward
}

// add counts one episode that is durable now.
func (t *tally) add(e *episode.Episode) {
	tokens, known := generated(e)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.Status {
	case episode.StatusFailed:
		t.failed++
		return
	case episode.StatusCancelled:
		t.cut++
		return
	}
	t.done++
	if known {
		t.tokens += tokens
	} else {
		t.unknown++
	}
	if e.Verdict.Total != nil {
		t.reward += *e.Verdict.Total
		t.scored++
	}
}

// read returns the counts of one instant into a snapshot.
func (t *tally) read(s *snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.cut = t.cut
	s.done, s.failed, s.tokens, s.unknown, s.reward, s.scored = t.done, t.failed, t.tokens, t.unknown, t.reward, t.scored
}

// generated is what the server says the episode generated, all turns; known only when every turn has a count.
func generated(e *episode.Episode) (tokens int64, known bool) {
	for _, t := range e.Turns {
		if t.CompletionTokens == nil {
			return 0, false
		}
		tokens += int64(*t.CompletionTokens)
	}
	return tokens, true
}

// countingSink counts what the sink below made durable.
type countingSink struct {
	episode.Sink
	tally *tally
	stats *groupTally
}

// Write passes the episode on.
func (s *countingSink) Write(ctx context.Context, e *episode.Episode) error {
	if err := s.Sink.Write(ctx, e); err != nil {
		return withCode(codeDisk, err)
	}
	s.tally.add(e)
	s.stats.addEpisode(e)
	return nil
}

// meter counts the attempts at one endpoint in this invocation, told by the scheduler's trace.
type meter struct {
	name     string
	inFlight atomic.Int64
	good     atomic.Int64 // attempts that brought a reply
	bad      atomic.Int64 // attempts that failed; cancelled ones count as neither
	service  atomic.Int64 // nanoseconds of the good attempts
	lost     atomic.Int64 // nanoseconds of the bad ones
	wasted   atomic.Int64 // tokens these generated, counted or estimated
	limited  sync.Once    // it was told that the endpoint answers 429
}

func (m *meter) launched() { m.inFlight.Add(1) }

func (m *meter) settled(service time.Duration, f *episode.Fault) {
	m.inFlight.Add(-1)
	switch {
	case f == nil:
		m.good.Add(1)
		m.service.Add(int64(service))
	case f.Class != episode.ClassCancelled:
		m.bad.Add(1)
		m.lost.Add(int64(service))
		m.wasted.Add(int64(f.Wasted))
	}
}
