//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tranche/episode"
	"tranche/inference/enginesim"
	"tranche/internal/mock"
	"tranche/storage"
)

// counted is a simulated engine on TCP that counts the answers it was asked for.
func counted(t *testing.T, cfg enginesim.Config) (url string, calls *atomic.Int64) {
	t.Helper()
	engine, err := enginesim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	calls = new(atomic.Int64)
	handler := engine.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/chat/completions", "/v1/completions", "/inference/v1/generate":
			calls.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1", calls
}

// killedRun runs a command, kills it a while after it has made so many calls, and returns what it said.
func killedRun(t *testing.T, program string, calls *atomic.Int64, least int64, after time.Duration, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	from := calls.Load()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for wait := 0; calls.Load() < from+least; wait++ {
		if time.Sleep(20 * time.Millisecond); wait > 3000 {
			t.Errorf("%d calls within a minute", calls.Load()-from)
			break
		}
	}
	time.Sleep(after)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return said.String()
}

// thisTime clears what tells how a run went this time (docs/format.md, Order), and what differs between two runs of one server.
func thisTime(r storage.Row) storage.Row {
	r.CreatedAt, r.Timing, r.Attempt, r.Raw = time.Time{}, storage.Timing{}, 0, nil
	r.Flags = slices.DeleteFunc(slices.Clone(r.Flags), func(f string) bool { return f == episode.FlagResumed })
	for i := range r.Turns {
		t := &r.Turns[i]
		t.QueueMS, t.TTFTMS, t.ServiceMS, t.Retries, t.Endpoint, t.CachedTokens = nil, nil, nil, 0, nil, nil
	}
	for i := range r.Actions {
		a := &r.Actions[i]
		a.WallMS, a.CPUMS, a.QueueMS, a.SetupMS, a.PeakMemory = nil, nil, nil, nil, nil
	}
	for i := range r.Rewards {
		r.Rewards[i].WallMS, r.Rewards[i].CPUMS = nil, nil
	}
	return r
}

// RD-o1 in the middle of episodes: a run is killed again and again and gone on with. Its rows are those of a run that nothing happened to, exact ids go on as they
// were, and the calls in all are about one a turn.
func TestKilledEpisodesGoOn(t *testing.T) {
	if testing.Short() {
		t.Skip("kills three processes: skipped with -short")
	}
	cfg := enginesim.Config{OddTokens: true, Seed: 3, LengthMean: 30}
	const open = 12
	args := func(url, dir string) []string {
		return []string{"run", arithmetic, "-n", "4", "-o", dir, "--endpoint", url, "--probe", "quick", "--open-episodes", fmt.Sprint(open), "--progress", "none", "--keep-raw"}
	}
	url, calls := counted(t, cfg)
	s, whole := newShell(t), newRunDir(t)
	s.do(codeOK, args(url, whole)...)
	want, once := rowsIn(t, whole), calls.Load()

	cfg.Speed = 8 // so slow that a kill hits many turns
	url, calls = counted(t, cfg)
	program, dir := binary(t), newRunDir(t)
	const kills = 3
	said := ""
	for i := range kills {
		line := args(url, dir)
		if i > 0 {
			line = []string{"resume", dir, "--progress", "none"}
		}
		said += killedRun(t, program, calls, 25, time.Duration(rand.IntN(100))*time.Millisecond, line...)
	}
	s = newShell(t)
	s.do(codeOK, "resume", dir, "--json")
	said += s.err.String()
	got := rowsIn(t, dir)
	if len(got) != len(want) {
		t.Fatalf("%d rows, uninterrupted %d", len(got), len(want))
	}
	resumed, later := 0, 0
	for key, w := range want {
		g := got[key]
		if g == nil || !reflect.DeepEqual(thisTime(*g), thisTime(*w)) {
			t.Fatalf("row %s differs from the uninterrupted run\n got %s\nwant %s", key, asJSON(thisTime(*g)), asJSON(thisTime(*w)))
		}
		if slices.Contains(g.Flags, episode.FlagResumed) {
			resumed++
		}
		if len(g.Raw) != len(g.Turns) {
			t.Errorf("%s: %d raw answers of %d turns", key, len(g.Raw), len(g.Turns))
		}
		for _, turn := range g.Turns[1:] {
			if later++; *turn.Exchange != "ids" {
				t.Errorf("%s: a later turn went as %s", key, *turn.Exchange)
			}
		}
	}
	if resumed == 0 || later == 0 || !strings.Contains(said, "open episodes go on where they stopped, after ") {
		t.Errorf("%d episodes went on, %d turns are later ones; it said\n%s", resumed, later, said)
	}
	if most := once + kills*open; calls.Load() > most {
		t.Errorf("%d calls over %d kills, %d without: at most %d are expected", calls.Load(), kills, once, most)
	}
	t.Logf("%d calls over %d kills, %d without; %d of %d rows went on from an earlier process", calls.Load(), kills, once, resumed, len(got))
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// What a python session holds is gone with its process: such an episode begins again, as another attempt, and the run says so. Programs of their own that leave
// no file hold nothing.
func TestKilledEpisodesWithStateBeginAgain(t *testing.T) {
	for name, c := range map[string]struct {
		python, code string
		attempt      int32
		said         string
	}{
		"a session":                 {"session", "x = 6", 1, "1 begins again: its tools keep state (python)"},
		"programs of their own":     {"once", "print(6)", 0, "1 open episode goes on where it stopped, after 1 turn"},
		"programs that leave files": {"once", "open('f', 'w').write('6')", 1, "1 begins again: its tools keep state (python)"},
	} {
		t.Run(name, func(t *testing.T) {
			var first atomic.Bool
			first.Store(true)
			begun := make(chan struct{})
			server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
				switch turn := strings.Count(string(r.Field("messages")), `"role":"tool"`); {
				case turn == 0:
					args, _ := json.Marshal(map[string]string{"code": c.code})
					mock.Tool("c0", "python", string(args)).Send(r, w)
				case first.CompareAndSwap(true, false):
					close(begun)
					w.Hang()
				default:
					mock.Text("#### 7").Send(r, w)
				}
			}})
			settings := write(t, "run.yaml", "tools: [python]\nsandbox:\n  backend: plain\n  python: "+c.python+"\n  trust-every-model-with-everything-i-have: true\n")
			dir := newRunDir(t)
			cmd := exec.Command(binary(t), "run", taskFile(t, 1, ""), "-c", settings, "--endpoint", server.URL(), "--probe", "quick", "--reward", "none", "-o", dir, "--progress", "none")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-begun:
			case <-time.After(time.Minute):
				t.Error("the second turn was not asked within a minute")
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			s := newShell(t)
			s.do(codeOK, "resume", dir)
			if !strings.Contains(s.err.String(), c.said) {
				t.Errorf("it lacks %q:\n%s", c.said, s.err.String())
			}
			row := rowsIn(t, dir)["t0/0"]
			if row == nil || row.Attempt != c.attempt || len(row.Turns) != 2 || slices.Contains(row.Flags, episode.FlagResumed) != (c.attempt == 0) {
				t.Fatalf("the row is %s", asJSON(row))
			}
			if asked := len(server.Chats()); asked != 3+int(c.attempt) { // two before the kill, and one, or two that begin again
				t.Errorf("the model was asked %d times", asked)
			}
		})
	}
}

