package main

import (
	"math"
	"testing"
	"time"

	"tranche/scheduler"
)

func spent(name string, kv, tail time.Duration) scheduler.Account {
	a := scheduler.Account{Endpoint: name, Calls: 3 * (kv + tail)}
	a.Spent[scheduler.BoundKV], a.Spent[scheduler.BoundTail] = kv, tail
	return a
}

// An account goes through account.json between two sessions: endpoints are added by name, new ones come last, lost ones stay.
func TestAccountAddsSessions(t *testing.T) {
	var none account
	first := none.with([]scheduler.Account{spent("a", 6*time.Second, 2*time.Second), spent("gone", time.Second, 0)}, 8*time.Second, 4*time.Second, true)
	sum := first.with([]scheduler.Account{spent("new", 0, time.Second), spent("a", 0, 2*time.Second)}, 2*time.Second, time.Second, true)
	if sum.Sessions != 2 || sum.WallSeconds != 10 || sum.CPUSeconds != 5 {
		t.Errorf("%d sessions, %g s, %g s of processor; want 2, 10, 5", sum.Sessions, sum.WallSeconds, sum.CPUSeconds)
	}
	var names []string
	for _, e := range sum.Endpoints {
		names = append(names, e.Endpoint)
	}
	if joined(names) != "a, gone, new" {
		t.Errorf("endpoints %v", names)
	}
	a := sum.Endpoints[0]
	if math.Abs(a.Shares["kv"]-0.6) > 1e-9 || math.Abs(a.Shares["tail"]-0.4) > 1e-9 || math.Abs(a.MeanCalls-3) > 1e-9 {
		t.Errorf("%+v; want 0.6 kv, 0.4 tail, 3 calls", a)
	}
	if len(a.Advice) != 2 {
		t.Errorf("advice %q; want one on memory and one on the tail", a.Advice)
	}
}

func TestAccountTellsOfABusyClient(t *testing.T) {
	if a := (account{CPUShare: 0.95}); a.clientAdvice() == "" {
		t.Error("a client that used 95 % of its processors says nothing")
	}
	if a := (account{CPUShare: 0.2}); a.clientAdvice() != "" {
		t.Error("a client that used 20 % of its processors complains")
	}
}
