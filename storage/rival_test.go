//go:build unix

package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"tranche/episode"
)

// Rows of the measurement that is compared with others: as many, as long as answers of reasoning models to short questions are.
const (
	rivalTasks, rivalSamples, rivalTokens = 500, 8, 1460
	rivalRounds                           = 5
)

// rivalProgram reads a part to an Arrow table and says what writing that takes. argv: the part, a folder to write to, rounds. It prints
// a line for each round, when it is told to by a line on its input: CPU seconds and bytes of each way.
const rivalProgram = `
import json, os, sys, time
import pyarrow as pa, pyarrow.parquet as pq
pa.set_cpu_count(1); pa.set_io_thread_count(1)
part, out = sys.argv[1], sys.argv[2]
table = pq.read_table(part, use_threads=False)
rows = table.to_pylist()
tokens = ["token_ids", "loss_mask", "logprobs", "versions"]
flat = [p for p in (pq.ParquetFile(part).schema.column(i).path for i in range(len(pq.ParquetFile(part).schema))) if p.split(".")[0] not in tokens]
def timed(name, work):
    path = os.path.join(out, name)
    before = time.process_time()
    work(path)
    took = time.process_time() - before
    size = os.path.getsize(path)
    os.remove(path)
    return {"cpu_s": took, "bytes": size}
def plain(path): pq.write_table(table, path, compression="zstd")
def tuned(path):
    pq.write_table(table, path, compression="zstd", compression_level=1, use_dictionary=flat, row_group_size=256, write_statistics=False,
        column_encoding={"logprobs.list.element": "BYTE_STREAM_SPLIT", **{c + ".list.element": "PLAIN" for c in tokens if c != "logprobs"}})
def from_rows(path): pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path, compression="zstd")
def jsonl(path):
    with pa.CompressedOutputStream(path, "zstd") as f:
        for r in rows: f.write((json.dumps(r, default=str) + "\n").encode())
for line in sys.stdin:
    way = line.strip()
    print(json.dumps(timed(way, {"plain": plain, "tuned": tuned, "from_rows": from_rows, "jsonl": jsonl}[way])), flush=True)
`

// spent is what one way of writing the rows took.
type spent struct {
	CPU   float64 `json:"cpu_s"`
	Bytes int64   `json:"bytes"`
}

// cpuOf is the processor time of this process while do runs, on one core.
func cpuOf(b *testing.B, do func() int64) spent {
	b.Helper()
	read := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	runtime.GC()
	before := read()
	size := do()
	return spent{(read() - before).Seconds(), size}
}

// BenchmarkRivals writes the same rows as a part (from rows in memory to a published file that was read back), through the journal (from
// episodes to durable rows to published parts), and by pyarrow from a ready Arrow table and from Python rows, and as JSON lines with
// zstd. The ways take turns; medians of the processor seconds count.
func BenchmarkRivals(b *testing.B) {
	ask := startRival(b, rivalParts(b))
	ways := map[string][]spent{}
	rows, episodes := rivalRows()
	for range max(b.N, rivalRounds) {
		ways["part"] = append(ways["part"], cpuOf(b, func() int64 { return writeRivalPart(b, b.TempDir(), rows).Bytes }))
		ways["journal"] = append(ways["journal"], cpuOf(b, func() int64 { return writeRivalRun(b, episodes) }))
		for _, way := range []string{"plain", "tuned", "from_rows", "jsonl"} {
			ways[way] = append(ways[way], ask(way))
		}
	}
	rate := map[string]float64{}
	for way, list := range ways {
		slices.SortFunc(list, func(x, y spent) int { return int((x.CPU - y.CPU) * 1e9) })
		m := list[len(list)/2]
		rate[way] = float64(len(rows)*rivalTokens) / m.CPU
		b.Logf("%-10s %6.2f M tokens a CPU second, %5.2f bytes a token", way, rate[way]/1e6, float64(m.Bytes)/float64(len(rows)*rivalTokens))
	}
	best := max(rate["plain"], rate["tuned"])
	b.ReportMetric(rate["part"]/best, "part/pyarrow")
	b.ReportMetric(rate["journal"]/best, "journal/pyarrow")
	b.ReportMetric(float64(ways["part"][0].Bytes)/float64(ways["plain"][0].Bytes), "bytes/pyarrow")
	b.ReportMetric(float64(ways["part"][0].Bytes)/float64(ways["jsonl"][0].Bytes), "bytes/jsonl")
}

