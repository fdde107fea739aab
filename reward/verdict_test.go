package reward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tranche/episode"
)

// What may succeed later is asked again, with a growing pause, and no oftener than it is set to; the verdict says how often it was.
func TestRetry(t *testing.T) {
	for _, c := range []struct {
		name    string
		fails   int
		err     error
		score   string
		outcome string
		tries   int
		waited  time.Duration
	}{
		{"heals", 2, &Unjudged{Reason: "judge_unavailable", Retry: true}, "1", "scored", 3, 300 * time.Millisecond},
		{"stays", 9, &Unjudged{Reason: "judge_unavailable", Retry: true}, "null", "no_verdict: judge_unavailable", 3, 300 * time.Millisecond},
		{"cannot be helped", 9, &Unjudged{Reason: "bad_test"}, "null", "no_verdict: bad_test", 1, 0},
		{"a plain error", 9, errors.New("broke"), "null", "no_verdict: verifier_error", 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				g := own{"mine/1", func(context.Context, Input) (Finding, error) {
					f := Finding{Score: 1, Cost: Cost{PromptTokens: 10, Wall: time.Second}}
					if asked++; asked <= c.fails {
						return f, c.err
					}
					return f, nil
				}}
				s := newScorer(t, Config{Graders: []Spec{{Kind: "mine"}}, Workers: 1}, g)
				defer requireClose(t, s)
				began := time.Now()
				v := score(t, s, said(answer("1"), "1"))
				r := v.Rewards[0]
				if text(r.Score) != c.score || r.Outcome != c.outcome || r.Tries != c.tries || time.Since(began) != c.waited {
					t.Errorf("%+v after %s", r, time.Since(began))
				}
				if r.Cost.PromptTokens != 10*c.tries || r.Cost.Wall != time.Duration(c.tries)*time.Second {
					t.Errorf("cost %+v of %d tries", r.Cost, r.Tries)
				}
				if v.Failed != (c.score == "null") {
					t.Errorf("failed %v", v.Failed)
				}
			})
		})
	}
}

