package scheduler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
	"tranche/episode"
)

// ward tests: a fleet whose engines die of one prompt, all their calls with them. A dead engine says so for a while, or breaks off without
// a word; then it refuses connections; then it is back.
type plague struct {
	core    *Core
	now     Time
	said    bool
	poison  map[Ticket]bool
	flights map[Ticket]flight
	deaths  []int  // of each engine
	diedAt  []Time // 0 = it lives
	lingers Time   // how long a dead one says so
	away    Time   // how long it is dead
	ended   map[Ticket]episode.Class
	doomed  int          // engines that had the poison in flight when the first died
	gone    map[int]bool // engines that refused a connection since they died
	unseen  int          // deaths of an engine that had come back before anybody saw it gone: they pass for one with the last
}

func (p *plague) send(l Launch) {
	d := time.Duration(20+int(l.Ticket)*37%400) * time.Millisecond
	at, dead := p.diedAt[l.Replica], p.diedAt[l.Replica] > 0
	switch {
	case dead && p.now >= at+p.away:
		p.diedAt[l.Replica] = 0
	case dead:
		d = time.Millisecond
	}
	if p.poison[l.Ticket] {
		d = min(d, 30*time.Millisecond)
	}
	p.flights[l.Ticket] = flight{l, p.now + d}
}

// fault is how a flight ends; nil = well.
func (p *plague) fault(l Launch) *episode.Fault {
	at := p.diedAt[l.Replica]
	switch {
	case at == 0 && p.poison[l.Ticket]:
		if p.deaths[l.Replica] > 0 && !p.gone[l.Replica] {
			p.unseen++
		}
		p.diedAt[l.Replica] = p.now
		p.gone[l.Replica] = false
		p.deaths[l.Replica]++
		return p.last()
	case at == 0:
		return nil
	case p.said && p.now < at+p.lingers:
		return p.last()
	}
	p.gone[l.Replica] = true
	return &episode.Fault{Class: episode.ClassConnect, Retry: true, Cause: errors.New("refused")}
}

// last is what a call in flight is told when its engine dies.
func (p *plague) last() *episode.Fault {
	if p.said {
		return &episode.Fault{Class: episode.ClassServerError, Retry: true, Died: true, Cause: errors.New("the engine is dead")}
	}
	return &episode.Fault{Class: episode.ClassReset, Retry: true, Cause: errors.New("reset")}
}

func (p *plague) settle(k Ticket, f *episode.Fault) {
	delete(p.flights, k)
	if d := p.core.Settle(k, f, Usage{5, -1}, p.now); d == Finished {
		p.ended[k] = ""
		if f != nil {
			p.ended[k] = f.Class
		}
		p.core.Leave(fmt.Sprint(k))
	}
}

// step brings the next thing about; false = nothing will happen any more.
func (p *plague) step() bool {
	launches, rejects, wait := p.core.Next(p.now)
	for _, r := range rejects {
		p.ended[r.Ticket] = r.Fault.Class
		p.core.Leave(fmt.Sprint(r.Ticket))
	}
	for _, l := range launches {
		p.send(l)
	}
	next := Ticket(0)
	for k, f := range p.flights {
		if next == 0 || f.until < p.flights[next].until || f.until == p.flights[next].until && k < next {
			next = k
		}
	}
	if next == 0 {
		p.now += max(wait, 0)
		return wait >= 0
	}
	if f := p.flights[next]; wait >= 0 && p.now+wait < f.until {
		p.now += wait
		return true
	}
	p.land(next)
	return true
}

func (p *plague) land(k Ticket) {
	f := p.flights[k]
	if p.doomed == 0 && p.poison[k] {
		at := map[int]bool{}
		for other, o := range p.flights {
			if p.poison[other] {
				at[o.launch.Replica] = true
			}
		}
		p.doomed = len(at)
	}
	p.now = max(p.now, f.until)
	before := p.deaths[f.launch.Replica]
	fault := p.fault(f.launch)
	p.settle(k, fault)
	if p.deaths[f.launch.Replica] == before {
		return
	}
	for other, o := range p.flights { // it takes all with it
		if o.launch.Replica == f.launch.Replica {
			p.settle(other, p.last())
		}
	}
}

// TestPoisonIsNotCarriedOn: one prompt, of one call or of a group's, kills whatever engine it reaches. Where the engine says that it is dead
// no second one dies, and every other call is answered; where it does not, at most one more does.
func TestPoisonIsNotCarriedOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet, calls := rapid.IntRange(1, 4).Draw(t, "engines"), rapid.IntRange(1, 40).Draw(t, "calls")
		said := rapid.Bool().Draw(t, "said")
		var rs []ReplicaConfig
		for i := range fleet {
			rs = append(rs, ReplicaConfig{Name: fmt.Sprint("r", i), MaxCalls: rapid.IntRange(2, 12).Draw(t, "at once")})
		}
		core, err := NewCore(Rules{Seed: rapid.Uint64().Draw(t, "seed"), MaxAttempts: 5, FailStreak: 1}, rs) // 1: a silent death is seen at once
		if err != nil {
			t.Fatal(err)
		}
		p := &plague{core: core, said: said, poison: map[Ticket]bool{}, flights: map[Ticket]flight{}, gone: map[int]bool{}, deaths: make([]int, fleet), diedAt: make([]Time, fleet),
			lingers: time.Duration(rapid.IntRange(0, 3000).Draw(t, "lingers")) * time.Millisecond, away: time.Duration(rapid.IntRange(4, 60).Draw(t, "away")) * time.Second, ended: map[Ticket]episode.Class{}}
		first := Ticket(rapid.IntRange(1, calls).Draw(t, "poison"))
		size := Ticket(rapid.IntRange(1, 8).Draw(t, "group"))
		turns := rapid.SampledFrom([]int{1, 0, 3}).Draw(t, "turns")
		for k := Ticket(1); k <= Ticket(calls); k++ {
			p.poison[k] = (k-1)/size == (first-1)/size
			core.Offer(Request{Ticket: k, Episode: fmt.Sprint(k), Group: fmt.Sprint("g", (k-1)/size), GroupSize: int(size), Prompt: 50, Exact: true, Want: 20, Turns: turns}, 0)
		}
		for steps := 0; p.step(); steps++ {
			if steps > 20000 {
				t.Fatalf("%d of %d calls have ended", len(p.ended), calls)
			}
		}
		hit, most := 0, 0
		for _, n := range p.deaths {
			hit, most = hit+min(n, 1), most+n
		}
		limit := p.doomed
		if !said {
			limit++
		}
		if hit > limit || most > p.doomed+2+p.unseen {
			t.Fatalf("the engines died %v times, %d of them unseen", p.deaths, p.unseen)
		}
		for k := Ticket(1); k <= Ticket(calls); k++ {
			class, ended := p.ended[k]
			if !ended || !p.poison[k] && class != "" || p.poison[k] && class == "" {
				t.Fatalf("call %d (poison %v) ended %v, as %q", k, p.poison[k], ended, class)
			}
		}
		for _, r := range core.replicas {
			if r.ward.suspects != 0 || r.ward.primes != 0 {
				t.Fatalf("%s still counts %+v", r.Name, r.ward)
			}
		}
	})
}
