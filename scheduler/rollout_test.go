package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tranche/bucketing"
	"tranche/episode"
)

// scripted is a model in memory: think says what to answer and how long that takes.
type scripted struct {
	think    func(c *episode.Call, attempt, maxTokens int) (*episode.Reply, time.Duration, error)
	flying   atomic.Int64
	most     atomic.Int64
	arrivals atomic.Int64
}

func (m *scripted) Generate(ctx context.Context, c *episode.Call, attempt, maxTokens int) (*episode.Reply, error) {
	n := m.flying.Add(1)
	defer m.flying.Add(-1)
	m.arrivals.Add(1)
	for most := m.most.Load(); n > most && !m.most.CompareAndSwap(most, n); most = m.most.Load() {
	}
	r, d, err := m.think(c, attempt, maxTokens)
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return nil, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassCancelled, Cause: context.Cause(ctx)}
	}
	return r, err
}

func says(text string, tokens int, calls ...episode.ToolCall) *episode.Reply {
	finish := episode.FinishStop
	if len(calls) > 0 {
		finish = episode.FinishToolCalls
	}
	return &episode.Reply{
		Message: episode.Message{Role: episode.RoleAssistant, Content: &text, ToolCalls: calls}, Finish: finish, RawEnd: finish,
		Usage: episode.Usage{Prompt: episode.Ptr(int32(100)), Completion: episode.Ptr(int32(tokens))},
	}
}

func calls(name string) episode.ToolCall {
	return episode.ToolCall{ID: "c1", Type: "function", Function: episode.Function{Name: name, Arguments: "{}"}}
}

// echoActor answers every call after a second; the tool "submit" ends the episode, "panic" fails it as a panicking tool does.
type echoActor struct{}

func (echoActor) Tools(*episode.Task) ([]byte, bool, error) { return []byte("[]"), true, nil }
func (echoActor) Do(ctx context.Context, e *episode.Episode, acts []episode.Action) []episode.Observation {
	var out []episode.Observation
	for _, a := range acts {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
		o := episode.Observation{CallID: a.Call.ID, Name: a.Call.Function.Name, Text: "seen", Status: episode.ActionOK, Wall: time.Second}
		switch a.Call.Function.Name {
		case "submit":
			o.Done, o.Submitted = true, episode.Ptr("42")
		case "panic":
			o.Status, o.Fault = episode.ActionPanic, &episode.Fault{Stage: episode.StageAction, Class: episode.ClassActionPanic, Cause: errors.New("boom")}
		}
		out = append(out, o)
	}
	return out
}

type oneScorer struct{}

func (oneScorer) Score(context.Context, *episode.Episode) (episode.Verdict, error) {
	return episode.Verdict{Total: episode.Ptr(1.0)}, nil
}

type memory struct {
	mu    sync.Mutex
	rows  map[string]*episode.Episode
	when  map[string]time.Time
	twice []string
	fail  error
}

func (m *memory) Write(_ context.Context, e *episode.Episode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	if m.rows == nil {
		m.rows, m.when = map[string]*episode.Episode{}, map[string]time.Time{}
	}
	if m.rows[e.ID] != nil {
		m.twice = append(m.twice, e.ID)
	}
	m.rows[e.ID], m.when[e.ID] = e, time.Now()
	return nil
}

type list struct {
	n, samples, at int
}

func (l *list) Next(context.Context) (episode.Draw, error) {
	if l.at == l.n {
		return episode.Draw{}, episode.ErrEnd
	}
	l.at++
	t := &episode.Task{ID: fmt.Sprint("t", l.at), Messages: []episode.Message{{Role: episode.RoleUser, Content: episode.Ptr("question")}}}
	return episode.Draw{Task: t, Samples: l.samples}, nil
}

func open(b episode.Budget) func(episode.Draw, int) *episode.Episode {
	return func(d episode.Draw, s int) *episode.Episode {
		return episode.New("run", d, s, episode.Sampling{}, b, time.Now())
	}
}

func fleet(models ...*scripted) []Endpoint {
	var es []Endpoint
	for i, m := range models {
		es = append(es, Endpoint{Name: fmt.Sprint("m", i), Model: m})
	}
	return es
}

