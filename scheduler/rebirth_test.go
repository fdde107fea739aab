package scheduler

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"tranche/episode"
)

func TestAnEngineBeganAnew(t *testing.T) {
	n, at := episode.Ptr[int64], episode.Ptr[float64]
	for name, c := range map[string]struct {
		was, is episode.Load
		anew    bool
	}{
		"nothing is told":                   {episode.Load{}, episode.Load{}, false},
		"the first reading":                 {episode.Load{}, episode.Load{GeneratedTokens: n(3), Born: at(5)}, false},
		"counters go on":                    {episode.Load{GeneratedTokens: n(3)}, episode.Load{GeneratedTokens: n(9)}, false},
		"counters stand still":              {episode.Load{GeneratedTokens: n(3), Steps: n(1)}, episode.Load{GeneratedTokens: n(3), Steps: n(1)}, false},
		"one went back":                     {episode.Load{GeneratedTokens: n(3), Preemptions: n(2)}, episode.Load{GeneratedTokens: n(9), Preemptions: n(0)}, true},
		"one is told no more":               {episode.Load{GeneratedTokens: n(3)}, episode.Load{}, false},
		"a later beginning":                 {episode.Load{Born: at(1700000000.25)}, episode.Load{Born: at(1700000100.5)}, true},
		"the same, by another computation":  {episode.Load{Born: at(1700000000.25)}, episode.Load{Born: at(1700000000.26)}, false},
		"an earlier one":                    {episode.Load{Born: at(1700000100)}, episode.Load{Born: at(1700000000)}, false},
		"the same, and a counter was reset": {episode.Load{Born: at(7), GeneratedTokens: n(3)}, episode.Load{Born: at(7), GeneratedTokens: n(0)}, false},
		"a later one, far on already":       {episode.Load{Born: at(7), GeneratedTokens: n(3)}, episode.Load{Born: at(9), GeneratedTokens: n(50)}, true},
	} {
		if got := beganAnew(c.was, c.is); got != c.anew {
			t.Errorf("%s: %v, want %v", name, got, c.anew)
		}
	}
}

// reborn is a fleet whose engines are back at once when they die: nothing but a broken connection, and the next reading of the gauges, tells of it.
type reborn struct {
	t      *testing.T
	core   *Core
	now    Time
	lives  []float64 // of each engine: how often it began
	ended  map[Ticket]episode.Class
	flight map[Ticket]int
	read   bool // the gauges are read
}

func (b *reborn) look() {
	for i := range b.lives {
		if b.read {
			b.core.Observe(i, episode.Load{Born: &b.lives[i]}, b.now)
		}
	}
	b.lives = append([]float64(nil), b.lives...) // a reading keeps its own
}

func (b *reborn) step() {
	launches, rejects, _ := b.core.Next(b.now)
	for _, r := range rejects {
		b.ended[r.Ticket] = r.Fault.Class
	}
	for _, l := range launches {
		b.flight[l.Ticket] = l.Replica
	}
}

func (b *reborn) settle(k Ticket, f *episode.Fault) {
	delete(b.flight, k)
	if b.core.Settle(k, f, Usage{5, -1}, b.now) == Finished {
		b.ended[k] = ""
		if f != nil {
			b.ended[k] = f.Class
		}
	}
}

// play offers calls of which the first kills whatever engine it is at, alone, until all have ended; how many engines died.
func (b *reborn) play(calls int) (died int) {
	for k := Ticket(1); k <= Ticket(calls); k++ {
		b.core.Offer(Request{Ticket: k, Episode: fmt.Sprint(k), Group: fmt.Sprint(k), Prompt: 50, Exact: true, Want: 20, Turns: 2}, b.now)
	}
	for range 4000 {
		b.step()
		for k, at := range b.flight {
			if k != 1 {
				b.settle(k, nil)
				continue
			}
			b.lives[at]++
			b.settle(k, &episode.Fault{Class: episode.ClassReset, Retry: true, Cause: errors.New("reset")})
			b.core.Offer(Request{Ticket: Ticket(100 + int(b.lives[at])*10 + at), Episode: fmt.Sprint("more", at, b.lives[at]), Group: fmt.Sprint("more", at, b.lives[at]), Prompt: 50, Exact: true, Want: 20, Turns: 2}, b.now)
		}
		b.step() // what came meanwhile is answered, also by the engine that is back: it lives
		for k := range b.flight {
			if k != 1 {
				b.settle(k, nil)
			}
		}
		b.now += 100 * time.Millisecond
		b.look()
		if _, over := b.ended[1]; over {
			break
		}
	}
	for _, n := range b.lives {
		if n > 1 {
			died++
		}
	}
	return died
}

