package bench

import (
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"tranche/episode"
	"tranche/inference/enginesim"
	"tranche/scheduler"
)

// small is a replica on which a handful of short episodes already fights for memory.
func small() enginesim.Config {
	return enginesim.Config{
		ContextTokens: 2048, KVTokens: 4096, BlockTokens: 16, MaxSeqs: 8, StepBudget: 256,
		Step: enginesim.StepTime{Base: 1e-3, Floor: 5e-3, PerToken: 20e-6, PerRead: 70e-9, PerPair: 1e-9},
	}
}

// mixed is a random workload of short episodes: groups, shared prefixes, several turns, cuts.
func mixed(n int, seed uint64) Workload {
	r := rand.New(rand.NewPCG(seed, 1))
	w := Workload{Name: "mixed", MaxNew: 256}
	for i := range n {
		g := i / 3
		e := Episode{Group: strconv.Itoa(g), Domain: "d" + strconv.Itoa(g%2), Prefix: []Segment{{uint64(g), 40 + 16*(g%5)}}}
		context := 0
		for k := range 1 + r.IntN(5) {
			t := Turn{New: 1 + r.IntN(120), Out: 1 + r.IntN(60), Tool: time.Duration(r.IntN(2000)) * time.Millisecond, Kind: "k"}
			if k == 0 {
				t.New += e.PrefixTokens()
			} else if r.IntN(8) == 0 {
				t.Cut = r.IntN(context)
			}
			context += t.New + t.Out - t.Cut
			e.Turns = append(e.Turns, t)
		}
		w.Episodes = append(w.Episodes, e)
	}
	return w
}

// every is every policy there is, ready to play.
func every(t *testing.T, f Fleet, w Workload) map[string]Policy {
	t.Helper()
	all := map[string]Policy{}
	for _, c := range Contestants() {
		p, err := c.New(f.Tell(w))
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		all[c.Name] = p
	}
	return all
}

