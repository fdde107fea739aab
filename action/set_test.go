package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
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

// fake is a tool made of a function; its one optional argument is n, a whole number.
type fake struct {
	name string
	run  func(ctx context.Context, args json.RawMessage, env Env) (Result, error)
}

func (f fake) Name() string { return f.name }

func (f fake) Definition() json.RawMessage {
	return json.RawMessage(`{"type":"function","function":{"name":"` + f.name +
		`","parameters":{"type":"object","properties":{"n":{"type":"integer","minimum":0}}}}}`)
}

func (f fake) Run(ctx context.Context, args json.RawMessage, env Env) (Result, error) {
	return f.run(ctx, args, env)
}

func says(name, text string) fake {
	return fake{name, func(context.Context, json.RawMessage, Env) (Result, error) { return Result{Text: text}, nil }}
}

func newSet(t *testing.T, cfg Config, tools ...Tool) *Set {
	t.Helper()
	if cfg.Tools == nil {
		for _, tool := range tools {
			cfg.Tools = append(cfg.Tools, tool.Name())
		}
	}
	s, err := New(cfg, tools...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func requireClose(t *testing.T, s *Set) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// call is one tool call: name, arguments.
type call struct{ name, args string }

// ask opens an episode whose last reply makes the given calls, with ids c0, c1, …
func ask(id string, task *episode.Task, calls ...call) (*episode.Episode, []episode.Action) {
	e := &episode.Episode{ID: id, Task: task}
	m := episode.Message{Role: episode.RoleAssistant}
	for i, c := range calls {
		m.ToolCalls = append(m.ToolCalls, episode.ToolCall{
			ID: fmt.Sprintf("c%d", i), Type: "function",
			Function: episode.Function{Name: c.name, Arguments: c.args},
		})
	}
	e.AddReply(&episode.Reply{Message: m, Finish: episode.FinishToolCalls}, episode.Turn{})
	return e, e.PendingActions()
}

func do(s *Set, calls ...call) []episode.Observation {
	e, acts := ask("e", &episode.Task{ID: "t"}, calls...)
	return s.Do(context.Background(), e, acts)
}

func TestEveryCallIsAnsweredInOrder(t *testing.T) {
	s := newSet(t, Config{}, append(Builtins(), says("hello", "hi"))...)
	defer requireClose(t, s)
	obs := do(s,
		call{"calculator", `{"expression":"6*7"}`},
		call{"nosuch", `{}`},
		call{"calculator", `{"expression":"1/0"}`},
		call{"calculator", `{"n": 7`},
		call{"hello", ``},
		call{"submit", `{"answer": 42}`},
	)
	want := []struct{ status, text string }{
		{episode.ActionOK, "42"},
		{episode.ActionNoTool, `error: there is no tool "nosuch"; the tools are: calculator, submit, hello`},
		{episode.ActionError, "error: division by zero"},
		{episode.ActionBadArgs, "error: the arguments are not valid JSON: the text ends too early, after 7 bytes"},
		{episode.ActionOK, "hi"},
		{episode.ActionOK, "submitted"},
	}
	for i, w := range want {
		o := obs[i]
		if o.CallID != fmt.Sprintf("c%d", i) || o.Status != w.status || !strings.HasPrefix(o.Text, w.text) || o.Fault != nil {
			t.Errorf("call %d: got %+v, want %+v", i, o, w)
		}
	}
	last := obs[5]
	if !last.Done || last.Submitted == nil || *last.Submitted != "42" {
		t.Errorf("submit: got %+v", last)
	}
}

// SP-o1: what is wrong with cut arguments goes back under the same call id; the record keeps the raw text while the next
// request carries valid JSON.
func TestCutArgumentsGoBackToTheModel(t *testing.T) {
	s := newSet(t, Config{}, Builtins()...)
	defer requireClose(t, s)
	e, acts := ask("e", &episode.Task{}, call{"calculator", `{"n": 7`})
	for _, o := range s.Do(context.Background(), e, acts) {
		e.AddObservation(o)
	}
	next, ok := e.NextCall()
	if !ok || len(next.Messages) != 2 {
		t.Fatalf("next call: %v, %+v", ok, next.Messages)
	}
	asked, told := next.Messages[0], next.Messages[1]
	if got := asked.ToolCalls[0].Function.Arguments; got != "{}" {
		t.Errorf("the next request says %q", got)
	}
	if got := e.Messages[0].ToolCalls[0].Function.Arguments; got != `{"n": 7` {
		t.Errorf("the record says %q", got)
	}
	if *told.ToolCallID != "c0" || !strings.Contains(told.Text(), "not valid JSON") || !strings.Contains(told.Text(), `{"n": 7`) {
		t.Errorf("the model is told %q under %q", told.Text(), *told.ToolCallID)
	}
	if a := e.Actions[0]; a.Status != episode.ActionBadArgs || e.Fault != nil {
		t.Errorf("recorded as %+v, fault %v", a, e.Fault)
	}
}

// CO-o2: a call cut by the token budget is never an action.
func TestCallCutAtItsLengthIsNotRun(t *testing.T) {
	e := &episode.Episode{ID: "e", Task: &episode.Task{}}
	m := episode.Message{Role: episode.RoleAssistant, ToolCalls: []episode.ToolCall{{ID: "c", Function: episode.Function{Name: "x", Arguments: `{"a`}}}}
	e.AddReply(&episode.Reply{Message: m, Finish: episode.FinishLength}, episode.Turn{})
	if acts := e.PendingActions(); acts != nil || e.Stop != episode.StopLength || e.Status != episode.StatusTruncated {
		t.Fatalf("actions %v, stop %q, status %q", acts, e.Stop, e.Status)
	}
}

// SP-o6: a thousand calls without a name are answered one by one, and nothing is logged.
func TestNamelessCallsDoNotStormTheLog(t *testing.T) {
	s := newSet(t, Config{}, Builtins()...)
	defer requireClose(t, s)
	stderr, restore := captureLogs(t)
	for i := range 1000 {
		e, acts := ask(fmt.Sprint(i), &episode.Task{}, call{"", `{"q":"x"}`})
		o := s.Do(context.Background(), e, acts)[0]
		if o.Status != episode.ActionBadArgs || !strings.Contains(o.Text, "no function name") || o.CallID != "c0" {
			t.Fatalf("call %d: %+v", i, o)
		}
	}
	restore()
	if lines := strings.Count(stderr(), "\n"); lines > 20 {
		t.Fatalf("%d lines logged", lines)
	}
}

// captureLogs sends stderr and the standard logger to a file until restore is called.
func captureLogs(t *testing.T) (read func() string, restore func()) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stderr
	os.Stderr = f
	log.SetOutput(f)
	return func() string {
			b, err := os.ReadFile(f.Name())
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}, func() {
			os.Stderr = old
			log.SetOutput(old)
			f.Close()
		}
}

// SH-o3: one panic in 50 episodes fails that one, with its class; the others and the siblings in its reply are unharmed.
func TestPanicHurtsItsOwnEpisodeOnly(t *testing.T) {
	boom := fake{"boom", func(_ context.Context, _ json.RawMessage, env Env) (Result, error) {
		if env.Episode == "17" {
			var p *episode.Task
			_ = p.ID
		}
		return Result{Text: "fine"}, nil
	}}
	s := newSet(t, Config{}, append(Builtins(), boom)...)
	defer requireClose(t, s)
	var bad atomic.Int32
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			e, acts := ask(fmt.Sprint(i), &episode.Task{}, call{"boom", "{}"}, call{"calculator", `{"expression":"1+1"}`})
			for _, o := range s.Do(context.Background(), e, acts) {
				e.AddObservation(o)
			}
			if e.Actions[1].Status != episode.ActionOK {
				t.Errorf("episode %d: sibling %+v", i, e.Actions[1])
			}
			if e.Fault == nil {
				return
			}
			bad.Add(1)
			if e.ID != "17" || e.Fault.Class != episode.ClassActionPanic || e.Fault.Stage != episode.StageAction ||
				e.Status != episode.StatusFailed || e.Actions[0].Status != episode.ActionPanic ||
				!strings.Contains(e.Fault.Error(), "nil pointer") || !strings.Contains(e.Fault.Error(), "at set_test.go:") {
				t.Errorf("episode %d: %s: %v", i, e.Status, e.Fault)
			}
		})
	}
	wg.Wait()
	if bad.Load() != 1 {
		t.Fatalf("%d episodes failed, want 1", bad.Load())
	}
}

