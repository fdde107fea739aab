package storage

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tranche/episode"
)

// BenchmarkCommit: rows of 300 tokens from so many goroutines until each is durable, by Config.SyncInterval; "each" syncs as often as it can. Beside it, of
// the same run and disk, the same bytes written and synced one by one. $TRANCHE_BENCH_DIR says on which disk.
func BenchmarkCommit(b *testing.B) {
	b.Run("write and sync", benchSync)
	for _, interval := range []time.Duration{1, time.Millisecond, 5 * time.Millisecond, 50 * time.Millisecond} {
		name := interval.String()
		if interval == 1 {
			name = "each"
		}
		for _, writers := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("%s/%d", name, writers), func(b *testing.B) { benchCommit(b, interval, writers) })
		}
	}
}

// benchDir is where benchmarks write: $TRANCHE_BENCH_DIR, so that it is the disk one wants to know of.
func benchDir(b *testing.B) string {
	if os.Getenv("TRANCHE_BENCH_DIR") == "" {
		return b.TempDir()
	}
	dir, err := os.MkdirTemp(os.Getenv("TRANCHE_BENCH_DIR"), "commit")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func benchFrame(b *testing.B) []byte {
	row := RowOf(benchRow(0, 0, 300))
	frame, err := appendFrame(nil, frameRow, func(dst []byte) ([]byte, error) { return appendRow(dst, 1, key{}, &row) })
	if err != nil {
		b.Fatal(err)
	}
	return frame
}

func benchSync(b *testing.B) {
	f, err := disk{}.Create(filepath.Join(benchDir(b), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	frame := benchFrame(b)
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		began := time.Now()
		if _, err := f.Write(frame); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	report(b, took)
}

func benchCommit(b *testing.B, interval time.Duration, writers int) {
	w, err := Open(Config{Dir: benchDir(b), SyncInterval: interval, MinPartAge: time.Hour, MaxPartAge: time.Hour, PartBytes: 8 << 30})
	if err != nil {
		b.Fatal(err)
	}
	e := benchRow(0, 0, 300)
	took := make([]time.Duration, b.N)
	var next atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for range writers {
		all.Go(func() {
			for n := next.Add(1) - 1; n < int64(b.N); n = next.Add(1) - 1 {
				c := *e
				c.ID, c.GroupID, c.GroupSize = episode.ID("bench", fmt.Sprint(n)), "open", math.MaxInt32 // never complete: the journal alone
				began := time.Now()
				if err := w.Write(context.Background(), &c); err != nil {
					b.Error(err)
				}
				took[n] = time.Since(began)
			}
		})
	}
	all.Wait()
	b.StopTimer()
	report(b, took)
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	at := func(share float64) float64 {
		return float64(took[int(share*float64(len(took)-1))]) / float64(time.Millisecond)
	}
	b.ReportMetric(float64(len(took))/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
}

// BenchmarkTurns: turns of 300 new tokens each from 64 episodes at once, of an episode of 20 turns.
func BenchmarkTurns(b *testing.B) {
	w, err := Open(Config{Dir: benchDir(b)})
	if err != nil {
		b.Fatal(err)
	}
	var next atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for range 64 {
		all.Go(func() {
			var e *episode.Episode
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if e == nil || len(e.Turns) == 20 {
					if e != nil {
						w.turns.drop(keyOf(e.ID))
					}
					e = openEpisode("bench", int(n), 0)
				}
				benchTurn(w, e)
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
	if err := w.TurnTrouble(); err != nil {
		b.Fatal(err)
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
}

func benchTurn(w *Writer, e *episode.Episode) {
	n := len(e.Tokens.IDs)
	r := &episode.Reply{Message: episode.Message{Role: episode.RoleAssistant, ToolCalls: []episode.ToolCall{{ID: "c", Type: "function"}}}, Finish: episode.FinishToolCalls,
		PromptIDs: append(slices.Clip(e.Tokens.IDs[:n:n]), make([]int32, 100)...), SampledIDs: make([]int32, 200), Logprobs: make([]episode.Logprob, 200)}
	s := e.Step(r, episode.Turn{})
	e.AddReply(r, s.Turn)
	s.Seen = []episode.Observation{{CallID: "c", Name: "tool", Text: "about four hundred tokens", Status: episode.ActionOK}}
	e.AddObservation(s.Seen[0])
	w.KeepTurn(e, &s)
}
