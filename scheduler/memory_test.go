package scheduler

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tranche/episode"
)

const (
	manyEpisodes   = 50_000
	mostPerEpisode = 20 << 10 // bytes an open episode may take beyond its content
)

// stuck is a model that answers nothing until it is let go.
type stuck struct{ let chan struct{} }

func (m stuck) Generate(ctx context.Context, _ *episode.Call, _, _ int) (*episode.Reply, error) {
	select {
	case <-m.let:
	case <-ctx.Done():
	}
	return nil, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassBadRequest, Cause: errors.New("let go")}
}

// held is the memory in use, heap and stacks, bytes.
func held() int64 {
	runtime.GC()
	runtime.GC() // what the first one found finalizable
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func judgeMemory(t *testing.T, before int64, n int) {
	t.Helper()
	each := (held() - before) / int64(n)
	t.Logf("%d bytes an open episode", each)
	if each > mostPerEpisode {
		t.Errorf("an open episode takes %d bytes beyond its content, at most %d are allowed", each, mostPerEpisode)
	}
}

// TestFiftyThousandOpenEpisodesAreSmall opens 50,000 episodes on a model that answers nothing, and weighs them without their content.
func TestFiftyThousandOpenEpisodesAreSmall(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector multiplies memory: judged without it (go test ./scheduler)")
	}
	for name, inFlight := range map[string]int{"nearly all waiting": 64, "all in flight": manyEpisodes} {
		t.Run(name, func(t *testing.T) {
			episodes := make([]*episode.Episode, manyEpisodes)
			for i := range episodes {
				task := &episode.Task{ID: strconv.Itoa(i), Messages: []episode.Message{{Role: episode.RoleUser, Content: episode.Ptr(strings.Repeat("word ", 100))}}}
				episodes[i] = episode.New("run", episode.Draw{Task: task, Samples: 1}, 0, episode.Sampling{}, episode.Budget{TurnTokens: 512}, time.Now())
			}
			before := held()
			model := stuck{make(chan struct{})}
			var endpoints []Endpoint
			for i := range 4 {
				endpoints = append(endpoints, Endpoint{Name: fmt.Sprint("m", i), Model: model, MaxCalls: inFlight, Capacity: episode.Capacity{ContextTokens: 8192}})
			}
			s, err := New(Config{Endpoints: endpoints})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			rollout := &Rollout{Sched: s, Scorer: oneScorer{}, EpisodeTimeout: time.Hour}
			var all sync.WaitGroup
			for _, e := range episodes {
				all.Go(func() { rollout.Run(t.Context(), e) })
			}
			awaitOpen(t, s, manyEpisodes)
			judgeMemory(t, before, manyEpisodes)
			close(model.let)
			all.Wait()
			for _, e := range episodes {
				if e.Status != episode.StatusFailed {
					t.Fatalf("episode %s is %q after its call failed for good", e.ID, e.Status)
				}
			}
		})
	}
}

// awaitOpen waits until so many calls wait or run.
func awaitOpen(t *testing.T, s *Scheduler, n int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		states, open := s.State()
		for _, r := range states {
			open += r.Running
		}
		if open == n {
			return
		}
	}
	t.Fatalf("%d calls did not come within two minutes", n)
}

// TestFiftyThousandEpisodesInTheCoreAreSmall weighs the core alone, with several turns made and groups of eight.
func TestFiftyThousandEpisodesInTheCoreAreSmall(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector multiplies memory: judged without it (go test ./scheduler)")
	}
	ids := make([]string, manyEpisodes)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	before := held()
	core, err := NewCore(Rules{}, []ReplicaConfig{{Name: "a"}, {Name: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	for turn := range 3 {
		for i, id := range ids {
			core.Offer(Request{
				Ticket: Ticket(turn*manyEpisodes + i + 1), Episode: id, Group: ids[i/8], Cell: episode.Cell{DataSource: "d", Turn: turn}, Prompt: 100 * (turn + 1), Exact: true, Want: 64, GroupSize: 8,
			}, Time(turn)*time.Second)
		}
		if turn == 2 {
			break
		}
		launches, _, _ := core.Next(Time(turn) * time.Second)
		for _, l := range launches {
			core.Settle(l.Ticket, nil, Usage{10, -1}, Time(turn)*time.Second)
		}
	}
	if _, waiting := core.State(); waiting != manyEpisodes {
		t.Fatalf("%d calls wait, want %d", waiting, manyEpisodes)
	}
	judgeMemory(t, before, manyEpisodes)
	runtime.KeepAlive(core)
}