// play runs n tasks to the end in fake time.
func play(t *testing.T, cfg Config, rc RunConfig) (Totals, *memory, error) {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sink := &memory{}
	if rc.Sink == nil {
		rc.Sink = sink
	}
	if rc.Rollout == nil {
		rc.Rollout = &Rollout{}
	}
	rc.Rollout.Sched = s
	if rc.Open == nil {
		rc.Open = open(episode.Budget{TurnTokens: 64, Turns: 16})
	}
	totals, err := Run(t.Context(), rc)
	return totals, sink, err
}

// Ten thousand episodes of one to four turns with tools on three endpoints, one attempt in twenty failing: every one ends as
// one row, no matter what (laws 1 and 3).
func TestTenThousandEpisodesInFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		think := func(c *episode.Call, attempt, _ int) (*episode.Reply, time.Duration, error) {
			r := rand.New(rand.NewPCG(uint64(len(c.Messages)), hash(c.ID)+uint64(attempt)))
			d := time.Duration(100+r.IntN(5000)) * time.Millisecond
			if r.IntN(20) == 0 {
				return nil, d, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassReset, Retry: true, Cause: errors.New("reset")}
			}
			if hash(c.Episode)%4 > uint64(c.Turn) {
				return says("", 20, calls("echo")), d, nil
			}
			return says("", 20, calls("submit")), d, nil
		}
		totals, sink, err := play(t, Config{Endpoints: fleet(&scripted{think: think}, &scripted{think: think}, &scripted{think: think}), Concurrency: 512},
			RunConfig{Source: &list{n: 1250, samples: 8}, MaxOpen: 4000, Rollout: &Rollout{Actor: echoActor{}, Scorer: oneScorer{}, EpisodeTimeout: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		if totals.Drawn != 10000 || totals.Done+totals.Failed != 10000 || len(sink.rows) != 10000 || len(sink.twice) > 0 {
			t.Fatalf("totals %+v, %d rows, %d written twice", totals, len(sink.rows), len(sink.twice))
		}
		for _, e := range sink.rows {
			if e.Status == episode.StatusFailed && len(e.Fault.Attempts) != 3 {
				t.Fatalf("a failed row has %d attempts, want 3: %v", len(e.Fault.Attempts), e.Fault)
			}
			if e.Status == episode.StatusCompleted && (len(e.Turns) != int(hash(e.ID)%4)+1 || e.Verdict.Total == nil || *e.Submitted != "42") {
				t.Fatalf("a completed row has %d turns: %+v", len(e.Turns), e)
			}
		}
		if totals.Failed > 50 {
			t.Errorf("%d rows failed; three attempts at 5 %% each should fail about 3", totals.Failed)
		}
	})
}

func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range []byte(s) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}

func after(d time.Duration) func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
	return func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) { return says("ok", 5), d, nil }
}

// CT-o1 in fake time: 512 in flight at once, four waves of 200 ms.
func TestConcurrencyIsReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: after(200 * time.Millisecond)}
		began := time.Now()
		totals, _, err := play(t, Config{Endpoints: fleet(m), Concurrency: 512}, RunConfig{Source: &list{n: 2048, samples: 1}, MaxOpen: 1024})
		if err != nil || totals.Done != 2048 {
			t.Fatalf("%+v, %v", totals, err)
		}
		if m.most.Load() != 512 || time.Since(began) != 800*time.Millisecond {
			t.Errorf("%d in flight at most, %v", m.most.Load(), time.Since(began))
		}
	})
}

// CT-o3: a call waits three seconds for its slot; the two times are told apart.
func TestQueueAndServiceAreTwoTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		m := &scripted{think: func(c *episode.Call, _, _ int) (*episode.Reply, time.Duration, error) {
			d := 100 * time.Millisecond
			if first {
				d, first = 3*time.Second, false
			}
			return says("ok", 5), d, nil
		}}
		_, sink, err := play(t, Config{Endpoints: fleet(m), Concurrency: 1}, RunConfig{Source: &list{n: 2, samples: 1}})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, e := range sink.rows {
			seen[fmt.Sprint(e.Turns[0].Queue, e.Turns[0].Service)] = true
		}
		if !seen["0s 3s"] || !seen["3s 100ms"] {
			t.Errorf("queue and service of the two calls: %v, want 0s 3s and 3s 100ms", seen)
		}
	})
}

