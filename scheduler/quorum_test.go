package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
	"tranche/episode"
)

// TestQuorumLaws: whatever opens and ends in whatever order, no group and no run is cut before its quorum is reached, all that still
// runs is cut when it is, none twice, and nothing is remembered at the end.
func TestQuorumLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups, size := rapid.IntRange(1, 6).Draw(t, "groups"), rapid.IntRange(1, 8).Draw(t, "size")
		q := newQuorum(Quorum{Samples: rapid.IntRange(0, size).Draw(t, "samples"), Episodes: int64(rapid.IntRange(0, groups*size).Draw(t, "episodes"))})
		running, cut := map[string]string{}, map[string]bool{}
		good, all := map[string]int{}, int64(0)
		enough := func(g string) bool {
			return q.Episodes > 0 && all >= q.Episodes || q.Samples > 0 && good[g] >= q.Samples
		}
		end := func(id string, ok bool) {
			g := running[id]
			delete(running, id)
			if ok {
				good[g]++
				all++
			}
			for _, c := range q.end(g, id, size, ok) {
				if cut[c] || running[c] == "" || !enough(running[c]) {
					t.Fatalf("%s is cut (before: %v, of a group with enough: %v)", c, cut[c], enough(running[c]))
				}
				cut[c] = true
			}
			for c, g := range running {
				if enough(g) && !cut[c] {
					t.Fatalf("%s runs on though its group has %d good ones, the run %d", c, good[g], all)
				}
			}
		}
		oldest := func() string {
			return slices.Sorted(mapsKeys(running))[rapid.IntRange(0, len(running)-1).Draw(t, "which")]
		}
		for i := range groups * size {
			g, id := fmt.Sprint("g", i/size), fmt.Sprint(i)
			running[id] = g
			if !q.begin(g, id) {
				if !enough(g) {
					t.Fatalf("%s may not begin, with %d good ones of its group", id, good[g])
				}
				cut[id] = true
			}
			for len(running) > 0 && rapid.Bool().Draw(t, "one ends") {
				id := oldest()
				end(id, !cut[id] && rapid.Bool().Draw(t, "well"))
			}
		}
		for len(running) > 0 {
			id := oldest()
			end(id, !cut[id])
		}
		if len(q.groups) != 0 {
			t.Fatalf("%d groups are remembered after their end", len(q.groups))
		}
	})
}

func mapsKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// long answers take as many seconds as the sample's number in its group times ten.
func long(*testing.T) *scripted {
	return &scripted{think: func(c *episode.Call, _, _ int) (*episode.Reply, time.Duration, error) {
		var task, sample int
		fmt.Sscanf(c.Episode, "t%d/%d", &task, &sample)
		return says("ok", 10*(sample+1)), time.Duration(sample+1) * 10 * time.Second, nil
	}}
}

func numbered(d episode.Draw, sample int) *episode.Episode {
	e := episode.New("run", d, sample, episode.Sampling{}, episode.Budget{TurnTokens: 1000, Turns: 4}, time.Now())
	e.ID = fmt.Sprintf("%s/%d", d.Task.ID, sample)
	return e
}

// Ten samples are begun, the eight shortest kept, the two longest cut at once; their connections are closed, their rows say so, and the
// bias is told.
func TestQuorumOfAGroupDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, began := long(t), time.Now()
		totals, sink, err := play(t, Config{Endpoints: fleet(m), Concurrency: 100}, RunConfig{Source: &list{n: 3, samples: 10}, Open: numbered, Quorum: Quorum{Samples: 8}})
		if err != nil || totals.Done != 24 || totals.Cut != 6 || totals.Drawn != 30 || len(sink.rows) != 30 {
			t.Fatalf("totals %+v, %d rows, %v", totals, len(sink.rows), err)
		}
		if took := time.Since(began); took != 80*time.Second || m.flying.Load() != 0 {
			t.Errorf("took %v with %d calls still running, want 80 s and none", took, m.flying.Load())
		}
		for id, e := range sink.rows {
			var task, sample int
			fmt.Sscanf(id, "t%d/%d", &task, &sample)
			if want := sample >= 8; (e.Status == episode.StatusCancelled) != want || (e.Stop == episode.StopQuorum) != want || e.Verdict.Total != nil {
				t.Errorf("%s ended as %s, %s", id, e.Status, e.Stop)
			}
		}
		b := totals.Bias
		if b.Kept != 24 || b.Cut != 6 || b.KeptTokens != 3*360 || b.CutTime != 6*80*time.Second || b.KeptTime != 3*360*time.Second || b.Deferred != 0 {
			t.Errorf("the bias is %+v", b)
		}
	})
}

