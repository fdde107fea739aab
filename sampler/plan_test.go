package sampler

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tranche/episode"
)

// memory is a record in memory.
type memory struct {
	bytes.Buffer
	fail error
}

func (m *memory) Append(line []byte, _ bool) error {
	if m.fail != nil {
		return m.fail
	}
	m.Write(line)
	return nil
}

// oneGoroutine skips a law under the race detector: it has nothing to find where one goroutine runs.
func oneGoroutine(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("one goroutine runs: nothing for the race detector")
	}
}

// made is n tasks in some domains; every fifth has the split "test".
func made(n, domains int) []*episode.Task {
	var tasks []*episode.Task
	for i := range n {
		t := &episode.Task{ID: fmt.Sprintf("t%03d", i), Hash: fmt.Sprintf("h%03d", i), DataSource: fmt.Sprintf("d%d", i%domains)}
		if i%5 == 4 {
			t.Split = "test"
		}
		tasks = append(tasks, t)
	}
	return tasks
}

// world plays the draws of a plan: so many episodes at once, which end in an order that chance decides, with rewards that only depend on
// the episode. It is a run without a scheduler.
type world struct {
	rng    *rand.Rand
	atOnce int
	reward func(o episode.Outcome) *float64
	stored map[string]*float64 // what is in the dataset, by episode
	drawn  []episode.Draw
	die    int // stop after so many episodes; 0 = never
}

func key(task string, round, sample int) string { return fmt.Sprintf("%s/%d/%d", task, round, sample) }

