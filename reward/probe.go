package reward

import (
	"context"
	"errors"
	"fmt"

	"tranche/episode"
)

// Prober is a Grader that can be wrong in ways that show before a run begins.
type Prober interface {
	// Probe tries the grader on tasks of the run. said is for people. An error says why no run should be scored by it: a
	// *ProbeError for what it judged wrong, any other for what kept it from judging.
	Probe(ctx context.Context, tasks []*episode.Task) (said string, err error)
	// ProbeTasks is how many tasks it wants to see; 0 = it wants no probe.
	ProbeTasks() int
}

// ProbeError says what a grader judged wrong, as a table for people.
type ProbeError struct{ Table string }

func (e *ProbeError) Error() string { return e.Table }

// ProbeTasks is how many tasks the graders want to see, the most of any; 0 = none wants a probe.
func (s *Scorer) ProbeTasks() (n int) {
	for _, d := range s.desks {
		if p, ok := d.judge().(Prober); ok {
			n = max(n, p.ProbeTasks())
		}
	}
	return n
}

// Probe has each grader that can try itself do so, one after another. said has a line for each.
func (s *Scorer) Probe(ctx context.Context, tasks []*episode.Task) (said []string, err error) {
	var errs []error
	for _, d := range s.desks {
		p, ok := d.judge().(Prober)
		if !ok || p.ProbeTasks() == 0 {
			continue
		}
		line, err := p.Probe(ctx, tasks[:min(len(tasks), p.ProbeTasks())])
		if line != "" {
			said = append(said, fmt.Sprintf("grader %s: %s", d.Name, line))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("grader %s: %w", d.Name, err))
		}
	}
	return said, errors.Join(errs...)
}