func newReborn(t *testing.T, engines int, read bool) *reborn {
	var rs []ReplicaConfig
	b := &reborn{t: t, ended: map[Ticket]episode.Class{}, flight: map[Ticket]int{}, read: read}
	for i := range engines {
		rs = append(rs, ReplicaConfig{Name: fmt.Sprint("r", i), MaxCalls: 4})
		b.lives = append(b.lives, 1)
	}
	core, err := NewCore(Rules{MaxAttempts: 5, Seed: 3}, rs)
	if err != nil {
		t.Fatal(err)
	}
	b.core = core
	b.look()
	return b
}

// A poison whose engines are back before anybody finds them gone is found out by the gauges: it is carried to one engine more, and no further. Where
// nothing is read it is carried on for as many attempts as it has.
func TestDeathsThatNobodySawAreCounted(t *testing.T) {
	b := newReborn(t, 6, true)
	if died := b.play(8); died > 2 || b.ended[1] != episode.ClassPoison {
		t.Errorf("%d engines died, and the call that killed them ended as %q", died, b.ended[1])
	}
	for k := Ticket(2); k <= 8; k++ {
		if class, ended := b.ended[k]; !ended || class != "" {
			t.Errorf("call %d: ended %v as %q", k, ended, class)
		}
	}
	for _, r := range b.core.replicas {
		if r.ward.suspects != 0 || r.ward.primes != 0 || len(r.ward.torn) != 0 {
			t.Errorf("%s still counts %+v", r.Name, r.ward)
		}
	}
	if blind := newReborn(t, 6, false); blind.play(8) < 3 {
		t.Error("without readings as few engines die: the test shows nothing")
	}
}