// Deferred, the same samples are played again in a last round, to their end: every one has a good row.
func TestQuorumDefers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, began := long(t), time.Now()
		totals, sink, err := play(t, Config{Endpoints: fleet(m), Concurrency: 100}, RunConfig{Source: &list{n: 3, samples: 10}, Open: numbered, Quorum: Quorum{Samples: 8, Defer: true}})
		if err != nil || totals.Done != 30 || totals.Cut != 0 || len(sink.rows) != 30 || len(sink.twice) > 0 || totals.Bias.Deferred != 6 {
			t.Fatalf("totals %+v, %d rows, %v", totals, len(sink.rows), err)
		}
		if took := time.Since(began); took != 180*time.Second {
			t.Errorf("took %v, want 80 s and a last round of 100 s", took)
		}
		if kept, late := sink.when["t1/7"], sink.when["t1/9"]; kept.Sub(began) != 80*time.Second || late.Sub(began) != 180*time.Second {
			t.Errorf("a kept one came after %v, a deferred one after %v", kept.Sub(began), late.Sub(began))
		}
	})
}

// The run ends when nine in ten are done; what was never begun is written as cut too, so that nothing is lost silently.
func TestQuorumOfTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		totals, sink, err := play(t, Config{Endpoints: fleet(long(t)), Concurrency: 100}, RunConfig{Source: &list{n: 4, samples: 10}, Open: numbered, MaxOpen: 10, Quorum: Quorum{Episodes: 27}})
		if err != nil || totals.Done != 27 || totals.Cut != 13 || len(sink.rows) != 40 {
			t.Fatalf("totals %+v, %d rows, %v", totals, len(sink.rows), err)
		}
		if b := totals.Bias; b.Unbegun == 0 || b.Unbegun+b.Cut != 13 {
			t.Errorf("the bias is %+v after %v", b, time.Since(began))
		}
	})
}

// A failed episode is none of the quorum: another takes its place.
func TestFailuresDoNotCountForAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := long(t)
		think := m.think
		m.think = func(c *episode.Call, a, n int) (*episode.Reply, time.Duration, error) {
			r, d, err := think(c, a, n)
			if d == 10*time.Second {
				err = &episode.Fault{Stage: episode.StageModel, Class: episode.ClassBadRequest}
			}
			return r, d, err
		}
		totals, _, err := play(t, Config{Endpoints: fleet(m), Concurrency: 100}, RunConfig{Source: &list{n: 2, samples: 10}, Open: numbered, Quorum: Quorum{Samples: 8}})
		if err != nil || totals.Done != 16 || totals.Failed != 2 || totals.Cut != 2 {
			t.Fatalf("totals %+v, %v", totals, err)
		}
	})
}

// A run that is resumed counts what earlier invocations kept, and only that.
func TestQuorumCountsWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored := map[string]bool{"t1/0": true, "t1/1": true, "t1/2": true, "t1/3": false} // the last one failed
		done := func(id string) bool { _, ok := stored[id]; return ok }
		totals, sink, err := play(t, Config{Endpoints: fleet(long(t)), Concurrency: 100}, RunConfig{
			Source: &list{n: 1, samples: 10}, Open: numbered, Done: done, Good: func(id string) bool { return stored[id] }, Quorum: Quorum{Samples: 6},
		})
		if err != nil || totals.Skipped != 4 || totals.Done != 3 || totals.Cut != 3 || sink.rows["t1/6"].Status != episode.StatusCompleted {
			t.Fatalf("totals %+v, %v", totals, err)
		}
	})
}