// play draws and ends episodes until the plan ends, or it is time to die: true.
func (w *world) play(t testing.TB, p *Plan) (died bool) {
	t.Helper()
	type running struct {
		o    episode.Outcome
		held bool
	}
	var open []running
	ended, over := 0, false
	for !over || len(open) > 0 {
		for !over && len(open) < w.atOnce {
			d, wait, err := p.decide(t.Context())
			if errors.Is(err, io.EOF) {
				over = true
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if wait {
				break
			}
			w.drawn = append(w.drawn, d)
			from, to := d.Span()
			for s := from; s < to; s++ {
				if _, done := w.stored[key(d.Task.ID, d.Round, s)]; !done {
					open = append(open, running{episode.Outcome{TaskID: d.Task.ID, Round: d.Round, Sample: s}, d.HeldOut})
				}
			}
		}
		if len(open) == 0 {
			if !over {
				t.Fatal("the plan waits, and nothing is open")
			}
			break
		}
		i := w.rng.IntN(len(open))
		r := open[i]
		open = slices.Delete(open, i, i+1)
		r.o.Reward = w.reward(r.o)
		k := key(r.o.TaskID, r.o.Round, r.o.Sample)
		if _, twice := w.stored[k]; twice {
			t.Fatalf("%s was played twice", k)
		}
		w.stored[k] = r.o.Reward
		if ended++; ended == w.die { // durable, and not yet told
			return true
		}
		p.Learn(r.o)
	}
	return false
}

// rates makes rewards of pass rates: the same for an episode whenever it is played. A few have no verdict.
func rates(rate func(task string) float64) func(o episode.Outcome) *float64 {
	return func(o episode.Outcome) *float64 {
		u := chance("reward", o.TaskID, fmt.Sprint(o.Round), fmt.Sprint(o.Sample))
		switch {
		case u > 0.99:
			return nil
		case u < rate(o.TaskID):
			return episode.Ptr(1.0)
		}
		return episode.Ptr(0.0)
	}
}

// spreadRate gives every task a pass rate of its own: a third never passes, a third always does.
func spreadRate(task string) float64 {
	switch u := chance("rate", task); {
	case u < 1./3:
		return 0
	case u > 2./3:
		return 1
	default:
		return 3*u - 1
	}
}

func newPlan(t testing.TB, cfg PlanConfig, tasks []*episode.Task, rec Record) *Plan {
	t.Helper()
	p, err := NewPlan(t.Context(), cfg, PlanParts{Open: passOver(tasks), Record: rec})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// planConfigs are configs whose laws are tested below.
func planConfigs() map[string]PlanConfig {
	group := Config{Samples: 4, Seed: 7}
	return map[string]PlanConfig{
		"useful":              {Config: group, Useful: 12, MaxDraws: 200},
		"useful, from memory": {Config: group, Useful: 12, MaxDraws: 200, Mix: Mix{By: MixTemperature}},
		"grow":                {Config: group, Grow: Grow{From: 2, Error: 0.3}},
		"band":                {Config: group, Band: Band{Low: 0.2, High: 0.8}, Draws: 120},
		"progress":            {Config: group, Mix: Mix{By: MixProgress, Every: 10}, Draws: 90},
		"all at once": {Config: Config{Samples: 4, Seed: 3, Order: OrderShuffle}, Mix: Mix{By: MixProgress, Every: 7, Cap: 0.6}, Band: Band{Low: 0.1, High: 0.9},
			Useful: 15, MaxDraws: 90, Grow: Grow{From: 2, Error: 0.2}, Held: HeldOut{Split: "test", Every: 9, Samples: 2}},
	}
}

// TestKilledPlansLoseNothing: whenever a run dies, what goes on from its record plays nothing twice, and ends with a record of the same run: the
// old lines first. What was known is known again.
func TestKilledPlansLoseNothing(t *testing.T) {
	oneGoroutine(t)
	configs := planConfigs()
	rapid.Check(t, func(rt *rapid.T) {
		cfg := configs[rapid.SampledFrom(slices.Sorted(maps.Keys(configs))).Draw(rt, "config")]
		tasks, stored := made(40, 3), map[string]*float64{}
		rec := &memory{}
		seed := rapid.Uint64().Draw(rt, "seed")
		for deaths := 0; ; deaths++ {
			w := &world{rng: rand.New(rand.NewPCG(seed, uint64(deaths))), atOnce: rapid.IntRange(1, 24).Draw(rt, "at once"), reward: rates(spreadRate), stored: stored}
			if deaths < 3 {
				w.die = rapid.IntRange(1, 50).Draw(rt, "dies after")
			}
			before := rec.String()
			if torn := rapid.IntRange(0, 3).Draw(rt, "torn"); torn == 0 && len(before) > 0 {
				rec.WriteString(`{"draw":{"n":`) // a line that was being written
			}
			_, whole, err := events(rec.Bytes())
			if err != nil || string(rec.Bytes()[:whole]) != before {
				rt.Fatalf("the record does not read back: %v", err)
			}
			rec.Truncate(whole)
			p := newPlan(t, cfg, tasks, rec)
			if err := p.Restore(t.Context(), []byte(before)); err != nil {
				rt.Fatalf("%v\n%s", err, before)
			}
			if rec.String() != before {
				rt.Fatal("playing the record back wrote to it")
			}
			for _, k := range slices.Sorted(func(yield func(string) bool) { // what is stored of open groups
				for k := range stored {
					if !yield(k) {
						return
					}
				}
			}) {
				var o episode.Outcome
				parts := strings.Split(k, "/")
				o.TaskID, o.Reward = parts[0], stored[k]
				fmt.Sscan(parts[1], &o.Round)
				fmt.Sscan(parts[2], &o.Sample)
				p.Learn(o)
			}
			if !w.play(t, p) {
				checkWhole(rt, cfg, p, w, rec.Bytes(), stored)
				return
			}
		}
	})
}

// checkWhole holds a run that has ended against its record.
func checkWhole(rt *rapid.T, cfg PlanConfig, p *Plan, w *world, record []byte, stored map[string]*float64) {
	sum, err := ReadRecord(record)
	if err != nil {
		rt.Fatal(err)
	}
	held := int64(len(p.heldOut) * p.cfg.Held.Samples * sum.Evals)
	if !sum.Ended || sum.Episodes+held != int64(len(stored)) {
		rt.Fatalf("the record says %d episodes and %d evaluations, and %d are stored; ended %v", sum.Episodes, sum.Evals, len(stored), sum.Ended)
	}
	seen := map[string]bool{}
	for _, d := range w.drawn {
		from, to := d.Span()
		for s := from; s < to; s++ {
			k := key(d.Task.ID, d.Round, s)
			if _, ok := stored[k]; !ok || seen[k] {
				rt.Fatalf("%s: drawn twice %v, stored %v", k, seen[k], ok)
			}
			seen[k] = true
			if d.HeldOut != (cfg.Held.On() && d.Task.Split == "test") {
				rt.Fatalf("%s of split %q, held out %v", k, d.Task.Split, d.HeldOut)
			}
		}
	}
	if len(seen) != len(stored) {
		rt.Fatalf("the last session drew %d episodes, all sessions stored %d", len(seen), len(stored))
	}
	if cfg.Useful > 0 && sum.Useful != cfg.Useful && sum.Groups != cfg.MaxDraws && !p.dry {
		rt.Fatalf("%d useful groups of %d, with %d drawn", sum.Useful, cfg.Useful, sum.Groups)
	}
	if cfg.Useful > 0 && sum.Useful > cfg.Useful {
		rt.Fatalf("%d useful groups, %d were wanted", sum.Useful, cfg.Useful)
	}
	if int64(len(p.open)) != 0 {
		rt.Fatalf("%d groups are open at the end", len(p.open))
	}
}

// TestReplayedStateIsTheSame: a plan that plays a record back knows what the plan knew that wrote it, and goes on alike: told the same, it
// decides the same. The tasks are few, so that they are gone through in many laps.
func TestReplayedStateIsTheSame(t *testing.T) {
	for name, cfg := range planConfigs() {
		compared := 0
		for _, die := range []int{20, 60, 90, 200, 331} {
			t.Run(fmt.Sprint(name, " after ", die), func(t *testing.T) {
				tasks, rec := made(24, 3), &memory{}
				if cfg.Rounds = 1; !cfg.Holds() {
					cfg.Rounds = 8
				}
				live := newPlan(t, cfg, tasks, rec)
				w := &world{rng: rand.New(rand.NewPCG(4, 4)), atOnce: 30, reward: rates(spreadRate), stored: map[string]*float64{}, die: die}
				if !w.play(t, live) {
					t.Skip("the plan ends before that")
				}
				again := newPlan(t, cfg, tasks, &memory{})
				if err := again.Restore(t.Context(), rec.Bytes()); err != nil {
					t.Fatal(err)
				}
				same := func() bool {
					return reflect.DeepEqual(live.States(), again.States()) && live.useful == again.useful && live.drawn == again.drawn && live.evals == again.evals &&
						reflect.DeepEqual(live.spread, again.spread)
				}
				if !same() {
					t.Errorf("what is known differs: %d, %d, %d and %d, %d, %d", live.useful, live.drawn, live.evals, again.useful, again.drawn, again.evals)
				}
				again.due = slices.Clone(live.due)
				open := w.open(live)
				for i, o := range open { // what came of them: the plan that died was told some of it
					o.Reward = w.reward(o)
					open[i] = o
					if live.open[groupKey{o.TaskID, o.Round}].told[o.Sample] {
						again.Learn(o)
					}
				}
				compared += goOn(t, live, again, w, open)
				if !same() {
					t.Error("in the end what is known differs")
				}
			})
		}
		if compared < 40 {
			t.Errorf("%s: only %d draws were held against each other", name, compared)
		}
	}
}

// open are the episodes of groups that have not ended, in one order.
func (w *world) open(p *Plan) (open []episode.Outcome) {
	for k, g := range p.open {
		for s := range g.told {
			open = append(open, episode.Outcome{TaskID: k.task, Round: k.round, Sample: s})
		}
	}
	slices.SortFunc(open, func(a, b episode.Outcome) int {
		return cmp.Or(cmp.Compare(a.TaskID, b.TaskID), cmp.Compare(a.Round, b.Round), cmp.Compare(a.Sample, b.Sample))
	})
	return open
}

// goOn tells two plans the same and holds what they decide against each other, until they end; it returns how many draws that were.
func goOn(t *testing.T, a, b *Plan, w *world, open []episode.Outcome) (draws int) {
	t.Helper()
	for {
		x, waitX, errX := a.decide(t.Context())
		y, waitY, errY := b.decide(t.Context())
		if waitX != waitY || !errors.Is(errY, errX) || !reflect.DeepEqual(x, y) {
			t.Fatalf("after %d draws: %+v and %+v, waits %v and %v, %v and %v", draws, x, y, waitX, waitY, errX, errY)
		}
		switch {
		case errX != nil:
			return draws
		case !waitX:
			draws++
			from, to := x.Span()
			for s := from; s < to && !x.HeldOut; s++ {
				o := episode.Outcome{TaskID: x.Task.ID, Round: x.Round, Sample: s}
				o.Reward = w.reward(o)
				open = append(open, o)
			}
			if len(open) < w.atOnce {
				continue
			}
		case len(open) == 0:
			t.Fatal("both wait, and nothing is open")
		}
		i := w.rng.IntN(len(open))
		a.Learn(open[i])
		b.Learn(open[i])
		open = slices.Delete(open, i, i+1)
	}
}

// TestBandsKeepToTheirLapsWithManyOpen: with more groups open than there are tasks in the band, tasks outside are not drawn in their place.
func TestBandsKeepToTheirLapsWithManyOpen(t *testing.T) {
	tasks, priors, inside := made(40, 1), map[string]Belief{}, map[string]bool{}
	for i, task := range tasks {
		task.Split = ""
		priors[task.Hash] = Belief{Fail: 100}
		if inside[task.ID] = i%4 == 0; inside[task.ID] {
			priors[task.Hash] = Belief{Pass: 50, Fail: 50}
		}
	}
	rec := &memory{}
	cfg := PlanConfig{Config: Config{Samples: 8, Order: OrderShuffle}, Band: Band{Low: 0.2, High: 0.8, Memory: 100, Keep: 1}, Draws: 400}
	p, err := NewPlan(t.Context(), cfg, PlanParts{Open: passOver(tasks), Record: rec, Priors: priors})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{rng: rand.New(rand.NewPCG(3, 3)), atOnce: 160, stored: map[string]*float64{}, reward: rates(func(id string) float64 {
		if inside[id] {
			return 0.5
		}
		return 0
	})}
	w.play(t, p)
	outside := 0
	for _, d := range w.drawn {
		if !inside[d.Task.ID] {
			outside++
		}
	}
	laps := p.supply.(*pool).domains[0].lap + 1
	if len(w.drawn) != 400 || laps > 45 { // ten of the band a lap, and 1.5 others
		t.Errorf("%d draws took %d laps", len(w.drawn), laps)
	}
	if most := 0.05 * 30 * float64(laps); float64(outside) > most+4*math.Sqrt(most) {
		t.Errorf("%d of %d draws in %d laps were outside the band, want about %.0f", outside, len(w.drawn), laps, most)
	}
}

// TestOutcomesDoNotWaitForTheInput: while the next task is read, which may take for ever, what came of others is learned.
func TestOutcomesDoNotWaitForTheInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowTasks{tasks: made(2, 1), more: make(chan struct{})}
		p, err := NewPlan(t.Context(), PlanConfig{Config: Config{Samples: 2}, Useful: 2},
			PlanParts{Open: func(context.Context) (Tasks, error) { return slow, nil }, Record: &memory{}})
		if err != nil {
			t.Fatal(err)
		}
		d, err := p.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan error)
		go func() { // ends with the test
			_, err := p.Next(t.Context())
			next <- err
		}()
		synctest.Wait()
		learned := make(chan struct{})
		go func() {
			for s := range 2 {
				p.Learn(episode.Outcome{TaskID: d.Task.ID, Sample: s, Reward: episode.Ptr(float64(s))})
			}
			close(learned)
		}()
		synctest.Wait()
		select {
		case <-learned:
		default:
			t.Error("the outcome waits for the next task")
		}
		close(slow.more)
		if err := <-next; err != nil {
			t.Error(err)
		}
		<-learned
	})
}