func TestRetriesCanBeTurnedOff(t *testing.T) {
	asked := 0
	g := own{"mine/1", func(context.Context, Input) (Finding, error) {
		asked++
		return Finding{}, &Unjudged{Reason: "gone", Retry: true}
	}}
	s := newScorer(t, Config{Graders: []Spec{{Kind: "mine"}}, Retries: -1}, g)
	defer requireClose(t, s)
	if score(t, s, said(answer("1"), "1")); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// A stop during the pause ends the scoring, and the episode has no verdict at all.
func TestStopDuringThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := own{"mine/1", func(context.Context, Input) (Finding, error) {
			return Finding{}, &Unjudged{Reason: "gone", Retry: true}
		}}
		s := newScorer(t, Config{Graders: []Spec{{Kind: "mine"}}, Pause: time.Hour}, g)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if v, err := s.Score(ctx, said(answer("1"), "1")); !errors.Is(err, context.DeadlineExceeded) || v.Rewards != nil {
			t.Errorf("%+v, %v", v, err)
		}
		time.AfterFunc(time.Minute, func() { requireClose(t, s) })
		if v, err := s.Score(t.Context(), said(answer("1"), "1")); !errors.Is(err, ErrClosed) || v.Rewards != nil {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

func TestParts(t *testing.T) {
	p := episode.Ptr[float64]
	one := Finding{Score: 1, Tier: "cgroup2", Raw: p(7)}
	with := func(parts ...Part) Finding {
		f := one
		f.Parts = parts
		return f
	}
	for _, c := range []struct {
		name          string
		weight        *float64
		finding       Finding
		total, stored string // name=score of each component
	}{
		{"only recorded", nil, with(Part{Name: "runs", Score: p(0)}), "1", "code=1 code.runs=0"},
		{"counted", nil, with(Part{Name: "runs", Score: p(0), Weight: 3}), "0.25", "code=1 code.runs=0"},
		{"nothing of a component without weight counts", p(0), with(Part{Name: "runs", Score: p(0), Weight: 3}), "0.5", "code=1 code.runs=0"},
		{"an open part that counts", nil, with(Part{Name: "runs", Weight: 1}), "null", "code=1 code.runs=null"},
		{"an open part that does not", nil, with(Part{Name: "runs"}), "1", "code=1 code.runs=null"},
		{"out of range", nil, with(Part{Name: "runs", Score: p(1.5)}), "null", "code=null"},
		{"NaN", nil, with(Part{Name: "runs", Score: p(math.NaN())}), "null", "code=null"},
		{"without a name", nil, with(Part{Score: p(1)}), "null", "code=null"},
		{"twice", nil, with(Part{Name: "a", Score: p(1)}, Part{Name: "a", Score: p(1)}), "null", "code=null"},
		{"weight below zero", nil, with(Part{Name: "a", Score: p(1), Weight: -1}), "null", "code=null"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := own{"code/1", func(context.Context, Input) (Finding, error) { return c.finding, nil }}
			specs := []Spec{{Kind: "code", Weight: c.weight}}
			if c.weight != nil {
				specs = append(specs, Spec{Name: "half", Kind: "half"})
			}
			s := newScorer(t, Config{Graders: specs}, g, own{"half/1", func(context.Context, Input) (Finding, error) { return Finding{Score: 0.5}, nil }})
			defer requireClose(t, s)
			v := score(t, s, said(answer("1"), "1"))
			var stored []string
			for _, r := range v.Rewards {
				if r.Name != "half" {
					stored = append(stored, r.Name+"="+text(r.Score))
				}
				if r.Config == "" || r.Score == nil != strings.HasPrefix(r.Outcome, "no_verdict") {
					t.Errorf("%+v", r)
				}
			}
			if got := strings.Join(stored, " "); text(v.Total) != c.total || got != c.stored {
				t.Errorf("total %s of %s, want %s of %s", text(v.Total), got, c.total, c.stored)
			}
			if m := v.Rewards[0]; m.Score != nil && (m.Tier != "cgroup2" || *m.Raw != 7 || m.Tries != 1) {
				t.Errorf("%+v", m)
			}
		})
	}
}

func TestTurnCredit(t *testing.T) {
	for _, c := range []struct {
		name   string
		credit []float64
		want   string
	}{
		{"one a turn", []float64{0.5, math.NaN(), -2}, "scored"},
		{"too few", []float64{1}, "no_verdict: verifier_error"},
		{"infinite", []float64{1, math.Inf(1), 0}, "no_verdict: verifier_error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := own{"steps/1", func(_ context.Context, in Input) (Finding, error) { return Finding{Score: 1, Turns: c.credit}, nil }}
			s := newScorer(t, Config{Graders: []Spec{{Kind: "steps"}}}, g)
			defer requireClose(t, s)
			e := said(answer("1"), "1")
			e.Turns = make([]episode.Turn, 3)
			r := score(t, s, e).Rewards[0]
			if r.Outcome != c.want || (r.Credit == nil) != (r.Score == nil) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// What never stops is given up, and after so many the grader is not asked any more: it cannot take every core of the machine. The
// other grader goes on, and once some have ended it is asked again.
func TestAbandonedGradingsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var asked atomic.Int32
		stuck := own{"stuck/1", func(context.Context, Input) (Finding, error) { asked.Add(1); <-release; return Finding{Score: 1}, nil }}
		s := newScorer(t, Config{Graders: []Spec{{Kind: "stuck"}, {}}, Workers: 4, Timeout: time.Second, MaxAbandoned: 3}, stuck)
		for i := range 10 {
			v := score(t, s, said(answer("1"), "1"))
			if r := v.Rewards[0]; r.Outcome != "no_verdict: score_timeout" || !v.Failed || v.Total != nil || text(v.Rewards[1].Score) != "1" {
				t.Fatalf("episode %d: %+v", i, v)
			}
		}
		want := Trouble{Component: "stuck", Abandoned: 3, Going: 3, Refused: 7}
		if got := s.Troubles(); asked.Load() != 3 || len(got) != 1 || got[0] != want {
			t.Errorf("asked %d times; %+v, want %+v", asked.Load(), got, want)
		}
		close(release)
		synctest.Wait()
		if v := score(t, s, said(answer("1"), "1")); text(v.Total) != "1" || s.Troubles()[0].Going != 0 {
			t.Errorf("after they ended: %+v, %+v", v, s.Troubles())
		}
		requireClose(t, s)
	})
}

func TestTotalRules(t *testing.T) {
	w := func(weight float64, score *float64) episode.Reward {
		return episode.Reward{Name: "c", Weight: weight, Score: score}
	}
	p := episode.Ptr[float64]
	gate := func(score *float64) episode.Reward { return episode.Reward{Name: "gate", Score: score} }
	for _, c := range []struct {
		name, rule, want string
		rs               []episode.Reward
	}{
		{"mean by weight", WeightedSum, "0.75", []episode.Reward{w(3, p(1)), w(1, p(0))}},
		{"product", Product, "0.25", []episode.Reward{w(3, p(0.5)), w(1, p(0.5))}},
		{"product of what counts", Product, "0.5", []episode.Reward{w(3, p(0.5)), w(0, p(0))}},
		{"product with one missing", Product, "null", []episode.Reward{w(1, p(0)), w(1, nil)}},
		{"minimum", Minimum, "0.25", []episode.Reward{w(1, p(0.5)), w(9, p(0.25)), w(0, p(0))}},
		{"minimum with one missing", Minimum, "null", []episode.Reward{w(1, p(0)), w(1, nil)}},
		{"gate open", Gate, "0.5", []episode.Reward{gate(p(0.8)), w(1, p(0.5))}},
		{"gate shut", Gate, "0", []episode.Reward{gate(p(0.79)), w(1, p(0.5))}},
		{"gate unknown", Gate, "null", []episode.Reward{gate(nil), w(1, p(0))}},
		{"gate shut, another missing", Gate, "null", []episode.Reward{gate(p(0)), w(1, nil)}},
		{"nothing counts", WeightedSum, "null", []episode.Reward{w(0, p(1))}},
		{"weights beyond adding", WeightedSum, "null", []episode.Reward{w(math.MaxFloat64, p(1)), w(math.MaxFloat64, p(1))}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := text(total(c.rule, c.rs, map[string]float64{"gate": 0.8})); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// Laws of every rule: a needed component without a score leaves no total; else it is from 0 to 1, never above the best component nor, but
// for a shut gate and a product, below the worst, and a better component never makes it worse.
func TestTotalLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rule := rapid.SampledFrom(Rules()).Draw(rt, "rule")
		thresholds := map[string]float64{}
		if rule == Gate {
			thresholds["0"] = rapid.Float64Range(0, 1).Draw(rt, "threshold")
		}
		n, missing, counted := rapid.IntRange(1, 5).Draw(rt, "n"), false, false
		var rs []episode.Reward
		for i := range n {
			r := episode.Reward{Name: string(rune('0' + i)), Weight: rapid.SampledFrom([]float64{0, 0.5, 1, 3}).Draw(rt, "weight")}
			if !rapid.Bool().Draw(rt, "missing") || rapid.Bool().Draw(rt, "rarely") {
				r.Score = episode.Ptr(rapid.Float64Range(0, 1).Draw(rt, "score"))
			}
			_, gates := thresholds[r.Name]
			missing = missing || r.Score == nil && (r.Weight > 0 || gates)
			counted = counted || r.Weight > 0
			rs = append(rs, r)
		}
		got := total(rule, rs, thresholds)
		if (got == nil) != (missing || !counted) {
			rt.Fatalf("%s of %+v is %s", rule, rs, text(got))
		}
		if got == nil {
			return
		}
		least, best := 1.0, 0.0
		for _, r := range rs {
			if r.Weight > 0 {
				least, best = min(least, *r.Score), max(best, *r.Score)
			}
		}
		const eps = 1e-12
		if *got > best+eps || (rule == WeightedSum || rule == Minimum) && *got < least-eps || *got < 0 {
			rt.Fatalf("%s of %+v is %v", rule, rs, *got)
		}
		i := rapid.IntRange(0, n-1).Draw(rt, "better")
		if rs[i].Score != nil {
			rs[i].Score = episode.Ptr(1.0)
			if after := total(rule, rs, thresholds); *after < *got-eps {
				rt.Fatalf("%s fell from %v to %v as %s became 1", rule, *got, *after, rs[i].Name)
			}
		}
	})
}

func TestReadOptions(t *testing.T) {
	type tiers struct {
		Compile float64 `json:"compile"`
		Grace   time.Duration
	}
	type opts struct {
		Tests    string          `json:"tests"`
		CPU      time.Duration   `json:"cpu"`
		MaxCalls *int            `json:"max_calls"`
		Args     []string        `json:"args"`
		Waits    []time.Duration `json:"waits"`
		Tiers    tiers           `json:"tiers"`
		Any      json.RawMessage `json:"any"`
	}
	before := opts{Tests: "all", CPU: time.Second, Tiers: tiers{Compile: 0.1}}
	with := func(change func(*opts)) opts { o := before; change(&o); return o }
	for _, c := range []struct {
		name, with string
		want       opts
		faults     []string
	}{
		{"nothing", ``, before, nil},
		{"no options", `{}`, before, nil},
		{"some", `{"cpu": "10s", "max-calls": 3, "args": ["a"]}`, with(func(o *opts) { o.CPU, o.MaxCalls, o.Args = 10*time.Second, episode.Ptr(3), []string{"a"} }), nil},
		{"nested", `{"tiers": {"grace": "1m"}, "waits": ["1s", "2s"], "any": [1]}`, with(func(o *opts) {
			o.Tiers.Grace, o.Waits, o.Any = time.Minute, []time.Duration{time.Second, 2 * time.Second}, json.RawMessage(`[1]`)
		}), nil},
		{"null leaves a pointer nil", `{"max_calls": null}`, before, nil},
		{"every fault at once", `{"cpu": 10, "tets": 1, "max_calls": "x", "tiers": {"compil": 1}, "waits": ["1"]}`, before, []string{
			`cpu: expected a time with its unit such as "10s", found 10`, "tets: unknown option, expected one of any, args, cpu, max-calls, tests, tiers, waits",
			`max_calls: expected a whole number, found "x"`, "tiers.compil: unknown option, expected one of compile, grace", `waits[0]: expected a time`,
		}},
		{"twice", `{"max-calls": 1, "max_calls": 2}`, before, []string{"max_calls: is given twice"}},
		{"a list", `[1]`, before, []string{"options: expected a map of options, found [1]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := before
			err := ReadOptions(Spec{With: json.RawMessage(c.with)}, &got)
			for _, f := range c.faults {
				if err == nil || !strings.Contains(err.Error(), f) {
					t.Errorf("got %v\nwant %q", err, f)
				}
			}
			if c.faults == nil && (err != nil || !reflect.DeepEqual(got, c.want)) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, c.want)
			}
		})
	}
}

