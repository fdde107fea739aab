package scheduler

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tranche/episode"
)

// pupil draws the first half of a group, waits for what comes of it, and draws the rest.
type pupil struct {
	mu    sync.Mutex
	told  map[int]*float64
	drawn int
	known chan struct{}
	sink  *memory
	early []int // told before it was durable
}

func (p *pupil) Next(ctx context.Context) (episode.Draw, error) {
	d := episode.Draw{Task: &episode.Task{ID: "t"}, Samples: 6}
	switch p.drawn++; p.drawn {
	case 1:
		d.To = 3
		return d, nil
	case 2:
		select {
		case <-p.known:
			d.From = 3
			return d, nil
		case <-ctx.Done():
			return d, ctx.Err()
		}
	}
	return d, episode.ErrEnd
}

func (p *pupil) Learn(o episode.Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sink.mu.Lock()
	stored := len(p.sink.rows)
	p.sink.mu.Unlock()
	if p.told[o.Sample] = o.Reward; stored < len(p.told) {
		p.early = append(p.early, o.Sample)
	}
	if len(p.told) == 3 {
		close(p.known)
	}
}

// TestASourceLearns: every episode's outcome is told once it is durable, a failed one as no verdict, and the rest of a group is played when the
// source has waited for it.
func TestASourceLearns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: func(c *episode.Call, _, _ int) (*episode.Reply, time.Duration, error) {
			if c.Turn == 0 && c.Episode == episode.ID(episode.GroupID("run", "t", 0), "1") {
				return nil, time.Second, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassBadRequest, Cause: errors.New("no")}
			}
			return says("a", 1), time.Second, nil
		}}
		sink := &memory{}
		p := &pupil{told: map[int]*float64{}, known: make(chan struct{}), sink: sink}
		sched, err := New(Config{Endpoints: fleet(m)})
		if err != nil {
			t.Fatal(err)
		}
		defer sched.Close()
		totals, err := Run(t.Context(), RunConfig{Source: p, Open: open(episode.Budget{}), Sink: sink, Rollout: &Rollout{Sched: sched, Scorer: oneScorer{}}})
		if err != nil || totals.Drawn != 6 || totals.Done != 5 || totals.Failed != 1 {
			t.Errorf("%+v, %v", totals, err)
		}
		if len(p.told) != 6 || p.told[1] != nil || p.told[5] == nil || len(p.early) > 0 {
			t.Errorf("told %v, before it was durable %v", p.told, p.early)
		}
	})
}

// lateScorer gives up when its time is over.
type lateScorer struct{}

func (lateScorer) Score(ctx context.Context, _ *episode.Episode) (episode.Verdict, error) {
	<-ctx.Done()
	return episode.Verdict{}, ctx.Err()
}

// TestAGradingThatIsLateIsStored: the run goes on, so the episode is kept without a verdict, and the source is told of it only then.
func TestAGradingThatIsLateIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
			return says("a", 1), time.Second, nil
		}}
		sink := &memory{}
		p := &pupil{told: map[int]*float64{}, known: make(chan struct{}), sink: sink}
		sched, err := New(Config{Endpoints: fleet(m)})
		if err != nil {
			t.Fatal(err)
		}
		defer sched.Close()
		totals, err := Run(t.Context(), RunConfig{Source: p, Open: open(episode.Budget{}), Sink: sink, Rollout: &Rollout{Sched: sched, Scorer: lateScorer{}, ScoreTimeout: time.Minute}})
		if err != nil || totals.Done != 6 || totals.Cancelled != 0 || len(sink.rows) != 6 {
			t.Errorf("%+v, %d rows, %v", totals, len(sink.rows), err)
		}
		for _, e := range sink.rows {
			if v := e.Verdict; e.Status != episode.StatusCompleted || v.Total != nil || !v.Failed || v.Rewards[0].Outcome != "no_verdict: score_timeout" {
				t.Errorf("%s: %s, %+v", e.ID, e.Status, v)
			}
		}
		if len(p.told) != 6 || len(p.early) > 0 {
			t.Errorf("told %v, before it was durable %v", p.told, p.early)
		}
	})
}

// TestASourceDoesNotWaitForWhatIsNotStored: it is not told of an episode that was cancelled under a run that goes on; the run ends, for another to
// go on with.
func TestASourceDoesNotWaitForWhatIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
			return says("a", 1), time.Hour, nil
		}}
		sink := &memory{}
		p := &pupil{told: map[int]*float64{}, known: make(chan struct{}), sink: sink}
		sched, err := New(Config{Endpoints: fleet(m)})
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, sched.Close)
		totals, err := Run(t.Context(), RunConfig{Source: p, Open: open(episode.Budget{}), Sink: sink, Rollout: &Rollout{Sched: sched}})
		if !errors.Is(err, ErrStopped) || totals.Cancelled != 3 || len(p.told) != 0 {
			t.Errorf("%+v, told %v, %v", totals, p.told, err)
		}
	})
}

// TestAStopDoesNotWaitForASourceThatWaits: the source waits for an outcome that never comes.
func TestAStopDoesNotWaitForASourceThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
			return says("a", 1), time.Hour, nil
		}}
		sink, stop := &memory{}, make(chan struct{})
		p := &pupil{told: map[int]*float64{}, known: make(chan struct{}), sink: sink}
		sched, err := New(Config{Endpoints: fleet(m)})
		if err != nil {
			t.Fatal(err)
		}
		defer sched.Close()
		time.AfterFunc(time.Minute, func() { close(stop) })
		began := time.Now()
		_, err = Run(t.Context(), RunConfig{Source: p, Open: open(episode.Budget{}), Sink: sink, Rollout: &Rollout{Sched: sched}, Stop: stop, Drain: time.Minute})
		if took := time.Since(began); !errors.Is(err, ErrStopped) || took != 2*time.Minute {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// TestTasksHaveDeadlines: an episode that is not over in time fails with deadline, one that begins too late at once; others are not touched.
func TestTasksHaveDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &scripted{think: func(*episode.Call, int, int) (*episode.Reply, time.Duration, error) {
			return says("a", 1), time.Minute, nil
		}}
		sched, err := New(Config{Endpoints: fleet(m)})
		if err != nil {
			t.Fatal(err)
		}
		defer sched.Close()
		for _, c := range []struct {
			name   string
			due    time.Duration // from its beginning; 0 = none
			failed bool
			took   time.Duration
		}{{"none", 0, false, time.Minute}, {"soon", 30 * time.Second, true, 30 * time.Second}, {"later", time.Hour, false, time.Minute}, {"past", -time.Second, true, 0}} {
			e := episode.New("run", episode.Draw{Task: &episode.Task{ID: c.name}, Samples: 1}, 0, episode.Sampling{}, episode.Budget{}, time.Now())
			if c.due != 0 {
				e.Due = time.Now().Add(c.due)
			}
			(&Rollout{Sched: sched, EpisodeTimeout: time.Hour}).Run(t.Context(), e)
			if failed := e.Fault != nil && e.Fault.Class == episode.ClassDeadline && errors.Is(e.Fault.Cause, errDue); failed != c.failed || e.Timing.Total != c.took || c.failed != (e.Status == episode.StatusFailed) {
				t.Errorf("%s: fault %v, status %s, after %v", c.name, e.Fault, e.Status, e.Timing.Total)
			}
		}
	})
}