// SH-o2: one slow call holds up nobody.
func TestNoBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: func(c *episode.Call, _, _ int) (*episode.Reply, time.Duration, error) {
			if c.Episode == episode.ID(episode.ID("run", "t1", "0"), "0") {
				return says("slow", 5), 5 * time.Second, nil
			}
			return says("ok", 5), 50 * time.Millisecond, nil
		}}
		began := time.Now()
		_, sink, err := play(t, Config{Endpoints: fleet(m), Concurrency: 64}, RunConfig{Source: &list{n: 704, samples: 1}, MaxOpen: 128})
		if err != nil || time.Since(began) != 5*time.Second {
			t.Fatalf("%v after %v", err, time.Since(began))
		}
		early := 0
		for _, w := range sink.when {
			if w.Sub(began) < time.Second {
				early++
			}
		}
		if early != 703 {
			t.Errorf("%d rows before the slow one, want 703", early)
		}
	})
}

// SH-o4: cancelling ten thousand queued episodes returns at once and leaves no goroutine.
func TestCancelReturnsAtOnce(t *testing.T) {
	before := runtime.NumGoroutine()
	m := &scripted{think: after(time.Hour)}
	s, err := New(Config{Endpoints: fleet(m), Concurrency: 64})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for m.flying.Load() < 64 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	sink := &memory{}
	totals, err := Run(ctx, RunConfig{Source: &list{n: 10000, samples: 1}, Open: open(episode.Budget{}), Rollout: &Rollout{Sched: s}, Sink: sink, MaxOpen: 10000})
	returned := time.Now()
	s.Close()
	if !errors.Is(err, context.Canceled) || len(sink.rows) != 0 || totals.Cancelled != totals.Drawn {
		t.Errorf("%v, %+v, %d rows", err, totals, len(sink.rows))
	}
	if d := time.Since(returned); d > time.Minute {
		t.Errorf("closing took %v", d)
	}
	for range 3000 { // half a minute
		if runtime.NumGoroutine() <= before+5 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

// SH-o3: a panicking tool fails its own episode only.
func TestPanickingToolHurtsItsEpisodeOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := episode.ID(episode.ID("run", "t7", "0"), "0")
		m := &scripted{think: func(c *episode.Call, _, _ int) (*episode.Reply, time.Duration, error) {
			if c.Episode == bad {
				return says("", 5, calls("panic")), time.Second, nil
			}
			return says("", 5, calls("submit")), time.Second, nil
		}}
		totals, sink, err := play(t, Config{Endpoints: fleet(m)}, RunConfig{Source: &list{n: 50, samples: 1}, Rollout: &Rollout{Actor: echoActor{}, Scorer: oneScorer{}}})
		if err != nil || totals.Done != 49 || totals.Failed != 1 {
			t.Fatalf("%+v, %v", totals, err)
		}
		if e := sink.rows[bad]; e.Fault.Class != episode.ClassActionPanic || e.Verdict.Total != nil {
			t.Errorf("%v, reward %v", e.Fault, e.Verdict.Total)
		}
	})
}

// A client that panics, an actor that panics and a scorer that panics are each one failed row.
func TestPanicsOfOurOwnAreIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) { panic("client") }}
		totals, _, err := play(t, Config{Endpoints: fleet(m)}, RunConfig{Source: &list{n: 3, samples: 1}})
		if err != nil || totals.Failed != 3 {
			t.Fatalf("%+v, %v", totals, err)
		}
		ok := &scripted{think: after(time.Second)}
		totals, _, err = play(t, Config{Endpoints: fleet(ok)}, RunConfig{Source: &list{n: 3, samples: 1}, Rollout: &Rollout{Scorer: panicScorer{}}})
		if err != nil || totals.Failed != 3 {
			t.Fatalf("%+v, %v", totals, err)
		}
	})
}

type panicScorer struct{}

func (panicScorer) Score(context.Context, *episode.Episode) (episode.Verdict, error) { panic("scorer") }

