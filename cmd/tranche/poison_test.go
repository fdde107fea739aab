//go:build unix

package main

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tranche/episode"
	"tranche/inference/enginesim"
	"tranche/scheduler"
)

// keeper runs an engine on one port, and where it is to, starts it again after it was killed, as a supervisor does.
type keeper struct {
	t      *testing.T
	cfg    enginesim.Config
	addr   string
	after  time.Duration // 0 = it stays dead
	deaths atomic.Int64
	server *enginesim.Server
}

func keep(t *testing.T, cfg enginesim.Config, after time.Duration) *keeper {
	k := &keeper{t: t, cfg: cfg, after: after, server: serving(t, cfg, "127.0.0.1:0")}
	k.addr = k.server.Addr()
	over := make(chan struct{})
	var w sync.WaitGroup
	w.Go(func() { k.watch(over) })
	t.Cleanup(func() { close(over); w.Wait() })
	return k
}

func (k *keeper) watch(over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-k.server.Died():
		}
		k.deaths.Add(1)
		select {
		case <-over:
			return
		case <-time.After(max(k.after, time.Millisecond)):
		}
		if k.after == 0 {
			return
		}
		engine, err := enginesim.New(k.cfg)
		if err == nil {
			k.server, err = engine.Listen(k.addr)
		}
		if err != nil {
			k.t.Errorf("the engine does not start again: %v", err)
			return
		}
		server := k.server
		k.t.Cleanup(func() { closeNow(server) })
	}
}

const poisoned = 20 // the prompt that kills

// plagued is a run of 40 prompts, 16 at once, one of which kills whatever engine it reaches.
func plagued(t *testing.T, engines []*keeper, patience time.Duration) rig {
	g := rig{dir: newRunDir(t), limit: time.Minute, open: 16, rules: scheduler.Rules{Patience: patience, BackoffBase: 100 * time.Millisecond, Cooldown: 60 * time.Millisecond, CooldownMax: 200 * time.Millisecond, MaxAttempts: 3}}
	for i := range 40 {
		text := fmt.Sprintf("What is %d + 4?", i)
		if i == poisoned {
			text = "poison! " + text
		}
		g.prompts = append(g.prompts, text)
	}
	for _, k := range engines {
		g.urls = append(g.urls, "http://"+k.addr)
	}
	return g
}

func poisonable(fault string) enginesim.Config {
	return enginesim.Config{Speed: 10, LengthMean: 40, Faults: enginesim.Faults{Linger: 80 * time.Millisecond, Rules: []enginesim.FaultRule{{Fault: fault, Rate: 1, Match: "poison!"}}}}
}

// TestPoisonKillsOneEngine: an engine that dies under a prompt is seen as dead, its work goes elsewhere or waits for it, the prompt is not carried to
// the next engine, and nothing is lost.
func TestPoisonKillsOneEngine(t *testing.T) {
	for _, c := range []struct {
		name    string
		fault   string
		engines int
		after   time.Duration
		deaths  int64 // of one engine
		hit     int   // engines that died
	}{
		{"it says so and comes back", enginesim.FaultKill, 2, 300 * time.Millisecond, 3, 1},
		{"it says so and stays away", enginesim.FaultKill, 2, 0, 1, 1},
		{"the only one comes back", enginesim.FaultKill, 1, 300 * time.Millisecond, 3, 1},
		{"it dies without a word and comes back", enginesim.FaultCrash, 5, 300 * time.Millisecond, 3, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var engines []*keeper
			for range c.engines {
				engines = append(engines, keep(t, poisonable(c.fault), c.after))
			}
			g := plagued(t, engines, 2*time.Second)
			rows, totals, err := g.play(t)
			if err != nil || totals.Done+totals.Failed != 40 {
				t.Fatalf("%+v, %v", totals, err)
			}
			hit := 0
			for i, k := range engines {
				n := k.deaths.Load()
				hit += int(min(n, 1))
				if n > c.deaths {
					t.Errorf("engine %d died %d times, want %d at most", i, n, c.deaths)
				}
			}
			if hit > c.hit || hit == 0 {
				t.Errorf("%d engines died, want 1 to %d", hit, c.hit)
			}
			want, also := episode.ClassPoison, episode.ClassPoison
			if c.fault == enginesim.FaultCrash {
				also = episode.ClassReset // what breaks before enough has broken to be a death uses up attempts
			}
			if c.after == 0 {
				want = episode.ClassSuspect
			}
			failed := 0
			for i, row := range rows {
				class := episode.Class(or(row.FaultClass, ""))
				if class != "" {
					failed++
				}
				switch {
				case i == poisoned && class != want && class != also, i != poisoned && class != "" && class != want, i != poisoned && c.after > 0 && class != "":
					t.Errorf("row %d: %q: %s", i, class, or(row.FaultDetail, ""))
				}
			}
			if c.after == 0 && failed > g.open {
				t.Errorf("%d rows were given up, and at most %d were in flight", failed, g.open)
			}
		})
	}
}

// TestPoisonOfTheOnlyEngineIsKeptForResume: with no engine left the run ends; what it had not done is done when it goes on.
func TestPoisonOfTheOnlyEngineIsKeptForResume(t *testing.T) {
	engine := keep(t, poisonable(enginesim.FaultKill), 0)
	g := plagued(t, []*keeper{engine}, 700*time.Millisecond)
	_, totals, err := g.play(t)
	if !errors.Is(err, scheduler.ErrEndpointsDead) || totals.Failed != 0 || totals.Done == 0 || totals.Done+totals.Cancelled > 40 {
		t.Fatalf("%+v, %v", totals, err)
	}
	healed := poisonable(enginesim.FaultKill)
	healed.Faults.Rules = nil
	serving(t, healed, engine.addr)
	rows, totals, err := g.play(t)
	if err != nil || totals.Skipped == 0 || totals.Done+totals.Skipped != 40 {
		t.Fatalf("%+v, %v", totals, err)
	}
	for i, row := range rows {
		if row == nil || or(row.Status, "") != string(episode.StatusCompleted) {
			t.Errorf("row %d: %+v", i, row)
		}
	}
}