// slowTasks gives one task at once and the others when it is told to.
type slowTasks struct {
	tasks []*episode.Task
	at    int
	more  chan struct{}
}

func (s *slowTasks) Next() (*episode.Task, error) {
	if s.at > 0 {
		<-s.more
	}
	if s.at++; s.at > len(s.tasks) {
		return nil, io.EOF
	}
	return s.tasks[s.at-1], nil
}

func (s *slowTasks) Close() error { return nil }

// TestTheLastEvaluationComesOnce: whatever a loss of power leaves of the record, and all that is durable is left, no evaluation is made twice.
func TestTheLastEvaluationComesOnce(t *testing.T) {
	cfg := planConfigs()["all at once"]
	rec := &durable{}
	w := &world{rng: rand.New(rand.NewPCG(8, 8)), atOnce: 10, reward: rates(spreadRate), stored: map[string]*float64{}}
	w.play(t, newPlan(t, cfg, made(40, 3), rec))
	whole, err := ReadRecord(rec.text)
	if err != nil || !whole.Ended {
		t.Fatalf("%+v, %v", whole, err)
	}
	for _, n := range rec.synced { // a power loss after each
		left, err := ReadRecord(rec.text[:n])
		if err != nil {
			t.Fatal(err)
		}
		if left.Evals == whole.Evals && !left.Ended {
			t.Fatalf("%d evaluations are durable, the end is not", left.Evals)
		}
	}
	if last := rec.synced[len(rec.synced)-1]; last != len(rec.text) {
		t.Errorf("%d bytes of %d are durable at the end", last, len(rec.text))
	}
}

