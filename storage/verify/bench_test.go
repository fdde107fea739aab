package verify

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"tranche/episode"
	"tranche/storage"
)

// BenchmarkBooks tells what is kept of each row: run it with -benchtime 1000000x for a run of a million rows in groups of four.
func BenchmarkBooks(b *testing.B) {
	v, err := New(madeConfig("x"))
	if err != nil {
		b.Fatal(err)
	}
	live := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := live()
	r := storage.Row{GroupSize: 4, Status: episode.Ptr("completed"), CreatedAt: time.Now()}
	for i := range b.N {
		r.TaskID = fmt.Sprint("t", i/4)
		r.GroupID = episode.GroupID(madeRun, r.TaskID, 0)
		r.SampleIndex = int32(i % 4)
		r.EpisodeID = episode.ID(r.GroupID, strconv.Itoa(i%4))
		v.enter(&row{Row: &r, home: inParts}, Place{File: "parts/part-00000.parquet", RowGroup: new(0), Row: new(int64(i)), Episode: r.EpisodeID})
	}
	b.ReportMetric(float64(live()-before)/float64(b.N), "bytes/row")
	if len(v.books.seen) != b.N {
		b.Fatal(len(v.books.seen))
	}
}