func TestGoexitIsAPanic(t *testing.T) {
	s := newSet(t, Config{}, fake{"quit", func(context.Context, json.RawMessage, Env) (Result, error) {
		runtime.Goexit()
		return Result{}, nil
	}})
	defer requireClose(t, s)
	if o := do(s, call{"quit", "{}"})[0]; o.Status != episode.ActionPanic || o.Fault == nil {
		t.Fatalf("got %+v", o)
	}
}

func TestOtherErrorsAreTheHarness(t *testing.T) {
	broken := errors.New("sandbox is gone")
	s := newSet(t, Config{}, fake{"run", func(context.Context, json.RawMessage, Env) (Result, error) {
		return Result{Text: "half", Done: true, Submitted: episode.Ptr("x")}, broken
	}})
	defer requireClose(t, s)
	o := do(s, call{"run", "{}"})[0]
	if o.Status != episode.ActionHarness || o.Fault == nil || o.Fault.Class != episode.ClassHarness || !errors.Is(o.Fault, broken) {
		t.Fatalf("got %+v", o)
	}
	if o.Done || o.Submitted != nil {
		t.Fatal("a failed run ended the episode as done")
	}
}

func TestHugeOutputIsCutInTheMiddle(t *testing.T) {
	huge := strings.Repeat("é", 5<<20) // 10 MiB
	s := newSet(t, Config{MaxObservationBytes: 1000}, says("huge", huge), says("small", "ok"))
	defer requireClose(t, s)
	obs := do(s, call{"huge", "{}"}, call{"small", "{}"})
	o := obs[0]
	if o.Status != episode.ActionOK || !o.Truncated || o.OutBytes != 10<<20 || len(o.Text) > 1000 || len(o.Text) < 990 {
		t.Fatalf("got %s, truncated %v, %d of %d bytes", o.Status, o.Truncated, len(o.Text), o.OutBytes)
	}
	head, rest, _ := strings.Cut(o.Text, "\n… ")
	mark, tail, _ := strings.Cut(rest, " …\n")
	var gone int
	if _, err := fmt.Sscanf(mark, "%d bytes cut", &gone); err != nil || len(head)+len(tail)+gone != 10<<20 {
		t.Fatalf("marker %q: %d + %d kept", mark, len(head), len(tail))
	}
	if strings.Trim(head, "é") != "" || strings.Trim(tail, "é") != "" {
		t.Fatal("a character was cut in two")
	}
	if obs[1].Text != "ok" || obs[1].Truncated {
		t.Fatalf("sibling: %+v", obs[1])
	}
}

