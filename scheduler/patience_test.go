package scheduler

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tranche/episode"
)

func resetFault() *episode.Fault {
	return &episode.Fault{Stage: episode.StageModel, Class: episode.ClassReset, Retry: true}
}

// lostCore has one replica, whose circuit is open, and calls that wait for it.
func lostCore(t *testing.T) *Core {
	t.Helper()
	c, err := NewCore(Rules{}, []ReplicaConfig{{Name: "a", MaxCalls: 8}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		c.Offer(Request{Ticket: Ticket(i + 1), Episode: string(rune('a' + i)), Prompt: 100, Want: 10, Exact: true, Turns: 1}, 0)
	}
	launched, _, _ := c.Next(0)
	for _, l := range launched {
		c.Settle(l.Ticket, resetFault(), Usage{}, time.Second)
	}
	if !c.replicas[0].open {
		t.Fatal("its circuit is not open")
	}
	return c
}

// until takes the core's decisions until one is a launch or a reject, or the time is over.
func until(c *Core, now, end Time) (launched []Launch, rejected []Reject, at Time) {
	for now < end {
		l, r, wait := c.Next(now)
		if len(l)+len(r) > 0 {
			return l, r, now
		}
		if wait <= 0 {
			wait = time.Second
		}
		now += wait
	}
	return nil, nil, end
}

// A server that is back may take longer for its first answer than calls wait for a dead one: they wait for that answer.
func TestATrialThatRunsIsWaitedFor(t *testing.T) {
	c := lostCore(t)
	trial, _, now := until(c, time.Second, time.Hour)
	if len(trial) == 0 {
		t.Fatal("nothing tries it")
	}
	if _, rejected, at := until(c, now, now+9*time.Minute); len(rejected) > 0 {
		t.Fatalf("%d calls were given up at %v, while %d tried it", len(rejected), at, c.replicas[0].running)
	}
	now += 9 * time.Minute
	for _, l := range trial {
		c.Settle(l.Ticket, nil, Usage{Generated: 10, Cached: -1}, now)
	}
	if launched, rejected, _ := until(c, now, now+time.Minute); len(launched) == 0 || len(rejected) > 0 {
		t.Fatalf("after the answer %d were sent, %d given up", len(launched), len(rejected))
	}
}

// One that fails counts: the patience is over as before.
func TestTrialsThatFailDoNotCountAsLife(t *testing.T) {
	c := lostCore(t)
	for now := time.Second; now < 10*time.Minute; {
		launched, rejected, at := until(c, now, time.Hour)
		if len(rejected) > 0 {
			if at < 2*time.Minute || at > 2*time.Minute+10*time.Second {
				t.Fatalf("given up at %v", at)
			}
			return
		}
		for _, l := range launched {
			c.Settle(l.Ticket, resetFault(), Usage{}, at+100*time.Millisecond)
		}
		now = at + 100*time.Millisecond
	}
	t.Fatal("the calls were never given up")
}

// A server that asks to be left alone for longer than the patience is, whatever it still answers of what it had.
func TestAnswersFromBeforeDoNotEndARest(t *testing.T) {
	c, err := NewCore(Rules{}, []ReplicaConfig{{Name: "a", MaxCalls: 2}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		c.Offer(Request{Ticket: Ticket(i + 1), Episode: string(rune('a' + i)), Prompt: 100, Want: 10, Exact: true, Turns: 1}, 0)
	}
	launched, _, _ := c.Next(0)
	c.Settle(launched[0].Ticket, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassRateLimited, Retry: true, After: 5 * time.Minute}, Usage{}, time.Second)
	c.Settle(launched[1].Ticket, nil, Usage{Generated: 10, Cached: -1}, 2*time.Second)
	if again, _, at := until(c, 2*time.Second, time.Minute); len(again) > 0 {
		t.Fatalf("%d calls were sent at %v, 5 minutes of rest had been asked for", len(again), at)
	}
}

// hung counts nothing and never answers.
type hung struct{ asked *int }

func (h hung) Count(ctx context.Context, _ *episode.Call) (int, error) {
	*h.asked++
	<-ctx.Done()
	return 0, ctx.Err()
}

// An endpoint that hangs holds the counting of a prompt up once, and not for long.
func TestAHungEndpointIsNotAskedToCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		m := &scripted{}
		s, err := New(Config{Endpoints: []Endpoint{
			{Name: "hangs", Model: m, Counter: hung{&asked}, Capacity: episode.Capacity{ContextTokens: 100}},
			{Name: "counts", Model: m, Counter: byteCounter{}, Capacity: episode.Capacity{ContextTokens: 100}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		began := time.Now()
		for i := range 3 {
			c := &episode.Call{Messages: []episode.Message{{Role: episode.RoleUser, Content: episode.Ptr(strings.Repeat("x", 300))}}, Want: 50}
			if by := s.measure(t.Context(), c, episode.Budget{}); by != "counts" || time.Since(began) > countWait {
				t.Errorf("call %d: counted by %q after %v", i, by, time.Since(began))
			}
		}
		time.Sleep(muteFor)
		if s.measure(t.Context(), &episode.Call{Messages: []episode.Message{{Role: episode.RoleUser, Content: episode.Ptr(strings.Repeat("x", 300))}}, Want: 50}, episode.Budget{}); asked != 2 {
			t.Errorf("the one that hung was asked %d times", asked)
		}
	})
}

// A tail of calls that a living server fails again and again ends as failures of these calls; where one waits that was never sent, or the server never answered
// well, it is the endpoint that is lost.
func TestATailOfFailuresEnds(t *testing.T) {
	for name, c := range map[string]struct {
		good, bad, atOnce int
		more              bool
		want              episode.Class
	}{
		"a tail":                 {3, 8, 8, false, episode.ClassServerError},
		"it never answered well": {0, 8, 8, false, episode.ClassNoEndpoint},
		"more is to come":        {3, 8, 8, true, episode.ClassNoEndpoint},
		"some were never sent":   {3, 60, 8, false, episode.ClassNoEndpoint},
	} {
		t.Run(name, func(t *testing.T) {
			core, err := NewCore(Rules{MaxAttempts: 100}, []ReplicaConfig{{Name: "a", MaxCalls: c.atOnce}})
			if err != nil {
				t.Fatal(err)
			}
			offer := func(i int) {
				core.Offer(Request{Ticket: Ticket(i + 1), Episode: string(rune('a' + i)), Prompt: 100, Want: 10, Exact: true, Turns: 1}, 0)
			}
			for i := range c.good {
				offer(i)
			}
			launched, _, _ := core.Next(0)
			for _, l := range launched {
				core.Settle(l.Ticket, nil, Usage{Generated: 10, Cached: -1}, time.Second)
			}
			for i := range c.bad {
				offer(c.good + i)
			}
			if !c.more {
				core.NoMore()
			}
			for now := time.Second; now < 10*time.Minute; {
				launched, rejected, at := until(core, now, time.Hour)
				if len(rejected) > 0 {
					if f := rejected[0].Fault; f.Class != c.want || f.Class == episode.ClassServerError && (len(rejected) == 0 || f.Retry) {
						t.Fatalf("%d given up at %v for %s: %v", len(rejected), at, f.Class, f.Cause)
					}
					return
				}
				now = at + 100*time.Millisecond
				for _, l := range launched {
					core.Settle(l.Ticket, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassServerError, Retry: true, Cause: errors.New("HTTP 500")}, Usage{}, now)
				}
			}
			t.Fatal("nothing was given up")
		})
	}
}