// A run that is stopped by ctrl-c goes on in the middle of its episodes too.
func TestStoppedEpisodesGoOnAtResume(t *testing.T) {
	var slow atomic.Bool
	slow.Store(true)
	reached := make(chan struct{}, 100)
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		switch turn := strings.Count(string(r.Field("messages")), `"role":"tool"`); {
		case turn < 3:
			mock.Tool(fmt.Sprint("c", turn), "calculator", `{"expression":"1+1"}`).Send(r, w)
		case slow.Load():
			reached <- struct{}{}
			w.Hang()
		default:
			mock.Text("#### 7").Send(r, w)
		}
	}})
	s, dir := newShell(t), newRunDir(t)
	go func() {
		for range 4 {
			<-reached
		}
		s.signals <- os.Interrupt
	}()
	s.do(codeInt, "run", taskFile(t, 4, ""), "--tools", "calculator", "--endpoint", server.URL(), "--reward", "none", "-o", dir, "--drain-timeout", "10ms", "--progress", "none")
	asked := len(server.Chats())
	slow.Store(false)
	s = newShell(t)
	s.do(codeOK, "resume", dir, "--json")
	if want := "4 open episodes go on where they stopped, after 3.0 turns on average"; !strings.Contains(s.err.String(), want) {
		t.Errorf("it lacks %q:\n%s", want, s.err.String())
	}
	if again := len(server.Chats()) - asked; again != 4 {
		t.Errorf("4 episodes lacked one turn each, the model was asked %d times", again)
	}
	if d := s.document(); d.Run.Session.Resumed != 4 || d.Dataset.Flags[episode.FlagResumed] != 4 {
		t.Errorf("%d went on, flags %v", d.Run.Session.Resumed, d.Dataset.Flags)
	}
	for key, row := range rowsIn(t, dir) {
		if row.Attempt != 0 || len(row.Turns) != 4 || len(row.Actions) != 3 || row.NumPromptMessages != 1 {
			t.Errorf("%s: attempt %d, %d turns, %d actions", key, row.Attempt, len(row.Turns), len(row.Actions))
		}
	}
}

// What fails with the turns when the run is closed is told, and what was told before is not told again.
func TestTroubleOfTheLastTurnsIsTold(t *testing.T) {
	dir := t.TempDir()
	w, err := storage.Open(storage.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	s := &session{writer: w}
	defer s.closeStorage()
	task := &episode.Task{ID: "t", Messages: []episode.Message{{Role: episode.RoleUser, Content: episode.Ptr("?")}}}
	e := episode.New("r", episode.Draw{Task: task, Samples: 1}, 0, episode.Sampling{}, episode.Budget{}, time.Now())
	reply := &episode.Reply{Message: episode.Message{Role: episode.RoleAssistant, ToolCalls: []episode.ToolCall{{ID: "c", Type: "function"}}}, Finish: episode.FinishToolCalls}
	step := e.Step(reply, episode.Turn{})
	e.AddReply(reply, step.Turn)
	w.KeepTurn(e, &step)
	e.Fail(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassTimeout, Cause: errors.New("late")})
	if err := w.Write(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if notes := s.goneOn.notes(w); len(notes) > 0 {
		t.Fatalf("before: %q", notes)
	}
	if err := os.Remove(filepath.Join(dir, "journal", "turns-00000000.log")); err != nil { // so that closing cannot
		t.Fatal(err)
	}
	if err := s.closeStorage(); err != nil {
		t.Fatal(err)
	}
	notes := s.closingNotes([]string{"another"})
	if len(notes) != 1 || !strings.Contains(notes[0], "close the records of turns") {
		t.Errorf("told: %q", notes)
	}
	if again := s.closingNotes(notes); len(again) > 0 {
		t.Errorf("told again: %q", again)
	}
}
