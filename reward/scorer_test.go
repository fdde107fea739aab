package reward

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tranche/episode"
	"tranche/internal/workpool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// own is a grader made of a function.
type own struct {
	id    string
	grade func(ctx context.Context, in Input) (Finding, error)
}

func (g own) ID() string { return g.id }

func (g own) Grade(ctx context.Context, in Input) (Finding, error) { return g.grade(ctx, in) }

func newScorer(t *testing.T, cfg Config, graders ...Grader) *Scorer {
	t.Helper()
	kinds := make([]Kind, len(graders))
	for i, g := range graders {
		kinds[i] = Fixed(g)
	}
	s, err := New(cfg, kinds...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func requireClose(t *testing.T, s *Scorer) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// said is a completed episode whose model said text.
func said(task *episode.Task, text string) *episode.Episode {
	return &episode.Episode{
		ID: "e", Task: task, Status: episode.StatusCompleted,
		Messages:  []episode.Message{{Role: episode.RoleUser, Content: episode.Ptr("7?")}, {Role: episode.RoleAssistant, Content: &text}},
		NumPrompt: 1,
	}
}

func answer(s string) *episode.Task { return &episode.Task{ID: "t", Answer: &s} }

func score(t *testing.T, s *Scorer, e *episode.Episode) episode.Verdict {
	t.Helper()
	v, err := s.Score(context.Background(), e)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// text writes a score, "null" for none.
func text(f *float64) string {
	if f == nil {
		return "null"
	}
	return fmt.Sprint(*f)
}

func TestKinds(t *testing.T) {
	missing := &episode.Task{ID: "t"}
	styled := func(style, truth string) *episode.Task {
		task := answer(truth)
		task.Style = style
		return task
	}
	for _, c := range []struct {
		name          string
		spec          Spec
		task          *episode.Task
		said          string
		score, result string // result: outcome, then grader
	}{
		{"auto: number", Spec{}, answer("18"), "so 18.00 dollars", "1", "scored numeric/2"},
		{"auto: wrong number", Spec{}, answer("18"), "so 19", "0", "scored numeric/2"},
		{"auto: worked truth", Spec{}, answer("9 * 2 = 18\n#### 18"), "#### 18", "1", "scored numeric/2"},
		{"auto: text", Spec{}, answer("Paris"), "  paris ", "1", "scored exact/1"},
		{"auto: words with a number are text", Spec{}, answer("2 of the above"), "2", "0", "scored exact/1"},
		{"auto: verl's rule", Spec{}, styled("rule", "18"), "18", "1", "scored numeric/2"},
		{"auto: style", Spec{}, styled("contains", "Paris"), "It is PARIS, France", "1", "scored contains/1"},
		{"auto: style regex", Spec{}, styled("regex", `^a+$`), "aaa", "1", "scored regex/1"},
		{"auto: style exact", Spec{}, styled("exact", "18"), "18.0", "0", "scored exact/1"},
		{"auto: style none", Spec{}, styled("none", "18"), "18", "null", "no_verdict: not_graded auto/1"},
		{"auto: style of a judge", Spec{}, styled("model", "18"), "18", "null", "no_verdict: unknown_style auto/1"},
		{"auto: no truth", Spec{}, missing, "18", "null", "no_verdict: missing_ground_truth auto/1"},
		{"auto: empty truth", Spec{}, answer(" "), "18", "null", "no_verdict: missing_ground_truth auto/1"},

		{"numeric: thousands", Spec{Kind: KindNumeric}, answer("1,234"), "#### $1234.00", "1", "scored numeric/2"},
		{"numeric: fraction", Spec{Kind: KindNumeric}, answer("0.75"), `\boxed{\frac{3}{4}}`, "1", "scored numeric/2"},
		{"numeric: exact as fractions", Spec{Kind: KindNumeric}, answer("1/3"), "0.3333", "0", "scored numeric/2"},
		{"numeric: tolerance", Spec{Kind: KindNumeric, Tolerance: 0.001}, answer("1/3"), "0.3333", "1", "scored numeric/2"},
		{"numeric: at the tolerance", Spec{Kind: KindNumeric, Tolerance: 0.1}, answer("0.3"), "0.4", "1", "scored numeric/2"},
		{"numeric: beyond it", Spec{Kind: KindNumeric, Tolerance: 0.1}, answer("0.3"), "0.41", "0", "scored numeric/2"},
		{"numeric: percent is a unit", Spec{Kind: KindNumeric}, answer("50"), "50%", "1", "scored numeric/2"},
		{"numeric: percent is no hundredth", Spec{Kind: KindNumeric}, answer("0.5"), "50%", "0", "scored numeric/2"},
		{"numeric: own marker", Spec{Kind: KindNumeric, Marker: "A:"}, answer("5"), "A: 5\nof 7", "1", "scored numeric/2"},
		{"numeric: truth with its own mark", Spec{Kind: KindNumeric, Marker: "A:"}, answer("2+3=5\n#### 5"), "A: 5", "1", "scored numeric/2"},
		{"numeric: truth with a unit", Spec{Kind: KindNumeric}, answer("5 apples"), "5", "1", "scored numeric/2"},
		{"exact: one of several", Spec{}, answer(`{"target": ["Paris", "paris city"]}`), "Paris City", "1", "scored exact/1"},
		{"exact: none of several", Spec{}, answer(`{"target": ["Paris", "paris city"]}`), "Rome", "0", "scored exact/1"},
		{"exact: a target that is a text", Spec{}, answer(`{"target": "Paris"}`), "paris", "1", "scored exact/1"},
		{"exact: a target of nothing", Spec{}, answer(`{"target": null}`), "paris", "null", "no_verdict: bad_ground_truth auto/1"},
		{"exact: another object", Spec{}, answer(`{"city": "Paris"}`), `{"city": "Paris"}`, "1", "scored exact/1"},
		{"exact: a list is what is asked for", Spec{}, answer(`["a", "b"]`), "a", "0", "scored exact/1"},
		{"numeric: truth without a number", Spec{Kind: KindNumeric}, answer("many"), "5", "null", "no_verdict: bad_ground_truth numeric/2"},
		{"numeric: truth with several", Spec{Kind: KindNumeric}, answer("3 or 5"), "5", "null", "no_verdict: bad_ground_truth numeric/2"},
		{"numeric: answer without a number", Spec{Kind: KindNumeric}, answer("5"), "none", "0", "scored numeric/2"},
		{"numeric: answer that would take the machine", Spec{Kind: KindNumeric}, answer("5"), "1e999999999", "0", "scored numeric/2"},

		{"exact: normalised", Spec{Kind: KindExact}, answer("New  York"), "\tnew york\n", "1", "scored exact/1"},
		{"exact: byte for byte", Spec{Kind: KindExact, Normalize: []string{}}, answer("New York"), "new york", "0", "scored exact/1"},
		{"exact: only trimmed", Spec{Kind: KindExact, Normalize: []string{"trim"}}, answer("New York"), " New York ", "1", "scored exact/1"},
		{"exact: after the marker", Spec{Kind: KindExact}, answer("B"), "I think\n#### b\nyes", "1", "scored exact/1"},
		{"exact: boxed", Spec{Kind: KindExact}, answer("x^{2}"), `so \boxed{x^{2}}.`, "1", "scored exact/1"},
		{"exact: all of the text", Spec{Kind: KindExact}, answer("B"), "It is B", "0", "scored exact/1"},
		{"exact: truth that is only a mark", Spec{Kind: KindExact}, answer("####"), "", "null", "no_verdict: bad_ground_truth exact/1"},

		{"contains", Spec{Kind: KindContains}, answer("big  apple"), "The Big Apple!", "1", "scored contains/1"},
		{"contains not", Spec{Kind: KindContains}, answer("pear"), "The Big Apple!", "0", "scored contains/1"},
		{"regex: own pattern needs no truth", Spec{Kind: KindRegex, Pattern: `(?s)^<a>.*</a>$`}, missing, "<a>\n</a>", "1", "scored regex/1"},
		{"regex: no match", Spec{Kind: KindRegex, Pattern: `^x`}, missing, "yx", "0", "scored regex/1"},
		{"regex: bad pattern in the task", Spec{Kind: KindRegex}, answer("("), "x", "null", "no_verdict: bad_ground_truth regex/1"},
		{"none", Spec{Kind: KindNone}, answer("18"), "18", "null", "no_verdict: not_graded none/1"},

		{"nothing said", Spec{}, answer("18"), "", "0", "scored numeric/2"},
		{"nothing but space said", Spec{Kind: KindRegex, Pattern: `\s`}, missing, " \n", "0", "scored regex/1"},
		{"nothing said, no truth", Spec{}, missing, "", "null", "no_verdict: missing_ground_truth auto/1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScorer(t, Config{Graders: []Spec{c.spec}})
			defer requireClose(t, s)
			v := score(t, s, said(c.task, c.said))
			r := v.Rewards[0]
			if text(r.Score) != c.score || text(v.Total) != c.score || r.Outcome+" "+r.Grader != c.result {
				t.Fatalf("got %s, total %s, %+v", text(r.Score), text(v.Total), r)
			}
			if len(r.Evidence) > maxEvidence || r.Score != nil && r.Evidence == "" {
				t.Fatalf("evidence %q", r.Evidence)
			}
		})
	}
}

func TestEvidenceSaysWhatWasFound(t *testing.T) {
	s := newScorer(t, Config{})
	defer requireClose(t, s)
	for _, c := range []struct{ truth, said, want string }{
		{"18", "so\n#### $19.50", `"$19.50" after "####", want 18`},
		{"1/3", "2", `"2" last number, want 1/3`},
		{"18", "no idea", "no number in the text, want 18"},
		{"Paris", "Rome", `"rome", want "paris"`},
		{"18", "", "no final text"},
	} {
		if r := score(t, s, said(answer(c.truth), c.said)).Rewards[0]; r.Evidence != c.want || r.Name != "answer" {
			t.Errorf("%q, %q: %s says %q, want %q", c.truth, c.said, r.Name, r.Evidence, c.want)
		}
	}
}

func TestFromSaysWhichTextIsJudged(t *testing.T) {
	e := said(answer("18"), "I submit 18 now")
	e.Submitted = episode.Ptr("19")
	s := newScorer(t, Config{Graders: []Spec{{Name: "submitted"}, {Name: "said", From: FromContent}}})
	defer requireClose(t, s)
	v := score(t, s, e)
	if text(v.Rewards[0].Score) != "0" || text(v.Rewards[1].Score) != "1" || text(v.Total) != "0.5" {
		t.Fatalf("got %+v, total %s", v.Rewards, text(v.Total))
	}
}

func TestSilentEpisodeScoresZero(t *testing.T) {
	e := &episode.Episode{ID: "e", Task: answer("18"), Status: episode.StatusTruncated, Messages: []episode.Message{{Role: episode.RoleAssistant}}}
	s := newScorer(t, Config{})
	defer requireClose(t, s)
	if v := score(t, s, e); text(v.Total) != "0" || v.Rewards[0].Evidence != "no final text" {
		t.Fatalf("got %s, %+v", text(v.Total), v.Rewards)
	}
}

// A failed episode is not graded, whatever it said before.
func TestFailedEpisodeHasNoVerdict(t *testing.T) {
	s := newScorer(t, Config{Graders: []Spec{{}, {Name: "format", Kind: KindRegex, Pattern: "."}}})
	defer requireClose(t, s)
	failed := said(answer("18"), "18")
	failed.Status = episode.StatusOpen
	failed.Fail(&episode.Fault{Stage: episode.StageAction, Class: episode.ClassActionPanic})
	stopped := said(answer("18"), "18")
	stopped.Status = episode.StatusCancelled
	for want, e := range map[string]*episode.Episode{"no_verdict: action_panic": failed, "no_verdict: cancelled": stopped} {
		v := score(t, s, e)
		if v.Total != nil || len(v.Rewards) != 2 {
			t.Fatalf("%s: got %+v", want, v)
		}
		for _, r := range v.Rewards {
			if r.Score != nil || r.Outcome != want {
				t.Errorf("got %+v, want %s", r, want)
			}
		}
	}
}

// A run may say that answers which were cut are not judged: that is nobody's failure, and the digest tells such verdicts from others.
func TestCutEpisodesMayHaveNoVerdict(t *testing.T) {
	s := newScorer(t, Config{Unscored: []episode.Stop{episode.StopLength}})
	defer requireClose(t, s)
	plain := newScorer(t, Config{})
	defer requireClose(t, plain)
	if s.Digest() == plain.Digest() {
		t.Error("one digest for two ways to judge")
	}
	e := said(answer("18"), "18")
	for stop, want := range map[episode.Stop]string{episode.StopLength: "null", episode.StopMaxTurns: "1", episode.StopStop: "1"} {
		e.Status, e.Stop = episode.StatusTruncated, stop
		v := score(t, s, e)
		if text(v.Total) != want || v.Failed {
			t.Errorf("%s: total %s, want %s; failed %v", stop, text(v.Total), want, v.Failed)
		}
		if r := v.Rewards[0]; want == "null" && (r.Outcome != "no_verdict: not_graded" || r.Evidence != "it ended as length, which is not to be scored") {
			t.Errorf("%s: %+v", stop, r)
		}
	}
}

// RW-o2: whatever a grader does wrong is no verdict, and the other components keep theirs.
func TestGraderFailureIsNoVerdict(t *testing.T) {
	for _, c := range []struct {
		name  string
		grade func() (Finding, error)
		want  string
	}{
		{"error", func() (Finding, error) { return Finding{Score: 1}, errors.New("parser broke") }, "parser broke"},
		{"panic", func() (Finding, error) { return Finding{Score: *(*episode.Verdict)(nil).Total}, nil }, "nil pointer dereference at scorer_test.go:"},
		{"ended goroutine", func() (Finding, error) { runtime.Goexit(); return Finding{}, nil }, "ended its goroutine"},
		{"NaN", func() (Finding, error) { return Finding{Score: math.NaN()}, nil }, "NaN is not from 0 to 1"},
		{"above one", func() (Finding, error) { return Finding{Score: 1.5}, nil }, "1.5 is not from 0 to 1"},
		{"below zero", func() (Finding, error) { return Finding{Score: -1}, nil }, "-1 is not from 0 to 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := own{"mine/3", func(context.Context, Input) (Finding, error) { return c.grade() }}
			s := newScorer(t, Config{Graders: []Spec{{Kind: "mine"}, {Kind: KindNumeric}}}, g)
			defer requireClose(t, s)
			v := score(t, s, said(answer("18"), "18"))
			r := v.Rewards[0]
			if v.Total != nil || r.Score != nil || r.Outcome != "no_verdict: verifier_error" || r.Grader != "mine/3" || !strings.Contains(r.Evidence, c.want) {
				t.Errorf("total %s, got %+v", text(v.Total), r)
			}
			if text(v.Rewards[1].Score) != "1" {
				t.Errorf("the other component: %+v", v.Rewards[1])
			}
		})
	}
}

// RW-o3: of 20 answers one makes the grader loop for ever. That one ends at its deadline, the other 19 rewards arrive, and
// the capacity is back to full.
func TestEndlessGradingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		loops := own{"loops/1", func(_ context.Context, in Input) (Finding, error) {
			if in.Text == "13" {
				<-release // deaf to its context, as a loop would be
			}
			return Finding{Score: 1, Evidence: "seen"}, nil
		}}
		s := newScorer(t, Config{Graders: []Spec{{Kind: "loops"}}, Workers: 2, Timeout: 5 * time.Second}, loops)
		verdicts := make([]episode.Verdict, 20)
		took := make([]time.Duration, 20)
		began := time.Now()
		var wg sync.WaitGroup
		for i := range verdicts {
			wg.Go(func() {
				v, err := s.Score(context.Background(), said(answer("x"), fmt.Sprint(i)))
				if err != nil {
					t.Errorf("answer %d: %v", i, err)
				}
				verdicts[i], took[i] = v, time.Since(began)
			})
		}
		wg.Wait()
		for i, v := range verdicts {
			switch {
			case i == 13 && (v.Total != nil || v.Rewards[0].Outcome != "no_verdict: score_timeout" || took[i] != 5*time.Second+workpool.Grace):
				t.Errorf("the endless one: %+v after %s", v, took[i])
			case i != 13 && (text(v.Total) != "1" || took[i] != 0):
				t.Errorf("answer %d: %+v after %s", i, v, took[i])
			}
		}
		synctest.Wait()
		if st := s.Stats(); st != (Stats{Workers: 2, Running: 0, Abandoned: 1}) {
			t.Errorf("load %+v", st)
		}
		requireBothWorkersFree(t, s)
		close(release)
		synctest.Wait()
		if st := s.Stats(); st.Abandoned != 0 {
			t.Errorf("load at the end %+v", st)
		}
		requireClose(t, s)
	})
}

