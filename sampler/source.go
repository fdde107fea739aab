package sampler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"tranche/episode"
)

// Tasks is one pass over the tasks: Next returns them in order and io.EOF at the end. A *taskfile.Reader is one.
type Tasks interface {
	Next() (*episode.Task, error)
	Close() error
}

// Source draws tasks. It implements episode.Source and, like it, serves one caller at a time; Params and Budget are safe for any
// number of goroutines.
type Source struct {
	Knobs
	open  func(context.Context) (Tasks, error)
	tasks Tasks // the pass in hand; nil between rounds
	round int
	held  []*episode.Task // the shuffle window
	rng   *rand.Rand
	given int64
	err   error // sticky
}

// New makes a Source over the passes that open gives, one for each round.
func New(cfg Config, open func(context.Context) (Tasks, error)) (*Source, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("sampling settings: %w", err)
	}
	return &Source{Knobs: Knobs{cfg.filled()}, open: open}, nil
}

// Next returns the next draw, episode.ErrEnd after the last one. An error of the tasks ends the source.
func (s *Source) Next(ctx context.Context) (episode.Draw, error) {
	if err := ctx.Err(); err != nil {
		return episode.Draw{}, fmt.Errorf("draw a task: %w", err)
	}
	for s.err == nil {
		t, err := s.next(ctx)
		switch {
		case err == io.EOF:
			s.err = s.endRound()
		case err != nil:
			s.err = fmt.Errorf("draw a task: %w", err)
		default:
			s.given++
			return episode.Draw{Task: t, Round: s.round, Samples: s.cfg.Samples, Number: s.given - 1}, nil
		}
	}
	return episode.Draw{}, s.err
}

// Count is how many draws the source gives in all, and whether that is known.
func (s *Source) Count() (draws int64, known bool) {
	return s.cfg.Tasks * int64(s.cfg.Rounds), s.cfg.Tasks > 0
}

// Close ends the pass in hand.
func (s *Source) Close() error {
	if s.err == nil {
		s.err = errors.New("the task source is closed")
	}
	return s.closeTasks()
}

// next returns the next task of the round, io.EOF at its end.
func (s *Source) next(ctx context.Context) (*episode.Task, error) {
	if s.tasks == nil {
		if err := s.beginRound(ctx); err != nil {
			return nil, err
		}
	}
	if s.cfg.Order == OrderFile {
		return s.read()
	}
	for len(s.held) < s.cfg.Window {
		t, err := s.read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		s.held = append(s.held, t)
	}
	if len(s.held) == 0 {
		return nil, io.EOF
	}
	return s.pick(), nil
}

// pick takes one of the held tasks by chance.
func (s *Source) pick() *episode.Task {
	i, last := s.rng.IntN(len(s.held)), len(s.held)-1
	t := s.held[i]
	s.held[i], s.held[last] = s.held[last], nil
	s.held = s.held[:last]
	return t
}

// read returns the next task of the input once its parameters are known to be sound: episodes are opened where no error can be
// returned any more.
func (s *Source) read() (*episode.Task, error) {
	t, err := s.tasks.Next()
	if err != nil {
		return nil, err
	}
	if err := s.sound(t); err != nil {
		return nil, err
	}
	return t, nil
}

func (s *Source) beginRound(ctx context.Context) error {
	// The pass outlives this one call; Close ends it.
	tasks, err := s.open(context.WithoutCancel(ctx))
	if err != nil {
		return fmt.Errorf("open the tasks for round %d: %w", s.round, err)
	}
	s.tasks = tasks
	// A generator of its own for each round: the order of a round does not depend on how many draws came before.
	s.rng = rand.New(rand.NewPCG(uint64(s.cfg.Seed), uint64(s.round)))
	return nil
}

// endRound goes on to the next round; io.EOF when it was the last.
func (s *Source) endRound() error {
	if err := s.closeTasks(); err != nil {
		return err
	}
	if s.round+1 == s.cfg.Rounds {
		return episode.ErrEnd
	}
	s.round++
	return nil
}

func (s *Source) closeTasks() error {
	if s.tasks == nil {
		return nil
	}
	tasks := s.tasks
	s.tasks = nil
	if err := tasks.Close(); err != nil {
		return fmt.Errorf("close the tasks: %w", err)
	}
	return nil
}
