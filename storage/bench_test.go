package storage

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"tranche/episode"
)

// benchRow is a row with as many tokens; ids follow a skewed distribution, as those of text do, and samples of one task share
// their prompt.
func benchRow(task, sample, tokens int) *episode.Episode {
	prompt := rand.New(rand.NewPCG(uint64(task), 1))
	rng := rand.New(rand.NewPCG(uint64(task), uint64(sample)+2))
	draw := func(r *rand.Rand) int32 { return int32(math.Pow(r.Float64(), 4) * 150_000) }
	e := made{run: "bench", group: 8}.episode(task, sample)
	e.Tokens = episode.Tokens{}
	in, out := make([]int32, tokens/4), make([]int32, tokens-tokens/4)
	lps := make([]episode.Logprob, len(out))
	for i := range in {
		in[i] = draw(prompt)
	}
	for i := range out {
		out[i] = draw(rng)
		lps[i] = episode.Logprob{Value: float32(-rng.ExpFloat64()), Known: true}
	}
	e.Tokens.Extend(in, out, lps, episode.Ptr[int32](1))
	return e
}

// BenchmarkPart: 512 rows of 3,600 tokens (64 groups of 8), from rows in memory to a published, verified part.
func BenchmarkPart(b *testing.B) {
	const tasks, samples, tokens = 64, 8, 3600
	var rows []Row
	for i := range tasks * samples {
		rows = append(rows, RowOf(benchRow(i/samples, i%samples, tokens)))
	}
	dir := b.TempDir()
	if err := (disk{}).MakeDir(dir + "/" + partsDir); err != nil {
		b.Fatal(err)
	}
	options := partOptions()
	var bytes int64
	for n := range b.N {
		w, err := newPartWriter(disk{}, dir, partName(partsDir, n), options)
		if err != nil {
			b.Fatal(err)
		}
		for i := range rows {
			err = errors.Join(err, w.add(&rows[i]))
			if (i+1)%256 == 0 {
				err = errors.Join(err, w.endRowGroup())
			}
		}
		part, perr := w.publish()
		if err = errors.Join(err, perr); err != nil {
			b.Fatal(err)
		}
		bytes = part.Bytes
	}
	all := float64(len(rows) * tokens)
	b.ReportMetric(all*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
	b.ReportMetric(float64(bytes)/all, "bytes/token")
}

// BenchmarkJournal: rows of 300 tokens from 64 goroutines until they are durable, default Config but for parts.
func BenchmarkJournal(b *testing.B) {
	w, err := Open(Config{Dir: b.TempDir(), MinPartAge: time.Hour, MaxPartAge: time.Hour, PartBytes: 8 << 30})
	if err != nil {
		b.Fatal(err)
	}
	e := benchRow(0, 0, 300)
	ids := make(chan int)
	go func() {
		defer close(ids)
		for n := range b.N {
			ids <- n
		}
	}()
	b.SetParallelism(32)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n := <-ids
			c := *e
			c.ID, c.GroupID = episode.ID("bench", string(rune(n)), time.Duration(n).String()), "open"
			c.GroupSize = math.MaxInt32 // never complete: the journal alone
			if err := w.Write(context.Background(), &c); err != nil {
				b.Error(err)
			}
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
}