// What broke off before the reading that shows the engine alive is none of its death, and what was answered since is no suspect.
func TestOnlyWhatBrokeOffSinceTheLastReadingIsSuspect(t *testing.T) {
	core, err := NewCore(Rules{}, []ReplicaConfig{{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	born := func(n float64) episode.Load { return episode.Load{Born: &n} }
	reset := &episode.Fault{Class: episode.ClassReset, Retry: true, Cause: errors.New("reset")}
	core.Observe(0, born(1), 0)
	for k := Ticket(1); k <= 3; k++ {
		core.Offer(Request{Ticket: k, Episode: fmt.Sprint(k), Group: fmt.Sprint(k), Prompt: 50, Exact: true, Want: 20, Turns: 2}, 0)
	}
	core.Next(0)
	core.Settle(1, reset, Usage{}, time.Second)
	core.Observe(0, born(1), 2*time.Second) // it lived then
	core.Settle(2, reset, Usage{}, 3*time.Second)
	if !core.Observe(0, born(50), 4*time.Second) {
		t.Fatal("the new process is not seen")
	}
	for k, want := range map[Ticket]bool{1: false, 2: true, 3: false} {
		if got := core.suspected(core.calls[k]) != nil; got != want {
			t.Errorf("call %d is a suspect: %v, want %v", k, got, want)
		}
	}
	if w := core.calls[2]; w.counted != 0 {
		t.Errorf("the death used up %d attempts", w.counted)
	}
}

// A death that was seen is not counted again when the gauges show it too, though a call has been answered in between: not against what broke off
// after it was seen, nor against what did after the answer.
func TestADeathIsCountedOnce(t *testing.T) {
	core, err := NewCore(Rules{FailStreak: 2, MaxAttempts: 5}, []ReplicaConfig{{Name: "a", MaxCalls: 4}})
	if err != nil {
		t.Fatal(err)
	}
	born := func(n float64) episode.Load { return episode.Load{Born: &n} }
	reset := func() *episode.Fault {
		return &episode.Fault{Class: episode.ClassReset, Retry: true, Cause: errors.New("reset")}
	}
	core.Observe(0, born(1), 0)
	for k := Ticket(1); k <= 4; k++ {
		core.Offer(Request{Ticket: k, Episode: fmt.Sprint(k), Group: fmt.Sprint(k), Prompt: 50, Exact: true, Want: 20, Turns: 2}, 0)
	}
	core.Next(0)
	for k := Ticket(1); k <= 3; k++ {
		core.Settle(k, reset(), Usage{}, time.Second)
	}
	now := 2 * time.Minute
	launches, _, _ := core.Next(now)
	if len(launches) != 1 {
		t.Fatalf("%+v, want one trial", launches)
	}
	trial := launches[0].Ticket
	core.Settle(trial, nil, Usage{5, -1}, now+time.Second)
	core.Settle(4, reset(), Usage{}, now+2*time.Second) // it was in flight at the death
	if !core.Observe(0, born(50), now+3*time.Second) {
		t.Fatal("the new process is not seen")
	}
	for k := Ticket(1); k <= 4; k++ {
		if w := core.calls[k]; k != trial && (core.suspected(w) == nil || core.suspected(w).deaths != 1) {
			t.Errorf("call %d: %+v, want one death", k, core.suspected(w))
		}
	}
}

// A suspect goes nowhere where its answer would be cut shorter than another endpoint would: as any call.
func TestASuspectKeepsItsRoom(t *testing.T) {
	core, err := NewCore(Rules{}, []ReplicaConfig{
		{Name: "long", Capacity: episode.Capacity{ContextTokens: 8192}}, {Name: "short", Capacity: episode.Capacity{ContextTokens: 1024}}, {Name: "other", Capacity: episode.Capacity{ContextTokens: 8192}},
	})
	if err != nil {
		t.Fatal(err)
	}
	core.Offer(Request{Ticket: 1, Episode: "x", Group: "x", Prompt: 500, Exact: true, Want: 2000, Turns: 2}, 0)
	launches, _, _ := core.Next(0)
	if len(launches) != 1 || launches[0].Replica == 1 {
		t.Fatalf("%+v", launches)
	}
	w := core.calls[1]
	w.avoid = launches[0].Replica
	s := &suspicion{deaths: 1, last: &death{replica: launches[0].Replica}}
	if set := core.asylum(w, s); fmt.Sprint(set) != fmt.Sprint([]int{2 - launches[0].Replica}) {
		t.Errorf("it may go to %v, want the other long one alone", set)
	}
	s.last.said, s.last.replica = true, 1
	if set := core.asylum(w, s); len(set) != 0 {
		t.Errorf("it may go to %v, where there is less room for its answer", set)
	}
}

// What the server could not read as a tool call is the model's own: sampled again at once, counted as an attempt, and the endpoint is not blamed.
func TestAFailedToolCallIsSampledAgain(t *testing.T) {
	core, err := NewCore(Rules{MaxAttempts: 3, FailStreak: 1}, []ReplicaConfig{{Name: "a"}, {Name: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	core.Offer(Request{Ticket: 1, Episode: "x", Group: "x", Prompt: 50, Exact: true, Want: 20, Turns: 2}, 0)
	for attempt := 1; attempt <= 3; attempt++ {
		launches, _, _ := core.Next(0)
		if len(launches) != 1 || launches[0].Attempt != attempt {
			t.Fatalf("attempt %d: %+v", attempt, launches)
		}
		want := map[bool]Decision{true: Retrying, false: Finished}[attempt < 3]
		if got := core.Settle(1, &episode.Fault{Class: episode.ClassToolUse, Retry: true, Cause: errors.New("no tool call")}, Usage{}, 0); got != want {
			t.Errorf("attempt %d: decision %v, want %v", attempt, got, want)
		}
	}
	for _, r := range core.replicas {
		if r.open || r.streak != 0 {
			t.Errorf("%s is blamed: open %v, streak %d", r.Name, r.open, r.streak)
		}
	}
}

// restarting is a gauge whose engine begins anew after the third reading.
type restarting struct{ read int }

func (g *restarting) Load(context.Context) (episode.Load, error) {
	g.read++
	return episode.Load{Born: episode.Ptr(float64(100 * (1 + g.read/4)))}, nil
}

// That an engine began anew is told once, whoever noticed it away.
func TestANewBeginningIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
			return says("ok", 5), time.Second, nil
		}}
		endpoints, told := fleet(m), 0
		endpoints[0].Gauge = &restarting{}
		if _, _, err := play(t, Config{Endpoints: endpoints, Concurrency: 1, Trace: Trace{Began: func(string) { told++ }}}, RunConfig{Source: &list{n: 33, samples: 1}}); err != nil {
			t.Fatal(err)
		}
		if told != 1 {
			t.Errorf("told %d times", told)
		}
	})
}
