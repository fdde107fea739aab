package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tranche/internal/mock"
)

// moody serves embeddings and refuses those of a set of inputs.
type moody struct {
	*echo
	mu     sync.Mutex
	refuse map[string]bool
	held   chan struct{} // answers wait until it is closed; nil = none does
}

func newMoody(t *testing.T, refuse ...string) *moody {
	m := &moody{echo: &echo{asked: map[string]int{}}, refuse: map[string]bool{}}
	for _, input := range refuse {
		m.refuse[input] = true
	}
	m.Server = mock.New(t, mock.Config{Routes: map[string]mock.Handler{"POST /v1/embeddings": func(r *mock.Request, w *mock.Reply) {
		input := textOf(r.Field("input"))
		m.echo.mu.Lock()
		m.asked[input]++
		m.echo.mu.Unlock()
		m.mu.Lock()
		refused := m.refuse[input]
		m.mu.Unlock()
		if refused {
			w.JSON(400, `{"error":{"message":"not now"}}`)
			return
		}
		if m.held != nil {
			<-m.held
		}
		w.JSON(200, `{"object":"list","of":`+string(r.Body)+`}`)
	}}})
	return m
}

func (m *moody) heal(inputs ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, input := range inputs {
		delete(m.refuse, input)
	}
}

// ids are the lines of a file of results, "r1" for an answer and "r1!" for a failure.
func ids(t *testing.T, path string) string {
	t.Helper()
	var list []string
	for _, l := range results(t, path) {
		if l.Error != nil || l.Response == nil || l.Response.StatusCode != 200 {
			l.CustomID += "!"
		}
		list = append(list, l.CustomID)
	}
	return strings.Join(list, " ")
}

// Of a finished batch only the failed lines are asked again; the files then hold each line once, in the order of the input.
func TestBatchRetriesFailedLines(t *testing.T) {
	for _, apart := range []bool{false, true} {
		t.Run(fmt.Sprint("errors apart ", apart), func(t *testing.T) {
			m, out := newMoody(t, "input 1", "input 3", "input 4"), filepath.Join(t.TempDir(), "out")
			args := []string{"batch", embeddings(t, numbered(6)...), "-o", out, "--endpoint", m.URL()}
			want := []string{"r0 r1! r2 r3! r4! r5", "r0 r1 r2 r3! r4 r5", "r0 r1 r2 r3 r4 r5"}
			bad := []string{"", "", ""}
			if apart {
				args = append(args, "--errors", out+".errors")
				want, bad = []string{"r0 r2 r5", "r0 r1 r2 r4 r5", "r0 r1 r2 r3 r4 r5"}, []string{"r1! r3! r4!", "r3!", ""}
			}
			for i, healed := range [][]string{nil, {"input 1", "input 4"}, {"input 3"}} {
				m.heal(healed...)
				status := []code{codePartial, codePartial, codeOK}[i]
				newShell(t).do(status, append(args, "--retry-failed")...)
				if got := ids(t, out); got != want[i] {
					t.Errorf("try %d: the output holds %s, want %s", i, got, want[i])
				}
				if apart && ids(t, out+".errors") != bad[i] {
					t.Errorf("try %d: the error file holds %s, want %s", i, ids(t, out+".errors"), bad[i])
				}
				nothingLeft(t, out)
			}
			s := newShell(t)
			s.do(codeOK, append(args, "--retry-failed")...)
			if !strings.Contains(s.err.String(), "finished already") {
				t.Errorf("said %s", s.err.String())
			}
			asked := ""
			for _, input := range numbered(6) {
				asked += fmt.Sprint(m.times(input))
			}
			if asked != "121321" {
				t.Errorf("the lines were asked %s times", asked)
			}
		})
	}
}

// A batch that was stopped: its failed lines are asked again with the flag, and only then.
func TestBatchRetriesWhatAJournalHolds(t *testing.T) {
	for name, c := range map[string]struct {
		flag []string
		want string
		code code
	}{
		"without": {nil, "r0! r1 r2 r3 r4 r5 r6 r7", codePartial},
		"with":    {[]string{"--retry-failed"}, "r0 r1 r2 r3 r4 r5 r6 r7", codeOK},
	} {
		t.Run(name, func(t *testing.T) {
			m, out, s := newMoody(t, "input 0"), filepath.Join(t.TempDir(), "out"), newShell(t)
			args := []string{"batch", embeddings(t, numbered(8)...), "-o", out, "--endpoint", m.URL(), "--concurrency", "1", "--open-episodes", "1"}
			m.held = make(chan struct{})
			go func() { // nothing is answered before the signal is heard: the batch cannot end meanwhile
				defer close(m.held)
				for m.times("input 0") == 0 && t.Context().Err() == nil {
					time.Sleep(time.Millisecond)
				}
				s.signals <- os.Interrupt
				for !strings.Contains(s.err.String(), "stopping") && t.Context().Err() == nil {
					time.Sleep(time.Millisecond)
				}
			}()
			s.do(codeInt, args...)
			<-m.held
			before := m.times("input 1")
			m.heal("input 0")
			newShell(t).do(c.code, append(args, c.flag...)...)
			if got := ids(t, out); got != c.want {
				t.Errorf("the output holds %s, want %s", got, c.want)
			}
			if n := m.times("input 1"); before > 0 && n != before {
				t.Error("an answered line was asked again")
			}
			nothingLeft(t, out)
		})
	}
}