func mustPlay(t *testing.T, f Fleet, w Workload, p Policy) Result {
	t.Helper()
	r, err := f.Play(w, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// One episode of two calls on one replica, by hand: 100 prompt tokens and 3 answer tokens, an action of 1 s, 20 more tokens in, 2 out.
func TestOneEpisodeByHand(t *testing.T) {
	c := small()
	f := Fleet{Replicas: []enginesim.Config{c}}
	w := Workload{Name: "hand", MaxNew: 8, Episodes: []Episode{{Group: "g", Turns: []Turn{{New: 100, Out: 3, Tool: time.Second}, {New: 20, Out: 2}}}}}
	r := mustPlay(t, f, w, NewFlood(f.Tell(w), true))
	step := func(tokens, reads, pairs float64) time.Duration {
		s := c.Step
		return time.Duration((s.Base + max(s.Floor, s.PerToken*tokens) + s.PerRead*reads + s.PerPair*pairs) * 1e9)
	}
	// 102 tokens were computed: six whole blocks, 96 tokens, hit; 123 - 96 = 27 are computed at a mean context of 96 + 13.5.
	want := step(100, 0, 100*50) + step(1, 100, 0) + step(1, 101, 0) + time.Second + step(27, 0, 27*(96+13.5)) + step(1, 123, 0)
	if r.Makespan != want {
		t.Errorf("makespan %v, by hand %v", r.Makespan, want)
	}
	if r.Calls != 2 || r.Useful != 5 || r.Computed != 127 || r.Unique != 120 || r.Hits != 96 || r.Queried != 223 {
		t.Errorf("%+v", r)
	}
}

// Stepping machines only when somebody looks gives the very same run as stepping them one step at a time.
func TestLazyStepsChangeNothing(t *testing.T) {
	oneGoroutine(t)
	for seed := range uint64(6) {
		w := mixed(30, seed)
		f := Fleet{Replicas: []enginesim.Config{small(), small()}, MaxOpen: 12, MetricsEvery: 700 * time.Millisecond, Incidents: []Incident{{0, 2 * time.Second, Dies}, {0, 5 * time.Second, Heals}}}
		f.Replicas[1].KVTokens = 2304
		slow := f
		slow.eager = true
		for name, p := range every(t, f, w) {
			lazy := mustPlay(t, f, w, p)
			eager := mustPlay(t, slow, w, every(t, f, w)[name])
			if !reflect.DeepEqual(lazy, eager) {
				t.Errorf("seed %d, %s:\nlazy  %+v\neager %+v", seed, name, lazy, eager)
			}
		}
	}
}

func TestSameSeedSameRun(t *testing.T) {
	w := mixed(40, 3)
	f := Fleet{Replicas: []enginesim.Config{small(), small(), small()}, MaxOpen: 20, MetricsEvery: time.Second, Incidents: []Incident{{1, time.Second, Dies}, {1, 4 * time.Second, Heals}}}
	first, second := every(t, f, w), every(t, f, w)
	for name := range first {
		if a, b := mustPlay(t, f, w, first[name]), mustPlay(t, f, w, second[name]); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: two runs differ:\n%+v\n%+v", name, a, b)
		}
	}
}

// Every episode ends once, every call is answered once, whatever happens to the replicas; and no run beats the bound.
func TestNothingIsLostAndNothingBeatsTheBound(t *testing.T) {
	oneGoroutine(t)
	uneven := []enginesim.Config{small(), small(), small()}
	uneven[0].KVTokens, uneven[0].ContextTokens = 1600, 1280
	uneven[2].Step.Floor, uneven[2].Step.PerToken = 2e-3, 8e-6
	for name, f := range map[string]Fleet{
		"one replica":          {Replicas: []enginesim.Config{small()}},
		"uneven":               {Replicas: uneven, MetricsEvery: time.Second},
		"few open":             {Replicas: []enginesim.Config{small(), small()}, MaxOpen: 3},
		"dies and heals":       {Replicas: uneven, MaxOpen: 20, MetricsEvery: time.Second, Incidents: []Incident{{1, time.Second, Dies}, {1, 8 * time.Second, Heals}}},
		"dies for good":        {Replicas: uneven, Incidents: []Incident{{2, 3 * time.Second, Dies}}},
		"drains, all die once": {Replicas: []enginesim.Config{small(), small()}, Incidents: []Incident{{0, time.Second, Drains}, {1, 2 * time.Second, Dies}, {0, 3 * time.Second, Heals}, {1, 9 * time.Second, Heals}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := mixed(36, 7)
			bound := f.LowerBound(w)
			for name, p := range every(t, f, w) {
				r := mustPlay(t, f, w, p)
				if r.Completed != len(w.Episodes) || r.Calls != w.Calls() || r.Useful != int64(w.Load().Generated) || r.Truncated != 0 {
					t.Errorf("%s: %d of %d episodes, %d of %d calls, %d of %d tokens, %d cut short", name, r.Completed, len(w.Episodes), r.Calls, w.Calls(), r.Useful, w.Load().Generated, r.Truncated)
				}
				if r.Makespan < bound {
					t.Errorf("%s: makespan %v beats the bound %v", name, r.Makespan, bound)
				}
				if r.Computed < r.Unique {
					t.Errorf("%s: %d tokens prefilled, %d are needed", name, r.Computed, r.Unique)
				}
				if len(f.Incidents) > 0 && r.Failures == 0 {
					t.Errorf("%s: a replica died under work and no attempt failed", name)
				}
			}
		})
	}
}

func TestQuorum(t *testing.T) {
	w := Reasoning(8, 4, 1)
	for i := range w.Episodes {
		w.Episodes[i].Turns[0].Out = min(w.Episodes[i].Turns[0].Out, 900)
	}
	w.MaxNew = 900
	f := Fleet{Replicas: []enginesim.Config{small(), small()}}
	all := mustPlay(t, f, w, NewFlood(f.Tell(w), true))
	for name, c := range map[string]struct {
		q    Quorum
		done int
	}{
		"three of each group of four": {Quorum{Group: 0.75}, 24},
		"half of the run":             {Quorum{Run: 0.5}, 16},
	} {
		t.Run(name, func(t *testing.T) {
			f.Quorum = c.q
			for name, p := range every(t, f, w) {
				r := mustPlay(t, f, w, p)
				if r.Completed != c.done || r.Completed+r.Aborted != len(w.Episodes) {
					t.Errorf("%s: %d complete, %d aborted of %d; want %d complete", name, r.Completed, r.Aborted, len(w.Episodes), c.done)
				}
				if strings.HasPrefix(name, "flood-sticky") && r.Makespan >= all.Makespan {
					t.Errorf("%s: %v with a quorum, %v without", name, r.Makespan, all.Makespan)
				}
			}
		})
	}
}

// watcher counts what a policy is shown.
type watcher struct {
	Policy
	open, most, polls int
	seen              map[string]bool
}

func (w *watcher) Offer(r scheduler.Request, now scheduler.Time) {
	if !w.seen[r.Episode] {
		w.seen[r.Episode] = true
		w.open++
		w.most = max(w.most, w.open)
	}
	w.Policy.Offer(r, now)
}

func (w *watcher) Leave(id string, now scheduler.Time) { w.open--; w.Policy.Leave(id, now) }

func (w *watcher) Observe(i int, l episode.Load, now scheduler.Time) {
	w.polls++
	w.Policy.Observe(i, l, now)
}

func TestMaxOpenMetricsAndWhatIsTold(t *testing.T) {
	w := mixed(20, 1)
	for _, every := range []time.Duration{0, time.Second} {
		f := Fleet{Replicas: []enginesim.Config{small(), small()}, MaxOpen: 5, MetricsEvery: every}
		p := &watcher{Policy: NewFlood(f.Tell(w), true), seen: map[string]bool{}}
		r := mustPlay(t, f, w, p)
		if p.most != 5 || p.open != 0 {
			t.Errorf("at most %d episodes were open, %d are; want 5 and 0", p.most, p.open)
		}
		want := 0
		if every > 0 {
			want = 2 * int(r.Makespan/every)
		}
		if p.polls != want {
			t.Errorf("metrics every %v: %d readings in %v, want %d", every, p.polls, r.Makespan, want)
		}
	}
	f := Fleet{Replicas: []enginesim.Config{small()}, Told: func(_ int, c episode.Capacity) episode.Capacity {
		c.KVTokens /= 2
		return c
	}}
	if got := f.Tell(w).Replicas[0].Capacity; got.KVTokens != 2048 || got.ContextTokens != 2048 {
		t.Errorf("told %+v", got)
	}
}

// miser never sends anything.
type miser struct{ Policy }

func (miser) Next(scheduler.Time) ([]scheduler.Launch, []scheduler.Reject, scheduler.Time) {
	return nil, nil, time.Second
}

func TestAPolicyThatHoldsBackIsReported(t *testing.T) {
	w := mixed(3, 1)
	f := Fleet{Replicas: []enginesim.Config{small()}}
	_, err := f.Play(w, miser{NewFlood(f.Tell(w), true)})
	if err == nil || !strings.Contains(err.Error(), "the policy holds work back") {
		t.Errorf("got %v", err)
	}
}

func TestFleetAndWorkloadFaults(t *testing.T) {
	good := Fleet{Replicas: []enginesim.Config{small()}}
	w := mixed(2, 1)
	for name, c := range map[string]struct {
		f    Fleet
		w    Workload
		want string
	}{
		"no replicas":    {Fleet{}, w, "no replicas"},
		"no sizes":       {Fleet{Replicas: []enginesim.Config{{}}}, w, "must be given"},
		"no such one":    {Fleet{Replicas: good.Replicas, Incidents: []Incident{{3, 0, Dies}}}, w, "incident 0: replica 3"},
		"quorum":         {Fleet{Replicas: good.Replicas, Quorum: Quorum{Run: 2}}, w, "quorum 2"},
		"no episodes":    {good, Workload{Name: "empty"}, "no episodes"},
		"no turns":       {good, Workload{Episodes: []Episode{{}}}, "no turns"},
		"too long":       {good, Workload{MaxNew: 4, Episodes: []Episode{{Turns: []Turn{{New: 1, Out: 5}}}}}, "5 generated of at most 4"},
		"prefix too big": {good, Workload{MaxNew: 4, Episodes: []Episode{{Prefix: []Segment{{1, 9}}, Turns: []Turn{{New: 3, Out: 1}}}}}, "prefix has 9"},
		"cut too deep":   {good, Workload{MaxNew: 4, Episodes: []Episode{{Turns: []Turn{{New: 3, Out: 1}, {Cut: 5, New: 1, Out: 1}}}}}, "5 cut leaving -1"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := c.f.Play(c.w, NewFlood(c.f.Tell(c.w), true)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}