func rivalRows() (rows []Row, episodes []*episode.Episode) {
	for i := range rivalTasks * rivalSamples {
		e := benchRow(i/rivalSamples, i%rivalSamples, rivalTokens)
		text := rivalText(i)
		e.Messages[len(e.Messages)-1].Content = &text
		rows, episodes = append(rows, RowOf(e)), append(episodes, e)
	}
	return rows, episodes
}

// rivalText is an answer of about four characters a sampled token.
func rivalText(seed int) string {
	words := []string{"the ", "of ", "and ", "number ", "is ", "therefore ", "equals ", "so ", "we ", "have ", "first ", "sum ", "add ", "which ", "to ", "them "}
	var text []byte
	for x := uint64(seed)*2862933555777941757 + 3037000493; len(text) < 3*rivalTokens; x = x*6364136223846793005 + 1442695040888963407 {
		text = append(text, words[x>>60]...)
		if x>>56&7 == 0 {
			text = fmt.Appendf(text, "%d ", x>>40&1023)
		}
	}
	return string(text)
}

func writeRivalPart(b *testing.B, dir string, rows []Row) Part {
	b.Helper()
	if err := (disk{}).MakeDir(filepath.Join(dir, partsDir)); err != nil {
		b.Fatal(err)
	}
	w, err := newPartWriter(disk{}, dir, partName(partsDir, 0), partOptions())
	if err != nil {
		b.Fatal(err)
	}
	var raw int64
	for i := range rows {
		err = errors.Join(err, w.add(&rows[i]))
		if raw += rows[i].rawBytes(); raw >= 8<<20 && (i+1)%rivalSamples == 0 { // as Config's default closes row groups
			err, raw = errors.Join(err, w.endRowGroup()), 0
		}
	}
	part, perr := w.publish()
	if err = errors.Join(err, perr); err != nil {
		b.Fatal(err)
	}
	return part
}

// writeRivalRun writes the episodes as a run does: from 64 goroutines, each of which waits until its row is durable.
func writeRivalRun(b *testing.B, episodes []*episode.Episode) int64 {
	b.Helper()
	w, err := Open(Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	next := make(chan *episode.Episode)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for e := range next {
				if err := w.Write(context.Background(), e); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for _, e := range episodes {
		next <- e
	}
	close(next)
	wg.Wait()
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	var size int64
	for _, p := range w.Manifest().Parts {
		size += p.Bytes
	}
	return size
}

func rivalParts(b *testing.B) string {
	b.Helper()
	rows, _ := rivalRows()
	dir := b.TempDir()
	return filepath.Join(dir, filepath.FromSlash(writeRivalPart(b, dir, rows).Path))
}

// startRival starts pyarrow beside us. The function it returns has it write once, in the way that is named.
func startRival(b *testing.B, part string) func(way string) spent {
	b.Helper()
	interpreter := os.Getenv("TRANCHE_PYTHON")
	if interpreter == "" {
		interpreter = enginePython()
	}
	if msg, err := exec.Command(interpreter, "-c", "import pyarrow").CombinedOutput(); err != nil {
		b.Skipf("%s cannot import pyarrow (set TRANCHE_PYTHON to one that can): %v %s", interpreter, err, msg)
	}
	cmd := exec.Command(interpreter, "-c", rivalProgram, part, b.TempDir())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	out, oerr := cmd.StdoutPipe()
	if err = errors.Join(err, oerr); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			b.Errorf("pyarrow: %v", err)
		}
	})
	answers := json.NewDecoder(out)
	return func(way string) (s spent) {
		b.Helper()
		if _, err := fmt.Fprintln(in, way); err != nil {
			b.Fatal(err)
		}
		if err := answers.Decode(&s); err != nil {
			b.Fatal(err)
		}
		return s
	}
}