// RR-o2, RR-o3: a refused request has one attempt; a call that always gets 503 has three with growing waits, and the record
// has all their times.
func TestAttemptsAreCountedAndRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: func(c *episode.Call, _, _ int) (*episode.Reply, time.Duration, error) {
			switch c.Episode {
			case episode.ID(episode.ID("run", "t1", "0"), "0"):
				return nil, time.Millisecond, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassBadRequest, Cause: errors.New("unknown parameter")}
			case episode.ID(episode.ID("run", "t2", "0"), "0"):
				return nil, time.Millisecond, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassUnavailable, Retry: true, Cause: errors.New("busy")}
			}
			return says("ok", 5), time.Second, nil
		}}
		totals, sink, err := play(t, Config{Endpoints: fleet(m)}, RunConfig{Source: &list{n: 20, samples: 1}})
		if err != nil || totals.Failed != 2 || totals.Done != 18 || m.arrivals.Load() != 18+1+3 {
			t.Fatalf("%+v, %v, %d arrivals", totals, err, m.arrivals.Load())
		}
		for _, e := range sink.rows {
			if e.Task.ID != "t2" {
				continue
			}
			at := e.Fault.Attempts
			if len(at) != 3 || at[2].Began.Sub(at[1].Ended) <= at[1].Began.Sub(at[0].Ended) {
				t.Errorf("attempts %+v", at)
			}
		}
	})
}

// RR-o1: 429 with Retry-After gates one endpoint; the other keeps working; every episode has one row.
func TestRetryAfterGatesOneEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var arrivals []time.Duration
		limited := &scripted{think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
			mu.Lock()
			arrivals = append(arrivals, time.Since(began))
			mu.Unlock()
			if time.Since(began) < time.Second {
				return nil, 10 * time.Millisecond, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassRateLimited, Retry: true, After: 2 * time.Second, Cause: errors.New("slow down")}
			}
			return says("ok", 5), 100 * time.Millisecond, nil
		}}
		healthy := &scripted{think: after(100 * time.Millisecond)}
		totals, sink, err := play(t, Config{Endpoints: fleet(limited, healthy), Concurrency: 25}, RunConfig{Source: &list{n: 1500, samples: 1}, MaxOpen: 100})
		if err != nil || totals.Done != 1500 || len(sink.rows) != 1500 {
			t.Fatalf("%+v, %v", totals, err)
		}
		var before, later []time.Duration
		for _, a := range arrivals {
			if a < time.Second {
				before = append(before, a)
			} else {
				later = append(later, a)
			}
		}
		if len(later) < 20 {
			t.Fatalf("the gated endpoint was hardly used again: %d calls", len(later))
		}
		if gap := later[0] - (before[len(before)-1] + 10*time.Millisecond); gap < 2*time.Second {
			t.Errorf("came back %v after its latest 429, want 2 s", gap)
		}
		if spread := later[15] - later[0]; spread < 200*time.Millisecond {
			t.Errorf("the first 16 calls came back within %v, want at least 200 ms", spread)
		}
	})
}

// SC-o3: promised tokens never exceed the budget, and short calls do not wait for all long ones.
func TestShortCallsDoNotWaitForAllLongOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		held, most := 0, 0
		m := &scripted{}
		m.think = func(c *episode.Call, _, maxTokens int) (*episode.Reply, time.Duration, error) {
			mu.Lock()
			held += c.PromptTokens + maxTokens
			most = max(most, held)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			held -= c.PromptTokens + maxTokens
			mu.Unlock()
			return says("ok", 5), 0, nil
		}
		src := &lengths{}
		for i := range 440 {
			n := 200
			if i < 40 {
				n = 8000
			}
			src.prompts = append(src.prompts, n)
		}
		e := Endpoint{Name: "a", Model: m, Counter: byteCounter{}, Strict: true, Capacity: episode.Capacity{KVTokens: 64000, ContextTokens: 32768}}
		began := time.Now()
		_, sink, err := play(t, Config{Endpoints: []Endpoint{e}, Concurrency: 256}, RunConfig{Source: src, MaxOpen: 500})
		if err != nil {
			t.Fatal(err)
		}
		if most > 64000 {
			t.Errorf("%d tokens in flight at most, budget 64000", most)
		}
		lastShort, lastLong := time.Duration(0), time.Duration(0)
		for id, e := range sink.rows {
			d := sink.when[id].Sub(began)
			if len(e.Task.Messages[0].Text()) < 1000 {
				lastShort = max(lastShort, d)
			} else {
				lastLong = max(lastLong, d)
			}
		}
		t.Logf("last long %v, last short %v, at most %d tokens", lastLong, lastShort, most)
		firstShort := lastLong
		for id, e := range sink.rows {
			if len(e.Task.Messages[0].Text()) < 1000 {
				firstShort = min(firstShort, sink.when[id].Sub(began))
			}
		}
		if firstShort > 1100*time.Millisecond {
			t.Errorf("the first short call ended after %v: they waited for long ones", firstShort)
		}
	})
}

