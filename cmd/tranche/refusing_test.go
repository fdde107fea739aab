package main

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"tranche/internal/mock"
)

// refusals are answers of servers that refuse whatever is asked of them.
var refusals = map[int]string{
	401: `{"error":{"message":"Incorrect API key provided"}}`,
	402: `{"error":{"message":"Insufficient credits"}}`,
	403: `{"error":{"message":"this key has no access"}}`,
	404: `{"error":{"message":"The model mock does not exist"}}`,
	429: `{"error":{"message":"You exceeded your quota","code":"insufficient_quota"}}`,
}

// refusing serves a model list and refuses all calls.
func refusing(t *testing.T, status int) (*mock.Server, *atomic.Int64) {
	asked := new(atomic.Int64)
	return mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) {
		asked.Add(1)
		w.JSON(status, refusals[status])
	}}), asked
}

// An endpoint that is set wrong answers faster than any other. It is left out, and what it was sent is played elsewhere.
func TestAnEndpointThatRefusesAllIsLeftOut(t *testing.T) {
	for status := range refusals {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			bad, asked := refusing(t, status)
			good := mock.New(t, mock.Config{Chat: mock.Text("#### 7").Send})
			s := newShell(t)
			s.do(codeOK, "run", taskFile(t, 100, ""), "--endpoint", bad.URL(), "--endpoint", good.URL(), "-o", newRunDir(t), "--json", "--probe", "quick", "--concurrency", "4")
			if d := s.document(); d.Dataset.Good != 100 || d.Dataset.Failed != 0 {
				t.Errorf("%d good, %d failed", d.Dataset.Good, d.Dataset.Failed)
			}
			if n := asked.Load(); n > 20 {
				t.Errorf("asked %d times", n)
			}
			if said := s.err.String(); !strings.Contains(said, "taken for down") {
				t.Errorf("nobody was told:\n%s", said)
			}
		})
	}
}

// Where there is no other, the run ends with the server's words before there is a row, and can be gone on with.
func TestARunEndsWhereAllIsRefused(t *testing.T) {
	for status, words := range refusals {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			bad, asked := refusing(t, status)
			s, dir := newShell(t), newRunDir(t)
			s.do(codeEndpoint, "run", taskFile(t, 300, ""), "--endpoint", bad.URL(), "-o", dir, "--json", "--probe", "quick", "--concurrency", "4")
			if d := s.document(); d.Dataset.Good+d.Dataset.Failed != 0 || asked.Load() > 8 {
				t.Errorf("%d good, %d failed, asked %d times", d.Dataset.Good, d.Dataset.Failed, asked.Load())
			}
			_, words, _ = strings.Cut(words, `"message":"`)
			words, _, _ = strings.Cut(words, `"`)
			if said := s.err.String(); !strings.Contains(said, words) {
				t.Errorf("it does not say %q:\n%s", words, said)
			}
		})
	}
}

// Moderation refuses some calls, several in a row too, in the words of a wrong key: those alone fail where the server answered others. What it refuses without end
// ends the run.
func TestRefusedCallsAreNotTheEndpoint(t *testing.T) {
	for _, c := range []struct {
		tasks, refused int
		want           code
		failed         int64
	}{{12, 9, codePartial, 9}, {60, 50, codeEndpoint, 19}} {
		var asked atomic.Int64
		server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
			if n := asked.Add(1); n > 1 && n <= int64(1+c.refused) {
				w.JSON(403, `{"error":{"message":"flagged"}}`)
				return
			}
			mock.Text("#### 7").Send(r, w)
		}})
		s := newShell(t)
		s.do(c.want, "run", taskFile(t, c.tasks, ""), "--endpoint", server.URL(), "-o", newRunDir(t), "--json", "--probe", "quick", "--concurrency", "1", "--stop-on-failed-share", "1")
		if d := s.document(); d.Dataset.Failures["auth"] != c.failed {
			t.Errorf("%d refused: %d good, failures %v; want %d", c.refused, d.Dataset.Good, d.Dataset.Failures, c.failed)
		}
	}
}
