package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// snapshot is what the progress line shows at one instant.
type snapshot struct {
	total     int64 // episodes of the run; 0 = unknown
	skipped   int64 // finished by an earlier invocation
	done      int64 // good rows of this one
	failed    int64
	cut       int64 // by a quorum
	open      int64
	tokens    int64
	unknown   int64 // good rows without a token count
	reward    float64
	scored    int64
	endpoints []endpointLoad
	elapsed   time.Duration
	still     time.Duration // since the last one ended, or the start
	stopping  bool
}

// finished is how many ended in this invocation, well or not.
func (s *snapshot) finished() int64 { return s.done + s.failed + s.cut }

type endpointLoad struct {
	name     string
	inFlight int64
}

// progress writes the state of a run until its context ends: one redrawn line, or a line now and then.
type progress struct {
	out   io.Writer
	bar   bool
	every time.Duration
	width func() int
	snap  func() snapshot
	rate  rate
	ended int64         // as many had at the last change
	since time.Duration // when that was
}

// Intervals of the two displays.
const (
	barEvery   = 200 * time.Millisecond
	plainEvery = 10 * time.Second
)

// newProgress returns nil when nothing is to be shown.
func newProgress(a *app, s *Settings, snap func() snapshot) *progress {
	display := s.Display
	if s.Quiet {
		display = "none"
	}
	if display == "auto" {
		display = "plain"
		if a.terminal {
			display = "bar"
		}
	}
	p := &progress{out: a.stderr, width: a.width, snap: snap}
	switch display {
	case "none":
		return nil
	case "bar":
		p.bar, p.every = true, barEvery
	default:
		p.every = plainEvery
	}
	return p
}

// run draws until ctx ends; the last state is left standing.
func (p *progress) run(ctx context.Context) {
	if p == nil {
		return
	}
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if p.bar {
				p.draw()
				fmt.Fprintln(p.out)
			}
			return
		case <-tick.C:
			p.draw()
		}
	}
}

// clearLine puts the cursor at the start of its line and wipes it.
const clearLine = "\r\x1b[2K"

func (p *progress) draw() {
	s := p.snap()
	perSecond := p.rate.add(s.elapsed, s.tokens)
	if n := s.finished(); n != p.ended {
		p.ended, p.since = n, s.elapsed
	}
	s.still = s.elapsed - p.since
	line := visibleLine(progressLine(s, perSecond))
	if p.bar {
		fmt.Fprintf(p.out, "%s%s", clearLine, cutTo(line, p.width()-1))
		return
	}
	fmt.Fprintln(p.out, line)
}

// progressLine is the text; it depends on its arguments alone.
func progressLine(s snapshot, tokensPerSecond float64) string {
	ended := s.skipped + s.finished()
	parts := []string{fmt.Sprintf("%d/%s done", ended, totalText(s.total))}
	if s.total > 0 {
		parts[0] += fmt.Sprintf(" (%d%%)", 100*ended/s.total)
	}
	parts = append(parts, fmt.Sprintf("%d failed", s.failed), fmt.Sprintf("%d open", s.open))
	switch {
	case s.unknown > 0 && s.tokens == 0:
		parts = append(parts, "tok/s unknown")
	default:
		parts = append(parts, fmt.Sprintf("%.0f tok/s", tokensPerSecond))
	}
	if s.scored > 0 {
		parts = append(parts, fmt.Sprintf("reward %.3f (n=%d)", s.reward/float64(s.scored), s.scored))
	}
	eta := remaining(s)
	switch {
	case s.stopping:
		parts = append(parts, "stopping")
	case eta > 0 && s.stalled():
		parts = append(parts, "none ended for "+s.still.Round(time.Second).String())
	case eta > 0:
		parts = append(parts, "ETA "+eta.String())
	}
	for i, e := range s.endpoints {
		if i == 4 {
			parts = append(parts, fmt.Sprintf("and %d more", len(s.endpoints)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%s: %d in flight", e.name, e.inFlight))
	}
	return strings.Join(parts, " · ")
}

func totalText(n int64) string {
	if n == 0 {
		return "?"
	}
	return fmt.Sprint(n)
}

// stalled tells whether none has ended for so long that the pace until then says nothing of the time left.
func (s *snapshot) stalled() bool {
	const least, gaps = 30 * time.Second, 10
	return s.still > max(least, gaps*(s.elapsed-s.still)/time.Duration(max(s.finished(), 1)))
}

// remaining extrapolates from what this invocation finished; 0 = too early to tell.
func remaining(s snapshot) time.Duration {
	finished := s.finished()
	left := s.total - s.skipped - finished
	if finished < 5 || s.total == 0 || left <= 0 || s.elapsed <= 0 {
		return 0
	}
	d := time.Duration(float64(s.elapsed) / float64(finished) * float64(left))
	return max(d.Round(time.Second), time.Second)
}

// cutTo keeps a line inside one row of the terminal, or it could not be redrawn.
func cutTo(s string, width int) string {
	if r := []rune(s); width > 1 && len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return s
}

// rate is a moving average over the last window of readings.
type rate struct {
	at    []time.Duration
	value []int64
}

const rateWindow = 10 * time.Second

// add takes a reading and returns the growth per second over the window.
func (r *rate) add(now time.Duration, value int64) float64 {
	r.at, r.value = append(r.at, now), append(r.value, value)
	for len(r.at) > 2 && now-r.at[1] >= rateWindow {
		r.at, r.value = r.at[1:], r.value[1:]
	}
	first, from := r.at[0], r.value[0]
	if len(r.at) == 1 { // the first reading: since the start
		first, from = 0, 0
	}
	if now <= first {
		return 0
	}
	return float64(value-from) / (now - first).Seconds()
}