func FuzzReadOptions(f *testing.F) {
	for _, s := range []string{`{"cpu": "10s"}`, `{"cpu": 1, "list": [{"a": "1s"}]}`, `[`, `{"": null}`, `null`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var o struct {
			CPU  time.Duration `json:"cpu"`
			List []struct {
				A *time.Duration `json:"a"`
			} `json:"list"`
			Any map[string]any `json:"any"`
		}
		err := ReadOptions(Spec{With: json.RawMessage(text)}, &o)
		if err == nil && strings.TrimSpace(text) != "" && !json.Valid([]byte(text)) {
			t.Errorf("took %q", text)
		}
	})
}

// closable counts how often it is closed.
type closable struct {
	own
	closed *int
}

func (c closable) Close() error { *c.closed++; return nil }

func TestKindsAreMadeAndClosed(t *testing.T) {
	made, closed := 0, 0
	kind := Kind{Name: "mine", Make: func(s Spec) (Grader, error) {
		made++
		var o struct {
			Tests string `json:"tests"`
		}
		return closable{own{id: "mine/1"}, &closed}, ReadOptions(s, &o)
	}}
	s, err := New(Config{Graders: []Spec{{Kind: "mine", With: json.RawMessage(`{"tests": "all"}`)}}}, kind)
	if err != nil || made != 1 {
		t.Fatalf("made %d, %v", made, err)
	}
	requireClose(t, s)
	requireClose(t, s)
	if closed != 1 {
		t.Errorf("closed %d times", closed)
	}
	_, err = New(Config{Graders: []Spec{{Kind: "mine"}, {Name: "b", Kind: "mine", With: json.RawMessage(`{"test": 1}`)}, {Kind: KindExact, Pattern: "x"}}}, kind)
	for _, want := range []string{"graders[1] (b): test: unknown option", "graders[2] (exact): pattern: means nothing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if closed != 2 {
		t.Errorf("the good grader of the refused settings was closed %d times", closed-1)
	}
	if _, err := New(Config{}, Kind{Name: KindExact, Make: kind.Make}); err == nil {
		t.Error("a kind took a built-in name")
	}
}