// durable is a record that knows how much of it survives a loss of power.
type durable struct {
	text   []byte
	synced []int
}

func (d *durable) Append(line []byte, durable bool) error {
	if d.text = append(d.text, line...); durable {
		d.synced = append(d.synced, len(d.text))
	}
	return nil
}

// TestShortGroupsAreWrittenDownFirst: who is told of a group's early end publishes it as it is, so a loss of power must not undo the decision.
func TestShortGroupsAreWrittenDownFirst(t *testing.T) {
	rec, told := &durable{}, 0
	p, err := NewPlan(t.Context(), planConfigs()["grow"], PlanParts{Open: passOver(made(40, 3)), Record: rec, Ended: func(task string, round, samples int) {
		told++
		left, err := ReadRecord(rec.text[:rec.synced[len(rec.synced)-1]])
		if err != nil || !slices.Contains(left.Short, ShortGroup{task, round, samples}) {
			t.Errorf("task %s, round %d is told to have ended with %d samples; the durable record says %v, %v", task, round, samples, left.Short, err)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{rng: rand.New(rand.NewPCG(8, 8)), atOnce: 10, reward: rates(spreadRate), stored: map[string]*float64{}}
	w.play(t, p)
	if told == 0 {
		t.Error("no group ended early")
	}
}

// TestDeadlinesCountFromTheBeginning: a time and a span are told apart only when it is known when the run began.
func TestDeadlinesCountFromTheBeginning(t *testing.T) {
	began := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	tasks := []*episode.Task{{ID: "in a day", Extra: []byte(`{"by":"24h"}`)}, {ID: "in an hour", Extra: []byte(`{"by":"2030-01-01T01:00:00Z"}`)}, {ID: "in a minute", Extra: []byte(`{"by":60}`)}}
	p := newPlan(t, PlanConfig{Config: Config{DeadlineColumn: "by"}, Mix: Mix{By: MixTemperature}}, tasks, nil)
	if err := p.Begin(began); err != nil {
		t.Fatal(err)
	}
	var got []string
	for range tasks {
		d, err := p.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, d.Task.ID)
	}
	if want := []string{"in a minute", "in an hour", "in a day"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

// TestNothingDependsOnResultsWithoutFeedback: mixtures, evaluations and schedules draw the same whatever comes of it and however many are open.
func TestNothingDependsOnResultsWithoutFeedback(t *testing.T) {
	cfg := PlanConfig{Config: Config{Samples: 2, Seed: 9, Order: OrderShuffle, Rounds: 2}, Mix: Mix{By: MixTemperature, Temperature: 3}, Draws: 70,
		Held: HeldOut{Share: 0.1, Every: 20, Samples: 3}}
	var want string
	for i, rate := range []float64{0, 0.5, 1} {
		p := newPlan(t, cfg, made(40, 4), nil)
		w := &world{rng: rand.New(rand.NewPCG(uint64(i), 1)), atOnce: 1 + 20*i, reward: rates(func(string) float64 { return rate }), stored: map[string]*float64{}}
		w.play(t, p)
		var got strings.Builder
		for _, d := range w.drawn {
			fmt.Fprintf(&got, "%s/%d/%d/%v/%s ", d.Task.ID, d.Round, d.Number, d.HeldOut, d.Task.Split)
		}
		if want == "" {
			want = got.String()
		}
		if got.String() != want {
			t.Errorf("with a pass rate of %v and %d at once the draws differ", rate, w.atOnce)
		}
		groups, held, evals := p.Size()
		if n := int64(len(w.stored)); groups != 70 || evals != 5 || n != groups*2+evals*held*3 {
			t.Errorf("%d groups, %d held out, %d evaluations, %d episodes", groups, held, evals, n)
		}
	}
}

// TestHeldOutTasksAreNeverMixedIn: no task is on both sides, by split and by share, and evaluations come when they are due.
func TestHeldOutTasksAreNeverMixedIn(t *testing.T) {
	for name, held := range map[string]HeldOut{"split": {Split: "test", Every: 10}, "share": {Share: 0.3, Every: 10}} {
		p := newPlan(t, PlanConfig{Held: held, Config: Config{Rounds: 2}}, made(50, 2), nil)
		sides := map[string]bool{}
		trained, evaluated := 0, map[int][]int{}
		for {
			d, err := p.Next(t.Context())
			if err == episode.ErrEnd {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if was, ok := sides[d.Task.ID]; ok && was != d.HeldOut {
				t.Fatalf("%s: task %s is trained on and evaluated on", name, d.Task.ID)
			}
			sides[d.Task.ID] = d.HeldOut
			if !d.HeldOut {
				trained++
				continue
			}
			if d.Task.Split != held.Label() {
				t.Fatalf("%s: an evaluation of split %q", name, d.Task.Split)
			}
			evaluated[d.Round] = append(evaluated[d.Round], trained)
		}
		n := 0
		for _, h := range sides {
			if h {
				n++
			}
		}
		if trained != 2*(50-n) || n == 0 {
			t.Errorf("%s: %d draws for training, %d tasks held out", name, trained, n)
		}
		for round, at := range evaluated {
			want := min(10*round, trained)
			if len(at) != n || at[0] != want || at[n-1] != want {
				t.Errorf("%s: evaluation %d came after %v draws, want %d tasks after %d", name, round, at, n, want)
			}
		}
		if len(evaluated) != 1+(trained+9)/10 {
			t.Errorf("%s: %d evaluations of %d draws", name, len(evaluated), trained)
		}
	}
}

// TestUsefulGroupsAreRefilled: groups whose rewards are all equal do not count, as long as there are tasks.
func TestUsefulGroupsAreRefilled(t *testing.T) {
	for name, c := range map[string]struct {
		rate        func(string) float64
		useful, max int64
		want        string // useful, groups
	}{
		"half":     {func(id string) float64 { return []float64{0, 0.5}[int(id[3]-'0')%2] }, 10, 80, ""},
		"none":     {func(string) float64 { return 1 }, 5, 30, "0 30"},
		"dry":      {func(string) float64 { return 0 }, 50, 500, "0 100"},
		"at limit": {func(string) float64 { return 0.5 }, 3, 3, "2 3"},
	} {
		rec := &memory{}
		p := newPlan(t, PlanConfig{Config: Config{Samples: 6}, Useful: c.useful, MaxDraws: c.max}, made(100, 1), rec)
		w := &world{rng: rand.New(rand.NewPCG(1, 2)), atOnce: 20, reward: rates(c.rate), stored: map[string]*float64{}}
		w.play(t, p)
		sum, err := ReadRecord(rec.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if c.want != "" && fmt.Sprint(sum.Useful, sum.Groups) != c.want || c.want == "" && name == "half" && sum.Useful != c.useful {
			t.Errorf("%s: %d useful groups of %d", name, sum.Useful, sum.Groups)
		}
		if name == "half" && (sum.Groups < 15 || sum.Groups > 30) {
			t.Errorf("half of the tasks are useful, and %d groups made %d", sum.Groups, sum.Useful)
		}
	}
}

// TestGrowKeepsItsError: of the groups that are stopped early, no more than the stated share would have differed, and samples are saved. The
// tasks are spread as real ones are: most are always or never solved.
func TestGrowKeepsItsError(t *testing.T) {
	oneGoroutine(t)
	for _, limit := range []float64{0.02, 0.1, 0.2} {
		stopped, wrong, saved, groups := 0, 0, int64(0), 0
		for seed := range uint64(2) {
			rng := rand.New(rand.NewPCG(seed, 5))
			rate := map[string]float64{}
			for _, task := range made(600, 1) {
				u := rng.Float64()
				rate[task.ID] = math.Pow(u, 6) / (math.Pow(u, 6) + math.Pow(1-u, 6))
			}
			rec := &memory{}
			p := newPlan(t, PlanConfig{Config: Config{Samples: 8}, Grow: Grow{From: 4, Error: limit}}, made(600, 1), rec)
			reward := func(o episode.Outcome) *float64 {
				if chance("grow", fmt.Sprint(seed), o.TaskID, fmt.Sprint(o.Sample)) < rate[o.TaskID] {
					return episode.Ptr(1.0)
				}
				return episode.Ptr(0.0)
			}
			w := &world{rng: rng, atOnce: 40, reward: reward, stored: map[string]*float64{}}
			w.play(t, p)
			list, _, err := events(rec.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range list {
				if e.Done == nil {
					continue
				}
				groups++
				if len(e.Done.Rewards) == 8 {
					continue
				}
				stopped++
				for s := 4; s < 8; s++ {
					if *reward(episode.Outcome{TaskID: e.Done.Task, Sample: s}) != *e.Done.Rewards[0] {
						wrong++
						break
					}
				}
			}
			sum, err := ReadRecord(rec.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			saved += sum.Saved
		}
		t.Logf("error %v: %d of %d groups stopped, %d of them would have differed, %d of %d samples saved", limit, stopped, groups, wrong, saved, 8*groups)
		if slack := 3 * math.Sqrt(limit*(1-limit)/float64(max(stopped, 1))); float64(wrong) > (limit+slack)*float64(stopped) {
			t.Errorf("error %v: %d of %d stopped groups would have differed", limit, wrong, stopped)
		}
		if limit >= 0.1 && saved*10 < int64(8*groups) {
			t.Errorf("error %v: %d of %d samples saved", limit, saved, 8*groups)
		}
	}
}

// TestGrowKeepsItsErrorWithParts: where tasks never pass wholly and give half a reward now and then, four zeros do not say that the others are
// zeros too.
func TestGrowKeepsItsErrorWithParts(t *testing.T) {
	oneGoroutine(t)
	const limit = 0.1
	rec, tasks := &memory{}, made(600, 1)
	p := newPlan(t, PlanConfig{Config: Config{Samples: 8}, Grow: Grow{From: 4, Error: limit}}, tasks, rec)
	reward := func(o episode.Outcome) *float64 {
		if chance("parts", o.TaskID, fmt.Sprint(o.Sample)) < chance("parts", o.TaskID) {
			return episode.Ptr(0.5)
		}
		return episode.Ptr(0.0)
	}
	w := &world{rng: rand.New(rand.NewPCG(1, 5)), atOnce: 40, reward: reward, stored: map[string]*float64{}}
	w.play(t, p)
	list, _, err := events(rec.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	stopped, wrong := 0, 0
	for _, e := range list {
		if e.Done == nil || len(e.Done.Rewards) == 8 {
			continue
		}
		stopped++
		for s := 4; s < 8; s++ {
			if *reward(episode.Outcome{TaskID: e.Done.Task, Sample: s}) > 0 {
				wrong++
				break
			}
		}
	}
	if float64(wrong) > limit*float64(stopped)+3*math.Sqrt(limit*float64(max(stopped, 1))) {
		t.Errorf("%d of %d stopped groups would have differed", wrong, stopped)
	}
}

// TestKnownPartsAreNoPasses: what is known of a task counts for each side as what it is there.
func TestKnownPartsAreNoPasses(t *testing.T) {
	half := Belief{}.After([]*float64{episode.Ptr(0.5), episode.Ptr(0.5), episode.Ptr(1.0), episode.Ptr(0.0)}, 1)
	if yes, no := half.wholes(); yes != 1 || no != 3 {
		t.Errorf("%v whole passes and %v others, want 1 and 3", yes, no)
	}
	if yes, no := half.somes(); yes != 3 || no != 1 {
		t.Errorf("%v with some reward and %v without, want 3 and 1", yes, no)
	}
}

// TestPlanWaitsForOutcomes: Next sleeps while what comes next is not decided, wakes with the outcome, and ends with its context.
func TestPlanWaitsForOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlan(t, PlanConfig{Config: Config{Samples: 2}, Useful: 1}, made(3, 1), &memory{})
		d, err := p.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan error)
		go func() {
			_, err := p.Next(t.Context())
			next <- err
		}()
		synctest.Wait()
		select {
		case err := <-next:
			t.Fatalf("a second draw before the first group is known: %v", err)
		default:
		}
		for s := range 2 {
			p.Learn(episode.Outcome{TaskID: d.Task.ID, Sample: s, Reward: episode.Ptr(float64(s))})
		}
		if err := <-next; err != episode.ErrEnd {
			t.Errorf("after one useful group: %v", err)
		}
	})
}

// TestBandLeavesTheSureOnesOut: with what an earlier run knew, tasks that are surely outside come rarely, and unknown ones come.
func TestBandLeavesTheSureOnesOut(t *testing.T) {
	tasks, priors := made(90, 1), map[string]Belief{}
	for i, task := range tasks {
		task.Split = ""
		switch i % 3 {
		case 0:
			priors[task.Hash] = Belief{Pass: 0, Fail: 16}
		case 1:
			priors[task.Hash] = Belief{Pass: 8, Fail: 8}
		}
	}
	p, err := NewPlan(t.Context(), PlanConfig{Config: Config{Samples: 4}, Band: Band{Low: 0.2, High: 0.8}, Draws: 60},
		PlanParts{Open: passOver(tasks), Record: &memory{}, Priors: priors})
	if err != nil {
		t.Fatal(err)
	}
	kinds := [3]int{}
	for range 60 {
		d, err := p.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		kinds[slices.Index(tasks, d.Task)%3]++
	}
	if kinds[0] > 12 || kinds[1] < 20 || kinds[2] < 20 {
		t.Errorf("%d too hard, %d in the band, %d unknown", kinds[0], kinds[1], kinds[2])
	}
}

// TestUrgentTasksComeFirst: by priority, then by deadline, then as the input has them.
func TestUrgentTasksComeFirst(t *testing.T) {
	var tasks []*episode.Task
	for i, extra := range []string{``, `{"p":1,"by":"2030-01-02T00:00:00Z"}`, `{"p":5}`, `{"p":1,"by":"2030-01-01T00:00:00Z"}`, `{"p":1}`, `{"p":-2}`, `{"by":60}`} {
		tasks = append(tasks, &episode.Task{ID: fmt.Sprint(i), Extra: []byte(extra)})
	}
	cfg := PlanConfig{Config: Config{PriorityColumn: "p", DeadlineColumn: "by"}}
	p := newPlan(t, cfg, tasks, nil)
	var got []string
	for range tasks {
		d, err := p.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, d.Task.ID)
		params, err := p.Params(d, 0)
		if want := map[string]int{"2": 5, "1": 1, "3": 1, "4": 1, "5": -2}[d.Task.ID]; err != nil || params.Priority != want {
			t.Errorf("task %s has priority %d, %v", d.Task.ID, params.Priority, err)
		}
	}
	if strings.Join(got, "") != "2314605" {
		t.Errorf("order %v", got)
	}
	for _, bad := range []string{`{"p":"high"}`, `{"p":1.5}`, `{"by":"tomorrow"}`, `{"by":-1}`, `{"by":[]}`} {
		task := &episode.Task{ID: "x", Extra: []byte(bad), Where: episode.Position{File: "f", Line: 3}}
		if _, err := NewPlan(t.Context(), cfg, PlanParts{Open: passOver([]*episode.Task{task})}); err == nil || !strings.Contains(err.Error(), "f:3") {
			t.Errorf("%s: %v, want the place", bad, err)
		}
	}
}

// TestRecordsThatCannotBeAreRefused names what does not fit, and where.
func TestRecordsThatCannotBeAreRefused(t *testing.T) {
	good := `{"draw":{"n":0,"task":"t000","hash":"h000","round":0,"size":2,"to":2}}` + "\n"
	for name, c := range map[string]struct{ text, says string }{
		"no JSON":         {good + "x\n", "line 2 is no decision"},
		"unknown field":   {`{"drew":{}}` + "\n", "line 1 is no decision"},
		"two decisions":   {good[:len(good)-1] + good, "line 1 holds more"},
		"other task":      {strings.Replace(good, "t000", "t999", 1), `line 1: the input gave task "t000" where it gave "t999" before`},
		"other content":   {strings.Replace(good, "h000", "h999", 1), `task "t000" is another one`},
		"other size":      {strings.Replace(strings.Replace(good, `"size":2`, `"size":3`, 1), `"to":2`, `"to":3`, 1), "expected draw 0, round 0, 2 samples"},
		"other lap":       {strings.Replace(good, `"round":0`, `"round":0,"lap":1`, 1), "nothing is gone through in laps"},
		"an end too many": {good + strings.Repeat(`{"done":{"task":"t000","round":0,"rewards":[1,0]}}`+"\n", 2), "line 3: the end of a group"},
	} {
		p := newPlan(t, PlanConfig{Config: Config{Samples: 2}, Useful: 5}, made(10, 1), &memory{})
		if err := p.Restore(t.Context(), []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q in it", name, err, c.says)
		}
	}
}

// TestARecordThatCannotBeWrittenEndsTheRun: a decision that is not on the disk is not carried out.
func TestARecordThatCannotBeWrittenEndsTheRun(t *testing.T) {
	rec := &memory{fail: errors.New("disk full")}
	p := newPlan(t, PlanConfig{Config: Config{Samples: 2}, Useful: 5}, made(10, 1), rec)
	if d, err := p.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("drew %+v, %v", d, err)
	}
}

// TestCloseTellsWhatFailedAfterTheLastDraw: once, and only where Next has not.
func TestCloseTellsWhatFailedAfterTheLastDraw(t *testing.T) {
	full := errors.New("disk full")
	for _, told := range []bool{false, true} {
		rec := &memory{}
		p := newPlan(t, PlanConfig{Config: Config{Samples: 2}, Useful: 1}, made(10, 1), rec)
		d, err := p.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rec.fail = full
		for s := range 2 {
			p.Learn(episode.Outcome{TaskID: d.Task.ID, Sample: s, Reward: episode.Ptr(float64(s))})
		}
		if told {
			if _, err := p.Next(t.Context()); !errors.Is(err, full) {
				t.Errorf("the next draw: %v", err)
			}
		}
		if err := p.Close(); errors.Is(err, full) == told {
			t.Errorf("told by Next %v: Close returns %v", told, err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("again: %v", err)
		}
	}
}

func FuzzReadRecord(f *testing.F) {
	f.Add([]byte(`{"draw":{"n":0,"task":"t003","hash":"h003","round":0,"lap":1,"size":4,"to":2}}` + "\n" + `{"eval":0,"end":true}` + "\n"))
	f.Add([]byte(`{"draw":{"n":0,"task":"t000","hash":"h000","round":0,"size":4,"to":2}}` + "\n" + `{"draw":{"n":0,"task":"t000","hash":"h000","round":0,"size":4,"from":2,"to":4}}` + "\n" +
		`{"done":{"task":"t000","round":0,"rewards":[1,null,0,0.5]}}` + "\n" + `{"eval":0}` + "\n" + `{"end":true}` + "\n" + `{"dr`))
	f.Fuzz(func(t *testing.T, text []byte) {
		sum, err := ReadRecord(text)
		if err != nil {
			return
		}
		if sum.Whole > len(text) || sum.Whole > 0 && text[sum.Whole-1] != '\n' {
			t.Fatalf("%d bytes of %d are whole", sum.Whole, len(text))
		}
		p := newPlan(t, PlanConfig{Config: Config{Samples: 4}, Grow: Grow{From: 2}, Mix: Mix{By: MixTemperature}}, made(10, 2), &memory{})
		if p.Restore(t.Context(), text) == nil { // what is taken can be gone on from
			w := &world{rng: rand.New(rand.NewPCG(1, 1)), atOnce: 3, reward: rates(spreadRate), stored: map[string]*float64{}}
			w.play(t, p)
		}
	})
}
