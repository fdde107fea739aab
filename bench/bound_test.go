package bench

import (
	"testing"
	"time"

	"tranche/episode"
	"tranche/inference/enginesim"
	"tranche/scheduler"
)

// tree plays one schedule of all there are: at every moment at which something may change it decides for each waiting call, by
// the next digit of a script, to hold it or which replica gets it. Counting the script up plays them all.
type tree struct {
	replicas       int
	script, radix  []int
	at             int
	waiting        []scheduler.Ticket
	running, tools int
}

func (d *tree) digit(radix int) int {
	if d.at == len(d.script) {
		d.script, d.radix = append(d.script, 0), append(d.radix, radix)
	}
	d.at++
	return d.script[d.at-1]
}

// next counts the script up; false when all were played.
func (d *tree) next() bool {
	for i := len(d.script) - 1; i >= 0; i-- {
		if d.script[i]++; d.script[i] < d.radix[i] {
			d.script, d.radix, d.at = d.script[:i+1], d.radix[:i+1], 0
			return true
		}
	}
	return false
}

func (d *tree) Offer(r scheduler.Request, _ scheduler.Time) { d.waiting = append(d.waiting, r.Ticket) }

func (d *tree) Next(scheduler.Time) (launches []scheduler.Launch, _ []scheduler.Reject, wait scheduler.Time) {
	var held []scheduler.Ticket
	for k, t := range d.waiting {
		last := k == len(d.waiting)-1 && d.running+d.tools == 0 // something must go on
		options := d.replicas + 1
		if last {
			options--
		}
		c := d.digit(options)
		if c == d.replicas {
			held = append(held, t)
			continue
		}
		d.running++
		launches = append(launches, scheduler.Launch{Ticket: t, Replica: c})
	}
	d.waiting = held
	return launches, nil, -1
}

func (d *tree) Settle(scheduler.Ticket, Outcome, scheduler.Time) scheduler.Decision {
	d.running--
	return scheduler.Finished
}

func (d *tree) Act(string, string, scheduler.Time)      { d.tools++ }
func (*tree) Observe(int, episode.Load, scheduler.Time) {}
func (*tree) Withdraw(scheduler.Ticket) bool            { return false }
func (*tree) Leave(string, scheduler.Time)              {}

// acted wraps tree to count actions that ended: the next offer of an episode that was seen.
type acted struct {
	*tree
	seen map[string]bool
}

func (a acted) Offer(r scheduler.Request, now scheduler.Time) {
	if a.seen[r.Episode] {
		a.tools--
	}
	a.seen[r.Episode] = true
	a.tree.Offer(r, now)
}

// best is the least makespan of all schedules, and how many there are.
func best(t *testing.T, f Fleet, w Workload) (time.Duration, int) {
	t.Helper()
	f.eager = true
	d := &tree{replicas: len(f.Replicas)}
	least, n := time.Duration(0), 0
	for more := true; more; more = d.next() {
		d.waiting, d.running, d.tools = nil, 0, 0
		r := mustPlay(t, f, w, acted{d, map[string]bool{}})
		if n == 0 || r.Makespan < least {
			least = r.Makespan
		}
		if n++; n > 300_000 {
			t.Fatal("too many schedules: make the case smaller")
		}
	}
	return least, n
}

// The bound is never above the true optimum, found by playing every schedule of a few short calls.
func TestBoundAgainstEverySchedule(t *testing.T) {
	oneGoroutine(t)
	tiny := enginesim.Config{
		ContextTokens: 24, KVTokens: 32, BlockTokens: 4, MaxSeqs: 2, StepBudget: 8,
		Step: enginesim.StepTime{Base: 1e-3, Floor: 2e-3, PerToken: 1e-3, PerSeq: 3e-4, PerRead: 2e-4, PerPair: 1e-4},
	}
	big, slow, wide := tiny, tiny, tiny
	big.KVTokens, big.ContextTokens = 64, 64
	slow.Step.Base, slow.Step.PerToken = 2e-3, 3e-3
	wide.MaxSeqs, wide.StepBudget, wide.Step.PerToken, wide.Step.PerRead = 8, 64, 2e-4, 1e-4
	one := func(in, out int) Episode { return Episode{Turns: []Turn{{New: in, Out: out}}} }
	shared := func(in, out int) Episode {
		return Episode{Group: "g", Prefix: []Segment{{9, 8}}, Turns: []Turn{{New: in, Out: out}}}
	}
	two := Episode{Turns: []Turn{{New: 6, Out: 2, Tool: 5 * time.Millisecond}, {New: 3, Out: 2}}}
	for name, c := range map[string]struct {
		replicas []enginesim.Config
		episodes []Episode
		tight    float64 // the least share of the optimum that the bound must reach
	}{
		"one call":               {[]enginesim.Config{tiny}, []Episode{one(9, 3)}, 0.95},
		"one of two turns":       {[]enginesim.Config{tiny}, []Episode{two}, 0.8},
		"three calls, one slot":  {[]enginesim.Config{tiny}, []Episode{one(5, 3), one(9, 2), one(2, 3)}, 0.6},
		"memory for one":         {[]enginesim.Config{tiny}, []Episode{one(16, 4), one(15, 3), one(14, 3)}, 0.6},
		"wide":                   {[]enginesim.Config{wide}, []Episode{one(5, 4), one(9, 4), one(2, 4)}, 0.6},
		"two replicas":           {[]enginesim.Config{tiny, tiny}, []Episode{one(5, 2), one(9, 2), one(2, 3)}, 0.6},
		"uneven memory":          {[]enginesim.Config{big, tiny}, []Episode{one(5, 2), one(9, 2), one(4, 3)}, 0.5},
		"uneven speed":           {[]enginesim.Config{slow, tiny}, []Episode{one(5, 2), one(9, 2), one(4, 3)}, 0.5},
		"good at different work": {[]enginesim.Config{slow, wide}, []Episode{one(16, 2), one(2, 4)}, 0.3},
		"shared prefix":          {[]enginesim.Config{tiny}, []Episode{shared(9, 3), shared(11, 2), shared(8, 2)}, 0.5},
		"shared, two replicas":   {[]enginesim.Config{tiny, tiny}, []Episode{shared(9, 2), shared(11, 2), one(6, 2)}, 0.4},
		"turns and a call":       {[]enginesim.Config{tiny}, []Episode{two, one(7, 3)}, 0.5},
		"turns, two replicas":    {[]enginesim.Config{tiny, wide}, []Episode{two, one(7, 2)}, 0.4},
		"a cut":                  {[]enginesim.Config{tiny}, []Episode{{Turns: []Turn{{New: 9, Out: 4}, {Cut: 5, New: 2, Out: 2}}}, one(3, 2)}, 0.4},
	} {
		t.Run(name, func(t *testing.T) {
			for _, open := range []int{0, 1} {
				f, w := Fleet{Replicas: c.replicas, MaxOpen: open}, Workload{Name: name, Episodes: c.episodes, MaxNew: 8}
				optimum, n := best(t, f, w)
				bound := f.LowerBound(w)
				if bound > optimum {
					t.Errorf("%d open at most: bound %v, but one of %d schedules takes %v", open, bound, n, optimum)
				}
				if share := bound.Seconds() / optimum.Seconds(); share < c.tight {
					t.Errorf("%d open at most: bound %v is only %.2f of the optimum %v", open, bound, share, optimum)
				} else {
					t.Logf("%d open at most: bound %v, optimum %v of %d schedules: %.2f", open, bound, optimum, n, share)
				}
			}
		})
	}
}
