package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tranche/episode"
	"tranche/inference/enginesim"
)

// perfect is a server whose cache forgets nothing: every call finds all of its prompt that the same run sent or got before.
type perfect struct {
	mu     sync.Mutex // guards all below
	seen   map[string][]int32
	asked  map[string][]episode.Continuation // by salt
	hits   int64
	asks   int64
	fail   func(n int64) error // of the n-th call; nil = none fails
	blind  bool                // tells no counters
	onCall func(n int64)
}

func newPerfect() *perfect {
	return &perfect{seen: map[string][]int32{}, asked: map[string][]episode.Continuation{}}
}

func (p *perfect) Continue(_ context.Context, c episode.Continuation) (episode.Continued, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asks++
	if p.onCall != nil {
		p.onCall(p.asks)
	}
	if p.fail != nil {
		if err := p.fail(p.asks); err != nil {
			return episode.Continued{}, err
		}
	}
	p.asked[c.Salt] = append(p.asked[c.Salt], c)
	before := p.seen[c.Episode]
	cached := 0
	for cached < min(len(before), len(c.Prompt)) && before[cached] == c.Prompt[cached] {
		cached++
	}
	p.hits += int64(cached)
	got := episode.Continued{Prompt: len(c.Prompt), Cached: cached}
	for i := range c.Tokens {
		got.IDs = append(got.IDs, int32(i))
	}
	p.seen[c.Episode] = append(slices.Clone(c.Prompt), got.IDs...)
	return got, nil
}

func (p *perfect) Load(context.Context) (episode.Load, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.blind {
		return episode.Load{Running: episode.Ptr(1)}, nil
	}
	queries := int64(0)
	for _, calls := range p.asked {
		for _, c := range calls {
			queries += int64(len(c.Prompt))
		}
	}
	return episode.Load{PrefixQueries: &queries, Hits: episode.Ptr(p.hits), Preemptions: episode.Ptr(int64(0))}, nil
}

func onPerfect(t *testing.T, p *perfect, policies ...string) Real {
	t.Helper()
	load := VLLMA()
	load.Action = time.Millisecond
	named, err := Named(policies)
	if err != nil {
		t.Fatal(err)
	}
	return Real{
		Server: p, Gauge: p, Capacity: episode.Capacity{ContextTokens: 8192, KVTokens: load.KVTokens, BlockTokens: 128},
		Workload: load.Draw(6, 1), Policies: named, Repeats: 2, Run: "test",
	}
}

func TestRealAsksForTheSameWorkUnderEveryPolicy(t *testing.T) {
	p := newPerfect()
	r := onPerfect(t, p, "tranche", "cap-2")
	report, err := r.Play(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Rows) != 3 || len(p.asked) != 6 {
		t.Fatalf("%d policies and %d salts, want flood too, and a salt for each of two repeats of three", len(report.Rows), len(p.asked))
	}
	want := ""
	for salt, calls := range p.asked {
		if shape := shapeOf(t, salt, calls); want == "" {
			want = shape
		} else if shape != want {
			t.Errorf("%s asks for other work:\n%s\nwant\n%s", salt, shape, want)
		}
	}
	for _, row := range report.Rows {
		if row.Runs != 2 || row.Computed != float64(r.Workload.Load().Prompt) || row.OfLowestCap != 1 {
			t.Errorf("%s: %d runs, %.0f prompt tokens computed, %.2f of the lowest cap; want 2, %d of a cache that forgets nothing, 1", row.Policy, row.Runs, row.Computed, row.OfLowestCap, r.Workload.Load().Prompt)
		}
	}
}

// shapeOf checks that every prompt continues the one before it exactly, and tells the work by lengths and first ids.
func shapeOf(t *testing.T, salt string, calls []episode.Continuation) string {
	t.Helper()
	slices.SortStableFunc(calls, func(a, b episode.Continuation) int { return strings.Compare(a.Episode, b.Episode) })
	var b strings.Builder
	var context []int32
	for i, c := range calls {
		if i == 0 || calls[i-1].Episode != c.Episode {
			context = nil
		}
		if len(c.Prompt) <= len(context) || !slices.Equal(c.Prompt[:len(context)], context) {
			t.Errorf("%s: the prompt of %s does not go on from what came before", salt, c.ID)
		}
		context = slices.Clone(c.Prompt)
		for k := range c.Tokens {
			context = append(context, int32(k))
		}
		fmt.Fprintln(&b, strings.TrimPrefix(c.ID, salt), len(c.Prompt), c.Tokens, c.Prompt[len(c.Prompt)-3:])
	}
	return b.String()
}

func TestRealStopsAtTheFirstCallThatFails(t *testing.T) {
	p := newPerfect()
	r := onPerfect(t, p, "flood", "cap-2")
	first := int64(r.Workload.Calls())
	p.fail = func(n int64) error {
		if n > first+3 {
			return &episode.Fault{Class: episode.ClassServerError, Cause: errors.New("the engine is dead"), Retry: true}
		}
		return nil
	}
	report, err := r.Play(context.Background())
	if err == nil || !strings.Contains(err.Error(), "cap-2, repeat 1: a call failed") || !strings.Contains(err.Error(), "the engine is dead") {
		t.Errorf("error %v, want one that says what failed where", err)
	}
	if len(report.Rows) != 1 || report.Rows[0].Policy != "flood" || report.Rows[0].Runs != 1 {
		t.Errorf("%+v, want the one run that was complete", report.Rows)
	}
}

func TestRealGivesWhatIsThereWhenStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p := newPerfect()
	r := onPerfect(t, p, "flood", "cap-2")
	first := int64(r.Workload.Calls())
	p.onCall = func(n int64) {
		if n == first+3 {
			cancel()
		}
	}
	report, err := r.Play(ctx)
	if !errors.Is(err, ErrStopped) || len(report.Rows) != 1 || report.Rows[0].Policy != "flood" {
		t.Errorf("error %v, rows %+v; want ErrStopped and the run that was complete", err, report.Rows)
	}
}

func TestRealRefusesWhatItCannotMeasure(t *testing.T) {
	p := newPerfect()
	p.blind = true
	if _, err := onPerfect(t, p, "flood").Play(context.Background()); !errors.Is(err, ErrNoCounters) {
		t.Errorf("error %v, want ErrNoCounters", err)
	}
	r := onPerfect(t, newPerfect(), "flood")
	r.Capacity.ContextTokens = 1000
	if _, err := r.Play(context.Background()); err == nil || !strings.Contains(err.Error(), "the server takes 1000") {
		t.Errorf("error %v, want one that says the contexts do not fit", err)
	}
}

func ran(seconds, queried, hits int) Result {
	return Result{Makespan: time.Duration(seconds) * time.Second, Queried: int64(queried), Hits: int64(hits)}
}

func TestRealReportTakesRatiosRepeatByRepeat(t *testing.T) {
	var runs []RealRun
	for _, x := range []struct {
		policy  string
		results []Result
	}{
		{"flood", []Result{ran(100, 1000, 0), ran(200, 1000, 0), ran(100, 1000, 0)}}, // the machine was slow in the second repeat
		{"cap-4", []Result{ran(80, 1000, 500), ran(160, 1000, 500), ran(80, 1000, 500)}},
		{"cap-8", []Result{ran(60, 1000, 400), ran(120, 1000, 400)}},
		{"tranche", []Result{ran(50, 1000, 450), ran(100, 1000, 450), ran(50, 1000, 450)}},
	} {
		for i := range x.results {
			k := len(x.results) - 1 - i // the order in which they ended is not that of the repeats
			runs = append(runs, RealRun{Policy: x.policy, Repeat: k + 1, Build: "b", Result: x.results[k]})
		}
	}
	r := ReportOf(Measured{}, runs)
	got := r.row("tranche")
	if r.BestCap != "cap-4" || r.row("cap-8").Makespan != 90 {
		t.Errorf("best cap %s, median of two %g; want cap-4, and the mean of the two", r.BestCap, r.row("cap-8").Makespan)
	}
	if got.Speedup != 2 || got.OverBestCap != 1.6 || got.OfLowestCap != 1.1 || got.Makespan != 50 || got.HitRate != 0.45 {
		t.Errorf("%+v, want twice as fast as flood, 1.6 times as cap-4, 1.1 times its prompt tokens", got)
	}
	if got.Least.Makespan != 50 || got.Most.Makespan != 100 || !slices.Equal(got.Makespans, []string{"50.0", "100.0", "50.0"}) {
		t.Errorf("makespans %v, least %+v, most %+v; want them by repeat, 50 and 100", got.Makespans, got.Least, got.Most)
	}
}

func TestRealReportJudgesTheSimulation(t *testing.T) {
	r := RealReport{Rows: []RealRow{
		{Policy: "a", Figures: Figures{Makespan: 100, HitRate: 0.5}, Simulated: &Figures{Makespan: 110, HitRate: 0.54}},
		{Policy: "b", Figures: Figures{Makespan: 105, HitRate: 0.5}, Simulated: &Figures{Makespan: 90, HitRate: 0.5}},
	}}
	r.agree()
	a := r.Agreement
	within(t, "hit rates off", a.HitOff, 0.04, 1e-9)
	within(t, "makespans off", a.MakespanOff, 1-90.0/105, 1e-9)
	if !slices.Equal(a.Swapped, []string{"a and b"}) {
		t.Errorf("swapped %v, want a and b", a.Swapped)
	}
}

func TestDecodeWindowCountsWhereAllRun(t *testing.T) {
	at := func(ms ...int) (out []time.Time) {
		for _, m := range ms {
			out = append(out, time.Unix(0, 0).Add(time.Duration(m)*time.Millisecond))
		}
		return out
	}
	var early, late []int
	for i := range 30 {
		early = append(early, 10*i)  // 0 … 290
		late = append(late, 55+10*i) // 55 … 345: after six of the first
	}
	s, err := decodeWindow(100, [][]time.Time{at(early...), at(late...)})
	if err != nil {
		t.Fatal(err)
	}
	want := enginesim.DecodeSample([]int{106, 101}, 23, 230*time.Millisecond) // 55 … 285
	if s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	if _, err := decodeWindow(100, [][]time.Time{at(early...), at(280, 290, 300)}); err == nil {
		t.Error("streams that hardly overlap were timed")
	}
}

func TestVLLMLoadsHaveTheirShape(t *testing.T) {
	for _, l := range []VLLMLoad{VLLMA(), VLLMB()} {
		w := l.Draw(400, 3)
		if err := w.Validate(); err != nil {
			t.Fatal(err)
		}
		pauses, n := 0.0, 0
		for _, e := range w.Episodes {
			if k := len(e.Turns); k < l.Turns[0] || k > l.Turns[1] {
				t.Errorf("%s: %d turns, want %v", l.Name, k, l.Turns)
			}
			for i, x := range e.Turns {
				new := l.New
				if i == 0 {
					new = l.Prompt
				}
				if x.New < new[0] || x.New > new[1] || x.Out < l.Out[0] || x.Out > l.Out[1] {
					t.Fatalf("%s: turn %d is %+v", l.Name, i, x)
				}
				pauses, n = pauses+x.Tool.Seconds(), n+1
			}
		}
		within(t, l.Name+" mean action", pauses/float64(n), l.Action.Seconds(), 0.1)
	}
}
