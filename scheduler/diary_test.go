package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tranche/episode"
)

// turnMemory keeps turns as a journal does, over several runs.
type turnMemory struct {
	mu    sync.Mutex
	begun map[string]*episode.Begun
}

func (m *turnMemory) KeepTurn(e *episode.Episode, s *episode.Step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.begun == nil {
		m.begun = map[string]*episode.Begun{}
	}
	b := m.begun[e.ID]
	if len(e.Turns) == 1 && (b == nil || b.Attempt < e.Attempt) {
		b = &episode.Begun{Attempt: e.Attempt, Created: e.Created, Opening: e.Opening()}
		m.begun[e.ID] = b
	}
	if b == nil || b.Attempt != e.Attempt || len(s.Kept) > 0 {
		return
	}
	kept := *s
	b.Steps = append(slices.Clip(b.Steps[:len(e.Turns)-1]), kept)
}

// open makes episodes that go on where the last run left them.
func (m *turnMemory) open(b episode.Budget) func(episode.Draw, int) *episode.Episode {
	return func(d episode.Draw, sample int) *episode.Episode {
		e := open(b)(d, sample)
		m.mu.Lock()
		defer m.mu.Unlock()
		if known := m.begun[e.ID]; known != nil {
			c := *known
			e.Begun = &c
		}
		return e
	}
}

// keeping is an actor whose tool holds something of an episode, or nothing.
type keeping struct {
	echoActor
	names []string
}

func (k keeping) Keeps(*episode.Episode) []string { return k.names }

// wordy answers by what it was asked alone, in one to six turns of one to five seconds.
func wordy() *scripted {
	return &scripted{think: func(c *episode.Call, _, _ int) (*episode.Reply, time.Duration, error) {
		h := hash(fmt.Sprint(c.Episode, len(c.Messages), c.Messages[len(c.Messages)-1].Text()))
		r := says(fmt.Sprint("answer ", h%1000), int(h%50)+1)
		if c.Turn < 5 && h%4 > 0 {
			r = says(fmt.Sprint("thought ", h%1000), int(h%50)+1, calls("look"))
		}
		return r, time.Duration(1+h%5) * time.Second, nil
	}}
}

