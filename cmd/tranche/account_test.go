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

func TestAccountSaysAsOfWhen(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	cases := []struct {
		name    string
		account account
		running bool
		state   string
		when    string
	}{
		{"running", account{AsOf: at}, true, "running", "as of 2026-01-02 03:04:05: still running, process 7"},
		{"gone on with, nothing written yet", account{AsOf: at, Ended: "stopped by ctrl-c"}, true, "running", "as of 2026-01-02 03:04:05: still running, process 7"},
		{"ended", account{AsOf: at, Ended: "stopped by ctrl-c"}, false, "ended", "as of 2026-01-02 03:04:05: stopped by ctrl-c"},
		{"killed", account{AsOf: at}, false, "stopped without an end", "as of 2026-01-02 03:04:05: stopped without an end (killed, or the machine went down); what it did after that is not in it"},
		{"of an older version", account{}, false, "ended", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			state := c.account.state(c.running)
			if when := c.account.when(state, "7"); state != c.state || when != c.when {
				t.Errorf("%q, %q; want %q, %q", state, when, c.state, c.when)
			}
		})
	}
}

// What the rules for the tail did goes through account.json too; a session without them, or one that was killed, adds nothing.
func TestTailSumsAddSessions(t *testing.T) {
	one := &tailSums{
		Sessions: 1, Kept: 2, Cut: 3, Unbegun: 4, Deferred: 5, KeptTokens: 60, CutTokens: 70, CutUncounted: 1, KeptSeconds: 8, CutSeconds: 9,
		Hedges: &hedgeReport{1, 2, 3, 4, 5},
	}
	if (*tailSums)(nil).plus(nil) != nil || one.plus(nil) != one || (*tailSums)(nil).plus(one) != one {
		t.Error("nothing is not nothing")
	}
	sum := one.plus(one)
	if want := (tailSums{
		Sessions: 2, Kept: 4, Cut: 6, Unbegun: 8, Deferred: 10, KeptTokens: 120, CutTokens: 140, CutUncounted: 2, KeptSeconds: 16, CutSeconds: 18,
		Hedges: &hedgeReport{2, 4, 6, 8, 10},
	}); *sum.Hedges != *want.Hedges {
		t.Errorf("hedges %+v, want %+v", *sum.Hedges, *want.Hedges)
	} else if want.Hedges = sum.Hedges; *sum != want {
		t.Errorf("%+v, want %+v", *sum, want)
	}
	q := sum.report().Quorum
	if *q.KeptTokens != 30 || *q.CutTokens != 35 || *q.KeptSeconds != 4 || *q.CutSeconds != 3 || q.CutShare != 0.6 {
		t.Errorf("%+v; want means of 30 and 35 tokens, 4 and 3 seconds, 0.6 cut", *q)
	}
	if (*tailSums)(nil).report() != nil || (&tailSums{Sessions: 1}).report() != nil {
		t.Error("rules that did nothing are reported")
	}
	r := report{Account: &account{Sessions: 3, Tail: sum}}
	if _, sessions := r.tail(); sessions != " (in 2 of 3 sessions: the others were killed or had no such rule)" {
		t.Errorf("a report of two of three sessions says %q", sessions)
	}
}