// The digest tells graders apart that may judge differently, and only those.
func TestConfigDigest(t *testing.T) {
	of := func(s Spec) string {
		s = s.withDefaults()
		return s.digest("code/1", nil)
	}
	base := of(Spec{Kind: "code", With: json.RawMessage(`{"a": 1, "b": [1, 2]}`)})
	w := 3.0
	for name, c := range map[string]struct {
		spec Spec
		same bool
	}{
		"other spelling":   {Spec{Kind: "code", With: json.RawMessage(`{"b":[1,2],"a":1}`)}, true},
		"name and weight":  {Spec{Kind: "code", Name: "x", Weight: &w, With: json.RawMessage(`{"a": 1, "b": [1, 2]}`)}, true},
		"another value":    {Spec{Kind: "code", With: json.RawMessage(`{"a": 2, "b": [1, 2]}`)}, false},
		"another order":    {Spec{Kind: "code", With: json.RawMessage(`{"a": 1, "b": [2, 1]}`)}, false},
		"from the content": {Spec{Kind: "code", From: FromContent, With: json.RawMessage(`{"a": 1, "b": [1, 2]}`)}, false},
	} {
		if got := of(c.spec); (got == base) != c.same || len(got) != 16 {
			t.Errorf("%s: %s beside %s", name, got, base)
		}
	}
}