// A file that is there and is not the batch's earlier result stays, whatever was asked for.
func TestBatchRetryReplacesItsOwnOnly(t *testing.T) {
	m, out := newMoody(t, "input 1"), filepath.Join(t.TempDir(), "out")
	in := embeddings(t, numbered(3)...)
	args := []string{"batch", in, "-o", out, "--endpoint", m.URL()}
	newShell(t).do(codePartial, args...)
	was, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	dead := []string{"batch", in, "-o", out, "--endpoint", "http://127.0.0.1:1/v1", "--retry-failed"}
	newShell(t).do(codeEndpoint, dead...) // the journal of the second try is there now
	if now, err := os.ReadFile(out); err != nil || !bytes.Equal(now, was) {
		t.Errorf("the output changed before there was a new one: %q (%v)", now, err)
	}
	if err := os.WriteFile(out, []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, again := range [][]string{args, append(args, "--retry-failed")} {
		s := newShell(t)
		s.do(codeRefused, again...)
		if now, err := os.ReadFile(out); err != nil || string(now) != "mine\n" {
			t.Errorf("%q (%v), said %s", now, err, s.err.String())
		}
	}
	if err := os.WriteFile(out, was, 0o644); err != nil {
		t.Fatal(err)
	}
	m.heal("input 1")
	newShell(t).do(codeOK, append(args, "--retry-failed")...)
	if got := ids(t, out); got != "r0 r1 r2" {
		t.Errorf("the output holds %s", got)
	}
	nothingLeft(t, out)
}

// A journal whose process died before its results were taken in is none: the output stands, and the next try begins with it.
func TestBatchRetryDiesWhileItBegins(t *testing.T) {
	m, out := newMoody(t, "input 1"), filepath.Join(t.TempDir(), "out")
	args := []string{"batch", embeddings(t, numbered(3)...), "-o", out, "--endpoint", m.URL()}
	newShell(t).do(codePartial, args...)
	m.heal("input 1")
	for name, left := range map[string][]byte{
		"empty": nil, "no line end": []byte(`{"journal":"tra`), "records before the head": append(make([]byte, 300), appendRecord(nil, 0, false, []byte("{}"))...),
	} {
		if err := os.WriteFile(batchJournalPath(out), left, 0o644); err != nil {
			t.Fatal(err)
		}
		s := newShell(t)
		s.do(codePartial, args...)
		if !strings.Contains(s.err.String(), "finished already") {
			t.Errorf("%s: said %s", name, s.err.String())
		}
	}
	newShell(t).do(codeOK, append(args, "--retry-failed")...)
	if got := ids(t, out); got != "r0 r1 r2" || m.times("input 0") != 1 {
		t.Errorf("the output holds %s, an answered line was asked %d times", got, m.times("input 0"))
	}
	nothingLeft(t, out)
}

// kill -9 at any instant of asking again: the output is whole all the time, no line is lost or there twice, no answer is asked for again.
func TestBatchRetrySurvivesKill(t *testing.T) {
	const lines = 120
	inputs := numbered(lines)
	var bad []string
	for i := 0; i < lines; i += 2 {
		bad = append(bad, inputs[i])
	}
	m, out := newMoody(t, bad...), filepath.Join(t.TempDir(), "out")
	in := embeddings(t, inputs...)
	args := []string{"batch", in, "-o", out, "--endpoint", m.URL(), "--concurrency", "2", "--progress", "none"}
	newShell(t).do(codePartial, args...)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	kills := 0
	for tries := 0; ; tries++ {
		if tries > 60 {
			t.Fatal("it does not end")
		}
		m.heal(bad[tries%len(bad)])
		if tries > 12 {
			m.heal(bad...)
		}
		cmd := exec.Command(program, append(args, "--retry-failed")...)
		var diag bytes.Buffer
		cmd.Args[0], cmd.Stderr = "tranche", &diag
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var over atomic.Bool
		timer := time.AfterFunc(time.Duration(20+rnd.IntN(150))*time.Millisecond, func() {
			if !over.Load() {
				_ = cmd.Process.Kill()
			}
		})
		if tries > 20 {
			timer.Stop()
		}
		err := cmd.Wait()
		over.Store(true)
		timer.Stop()
		list := results(t, out)
		if len(list) != lines || !slices.IsSortedFunc(list, func(a, b outputLine) int { return number(t, a.CustomID) - number(t, b.CustomID) }) {
			t.Fatalf("try %d: %d lines in the output, or not in order", tries, len(list))
		}
		if err == nil {
			break
		}
		if !cmd.ProcessState.Exited() {
			kills++
		} else if cmd.ProcessState.ExitCode() != int(codePartial) {
			t.Fatalf("try %d: %v\n%s", tries, err, diag.String())
		}
	}
	t.Logf("killed %d times", kills)
	inOrder(t, results(t, out), inputs)
	nothingLeft(t, out)
	for i := 1; i < lines; i += 2 {
		if n := m.times(inputs[i]); n != 1 {
			t.Errorf("%s had its answer and was asked %d times", inputs[i], n)
		}
	}
	if kills == 0 {
		t.Error("it was never killed: the test shows nothing")
	}
}

func number(t *testing.T, id string) (n int) {
	t.Helper()
	if _, err := fmt.Sscanf(id, "r%d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}