type lengths struct {
	prompts []int
	at      int
}

func (l *lengths) Next(context.Context) (episode.Draw, error) {
	if l.at == len(l.prompts) {
		return episode.Draw{}, episode.ErrEnd
	}
	l.at++
	text := string(make([]byte, l.prompts[l.at-1]))
	t := &episode.Task{ID: fmt.Sprint("t", l.at), Messages: []episode.Message{{Role: episode.RoleUser, Content: &text}}}
	return episode.Draw{Task: t, Samples: 1}, nil
}

type byteCounter struct{}

func (byteCounter) Count(_ context.Context, c *episode.Call) (int, error) {
	return len(c.Messages[0].Text()), nil
}

// CO-o1, CO-o3: the context clamps max_tokens; a full context is a normal end that is scored; budgets of turn and episode differ.
func TestContextAndBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []int
		m := &scripted{think: func(c *episode.Call, _, maxTokens int) (*episode.Reply, time.Duration, error) {
			sent = append(sent, maxTokens)
			r := says("", 5, calls("echo"))
			r.Usage.Prompt = episode.Ptr(int32(90))
			return r, time.Second, nil
		}}
		e := Endpoint{Name: "a", Model: m, Counter: script{90, 99}.counter(), Capacity: episode.Capacity{ContextTokens: 100}}
		_, sink, err := play(t, Config{Endpoints: []Endpoint{e}}, RunConfig{
			Source: &lengths{prompts: []int{250}}, Open: open(episode.Budget{TurnTokens: 64, MinUseful: 8}), Rollout: &Rollout{Actor: echoActor{}, Scorer: oneScorer{}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range sink.rows {
			if fmt.Sprint(sent) != "[10]" || e.Stop != episode.StopContextFull || e.Status != episode.StatusTruncated || len(e.Turns) != 1 || e.Verdict.Total == nil {
				t.Errorf("sent max_tokens %v, stop %s, %d turns, verdict %v", sent, e.Stop, len(e.Turns), e.Verdict)
			}
		}
	})
}

type script []int

// counter answers one scripted length after the other.
func (s script) counter() episode.Counter {
	at := 0
	return counterFunc(func() int { at++; return s[min(at, len(s))-1] })
}

type counterFunc func() int

func (f counterFunc) Count(context.Context, *episode.Call) (int, error) { return f(), nil }

// CO-o3: forty tokens a turn over three turns, long tool results between: nothing is cut at the per-turn cap of 50.
func TestTurnBudgetDoesNotCutTheEpisode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: func(c *episode.Call, _, _ int) (*episode.Reply, time.Duration, error) {
			if c.Turn < 2 {
				return says("", 40, calls("echo")), time.Second, nil
			}
			return says("done", 40), time.Second, nil
		}}
		_, sink, err := play(t, Config{Endpoints: fleet(m)}, RunConfig{
			Source: &list{n: 1, samples: 1}, Open: open(episode.Budget{TurnTokens: 50, EpisodeTokens: 1000}), Rollout: &Rollout{Actor: echoActor{}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range sink.rows {
			if e.Generated() != 120 || len(e.Turns) != 3 || e.Stop != episode.StopStop {
				t.Errorf("%d tokens in %d turns, stop %s", e.Generated(), len(e.Turns), e.Stop)
			}
		}
	})
}