// A default that is written out is the default.
func TestDigestOfDefaults(t *testing.T) {
	digest := func(spec Spec) string {
		s := newScorer(t, Config{Graders: []Spec{spec}})
		defer requireClose(t, s)
		return score(t, s, said(answer("1"), "1")).Rewards[0].Config
	}
	plain := digest(Spec{})
	if written := digest(Spec{Kind: KindAuto, Marker: "####", Normalize: []string{trim, lower, spaces}, From: FromFinal}); written != plain {
		t.Errorf("%s and %s", plain, written)
	}
	if other := digest(Spec{Marker: "A:"}); other == plain {
		t.Error("another marker has the same digest")
	}
}

// Same inputs, same verdicts, byte for byte and whatever the number of workers: but for the time it took.
func TestVerdictsDoNotDependOnWorkers(t *testing.T) {
	run := func(workers int) []string {
		s := newScorer(t, Config{Graders: []Spec{{}, {Name: "format", Kind: KindRegex, Pattern: `\d$`}}, Workers: workers})
		defer requireClose(t, s)
		out := make([]string, 64)
		var wg sync.WaitGroup
		for i := range out {
			wg.Go(func() {
				v := score(t, s, said(answer("18"), strings.Repeat("9 ", i%5)+"18"+strings.Repeat(".", i%2)))
				for j := range v.Rewards {
					v.Rewards[j].Cost.Wall = 0
				}
				b, err := json.Marshal(v)
				if err != nil {
					t.Error(err)
				}
				out[i] = string(b)
			})
		}
		wg.Wait()
		return out
	}
	one := run(1)
	for _, workers := range []int{1, 16} {
		if got := run(workers); !reflect.DeepEqual(got, one) {
			t.Errorf("%d workers gave other verdicts", workers)
		}
	}
}

func TestCreditOfSeveralGraders(t *testing.T) {
	nan := math.NaN()
	r := func(weight float64, credit ...float64) episode.Reward {
		return episode.Reward{Weight: weight, Credit: credit}
	}
	for _, c := range []struct {
		name string
		rs   []episode.Reward
		want string
	}{
		{"none", []episode.Reward{r(1)}, "[]"},
		{"one", []episode.Reward{r(1), r(2, 1, nan, -1)}, "[1 NaN -1]"},
		{"by weight", []episode.Reward{r(3, 1, 0), r(1, 0, 2)}, "[0.75 0.5]"},
		{"one that is only recorded", []episode.Reward{r(0, 9, 9), r(1, 0, 2)}, "[0 2]"},
		{"one of them left a turn open", []episode.Reward{r(1, nan, 1), r(1, 1, 1)}, "[NaN 1]"},
	} {
		if got := fmt.Sprint(credit(c.rs)); got != c.want || (c.name == "none") != (credit(c.rs) == nil) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestThePauseBetweenTriesIsBounded: an episode must not stay open for hours.
func TestThePauseBetweenTriesIsBounded(t *testing.T) {
	for _, c := range []struct{ pause, want time.Duration }{
		{0, 12700*time.Millisecond + 13*10*time.Second}, // 0.1 s to 6.4 s, then 10 s each
		{time.Minute, 20 * time.Minute},                 // what was set is no less
	} {
		synctest.Test(t, func(t *testing.T) {
			g := own{"mine/1", func(context.Context, Input) (Finding, error) {
				return Finding{}, &Unjudged{Reason: "down", Retry: true}
			}}
			s := newScorer(t, Config{Graders: []Spec{{Kind: "mine"}}, Workers: 1, Retries: 20, Pause: c.pause}, g)
			defer requireClose(t, s)
			began := time.Now()
			if r := score(t, s, said(answer("1"), "1")).Rewards[0]; r.Tries != 21 || time.Since(began) != c.want {
				t.Errorf("%d tries in %s, want 21 in %s", r.Tries, time.Since(began), c.want)
			}
		})
	}
}