// requireBothWorkersFree shows that two gradings go on at the same time.
func requireBothWorkersFree(t *testing.T, s *Scorer) {
	t.Helper()
	var at, most atomic.Int32
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			j := workpool.Start(context.Background(), s.pool, time.Minute, nil, func(context.Context) (Finding, error) {
				if n := at.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(time.Second)
				at.Add(-1)
				return Finding{}, nil
			})
			j.Wait()
		})
	}
	wg.Wait()
	if most.Load() != 2 {
		t.Errorf("%d gradings went on at once, want 2", most.Load())
	}
}

func TestStopAndCloseAreErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := own{"waits/1", func(ctx context.Context, _ Input) (Finding, error) {
			<-ctx.Done()
			return Finding{}, ctx.Err()
		}}
		s := newScorer(t, Config{Graders: []Spec{{Kind: "waits"}, {Kind: KindAuto}}, Workers: 1}, waits)
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)
		if v, err := s.Score(ctx, said(answer("1"), "1")); !errors.Is(err, context.Canceled) || v.Rewards != nil {
			t.Errorf("stopped: %+v, %v", v, err)
		}
		requireClose(t, s)
		requireClose(t, s)
		if _, err := s.Score(context.Background(), said(answer("1"), "1")); !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

func TestTotal(t *testing.T) {
	give := func(kind string, score float64) Grader {
		return own{kind + "/1", func(context.Context, Input) (Finding, error) { return Finding{Score: score}, nil }}
	}
	fails := own{"fails/1", func(context.Context, Input) (Finding, error) { return Finding{}, errors.New("no") }}
	w := episode.Ptr[float64]
	for _, c := range []struct {
		name  string
		specs []Spec
		want  string
	}{
		{"mean", []Spec{{Kind: "one"}, {Kind: "half"}}, "0.75"},
		{"by weight", []Spec{{Kind: "one", Weight: w(3)}, {Kind: "half"}}, "0.875"},
		{"weight nothing does not count", []Spec{{Kind: "one"}, {Kind: "half", Weight: w(0)}}, "1"},
		{"a missing one takes the total away", []Spec{{Kind: "one"}, {Kind: "fails", Weight: w(0.001)}}, "null"},
		{"unless it does not count", []Spec{{Kind: "half"}, {Kind: "fails", Weight: w(0)}}, "0.5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScorer(t, Config{Graders: c.specs}, give("one", 1), give("half", 0.5), fails)
			defer requireClose(t, s)
			v := score(t, s, said(answer("1"), "1"))
			if text(v.Total) != c.want || len(v.Rewards) != len(c.specs) {
				t.Fatalf("total %s of %+v, want %s", text(v.Total), v.Rewards, c.want)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Fatalf("the zero value: %v", err)
	}
	w := episode.Ptr[float64]
	for _, c := range []struct {
		name string
		cfg  Config
		want []string
	}{
		{"every fault at once", Config{Graders: []Spec{{Kind: "fuzzy"}, {Kind: KindRegex, Pattern: "("}, {Kind: KindRegex}}, Total: "sum", Workers: -1, Queue: -1, Timeout: -1},
			[]string{`graders[0] (fuzzy): kind: "fuzzy", expected one of auto, contains, exact, group_length, majority, none, numeric, regex`, "graders[1] (regex): pattern: ", `graders[2]: a grader named "regex" is there already`, `total: "sum", expected one of weighted_sum, gate, product, minimum`, "workers: -1", "queue: -1", "timeout: -1ns"}},
		{"options of another kind", Config{Graders: []Spec{{Kind: KindContains, Marker: "x", Pattern: "x", Tolerance: 1}}},
			[]string{"marker: means nothing to kind contains", "pattern: means nothing", "tolerance: means nothing"}},
		{"normalising numbers", Config{Graders: []Spec{{Kind: KindNumeric, Normalize: []string{"trim"}}}}, []string{"normalize: means nothing to kind numeric"}},
		{"figures", Config{Graders: []Spec{{Weight: w(-1), Tolerance: math.NaN()}}}, []string{"weight: -1", "tolerance: NaN"}},
		{"no weight at all", Config{Graders: []Spec{{Weight: w(0)}}}, []string{"every weight is 0"}},
		{"words", Config{Graders: []Spec{{Normalize: []string{"upper"}, From: "all"}}}, []string{`normalize: "upper", expected trim, lower or spaces`, `from: "all", expected final or content`}},
		{"a threshold that holds nothing up", Config{Graders: []Spec{{Threshold: w(1.5)}}}, []string{"threshold: 1.5, expected 0 to 1", "threshold: means nothing to total weighted_sum"}},
		{"a gate without one", Config{Total: Gate}, []string{"total: gate, expected a threshold on one grader or more"}},
		{"a name kept for parts", Config{Graders: []Spec{{Name: "a"}, {Name: "a.b"}}}, []string{`the name "a.b" is kept for parts of "a"`}},
		{"options of a built-in kind", Config{Graders: []Spec{{With: []byte("{}")}}}, []string{"with: means nothing to kind auto"}},
		{"bounds", Config{Pause: -1, MaxAbandoned: -1}, []string{"pause: -1ns", "max_abandoned: -1"}},
		{"none with others", Config{Graders: []Spec{{Kind: KindNone}, {}}}, []string{"kind none stands alone"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.cfg.Validate()
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v\nwant %q", err, want)
				}
			}
		})
	}
}