// What an earlier process had begun and a resumed run cuts at once has its turns in its row; put off, it is the next attempt, whose turns are kept.
func TestQuorumCutsWhatWasBegunBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &turnMemory{}
		m := &scripted{think: func(c *episode.Call, _, _ int) (*episode.Reply, time.Duration, error) {
			if c.Turn < 3 {
				return says("on", 5, calls("look")), 10 * time.Second, nil
			}
			return says("done", 5), 10 * time.Second, nil
		}}
		budget := episode.Budget{TurnTokens: 64, Turns: 16}
		stop := make(chan struct{})
		time.AfterFunc(25*time.Second, func() { close(stop) })
		of := func() RunConfig {
			return RunConfig{Source: &list{n: 1, samples: 2}, Open: log.open(budget), Rollout: &Rollout{Actor: keeping{}, Turns: log}, Quorum: Quorum{Samples: 1}}
		}
		first := of()
		first.Stop, first.Quorum = stop, Quorum{}
		if _, _, err := play(t, Config{Endpoints: fleet(m)}, first); !errors.Is(err, ErrStopped) || len(log.begun) != 2 {
			t.Fatalf("%d episodes were begun, %v", len(log.begun), err)
		}
		d := episode.Draw{Task: &episode.Task{ID: "t1"}, Samples: 2}
		stored, cut := open(budget)(d, 0).ID, open(budget)(d, 1).ID
		log.begun[cut].Attempt = 1
		for _, defers := range []bool{false, true} {
			again := of()
			again.Done, again.Good, again.Quorum.Defer = func(id string) bool { return id == stored }, func(string) bool { return true }, defers
			resumed := 0
			trace := Trace{Resumed: func(*episode.Episode, error) { resumed++ }}
			totals, sink, err := play(t, Config{Endpoints: fleet(m), Trace: trace}, again)
			row := sink.rows[cut]
			if err != nil || row == nil {
				t.Fatalf("%+v, %v", totals, err)
			}
			if resumed != 0 { // one is cut, the other is begun anew
				t.Errorf("%d episodes are told to go on", resumed)
			}
			switch {
			case !defers && (row.Stop != episode.StopQuorum || len(row.Turns) != 2 || row.Attempt != 1 || !slices.Contains(row.Flags, episode.FlagResumed)):
				t.Errorf("the cut row: %s, %d turns, attempt %d, %v", row.Stop, len(row.Turns), row.Attempt, row.Flags)
			case defers && (row.Status != episode.StatusCompleted || len(row.Turns) != 4 || row.Attempt != 2 || log.begun[cut].Attempt != 2 || len(log.begun[cut].Steps) != 3):
				t.Errorf("the row of the last round: %s, %d turns, attempt %d; %d turns of attempt %d are kept", row.Status, len(row.Turns), row.Attempt, len(log.begun[cut].Steps), log.begun[cut].Attempt)
			}
		}
	})
}

// Stopped in the middle, what was put off is not lost: it is neither written nor counted as done, so a resumed run plays it.
func TestStopLeavesDeferredUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		time.AfterFunc(85*time.Second, func() { close(stop) })
		totals, sink, err := play(t, Config{Endpoints: fleet(long(t)), Concurrency: 100}, RunConfig{Source: &list{n: 3, samples: 10}, Open: numbered, Quorum: Quorum{Samples: 8, Defer: true}, Stop: stop})
		if err == nil || totals.Done != 24 || totals.Cancelled != 6 || totals.Cut != 0 || len(sink.rows) != 24 {
			t.Fatalf("totals %+v, %d rows, %v", totals, len(sink.rows), err)
		}
	})
}

// hanging answers every call at once but the first `hangs`, which never end.
func hanging(hangs int64) *scripted {
	var n atomic.Int64
	return &scripted{think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
		if n.Add(1) <= hangs {
			return says("late", 5), time.Hour, nil
		}
		return says("ok", 50), time.Second, nil
	}}
}

// watched counts what the trace tells of hedging.
type watched struct {
	mu                  sync.Mutex
	launched, won, lost int
	took                time.Duration
}

func (w *watched) trace() Trace {
	with := func(f func()) { w.mu.Lock(); defer w.mu.Unlock(); f() }
	return Trace{
		Launched: func(_ string, l Launch) {
			with(func() {
				if l.Hedge {
					w.launched++
				}
			})
		},
		Won:  func(string) { with(func() { w.won++ }) },
		Lost: func(_ string, d time.Duration) { with(func() { w.lost++; w.took += d }) },
	}
}

