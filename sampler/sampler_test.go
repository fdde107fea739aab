package sampler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"tranche/episode"
)

// list is a pass over n made tasks.
type list struct {
	n, next int
	closed  *int
	fail    error // after the last task, in place of io.EOF
	params  string
}

func (l *list) Next() (*episode.Task, error) {
	if l.next == l.n {
		if l.fail != nil {
			return nil, l.fail
		}
		return nil, io.EOF
	}
	l.next++
	return &episode.Task{ID: fmt.Sprint(l.next - 1), Params: json.RawMessage(l.params)}, nil
}

func (l *list) Close() error {
	if l.closed != nil {
		*l.closed++
	}
	return nil
}

// source makes a Source over n tasks a round.
func source(t testing.TB, cfg Config, n int) *Source {
	t.Helper()
	s, err := New(cfg, func(context.Context) (Tasks, error) { return &list{n: n}, nil })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// drawAll takes every draw as "task/round".
func drawAll(t testing.TB, s *Source) []string {
	t.Helper()
	var out []string
	for {
		d, err := s.Next(t.Context())
		if err == episode.ErrEnd {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s/%d", d.Task.ID, d.Round))
	}
}

func TestFileOrderAndRounds(t *testing.T) {
	closed, opened := 0, 0
	s, err := New(Config{Samples: 3, Rounds: 2, Tasks: 3}, func(context.Context) (Tasks, error) {
		opened++
		return &list{n: 3, closed: &closed}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Next(t.Context())
	if err != nil || d.Samples != 3 || d.Round != 0 || d.Task.ID != "0" {
		t.Errorf("the first draw is %+v, %v", d, err)
	}
	if got := strings.Join(drawAll(t, s), " "); got != "1/0 2/0 0/1 1/1 2/1" {
		t.Errorf("draws %s", got)
	}
	if _, err := s.Next(t.Context()); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
	if opened != 2 || closed != 2 {
		t.Errorf("%d passes opened, %d closed, want 2 and 2", opened, closed)
	}
	if n, known := s.Count(); n != 6 || !known {
		t.Errorf("Count %d %v, want 6 draws", n, known)
	}
}

// TestShuffleLaws: every round draws every task once; no task comes more than window-1 places early; the seed alone decides.
func TestShuffleLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n, window, rounds := rapid.IntRange(1, 60).Draw(rt, "n"), rapid.IntRange(1, 70).Draw(rt, "window"), rapid.IntRange(1, 3).Draw(rt, "rounds")
		cfg := Config{Order: OrderShuffle, Window: window, Rounds: rounds, Seed: rapid.Int64().Draw(rt, "seed")}
		draws := drawAll(t, source(t, cfg, n))
		if again := drawAll(t, source(t, cfg, n)); !slices.Equal(draws, again) {
			rt.Fatal("the same seed gave another order")
		}
		if len(draws) != n*rounds {
			rt.Fatalf("%d draws, want %d", len(draws), n*rounds)
		}
		for r := range rounds {
			seen := map[string]bool{}
			for place, d := range draws[r*n : (r+1)*n] {
				var id, round int
				if _, err := fmt.Sscanf(d, "%d/%d", &id, &round); err != nil || round != r {
					rt.Fatalf("draw %q in round %d", d, r)
				}
				if place < id-(window-1) {
					rt.Fatalf("task %d came at place %d with a window of %d", id, place, window)
				}
				seen[d] = true
			}
			if len(seen) != n {
				rt.Fatalf("round %d drew %d different tasks of %d", r, len(seen), n)
			}
		}
	})
}

func TestShuffleMixes(t *testing.T) {
	cfg := Config{Order: OrderShuffle, Window: 1000, Seed: 1, Rounds: 2}
	draws := drawAll(t, source(t, cfg, 1000))
	first, second := draws[:1000], draws[1000:]
	same := 0
	for i := range first {
		a, _, _ := strings.Cut(first[i], "/")
		b, _, _ := strings.Cut(second[i], "/")
		if a == b || a == fmt.Sprint(i) {
			same++
		}
	}
	if same > 20 { // two in the mean
		t.Errorf("%d of 1000 places hold the same task as in the file or in the other round", same)
	}
	cfg.Seed = 2
	if slices.Equal(first, drawAll(t, source(t, cfg, 1000))[:1000]) {
		t.Error("another seed gave the same order")
	}
	// A full shuffle is uniform: the task at the first place, over many seeds, comes from every quarter alike.
	quarters := [4]int{}
	for seed := range int64(2000) {
		d, err := source(t, Config{Order: OrderShuffle, Window: 100, Seed: seed}, 100).Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var id int
		if _, err := fmt.Sscan(d.Task.ID, &id); err != nil {
			t.Fatal(err)
		}
		quarters[id/25]++
	}
	for q, n := range quarters {
		if n < 400 || n > 600 {
			t.Errorf("quarter %d came first %d times of 2000, want about 500", q, n)
		}
	}
}

func TestDrawsDoNotDependOnTheConsumersSpeed(t *testing.T) {
	cfg := Config{Order: OrderShuffle, Window: 8, Seed: 3}
	want := drawAll(t, source(t, cfg, 50))
	s, rng := source(t, cfg, 50), rand.New(rand.NewPCG(1, 1))
	var got []string
	for {
		for range rng.IntN(50) {
			runtime.Gosched()
		}
		d, err := s.Next(t.Context())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Params(d, rng.IntN(9)); err != nil {
			t.Fatal(err)
		}
		got = append(got, d.Task.ID+"/0")
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFaultsOfTheTasksEndTheSource(t *testing.T) {
	broken := errors.New("line 7 is broken")
	for _, c := range []struct {
		name string
		open func(context.Context) (Tasks, error)
		want string
	}{
		{"open", func(context.Context) (Tasks, error) { return nil, broken }, "open the tasks for round 0: line 7 is broken"},
		{"read", func(context.Context) (Tasks, error) { return &list{n: 0, fail: broken}, nil }, "draw a task: line 7 is broken"},
		{"params", func(context.Context) (Tasks, error) { return &list{n: 1, params: `{"top_p":7}`}, nil }, `request fields of task "0": top_p 7: expected over 0 to 1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, order := range []Order{OrderFile, OrderShuffle} {
				s, err := New(Config{Order: order}, c.open)
				if err != nil {
					t.Fatal(err)
				}
				_, err = s.Next(t.Context())
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %s", err, c.want)
				}
				if _, again := s.Next(t.Context()); again != err {
					t.Errorf("then %v", again)
				}
			}
		})
	}
}

func TestCancelledDrawCanBeTriedAgain(t *testing.T) {
	s := source(t, Config{}, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want cancelled", err)
	}
	if got := strings.Join(drawAll(t, s), " "); got != "0/0 1/0" {
		t.Errorf("draws after it: %s", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestValidateReportsEveryFault(t *testing.T) {
	bad := Config{Samples: -1, Order: "best", Window: -1, Rounds: -1, Tasks: -1, SendSeed: true, Sampling: episode.Sampling{
		Temperature: episode.Ptr(math.NaN()), TopP: episode.Ptr(0.0), MinP: episode.Ptr(1.5), TopK: episode.Ptr(-2), Seed: episode.Ptr(int64(1)),
		Stop: []string{""}, Extra: map[string]json.RawMessage{"max_tokens": json.RawMessage("5")},
	}}
	err := bad.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"samples -1", `order "best": expected file or shuffle`, "window -1", "rounds -1", "tasks -1", "send-seed", "temperature NaN: expected 0 or more",
		"top_p 0: expected over 0 to 1", "min_p 1.5: expected 0 to 1", "top_k -2", "stop: an empty stop string", `extra body field "max_tokens"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
}

// run are the run's own parameters in the tests below.
func run() episode.Sampling {
	return episode.Sampling{
		Temperature: episode.Ptr(0.0), TopP: episode.Ptr(0.9), Stop: []string{"\n"}, Logprobs: true,
		Extra: map[string]json.RawMessage{"min_tokens": json.RawMessage("1"), "temperature": json.RawMessage("0.3")},
	}
}

// wire shows what would be sent.
func wire(p episode.Sampling) string {
	raw, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func TestParamsOfATaskOverrideTheRuns(t *testing.T) {
	for _, c := range []struct {
		name, params string
		change       func(*episode.Sampling)
	}{
		{"none", "", func(*episode.Sampling) {}},
		{"nulls say nothing", `{"temperature":null,"stop":null,"foo":null}`, func(*episode.Sampling) {}},
		{"temperature wins over an extra field of that name", `{"temperature":0.7}`, func(p *episode.Sampling) {
			p.Temperature = episode.Ptr(0.7)
			delete(p.Extra, "temperature")
		}},
		{"one stop string", `{"stop":"END"}`, func(p *episode.Sampling) { p.Stop = []string{"END"} }},
		{"stop strings and logprobs off", `{"stop":["a","b"],"logprobs":false}`, func(p *episode.Sampling) { p.Stop, p.Logprobs = []string{"a", "b"}, false }},
		{"fields we do not know go out as they are", `{"min_tokens":4,"response_format":{"type":"json_object"},"max_tokens":9}`, func(p *episode.Sampling) {
			p.Extra["min_tokens"], p.Extra["response_format"] = json.RawMessage("4"), json.RawMessage(`{"type":"json_object"}`)
		}},
		{"seed counts up with the sample", `{"seed":40}`, func(p *episode.Sampling) { p.Seed = episode.Ptr(int64(42)) }},
		{"top_k, min_p, ids", `{"top_k":5,"min_p":0,"return_token_ids":true}`, func(p *episode.Sampling) {
			p.TopK, p.MinP, p.TokenIDs = episode.Ptr(5), episode.Ptr(0.0), true
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := source(t, Config{Sampling: run()}, 0)
			got, err := s.Params(episode.Draw{Task: &episode.Task{ID: "t", Params: json.RawMessage(c.params)}}, 2)
			if err != nil {
				t.Fatal(err)
			}
			want := run()
			c.change(&want)
			if wire(got) != wire(want) {
				t.Errorf("got\n%s\nwant\n%s", wire(got), wire(want))
			}
		})
	}
}

// TestParamFaults holds the same ranges as the task files' own check, which refuses such rows before the first request.
func TestParamFaults(t *testing.T) {
	s := source(t, Config{}, 0)
	for _, params := range []string{
		`[]`, `{"temperature":"hot"}`, `{"temperature":-1}`, `{"top_p":0}`, `{"top_p":1.5}`, `{"min_p":-0.1}`, `{"top_k":-2}`, `{"top_k":1.5}`,
		`{"stop":5}`, `{"stop":[""]}`, `{"stop":["a",null]}`, `{"logprobs":1}`, `{"max_tokens":0}`, `{"max_completion_tokens":-1}`, `{"messages":[]}`, `{"n":2}`, `{"stream":true}`,
	} {
		task := &episode.Task{ID: "t", Where: episode.Position{File: "f", Line: 3}, Params: json.RawMessage(params)}
		if _, err := s.Params(episode.Draw{Task: task}, 0); err == nil || !strings.HasPrefix(err.Error(), `f:3: request fields of task "t": `) {
			t.Errorf("%s gave %v", params, err)
		}
	}
}

// TestCaseTLo4 is the sampler's share of TL-o4: 200 parallel episodes of one parameter set, each of which changes its own, show no
// cross-talk; temperature 0 stays 0.
func TestCaseTLo4(t *testing.T) {
	s := source(t, Config{Sampling: run(), SendSeed: true}, 0)
	task := &episode.Task{ID: "t", Params: json.RawMessage(`{"stop":["x"],"logit_bias":{"5":1},"max_tokens":50}`)}
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			d := episode.Draw{Task: task, Samples: 200}
			p, err := s.Params(d, i)
			if err != nil {
				t.Error(err)
				return
			}
			before := wire(p)
			if *p.Temperature != 0 || *p.Seed != Seed(0, "t", 0, i) {
				t.Errorf("sample %d: temperature %v seed %d", i, *p.Temperature, *p.Seed)
			}
			q, err := s.Params(d, i)
			if err != nil {
				t.Error(err)
				return
			}
			*p.Temperature, *p.TopP, *p.Seed, p.Stop[0] = float64(i), float64(i), int64(i), "changed"
			p.Extra["logit_bias"][0] = '!'
			p.Extra["min_tokens"][0] = '9'
			p.Extra["max_tokens"] = json.RawMessage(fmt.Sprint(i))
			if wire(q) != before {
				t.Errorf("sample %d: %s became %s", i, before, wire(q))
			}
			b, err := Budget(task, episode.Budget{TurnTokens: 7 + i, Turns: 3})
			if err != nil || b != (episode.Budget{TurnTokens: 50, Turns: 3}) {
				t.Errorf("sample %d: budget %+v, %v", i, b, err)
			}
		})
	}
	all.Wait()
	if got := wire(s.cfg.Sampling); got != wire(run()) {
		t.Errorf("the run's own parameters became %s", got)
	}
	if string(task.Params) != `{"stop":["x"],"logit_bias":{"5":1},"max_tokens":50}` {
		t.Errorf("the task's fields became %s", task.Params)
	}
}

func TestConfigIsCopied(t *testing.T) {
	mine := run()
	s := source(t, Config{Sampling: mine}, 0)
	*mine.Temperature, mine.Stop[0], mine.Extra["new"] = 5, "changed", nil
	if wire(s.cfg.Sampling) != wire(run()) {
		t.Error("a change of the caller's Config reached the source")
	}
}

func TestBudget(t *testing.T) {
	base := episode.Budget{TurnTokens: 100, EpisodeTokens: 1000}
	for _, c := range []struct {
		params string
		want   int
	}{
		{"", 100}, {`{"temperature":1}`, 100}, {`{"max_tokens":5}`, 5}, {`{"max_completion_tokens":500}`, 500},
		{`{"max_tokens":5,"max_completion_tokens":9}`, 5}, {`{"max_tokens":9,"max_completion_tokens":5}`, 5}, {`{"max_tokens":null}`, 100},
	} {
		want := base
		want.TurnTokens = c.want
		if got, err := Budget(&episode.Task{Params: json.RawMessage(c.params)}, base); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %d tokens a turn", c.params, got, err, c.want)
		}
	}
}

func TestSeeds(t *testing.T) {
	quiet := source(t, Config{Seed: 5}, 0)
	task := &episode.Task{ID: "t"}
	if p, err := quiet.Params(episode.Draw{Task: task}, 0); err != nil || p.Seed != nil {
		t.Errorf("a seed goes out though none was asked for: %v, %v", p.Seed, err)
	}
	s := source(t, Config{Seed: 5, SendSeed: true}, 0)
	seen := map[int64]string{}
	for _, id := range []string{"a", "b"} {
		for round := range 3 {
			for sample := range 20 {
				d := episode.Draw{Task: &episode.Task{ID: id}, Round: round}
				p, err := s.Params(d, sample)
				if err != nil {
					t.Fatal(err)
				}
				where := fmt.Sprint(id, round, sample)
				if other, taken := seen[*p.Seed]; taken {
					t.Errorf("%s and %s have one seed", where, other)
				}
				seen[*p.Seed] = where
				if *p.Seed < 0 || *p.Seed > math.MaxInt32 {
					t.Errorf("seed %d is out of 31 bits", *p.Seed)
				}
			}
		}
	}
	if Seed(5, "a", 0, 0) == Seed(6, "a", 0, 0) {
		t.Error("the run's seed changes nothing")
	}
	// Pinned: a run that is resumed by a later version must send what it would have sent.
	if a, b := Seed(5, "a", 0, 0), Seed(-1, "task-7", 2, 3); a != 1964221626 || b != 1786124893 {
		t.Errorf("the recipe of seeds changed: %d, %d", a, b)
	}
}

func FuzzParams(f *testing.F) {
	for _, p := range []string{``, `{"temperature":0}`, `{"stop":["a"],"seed":9223372036854775807}`, `{"logit_bias":{"1":2}}`, `{"max_tokens":1e3}`, `null`} {
		f.Add([]byte(p))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := source(t, Config{Sampling: run()}, 0)
		task := &episode.Task{ID: "t", Params: raw}
		p, err := s.Params(episode.Draw{Task: task}, 1)
		if _, berr := Budget(task, episode.Budget{}); (err == nil) != (berr == nil) {
			t.Fatalf("Params gave %v, Budget %v", err, berr)
		}
		if err == nil && sampling(p) != nil {
			t.Fatalf("parameters out of range went through: %s", wire(p))
		}
	})
}

var _ episode.Source = (*Source)(nil)
