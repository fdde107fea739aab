package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"tranche/scheduler"
	"tranche/storage"
)

// account says what kept more work from the endpoints of a run, over all its sessions; account.json holds it. A session that was
// killed is in it up to the last time it was written.
type account struct {
	Sessions    int               `json:"sessions"`
	WallSeconds float64           `json:"wall_s"` // of all sessions
	CPUSeconds  float64           `json:"cpu_s"`  // this program's, over all threads
	CPUShare    float64           `json:"cpu_share"`
	CoreSeconds float64           `json:"core_s"` // wall time times the processors there were; 0 = not known here
	Endpoints   []endpointAccount `json:"endpoints"`
	AsOf        time.Time         `json:"as_of"`          // when it was written; zero in files of older versions
	Ended       string            `json:"ended"`          // why the last session ended; "" while it plays, and for ever when it was killed
	Tail        *tailSums         `json:"tail,omitempty"` // what the opt-in rules for the tail did; absent where there were none
}

// endpointAccount is one endpoint's part. Shares, MeanCalls and Advice follow from the rest.
type endpointAccount struct {
	Endpoint    string             `json:"endpoint"`
	Seconds     map[string]float64 `json:"bound_s"`         // by what kept more work from it
	CallSeconds float64            `json:"call_s"`          // in flight, summed over its calls
	Shares      map[string]float64 `json:"share_of_time"`   // together 1
	MeanCalls   float64            `json:"calls_in_flight"` // on average
	Advice      []string           `json:"advice"`
}

// busyClient is the share of its processors from which on this program is taken to be what others waited for.
const busyClient = 0.85

// core is the endpoint's account as the scheduler keeps it.
func (e endpointAccount) core() scheduler.Account {
	a := scheduler.Account{Endpoint: e.Endpoint, Calls: seconded(e.CallSeconds)}
	for _, b := range scheduler.AllBounds() {
		a.Spent[b] = seconded(e.Seconds[b.String()])
	}
	return a
}

func seconded(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func endpointAccountOf(a scheduler.Account) endpointAccount {
	e := endpointAccount{
		Endpoint: a.Endpoint, Seconds: map[string]float64{}, Shares: map[string]float64{}, CallSeconds: a.Calls.Seconds(),
		MeanCalls: a.MeanCalls(), Advice: a.Advice(),
	}
	for _, b := range scheduler.AllBounds() {
		e.Seconds[b.String()], e.Shares[b.String()] = a.Spent[b].Seconds(), a.Share(b)
	}
	return e
}

// with adds a session to the account of those before it.
func (a account) with(session []scheduler.Account, wall time.Duration, cpu time.Duration, known bool) account {
	sum := account{Sessions: a.Sessions + 1, WallSeconds: a.WallSeconds + wall.Seconds(), CPUSeconds: a.CPUSeconds, CoreSeconds: a.CoreSeconds, Tail: a.Tail}
	if known {
		sum.CPUSeconds += cpu.Seconds()
		sum.CoreSeconds += wall.Seconds() * float64(runtime.GOMAXPROCS(0))
	}
	if sum.CoreSeconds > 0 {
		sum.CPUShare = sum.CPUSeconds / sum.CoreSeconds
	}
	added := map[string]scheduler.Account{}
	for _, s := range session {
		added[s.Endpoint] = s
	}
	for _, e := range a.Endpoints {
		old := e.core()
		if s, ok := added[e.Endpoint]; ok {
			old = old.Plus(s)
			delete(added, e.Endpoint)
		}
		sum.Endpoints = append(sum.Endpoints, endpointAccountOf(old))
	}
	for _, s := range session {
		if _, new := added[s.Endpoint]; new {
			sum.Endpoints = append(sum.Endpoints, endpointAccountOf(s))
		}
	}
	return sum
}

// clientAdvice is what to say when this program itself was short of processor time; "" when it was not.
func (a account) clientAdvice() string {
	if a.CPUShare < busyClient {
		return ""
	}
	return fmt.Sprintf("this program used %.0f %% of the processors it had: the endpoints may have waited for it; run it on a larger machine, or on another one than the servers", 100*a.CPUShare)
}

// books keeps a session's account and writes it now and then, so that a run that is killed can be explained too.
type books struct {
	writer  *storage.Writer
	earlier account // of the sessions before
	sched   *scheduler.Scheduler
	began   time.Time
	cpu     time.Duration // of this process before the session
	name    string        // of the one endpoint, where its address says nothing to anybody; else ""
}

// openBooks goes on with the account of the sessions before, or begins anew where that cannot be read: the error says so.
func openBooks(s *session, sched *scheduler.Scheduler) (*books, error) {
	b := &books{writer: s.writer, sched: sched, began: time.Now()}
	b.cpu, _ = cpuTime()
	if s.file.Embedded {
		b.name = embeddedText
	}
	_, err := storage.ReadAccount(s.dir, &b.earlier)
	if err != nil {
		b.earlier = account{}
	}
	return b, err
}

// sum is the account up to now.
func (b *books) sum() account {
	cpu, known := cpuTime()
	session := b.sched.Accounts()
	if b.name != "" && len(session) == 1 {
		session[0].Endpoint = b.name
	}
	sum := b.earlier.with(session, time.Since(b.began), cpu-b.cpu, known)
	sum.AsOf = time.Now().UTC().Truncate(time.Second)
	return sum
}

// Intervals at which an account is written: short at first, for short runs.
const (
	firstAccount = time.Second
	mostAccount  = 10 * time.Second
)

// keep writes the account until ctx ends. A write that fails is told at the end, when it is written for the last time.
func (b *books) keep(ctx context.Context) {
	for every := firstAccount; ; every = min(2*every, mostAccount) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
			_ = b.writer.WriteAccount(b.sum())
		}
	}
}
