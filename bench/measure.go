package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"tranche/episode"
	"tranche/inference/enginesim"
)

// Measure finds out how long a real server's steps take, by calls of which it knows what the engine must do. Nothing else may run on the
// server meanwhile.
type Measure struct {
	Server   episode.Continuer
	Capacity episode.Capacity
	// StepBudget is how many tokens the server computes in a step at most (max_num_batched_tokens). No server tells. Default 2,048, vLLM's
	// least.
	StepBudget int
	// Repeats is how often each measurement is made; the median counts. Default 3.
	Repeats int
	// Run names this measurement: no other may have left prefixes in the server under the same name.
	Run string
	// Done is told of each measurement. May be nil.
	Done func(what string, s enginesim.StepSample)
}

// point is one measurement: streams at once from prompts of so many tokens, or one prompt behind a cached prefix.
type point struct {
	streams, context int
	prompt, prefix   int
}

func (p point) String() string {
	if p.streams > 0 {
		return fmt.Sprintf("%d streams at %d tokens", p.streams, p.context)
	}
	return fmt.Sprintf("a prompt of %d tokens, %d of them cached", p.prefix+p.prompt, p.prefix)
}

// decodeSteps is how many steps of a decode are timed, at least half of that.
const decodeSteps = 24

// points are what is measured: as much as the server's memory, context and step budget hold.
func (m Measure) points() []point {
	memory, longest := m.Capacity.KVTokens*3/4, m.Capacity.ContextTokens*3/4
	var all []point
	for _, streams := range []int{1, 2, 4, 8, 16} {
		for _, context := range []int{64, 512, 1536, 4096} {
			if need := context + 3*decodeSteps; need <= longest && streams*need <= memory {
				all = append(all, point{streams: streams, context: context})
			}
		}
	}
	for _, prefix := range []int{0, 1024, 3072} {
		for _, prompt := range []int{32, 128, 256, 512, 1024, 2048} {
			if whole := prefix + prompt; prompt <= m.StepBudget && whole < longest && whole < memory {
				all = append(all, point{prompt: prompt, prefix: prefix})
			}
		}
	}
	return all
}

// Samples makes all measurements, every one Repeats times over the whole, and returns the median one of each.
func (m Measure) Samples(ctx context.Context) ([]enginesim.StepSample, error) {
	if m.StepBudget == 0 {
		m.StepBudget = 2048
	}
	m.Repeats = max(m.Repeats, 1)
	points := m.points()
	got := make([][]enginesim.StepSample, len(points))
	if _, err := m.sample(ctx, points[0], "warm"); err != nil { // the first calls of a server are slower
		return nil, err
	}
	for repeat := range m.Repeats {
		for i, p := range points {
			s, err := m.sample(ctx, p, fmt.Sprintf("%d/%d", repeat, i))
			if err != nil {
				return nil, fmt.Errorf("measure %v: %w", p, err)
			}
			got[i] = append(got[i], s)
			if m.Done != nil {
				m.Done(p.String(), s)
			}
		}
	}
	var out []enginesim.StepSample
	for _, all := range got {
		slices.SortFunc(all, func(a, b enginesim.StepSample) int {
			return int(a.Duration/time.Duration(a.Steps) - b.Duration/time.Duration(b.Steps))
		})
		out = append(out, all[len(all)/2])
	}
	return out, nil
}

func (m Measure) sample(ctx context.Context, p point, name string) (enginesim.StepSample, error) {
	if p.streams > 0 {
		return m.decode(ctx, p, name)
	}
	return m.prefill(ctx, p, name)
}

// ask is a call of this measurement; no two names share a prefix.
func (m Measure) ask(name string, prompt []int32, tokens int) episode.Continuation {
	return episode.Continuation{ID: m.Run + "/" + name, Episode: m.Run, Salt: strings.ReplaceAll(m.Run+"."+name, "/", "."), Prompt: prompt, Tokens: tokens, Timed: true}
}

func randomIDs(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = firstID + rand.Int32N(someIDs)
	}
	return ids
}

// decode runs streams at once. Only the time in which all of them decode counts: from the first token of the last to begin.
func (m Measure) decode(ctx context.Context, p point, name string) (enginesim.StepSample, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	answers, sent, errs := make([]episode.Continued, p.streams), make([]time.Time, p.streams), make([]error, p.streams)
	for i := range p.streams {
		wg.Go(func() {
			c := m.ask(fmt.Sprintf("%s/%d", name, i), randomIDs(p.context), 3*decodeSteps)
			sent[i] = time.Now()
			if answers[i], errs[i] = m.Server.Continue(ctx, c); errs[i] != nil {
				cancel() // the others measure nothing now
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return enginesim.StepSample{}, err
	}
	stamps := make([][]time.Time, p.streams)
	for i, a := range answers {
		for _, d := range a.Stamps {
			stamps[i] = append(stamps[i], sent[i].Add(d))
		}
	}
	return decodeWindow(p.context, stamps)
}

// decodeWindow makes a sample of the times at which tokens came in streams that began at about the same time.
func decodeWindow(context int, stamps [][]time.Time) (enginesim.StepSample, error) {
	last := slices.MaxFunc(stamps, func(a, b []time.Time) int { return a[0].Compare(b[0]) })
	from, until := last[0], last[len(last)-1]
	for _, s := range stamps {
		if end := s[len(s)-1]; end.Before(until) {
			until = end
		}
	}
	steps := 0
	for steps+1 < len(last) && !last[steps+1].After(until) {
		steps++
	}
	if steps < decodeSteps/2 {
		return enginesim.StepSample{}, fmt.Errorf("all of %d streams ran at once for %d tokens only, too few to time: is something else running on the server?", len(stamps), steps)
	}
	var contexts []int
	for _, s := range stamps {
		come := 0
		for come < len(s) && !s[come].After(from) {
			come++
		}
		contexts = append(contexts, context+come)
	}
	return enginesim.DecodeSample(contexts, steps, last[steps].Sub(from)), nil
}

// prefill times the first token of a prompt of which the beginning was sent before.
func (m Measure) prefill(ctx context.Context, p point, name string) (enginesim.StepSample, error) {
	prompt := randomIDs(p.prefix + p.prompt)
	if p.prefix > 0 {
		if _, err := m.Server.Continue(ctx, m.ask(name, prompt[:p.prefix], 1)); err != nil {
			return enginesim.StepSample{}, err
		}
	}
	a, err := m.Server.Continue(ctx, m.ask(name, prompt, 1))
	if err != nil {
		return enginesim.StepSample{}, err
	}
	if a.Cached < 0 {
		return enginesim.StepSample{}, ErrNoCached
	}
	return enginesim.PrefillSample(len(prompt), a.Cached, m.StepBudget, a.Stamps[0]), nil
}

// ErrNoCached is a server that does not say how much of a prompt was cached.
var ErrNoCached = errors.New("the server does not tell how many tokens of a prompt it found in its cache; vLLM does with --enable-prompt-tokens-details")