func TestBytesThatAreNoTextAreReplaced(t *testing.T) {
	s := newSet(t, Config{}, says("raw", "a\xff\xfeb"))
	defer requireClose(t, s)
	if o := do(s, call{"raw", "{}"})[0]; o.Text != "a\uFFFDb" || o.OutBytes != 4 {
		t.Fatalf("got %q, %d bytes", o.Text, o.OutBytes)
	}
}

// A tool that ignores its context is given up: its observation comes, its siblings are unharmed and its worker is free.
func TestHungToolIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		hang := fake{"hang", func(context.Context, json.RawMessage, Env) (Result, error) {
			<-release
			return Result{Text: "too late"}, nil
		}}
		s := newSet(t, Config{Workers: 1, Queue: 1}, hang, says("hello", "hi"))
		began := time.Now()
		obs := do(s, call{"hang", "{}"}, call{"hello", "{}"}, call{"hang", "{}"}, call{"hello", "{}"})
		if took := time.Since(began); took != 2*(30*time.Second+workpool.Grace) {
			t.Errorf("took %s", took)
		}
		for i, want := range []string{episode.ActionTimeout, episode.ActionOK, episode.ActionTimeout, episode.ActionOK} {
			if obs[i].Status != want || obs[i].Fault != nil {
				t.Errorf("call %d: %+v, want %s", i, obs[i], want)
			}
		}
		if o := obs[0]; o.Text != "error: the tool was stopped: it ran for more than 30s" || o.Wall != 30*time.Second+workpool.Grace {
			t.Errorf("got %q after %s", o.Text, o.Wall)
		}
		synctest.Wait()
		if st := s.Stats(); st.Abandoned != 2 || st.Running != 0 || st.Waiting != 0 {
			t.Errorf("load %+v", st)
		}
		if err := s.Close(); err == nil || !strings.Contains(err.Error(), "2 abandoned runs have not returned (hang 2; ") {
			t.Errorf("close said %v", err)
		}
		close(release)
		synctest.Wait()
		if st := s.Stats(); st.Abandoned != 0 {
			t.Errorf("load at the end %+v", st)
		}
		if all := s.Troubles(); len(all) != 1 || all[0] != (Trouble{Tool: "hang", Abandoned: 2}) {
			t.Errorf("troubles at the end %+v, want two runs of hang that were abandoned and ended since", all)
		}
	})
}

