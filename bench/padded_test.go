package bench

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"tranche/inference/enginesim"
	"tranche/scheduler"
)

// prompts is long prompts of very different lengths with short answers, all on their own.
func prompts(n int, seed uint64) Workload {
	r := rand.New(rand.NewPCG(seed, 5))
	w := Workload{Name: "prompts", MaxNew: 64}
	for i := range n {
		w.Episodes = append(w.Episodes, Episode{Group: strconv.Itoa(i), Turns: []Turn{{New: min(int(logNormal(r, 1400, 1))+1, 8000), Out: 1 + r.IntN(64)}}})
	}
	return w
}

// On an engine that waits for the longest answer, launches of like answers are worth a factor; on one that pads prompts to shapes,
// launches of like prompts are. Every policy does all the work, also when an engine dies under it.
func TestClassesOnPaddedEngines(t *testing.T) {
	for name, c := range map[string]struct {
		batching enginesim.Batching
		workload func(seed uint64) Workload
		classes  string // that are better than the order of arrival,
		gain     float64
	}{
		"static": {enginesim.Static, func(seed uint64) Workload { return Reasoning(64, 8, seed) }, "least-padding-oracle", 1.6},
		"shaped": {enginesim.Shaped, func(seed uint64) Workload { return prompts(512, seed) }, "equal-count", 1.3},
	} {
		replica := Reference()
		replica.Batching, replica.MaxSeqs = c.batching, 16
		for what, incidents := range map[string][]Incident{"well": nil, "one dies": {{1, 2 * time.Second, Dies}, {1, 9 * time.Second, Heals}}} {
			t.Run(name+", "+what, func(t *testing.T) {
				m := Match{
					Workload: func(seed uint64) (Workload, error) { return c.workload(seed), nil },
					Fleet:    Fleet{Replicas: []enginesim.Config{replica, replica}, Incidents: incidents}, Policies: Padded(), First: 1,
				}
				r, err := m.Run()
				if err != nil {
					t.Fatal(err)
				}
				l := r.Levels[0]
				for _, x := range l.Rows {
					if x.Failed != "" || x.Rejected.Mean != 0 || x.Truncated.Mean != 0 || (x.Failures.Mean > 0) != (incidents != nil) {
						t.Errorf("%s: %q, %v rejected, %v cut short, %v failures", x.Policy, x.Failed, x.Rejected, x.Truncated, x.Failures)
					}
					if x.OfBound.Mean > 1 {
						t.Errorf("%s: makespan %v beats the bound %v", x.Policy, x.Makespan, l.Bound)
					}
					t.Logf("%-22s %s s", x.Policy, x.Makespan)
				}
				if gain := l.row("arrival").Makespan.Mean / l.row(c.classes).Makespan.Mean; gain < c.gain && incidents == nil {
					t.Errorf("%s is %.2f times faster than the order of arrival, expected %.2f", c.classes, gain, c.gain)
				}
			})
		}
	}
}

// The scheduler itself, told that the engines pad, is faster than full batches in order of arrival, and no engine is ever sent a call
// while it runs others.
func TestSchedulerOnPaddedEngines(t *testing.T) {
	oneGoroutine(t)
	for name, c := range map[string]struct {
		batching enginesim.Batching
		workload Workload
		rows     int
		gain     float64
	}{
		"static, like siblings": {enginesim.Static, Reasoning(512, 8, 1), 64, 2.5},
		"static, two groups":    {enginesim.Static, Reasoning(64, 8, 1), 16, 1.5}, // of like siblings in a batch: order of arrival keeps them together
		"static, prompts":       {enginesim.Static, prompts(512, 1), 16, 1.3},
		"shaped, prompts":       {enginesim.Shaped, prompts(512, 1), 16, 1.2},
	} {
		t.Run(name, func(t *testing.T) {
			replica := Reference()
			replica.Batching, replica.MaxSeqs = c.batching, c.rows
			f := Fleet{Replicas: []enginesim.Config{replica, replica}}
			core, err := NewCore(scheduler.Rules{}, f.Tell(c.workload))
			if err != nil {
				t.Fatal(err)
			}
			w := &onlyIdle{Policy: core, t: t, running: map[scheduler.Ticket]int{}}
			mine, err := f.Play(c.workload, w)
			if err != nil {
				t.Fatal(err)
			}
			arrival, err := f.Play(c.workload, NewBatches(f.Tell(c.workload), nil, nil))
			if err != nil {
				t.Fatal(err)
			}
			if gain := arrival.Makespan.Seconds() / mine.Makespan.Seconds(); gain < c.gain || mine.Truncated > 0 || mine.Rejected > 0 {
				t.Errorf("%.2f times faster than the order of arrival, expected %.2f; %d answers cut, %d given up", gain, c.gain, mine.Truncated, mine.Rejected)
			} else {
				t.Logf("%.2f times faster", gain)
			}
		})
	}
}

// onlyIdle watches that a replica is launched on only when nothing runs there.
type onlyIdle struct {
	Policy
	t       *testing.T
	running map[scheduler.Ticket]int
}

func (o *onlyIdle) Next(now scheduler.Time) ([]scheduler.Launch, []scheduler.Reject, scheduler.Time) {
	busy := map[int]bool{}
	for _, r := range o.running {
		busy[r] = true
	}
	launches, rejects, wait := o.Policy.Next(now)
	for _, l := range launches {
		if busy[l.Replica] {
			o.t.Fatalf("at %v: call %d is sent to replica %d, which is busy", now, l.Ticket, l.Replica)
		}
		o.running[l.Ticket] = l.Replica
	}
	return launches, rejects, wait
}

func (o *onlyIdle) Settle(t scheduler.Ticket, x Outcome, now scheduler.Time) scheduler.Decision {
	delete(o.running, t)
	return o.Policy.Settle(t, x, now)
}