// A run is stopped at some moment, again and again, and gone on with: the rows are those of a run that was left alone, a stop costs at most the turn that
// was going on in each open episode, and times add up.
func TestStoppedEpisodesGoOn(t *testing.T) {
	for name, c := range map[string]struct {
		actor episode.Actor
		goOn  bool
	}{
		"tools that hold nothing":      {keeping{}, true},
		"tools that hold something":    {keeping{names: []string{"look"}}, false},
		"tools that do not tell":       {echoActor{}, false},
		"an actor that sees no action": {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := episode.Budget{TurnTokens: 64, Turns: 16}
				const tasks, open = 60, 16
				whole := wordy()
				_, want, err := play(t, Config{Endpoints: fleet(whole), Concurrency: 8}, RunConfig{Source: &list{n: tasks, samples: 1}, MaxOpen: open, Open: (&turnMemory{}).open(budget), Rollout: &Rollout{Actor: c.actor}})
				if err != nil {
					t.Fatal(err)
				}
				m, log, rows, stops := wordy(), &turnMemory{}, map[string]*episode.Episode{}, 0
				var wentOn atomic.Int64
				longest := 0
				for ; len(rows) < tasks; stops++ {
					stop := make(chan struct{})
					time.AfterFunc(time.Duration(3+stops%5)*time.Second, func() { close(stop) })
					trace := Trace{Resumed: func(e *episode.Episode, err error) {
						if err != nil {
							t.Errorf("%s: %v", e.ID, err)
						}
						if len(e.Turns) > 0 {
							wentOn.Add(1)
						}
					}}
					_, sink, err := play(t, Config{Endpoints: fleet(m), Concurrency: 8, Trace: trace}, RunConfig{Source: &list{n: tasks, samples: 1}, MaxOpen: open, Stop: stop,
						Open: log.open(budget), Done: func(id string) bool { return rows[id] != nil }, Rollout: &Rollout{Actor: c.actor, Turns: log}})
					if err != nil && !errors.Is(err, ErrStopped) {
						t.Fatal(err)
					}
					for id, e := range sink.rows {
						rows[id] = e
					}
					if !c.goOn && stops > 40 { // an episode of six turns never ends so
						break
					}
				}
				for id, e := range rows {
					w := want.rows[id]
					if fmt.Sprint(spoken(e)) != fmt.Sprint(spoken(w)) || len(e.Turns) != len(w.Turns) || e.Stop != w.Stop {
						t.Fatalf("%s differs\n got %v\nwant %v", id, spoken(e), spoken(w))
					}
					if e.Timing.Model != w.Timing.Model || e.Timing.Action != w.Timing.Action || e.Timing.Total < e.Timing.Model+e.Timing.Action {
						t.Errorf("%s took %+v, uninterrupted %+v", id, e.Timing, w.Timing)
					}
					longest = max(longest, len(e.Turns))
					if resumed := slices.Contains(e.Flags, episode.FlagResumed); resumed && (e.Attempt != 0 || !c.goOn) {
						t.Errorf("%s is marked as resumed, attempt %d", id, e.Attempt)
					}
				}
				if got, most := m.arrivals.Load(), whole.arrivals.Load()+int64(stops*open); c.goOn && got > most {
					t.Errorf("%d calls over %d stops, %d without", got, stops, whole.arrivals.Load())
				}
				if (wentOn.Load() > 0) != (c.goOn && c.actor != nil) || c.goOn && len(rows) != tasks {
					t.Errorf("%d episodes went on, %d rows", wentOn.Load(), len(rows))
				}
				t.Logf("%d calls over %d stops, %d without; %d times an episode went on, the longest has %d turns", m.arrivals.Load(), stops, whole.arrivals.Load(), wentOn.Load(), longest)
			})
		})
	}
}

func spoken(e *episode.Episode) (said []string) {
	for _, m := range e.Messages {
		said = append(said, m.Role+": "+m.Text())
	}
	return said
}

// The time an episode has is that of all processes together.
func TestResumedEpisodesHaveTheTimeThatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &turnMemory{}
		m := &scripted{think: func(c *episode.Call, _, _ int) (*episode.Reply, time.Duration, error) {
			return says("on", 5, calls("look")), 9 * time.Second, nil
		}}
		ctx, kill := context.WithTimeout(t.Context(), 35*time.Second)
		defer kill()
		s, err := New(Config{Endpoints: fleet(m)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r := &Rollout{Sched: s, Actor: keeping{}, Turns: log, EpisodeTimeout: time.Minute}
		first := log.open(episode.Budget{})(episode.Draw{Task: &episode.Task{ID: "t"}, Samples: 1}, 0)
		first.Created = time.Now()
		r.Run(ctx, first)
		if first.Fault == nil || len(first.Turns) != 3 {
			t.Fatalf("killed after %d turns: %v", len(first.Turns), first.Fault)
		}
		began := time.Now()
		again := log.open(episode.Budget{})(episode.Draw{Task: &episode.Task{ID: "t"}, Samples: 1}, 0)
		again.Created = began
		r.Run(t.Context(), again)
		if took := time.Since(began); took != 30*time.Second || again.Fault == nil || again.Fault.Class != episode.ClassDeadline || again.Timing.Total != time.Minute {
			t.Errorf("it went on for %v and ended with %v after %v in all", took, again.Fault, again.Timing.Total)
		}
		if !again.Created.Equal(first.Created) || len(again.Turns) != 6 {
			t.Errorf("opened at %v, want %v; %d turns", again.Created, first.Created, len(again.Turns))
		}
	})
}