func TestGraderIDs(t *testing.T) {
	for _, id := range []string{"", "mine", "mine/", "/1", "numeric/2"} {
		kind, _, _ := strings.Cut(id, "/")
		if _, err := New(Config{Graders: []Spec{{Kind: kind}}}, Fixed(own{id: id})); err == nil {
			t.Errorf("%q was taken", id)
		}
	}
}

// openData opens a file of the data folder, or skips the test.
func openData(t *testing.T, name string) *bufio.Scanner {
	t.Helper()
	dir := os.Getenv("TRANCHE_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "data")
	}
	f, err := os.Open(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("no data: %v (set TRANCHE_DATA to the data folder)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	return lines
}

// Worked answers as they stand in the data, "#### 18" at the end, are numbers to auto, and right answers to themselves.
func TestAutoReadsWorkedAnswers(t *testing.T) {
	s := newScorer(t, Config{})
	defer requireClose(t, s)
	lines := openData(t, filepath.Join("tasks-gsm8k", "test.first660.jsonl"))
	n := 0
	for ; lines.Scan(); n++ {
		var row struct{ Answer string }
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatalf("line %d: %v", n+1, err)
		}
		v := score(t, s, said(answer(row.Answer), row.Answer))
		if r := v.Rewards[0]; text(v.Total) != "1" || r.Grader != "numeric/2" || !strings.Contains(r.Evidence, "after") {
			t.Errorf("line %d: %+v", n+1, r)
		}
	}
	if err := lines.Err(); err != nil || n != 660 {
		t.Fatalf("%d lines, %v", n, err)
	}
}

// Data of real model answers with labels: ground truth and answers end with "A: " and the result.
func TestNumericAgreesWithLabels(t *testing.T) {
	lines := openData(t, filepath.Join("tasks-gsm8k", "example_model_solutions.first660.jsonl"))
	s := newScorer(t, Config{Graders: []Spec{{Kind: KindNumeric, Marker: "A:"}}})
	defer requireClose(t, s)
	agreed, labels := 0, 0
	for n := 1; lines.Scan(); n++ {
		row := make(map[string]json.RawMessage)
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		var truth string
		if err := json.Unmarshal(row["ground_truth"], &truth); err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		for _, model := range []string{"6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"} {
			var label struct {
				Correct  *bool  `json:"is_correct"`
				Solution string `json:"solution"`
			}
			if err := json.Unmarshal(row[model], &label); err != nil || label.Correct == nil {
				t.Fatalf("line %d, %s: %v", n, model, err)
			}
			labels++
			v := score(t, s, said(answer(truth), label.Solution))
			if v.Total != nil && (*v.Total == 1) == *label.Correct {
				agreed++
				continue
			}
			t.Logf("line %d, %s: label %v, got %s: %s", n, model, *label.Correct, text(v.Total), v.Rewards[0].Evidence)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	t.Logf("agreement %d of %d (%.4f)", agreed, labels, float64(agreed)/float64(labels))
	if labels != 2640 || float64(agreed) < 0.995*float64(labels) {
		t.Fatalf("agreement %d of %d, want 0.995 of 2640", agreed, labels)
	}
}

func BenchmarkScore(b *testing.B) {
	s, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	e := said(answer("18"), strings.Repeat("She sells 16 - 3 = 13 of them. ", 20)+"\n#### 18")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if v, err := s.Score(context.Background(), e); err != nil || *v.Total != 1 {
				b.Fatal(err)
			}
		}
	})
}