// A tool that heeds its context still shows the model what it had.
func TestToolThatStopsInTimeShowsItsOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := fake{"slow", func(ctx context.Context, _ json.RawMessage, _ Env) (Result, error) {
			<-ctx.Done()
			return Result{Text: "line 1", ExitCode: episode.Ptr(int32(137)), Done: true}, ctx.Err()
		}}
		s := newSet(t, Config{Timeout: time.Second}, slow)
		o := do(s, call{"slow", "{}"})[0]
		want := "line 1\nerror: the tool was stopped: it ran for more than 1s"
		if o.Status != episode.ActionTimeout || o.Text != want || *o.ExitCode != 137 || o.Wall != time.Second || o.Done {
			t.Errorf("got %+v", o)
		}
		requireClose(t, s)
	})
}

// Time in the queue is not part of a run's timeout, nor of its wall time.
func TestWaitingForAWorkerIsNotTheRunsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nap := fake{"nap", func(ctx context.Context, _ json.RawMessage, _ Env) (Result, error) {
			time.Sleep(800 * time.Millisecond)
			return Result{Text: "rested"}, ctx.Err()
		}}
		s := newSet(t, Config{Workers: 1, Queue: 2, Timeout: time.Second}, nap)
		calls := make([]call, 10)
		for i := range calls {
			calls[i] = call{"nap", "{}"}
		}
		for i, o := range do(s, calls...) {
			if o.Status != episode.ActionOK || o.Wall != 800*time.Millisecond {
				t.Errorf("call %d: %s after %s", i, o.Status, o.Wall)
			}
		}
		requireClose(t, s)
	})
}

func TestCallsOfOneReplyRunTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nap := fake{"nap", func(context.Context, json.RawMessage, Env) (Result, error) {
			time.Sleep(time.Second)
			return Result{}, nil
		}}
		s := newSet(t, Config{Workers: 4}, nap)
		began := time.Now()
		do(s, call{"nap", "{}"}, call{"nap", "{}"}, call{"nap", "{}"}, call{"nap", "{}"})
		if took := time.Since(began); took != time.Second {
			t.Errorf("took %s", took)
		}
		requireClose(t, s)
	})
}

// SH-o4 for actions: 10,000 episodes wait for one worker; the run stops; all return within the grace, nothing is left.
func TestStopReleasesEveryWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran atomic.Int32
		block := fake{"block", func(ctx context.Context, _ json.RawMessage, _ Env) (Result, error) {
			ran.Add(1)
			<-ctx.Done()
			return Result{}, ctx.Err()
		}}
		s := newSet(t, Config{Workers: 2, Queue: 100}, block)
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		var cancelled atomic.Int32
		for i := range 10_000 {
			wg.Go(func() {
				e, acts := ask(fmt.Sprint(i), &episode.Task{}, call{"block", "{}"})
				o := s.Do(ctx, e, acts)[0]
				if o.Status == episode.ActionCanceled && o.Fault == nil {
					cancelled.Add(1)
				}
			})
		}
		synctest.Wait()
		if st := s.Stats(); st.Running != 2 || st.Waiting != 100 {
			t.Errorf("load %+v", st)
		}
		began := time.Now()
		cancel()
		wg.Wait()
		if took := time.Since(began); took > workpool.Grace {
			t.Errorf("returned after %s", took)
		}
		if cancelled.Load() != 10_000 || ran.Load() != 2 {
			t.Errorf("%d cancelled, %d ran", cancelled.Load(), ran.Load())
		}
		requireClose(t, s)
		if len(s.going) != 0 {
			t.Errorf("%d action ids are still held", len(s.going))
		}
	})
}

