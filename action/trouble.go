package action

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tranche/episode"
	"tranche/internal/workpool"
)

// Trouble is what one tool did that no observation tells.
type Trouble struct {
	Tool      string
	Abandoned int64  // runs that did not stop when they were told to
	Going     int64  // of them: those that go on still
	Unended   int64  // episodes whose end the tool could not take: End failed, panicked or did not return in time
	Why       string // the first of these
}

// Troubles lists the tools that had any, by name.
func (s *Set) Troubles() []Trouble {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Trouble, 0, len(s.books))
	for _, t := range s.books {
		all = append(all, *t)
	}
	slices.SortFunc(all, func(a, b Trouble) int { return strings.Compare(a.Tool, b.Tool) })
	return all
}

// stillGoing names the tools of runs that go on, with their number.
func (s *Set) stillGoing() string {
	var said []string
	for _, t := range s.Troubles() {
		if t.Going > 0 {
			said = append(said, fmt.Sprintf("%s %d", t.Tool, t.Going))
		}
	}
	return strings.Join(said, ", ")
}

// book is a tool's entry; mu is held.
func (s *Set) book(tool string) *Trouble {
	t := s.books[tool]
	if t == nil {
		t = &Trouble{Tool: tool}
		s.books[tool] = t
	}
	return t
}

// watched is a run with what its abandonment needs.
type watched struct {
	tool      string
	limit     time.Duration
	job       *workpool.Job[Result]
	abandoned bool // guarded by the Set's mu, as is ended
	ended     bool
}

// wait returns how a run ended; one that was abandoned is put to its tool's account.
func (s *Set) wait(w *watched) workpool.End[Result] {
	end := w.job.Wait()
	if !end.Abandoned {
		return end
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.abandoned = true
	s.book(w.tool).Abandoned++
	if !w.ended {
		s.book(w.tool).Going++
	}
	return end
}

// over notes the end of a run, however late.
func (s *Set) over(w *watched, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.going, id)
	if w.ended = true; w.abandoned {
		s.book(w.tool).Going--
	}
}

// End tells the tools that keep something for an episode that it is over. It waits for them, each in a worker and no longer than a run may
// take. Stopping the run does not keep it from being told.
func (s *Set) End(e *episode.Episode) {
	offered, err := s.offer(e.Task)
	if err != nil {
		return // it was offered nothing
	}
	for _, name := range offered.names {
		tool, keeps := offered.tools[name].tool.(Ender)
		if !keeps {
			continue
		}
		s.told(name, workpool.Start(context.Background(), s.pool, s.cfg.Timeout, nil, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, tool.End(ctx, e.ID)
		}).Wait())
	}
}

// told notes an end that a tool could not take.
func (s *Set) told(tool string, end workpool.End[struct{}]) {
	why := ""
	switch {
	case end.How == workpool.Panicked:
		why = "it panicked: " + end.Panicked
	case end.How == workpool.TimedOut:
		why = fmt.Sprintf("it took more than %s", s.cfg.Timeout)
	case end.How == workpool.Cancelled:
		why = "the tools were closed before"
	case end.Err != nil:
		why = end.Err.Error()
	default:
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.book(tool)
	if t.Unended++; t.Why == "" {
		t.Why = why
	}
}
