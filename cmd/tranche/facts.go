package main

import (
	"context"
	"errors"
	"hash/fnv"
	"io"
	"iter"

	"tranche/sampler"
	"tranche/storage"
)

// eachFact walks the facts of all rows of a run.
func eachFact(ctx context.Context, a *app, dir string, do func(*storage.Facts)) error {
	view := &viewCmd{Dir: dir}
	run, err := view.open(a)
	if err != nil {
		return err
	}
	return eachOf(ctx, a, view, run.Facts(), do)
}

// eachOf walks what the rows of a run yield. Damage is told after all that can be read; a canceled context ends it.
func eachOf[T any](ctx context.Context, a *app, view *viewCmd, rows iter.Seq2[T, error], do func(T)) error {
	for r, err := range rows {
		switch {
		case errors.Is(err, storage.ErrDamaged):
			return view.damaged(a, err)
		case err != nil:
			return withCode(codeDisk, err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		do(r)
	}
	return nil
}

// whileWaiting runs something that reads a lot: ctrl-c ends it with its own exit status.
func whileWaiting(ctx context.Context, a *app, do func(context.Context) error) error {
	ctx, stopped, release := cancelOnSignal(ctx, a)
	defer release()
	err := do(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errInterrupted) {
		a.notice("stopped; nothing was changed")
		return outcome(stopped())
	}
	return err
}

// hashOf tells texts apart in 8 bytes.
func hashOf(texts ...string) uint64 {
	sum := fnv.New64a()
	for _, t := range texts {
		_, _ = io.WriteString(sum, t)
		_, _ = sum.Write([]byte{0xff}) // no text in UTF-8 has it
	}
	return sum.Sum64()
}

// slice is what statistics say of a part of the rows, in a space that does not grow with them but for the clusters.
type slice struct {
	Name      string            `json:"name,omitempty"`
	Rows      int64             `json:"rows"`
	Failed    int64             `json:"failed"` // or cut
	Coverage  float64           `json:"coverage"`
	Reward    *sampler.Estimate `json:"reward"`     // null without a verdict
	TokensOut *float64          `json:"tokens_out"` // mean of a good row; null where no count is known
	Turns     *float64          `json:"turns"`      // mean of a good row
	Wall      *float64          `json:"wall_s"`     // mean of a good row

	single   bool // all of one task: its samples are independent of one another
	mean     storage.Mean
	clusters sampler.Clusters
	out      storage.Mean
	turns    storage.Mean
	wall     storage.Mean
}

func (s *slice) add(f *storage.Facts) {
	s.Rows++
	s.mean.Add(f.Reward)
	if f.Reward != nil && !s.single {
		s.clusters.Add(f.TaskID, *f.Reward, 1)
	}
	if f.Failed() {
		s.Failed++
		return
	}
	s.out.Add(asFloat(f.NumOutputTokens))
	turns := float64(f.NumTurns)
	s.turns.Add(&turns)
	s.wall.Add(&f.Timing.Total)
}

func asFloat(n *int32) *float64 {
	if n == nil {
		return nil
	}
	v := float64(*n)
	return &v
}

// finish works the means out.
func (s *slice) finish() *slice {
	s.Coverage = s.mean.Coverage()
	if !s.single {
		s.Reward = s.clusters.Estimate()
	} else if s.mean.N > 0 {
		deviation, _ := s.mean.StdDev()
		e := sampler.Independent(s.mean.N, s.mean.Average, deviation)
		s.Reward = &e
	}
	s.TokensOut, s.Turns, s.Wall = average(s.out), average(s.turns), average(s.wall)
	return s
}

func average(m storage.Mean) *float64 {
	if m.N == 0 {
		return nil
	}
	return &m.Average
}