func TestAfterCloseActionsAreCancelled(t *testing.T) {
	s := newSet(t, Config{}, says("hello", "hi"))
	requireClose(t, s)
	requireClose(t, s)
	if o := do(s, call{"hello", "{}"})[0]; o.Status != episode.ActionCanceled {
		t.Fatalf("got %+v", o)
	}
}

func TestCloseStopsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, Config{}, fake{"block", func(ctx context.Context, _ json.RawMessage, _ Env) (Result, error) {
			<-ctx.Done()
			return Result{}, ctx.Err()
		}})
		got := make(chan episode.Observation)
		go func() { got <- do(s, call{"block", "{}"})[0] }()
		synctest.Wait()
		requireClose(t, s)
		if o := <-got; o.Status != episode.ActionCanceled {
			t.Errorf("got %+v", o)
		}
	})
}

func TestAnActionIsNeverRunTwice(t *testing.T) {
	var ran atomic.Int32
	s := newSet(t, Config{}, fake{"count", func(context.Context, json.RawMessage, Env) (Result, error) {
		ran.Add(1)
		return Result{}, nil
	}})
	defer requireClose(t, s)
	e, acts := ask("e", &episode.Task{}, call{"count", "{}"})

	twice := s.Do(context.Background(), e, []episode.Action{acts[0], acts[0]})
	if twice[0].Status != episode.ActionOK || twice[1].Status != episode.ActionHarness || ran.Load() != 1 {
		t.Fatalf("same id in one reply: %+v, ran %d", twice, ran.Load())
	}
	e.AddObservation(twice[0])
	again := s.Do(context.Background(), e, acts)[0]
	if again.Status != episode.ActionHarness || ran.Load() != 1 {
		t.Fatalf("after it was answered: %+v, ran %d", again, ran.Load())
	}
}

func TestEmptyCallIDsAreTolerated(t *testing.T) {
	s := newSet(t, Config{}, says("hello", "hi"))
	defer requireClose(t, s)
	e, acts := ask("e", &episode.Task{}, call{"hello", ""}, call{"hello", ""})
	for i := range acts {
		acts[i].Call.ID = ""
	}
	for i, o := range s.Do(context.Background(), e, acts) {
		if o.Status != episode.ActionOK || o.CallID != "" || o.Text != "hi" {
			t.Errorf("call %d: %+v", i, o)
		}
	}
}

func TestSubmitKeepsWhatWasWritten(t *testing.T) {
	s := newSet(t, Config{}, Submit{})
	defer requireClose(t, s)
	for _, c := range []struct{ name, args, want string }{
		{"string", `{"answer":"a \"b\" é"}`, `a "b" é`},
		{"empty string", `{"answer":""}`, ""},
		{"integer", `{"answer":18}`, "18"},
		{"number as written", `{"answer": 1.50e1 }`, "1.50e1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := do(s, call{"submit", c.args})[0]
			if !o.Done || o.Submitted == nil || *o.Submitted != c.want {
				t.Fatalf("got %+v", o)
			}
		})
	}
	if o := do(s, call{"submit", `{"answer":["x"]}`})[0]; o.Done || o.Status != episode.ActionBadArgs {
		t.Fatalf("a list was taken: %+v", o)
	}
}

func BenchmarkDo(b *testing.B) {
	s, err := New(Config{Tools: []string{"calculator"}}, Builtins()...)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	task := &episode.Task{}
	e := &episode.Episode{ID: "e", Task: task}
	var n atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			act := episode.Action{ID: fmt.Sprint(n.Add(1)), Call: episode.ToolCall{ID: "c", Function: episode.Function{
				Name: "calculator", Arguments: `{"expression":"(3+4)*12/5"}`,
			}}}
			if o := s.Do(context.Background(), e, []episode.Action{act})[0]; o.Text != "16.8" {
				b.Fatal(o)
			}
		}
	})
}