// CO-o2: a tool call cut by its length is not run.
func TestCutToolCallIsNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
			c := calls("echo")
			c.Function.Arguments = `{"n": 7`
			r := says("", 64, c)
			r.Finish, r.RawEnd = episode.FinishLength, "length"
			return r, time.Second, nil
		}}
		_, sink, err := play(t, Config{Endpoints: fleet(m)}, RunConfig{Source: &list{n: 1, samples: 1}, Rollout: &Rollout{Actor: echoActor{}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range sink.rows {
			if e.Stop != episode.StopLength || e.Status != episode.StatusTruncated || len(e.Actions) != 0 || e.Messages[1].ToolCalls[0].Function.Arguments != `{"n": 7` {
				t.Errorf("stop %s, status %s, %d actions", e.Stop, e.Status, len(e.Actions))
			}
		}
	})
}

// Stop: no new episodes, running ones drain, what outlasts the drain is cut and not written, and a second run does the rest.
func TestStopDrainsCutsAndResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: func(c *episode.Call, _, _ int) (*episode.Reply, time.Duration, error) {
			if hash(c.Episode)%2 == 0 {
				return says("slow", 5), time.Minute, nil
			}
			return says("ok", 5), 5 * time.Second, nil
		}}
		stop := make(chan struct{})
		go func() { time.Sleep(time.Second); close(stop) }()
		began := time.Now()
		totals, sink, err := play(t, Config{Endpoints: fleet(m), Concurrency: 32}, RunConfig{Source: &list{n: 100, samples: 1}, MaxOpen: 32, Stop: stop, Drain: 10 * time.Second})
		if !errors.Is(err, ErrStopped) || time.Since(began) != 11*time.Second {
			t.Fatalf("%v after %v", err, time.Since(began))
		}
		if totals.Done == 0 || totals.Cancelled == 0 || totals.Done+totals.Cancelled != 32 || int(totals.Done) != len(sink.rows) {
			t.Fatalf("%+v, %d rows", totals, len(sink.rows))
		}
		again, rest, err := play(t, Config{Endpoints: fleet(m), Concurrency: 32}, RunConfig{
			Source: &list{n: 100, samples: 1}, Done: func(id string) bool { return sink.rows[id] != nil }})
		if err != nil || again.Skipped != totals.Done || again.Done != 100-totals.Done || len(rest.rows)+len(sink.rows) != 100 {
			t.Fatalf("%v, %+v", err, again)
		}
	})
}

// Stop: what is open and was not sent yet is given back; what has begun goes on, with its later calls. Whether the source had more makes no difference.
func TestStopBeginsNothingMore(t *testing.T) {
	for _, tasks := range []int{16, 100} {
		synctest.Test(t, func(t *testing.T) {
			var first, later atomic.Int64
			m := &scripted{think: func(c *episode.Call, _, _ int) (*episode.Reply, time.Duration, error) {
				if c.Turn > 0 {
					later.Add(1)
					return says("done", 5), time.Second, nil
				}
				first.Add(1)
				return says("", 5, calls("echo")), time.Second, nil
			}}
			stop := make(chan struct{})
			go func() { time.Sleep(500 * time.Millisecond); close(stop) }()
			began := time.Now()
			totals, sink, err := play(t, Config{Endpoints: fleet(m), Concurrency: 4}, RunConfig{Source: &list{n: tasks, samples: 1}, MaxOpen: 16, Stop: stop, Drain: time.Hour, Rollout: &Rollout{Actor: echoActor{}}})
			if !errors.Is(err, ErrStopped) || time.Since(began) > 10*time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			if first.Load() != 4 || later.Load() != 4 || totals.Done != 4 || totals.Cancelled != 12 || len(sink.rows) != 4 {
				t.Errorf("%d first calls and %d later ones, %+v, %d rows", first.Load(), later.Load(), totals, len(sink.rows))
			}
		})
	}
}

// Dead endpoints end the run; no row is failed for it.
func TestDeadEndpointsEndTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
			return nil, time.Millisecond, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassConnect, Retry: true, Cause: errors.New("connection refused")}
		}}
		totals, sink, err := play(t, Config{Endpoints: fleet(m)}, RunConfig{Source: &list{n: 1000, samples: 1}})
		if !errors.Is(err, ErrEndpointsDead) || len(sink.rows) != 0 || totals.Failed != 0 {
			t.Fatalf("%v, %+v, %d rows", err, totals, len(sink.rows))
		}
	})
}

