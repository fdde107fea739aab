package scheduler

import (
	"time"

	"tranche/episode"
)

// Trace is what the scheduler tells the outside, for logs, counters and progress. Any function may be nil. They are called from
// the scheduler's own goroutines, so they must be quick and must not call back.
type Trace struct {
	Launched  func(endpoint string, l Launch)
	Settled   func(endpoint string, service time.Duration, f *episode.Fault) // one attempt ended; f nil = success
	Retrying  func(endpoint string, f *episode.Fault)
	Down      func(endpoint string, why *episode.Fault, again time.Duration) // nothing is sent there before then, but for one trial call
	Up        func(endpoint string)                                          // it answered again
	Began     func(endpoint string)                                          // its engine is another process than a few seconds ago
	Won       func(endpoint string)                                          // a second attempt was answered before the first
	Lost      func(endpoint string, took time.Duration)                      // one of a call's two attempts was for nothing: its time
	Wasted    func(endpoint string, tokens int)                              // and the tokens it generated, later
	Continued func(endpoint string, again int)                               // an answer was cut and is gone on with; tokens of its context that this attempt computed again
	Remade    func(endpoint string, tokens int)                              // an answer was cut, cannot be gone on with and is made again: these tokens were for nothing
	Opened    func(e *episode.Episode)
	Closed    func(e *episode.Episode)            // after scoring, before it is written
	Skipped   func(episodeID string)              // found done already
	Resumed   func(e *episode.Episode, err error) // an episode that an earlier process began goes on, or begins again (it has no turns); err = why it could not go on
}

func (t Trace) launched(endpoint string, l Launch) {
	if t.Launched != nil {
		t.Launched(endpoint, l)
	}
}

func (t Trace) settled(endpoint string, d time.Duration, f *episode.Fault) {
	if t.Settled != nil {
		t.Settled(endpoint, d, f)
	}
}

func (t Trace) retrying(endpoint string, f *episode.Fault) {
	if t.Retrying != nil {
		t.Retrying(endpoint, f)
	}
}

func (t Trace) down(endpoint string, f *episode.Fault, again time.Duration) {
	if t.Down != nil {
		t.Down(endpoint, f, again)
	}
}

func (t Trace) up(endpoint string) {
	if t.Up != nil {
		t.Up(endpoint)
	}
}

func (t Trace) began(endpoint string) {
	if t.Began != nil {
		t.Began(endpoint)
	}
}

func (t Trace) won(endpoint string) {
	if t.Won != nil {
		t.Won(endpoint)
	}
}

func (t Trace) lost(endpoint string, d time.Duration) {
	if t.Lost != nil {
		t.Lost(endpoint, d)
	}
}

func (t Trace) wasted(endpoint string, tokens int) {
	if t.Wasted != nil {
		t.Wasted(endpoint, tokens)
	}
}

func (t Trace) continued(endpoint string, again int) {
	if t.Continued != nil {
		t.Continued(endpoint, again)
	}
}

func (t Trace) remade(endpoint string, tokens int) {
	if t.Remade != nil {
		t.Remade(endpoint, tokens)
	}
}

func (t Trace) opened(e *episode.Episode) {
	if t.Opened != nil {
		t.Opened(e)
	}
}

func (t Trace) closed(e *episode.Episode) {
	if t.Closed != nil {
		t.Closed(e)
	}
}

func (t Trace) skipped(id string) {
	if t.Skipped != nil {
		t.Skipped(id)
	}
}

func (t Trace) resumed(e *episode.Episode, err error) {
	if t.Resumed != nil {
		t.Resumed(e, err)
	}
}