// Two calls hang on one of two endpoints: each gets a second attempt on the other, that one's answer stands, the hanging connection is
// closed, and every row says whether it was hedged. Without hedging the run takes the hour.
func TestHedgingSavesWhatHangs(t *testing.T) {
	for share, least := range map[float64]time.Duration{0: time.Hour, 0.2: 0} {
		synctest.Test(t, func(t *testing.T) {
			began, w := time.Now(), &watched{}
			bad := hanging(2)
			totals, sink, err := play(t, Config{Endpoints: fleet(bad, hanging(0)), Rules: Rules{Hedge: share}, Trace: w.trace(), Concurrency: 8}, RunConfig{Source: &list{n: 20, samples: 1}})
			if err != nil || totals.Done != 20 || len(sink.twice) > 0 {
				t.Fatalf("totals %+v, %v", totals, err)
			}
			took := time.Since(began)
			if share == 0 {
				if took < least || w.launched != 0 {
					t.Errorf("took %v with %d hedges", took, w.launched)
				}
				return
			}
			hedged := 0
			for _, e := range sink.rows {
				if e.Turns[0].Hedged {
					hedged++
				}
			}
			if took > time.Minute || w.launched != 2 || w.won != 2 || w.lost != 2 || hedged != 2 || w.took < 4*time.Second || bad.flying.Load() != 0 {
				t.Errorf("took %v; %+v; %d rows hedged; %d calls still hang", took, w, hedged, bad.flying.Load())
			}
		})
	}
}

// The budget bounds second attempts: of twenty calls at one in twenty only one.
func TestHedgingKeepsToItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{}
		_, _, err := play(t, Config{Endpoints: fleet(hanging(2), hanging(0)), Rules: Rules{Hedge: 0.05}, Trace: w.trace(), Concurrency: 8}, RunConfig{Source: &list{n: 20, samples: 1}})
		if err != nil || w.launched != 1 {
			t.Errorf("%d hedges, want 1 (%v)", w.launched, err)
		}
	})
}

// A stopped run ends both attempts of a hedged call, and the call is answered once, as cancelled.
func TestStopEndsBothAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := hanging(100), hanging(100)
		stop := make(chan struct{})
		time.AfterFunc(2*time.Minute, func() { close(stop) })
		w := &watched{}
		totals, sink, _ := play(t, Config{Endpoints: fleet(a, b), Rules: Rules{Hedge: 1}, Trace: w.trace(), Concurrency: 8}, RunConfig{Source: &list{n: 4, samples: 1}, Stop: stop, Drain: time.Second})
		if totals.Cancelled != 4 || len(sink.rows) != 0 || w.launched != 4 || a.flying.Load()+b.flying.Load() != 0 {
			t.Errorf("totals %+v, %d hedges, %d calls still run", totals, w.launched, a.flying.Load()+b.flying.Load())
		}
	})
}

// An episode that is cut while it waits for a tool or a place ends at once as well.
func TestCutWhileActing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		think := func(c *episode.Call, _, _ int) (*episode.Reply, time.Duration, error) {
			if c.Episode == "t1/1" {
				return says("", 5, calls("echo")), 9500 * time.Millisecond, nil // its tool runs when the other ends
			}
			return says("ok", 5), 10 * time.Second, nil
		}
		began := time.Now()
		totals, sink, err := play(t, Config{Endpoints: fleet(&scripted{think: think})}, RunConfig{
			Source: &list{n: 1, samples: 2}, Open: numbered, Quorum: Quorum{Samples: 1}, Rollout: &Rollout{Actor: echoActor{}},
		})
		if err != nil || totals.Done != 1 || totals.Cut != 1 || time.Since(began) != 10*time.Second || totals.Bias.CutTokens != 5 {
			t.Fatalf("totals %+v after %v, %v", totals, time.Since(began), err)
		}
		if e := sink.rows["t1/1"]; e.Stop != episode.StopQuorum || len(e.Turns) != 1 {
			t.Errorf("ended as %s with %d turns", e.Stop, len(e.Turns))
		}
	})
}