// A sink that fails ends the run with its error; too many failures end it too.
func TestRunEndsWhenItCannotGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("no space left on device")
		_, _, err := play(t, Config{Endpoints: fleet(&scripted{think: after(time.Second)})}, RunConfig{Source: &list{n: 1000, samples: 1}, Sink: &memory{fail: full}})
		if !errors.Is(err, full) {
			t.Errorf("got %v", err)
		}
		bad := &scripted{think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
			return nil, time.Second, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassBadRequest, Cause: errors.New("no")}
		}}
		totals, _, err := play(t, Config{Endpoints: fleet(bad)}, RunConfig{Source: &list{n: 1000, samples: 1}, MaxFailedShare: 0.5})
		if !errors.Is(err, ErrTooManyFailed) || totals.Failed > 400 {
			t.Errorf("%v, %+v", err, totals)
		}
	})
}

// gradeless is a scorer whose grader fails, or has nothing to judge.
type gradeless struct{ failed bool }

func (g gradeless) Score(context.Context, *episode.Episode) (episode.Verdict, error) {
	return episode.Verdict{Failed: g.failed}, nil
}

// A run whose graders fail stops early; one whose tasks state no answer does not.
func TestRunEndsWhenGradersFail(t *testing.T) {
	for name, c := range map[string]struct {
		failed bool
		share  float64
		stops  bool
	}{"graders fail": {true, 0.5, true}, "nothing to judge": {false, 0.5, false}, "no bound": {true, 0, false}, "at the bound": {true, 1, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := RunConfig{Source: &list{n: 1000, samples: 1}, MaxUnscoredShare: c.share, MinSettled: 100, Rollout: &Rollout{Scorer: gradeless{c.failed}}}
				totals, _, err := play(t, Config{Endpoints: fleet(&scripted{think: after(time.Second)})}, cfg)
				if errors.Is(err, ErrTooManyUnscored) != c.stops || c.stops != (totals.Done < 600) || totals.Done < 100 || totals.Failed != 0 {
					t.Errorf("%v, %+v", err, totals)
				}
			})
		})
	}
}

// Graders that judge later are held to the same share, by themselves.
func TestRunEndsWhenGradersFailLater(t *testing.T) {
	for name, c := range map[string]struct {
		failed, graded int64
		stops          bool
	}{"they fail": {60, 100, true}, "too few to tell": {99, 99, false}, "at the bound": {50, 100, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := RunConfig{Source: &list{n: 300, samples: 1}, MaxUnscoredShare: 0.5, MinSettled: 100, Rollout: &Rollout{Scorer: gradeless{}},
					Unscored: func() (int64, int64) { return c.failed, c.graded }}
				totals, _, err := play(t, Config{Endpoints: fleet(&scripted{think: after(time.Second)})}, cfg)
				if errors.Is(err, ErrTooManyUnscored) != c.stops || c.stops != (totals.Done < 300) {
					t.Errorf("%v, %+v", err, totals)
				}
			})
		})
	}
}

// A task whose tools nobody runs ends at its first call, completed.
func TestForeignToolCallsAreTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
			return says("", 5, calls("weather")), time.Second, nil
		}}
		_, sink, err := play(t, Config{Endpoints: fleet(m)}, RunConfig{Source: &list{n: 1, samples: 1}})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range sink.rows {
			if e.Stop != episode.StopToolCalls || e.Status != episode.StatusCompleted {
				t.Errorf("%s, %s", e.Status, e.Stop)
			}
		}
	})
}

// The episode's total deadline holds in every wait, a queue's too.
func TestEpisodeDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: after(time.Hour)}
		began := time.Now()
		totals, sink, err := play(t, Config{Endpoints: fleet(m), Concurrency: 1}, RunConfig{Source: &list{n: 3, samples: 1}, Rollout: &Rollout{EpisodeTimeout: time.Minute}})
		if err != nil || totals.Failed != 3 || time.Since(began) != time.Minute {
			t.Fatalf("%v, %+v after %v", err, totals, time.Since(began))
		}
		for _, e := range sink.rows {
			if e.Fault.Class != episode.ClassDeadline {
				t.Errorf("class %s", e.Fault.Class)
			}
		}
	})
}

// The total deadline grows with the prompt and with the longest turn.
func TestEpisodeDeadlineGrows(t *testing.T) {
	r := &Rollout{Sched: &Scheduler{}, EpisodeTimeout: time.Minute}
	for name, c := range map[string]struct {
		words, turn int
		from, to    time.Duration
	}{
		"an ordinary one":    {1000, 1024, time.Minute, time.Minute},
		"a long turn":        {1000, 16384, 2 * time.Minute, 125 * time.Second},
		"a very long prompt": {1_000_000, 8192, 3 * time.Minute, 8 * time.Minute},
	} {
		task := &episode.Task{Messages: []episode.Message{{Role: episode.RoleUser, Content: episode.Ptr(strings.Repeat("word ", c.words))}}}
		e := episode.New("run", episode.Draw{Task: task, Samples: 1}, 0, episode.Sampling{}, episode.Budget{TurnTokens: c.turn}, time.Now())
		if got := r.limit(e); got < c.from || got > c.to {
			t.Errorf("%s: %v, want %v to %v", name, got, c.from, c.to)
		}
	}
}

// An episode whose time runs out between two attempts keeps the record of the attempts, and the text of the last one.
func TestDeadlineKeepsTheAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
			return nil, 4 * time.Second, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassTruncatedStream, Retry: true, Partial: "half an ans", Cause: errors.New("cut")}
		}}
		_, sink, err := play(t, Config{Endpoints: fleet(m), Rules: Rules{BackoffBase: 10 * time.Second}}, RunConfig{Source: &list{n: 1, samples: 1}, Rollout: &Rollout{EpisodeTimeout: 6 * time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range sink.rows {
			f := e.Fault
			if f.Class != episode.ClassDeadline || f.Stage != episode.StageModel || len(f.Attempts) != 1 || f.Attempts[0].Class != episode.ClassTruncatedStream || f.Partial != "half an ans" {
				t.Errorf("%+v", f)
			}
		}
	})
}

// The loss of an endpoint and its return are told once each; stopping while none is alive does not wait for the drain.
func TestLossOfAnEndpointIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		dead := func() bool { d := time.Since(began); return d > time.Second && d < 20*time.Second }
		m := &scripted{think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
			if dead() {
				return nil, time.Millisecond, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassConnect, Retry: true, Cause: errors.New("refused")}
			}
			return says("ok", 5), 100 * time.Millisecond, nil
		}}
		var told []string
		cfg := Config{Endpoints: fleet(m), Trace: Trace{
			Down: func(e string, f *episode.Fault, again time.Duration) {
				told = append(told, fmt.Sprint("down ", e, " ", f.Class))
			},
			Up: func(e string) { told = append(told, "up "+e) },
		}}
		totals, _, err := play(t, cfg, RunConfig{Source: &list{n: 3000, samples: 1}})
		if err != nil || totals.Done != 3000 || totals.Failed != 0 {
			t.Fatalf("%v, %+v", err, totals)
		}
		if fmt.Sprint(told) != "[down m0 connect up m0]" {
			t.Errorf("told %v", told)
		}
		if idle := time.Since(began); idle > 35*time.Second {
			t.Errorf("the endpoint came back after 20 s and the run took %v", idle)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
			return nil, time.Millisecond, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassConnect, Retry: true, Cause: errors.New("refused")}
		}}
		stop := make(chan struct{})
		go func() { time.Sleep(30 * time.Second); close(stop) }()
		began := time.Now()
		_, _, err := play(t, Config{Endpoints: fleet(m)}, RunConfig{Source: &list{n: 100, samples: 1}, Stop: stop, Drain: 30 * time.Second})
		if !errors.Is(err, ErrStopped) || time.Since(began) > 31*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// The class in a turn's record is that of the length the call had, whatever was expected of it.
func TestClassIsOfTheRealLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
			return says("long", 5000), time.Second, nil
		}}
		_, sink, err := play(t, Config{Endpoints: fleet(m), Concurrency: 1}, RunConfig{Source: &list{n: 20, samples: 1}})
		if err != nil {
			t.Fatal(err)
		}
		ladder, _ := bucketing.NewLadder(nil)
		for _, e := range sink.rows {
			if want := ladder.Class(5100); int(e.Turns[0].Class) != want {
				t.Errorf("class %d, want %d", e.Turns[0].Class, want)
			}
		}
	})
}
