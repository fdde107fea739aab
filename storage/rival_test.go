//go:build unix

package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

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

// written is what one way of writing the rows took.
type written struct {
	CPU   float64 `json:"cpu_s"`
	Bytes int64   `json:"bytes"`
}

// cpuOf is the processor time of this process while do runs, on one core.
func cpuOf(b *testing.B, do func() int64) written {
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
	return written{(read() - before).Seconds(), size}
}

// BenchmarkRivals writes the same rows as a part (from rows in memory to a published file that was read back), through the journal (from
// episodes to durable rows to published parts), and by pyarrow from a ready Arrow table and from Python rows, and as JSON lines with
// zstd. The ways take turns; medians of the processor seconds count.
func BenchmarkRivals(b *testing.B) {
	episodes := rivalEpisodes(b)
	ask := startRival(b, rivalParts(b, rowsOfAll(episodes)))
	ways := map[string][]written{}
	for range max(b.N, rivalRounds) {
		ways["part"] = append(ways["part"], timePart(b, episodes))
		ways["journal"] = append(ways["journal"], cpuOf(b, func() int64 { return writeRivalRun(b, episodes) }))
		for _, way := range []string{"plain", "tuned", "from_rows", "jsonl"} {
			ways[way] = append(ways[way], ask(way))
		}
	}
	rate := map[string]float64{}
	for way, list := range ways {
		slices.SortFunc(list, func(x, y written) int { return int((x.CPU - y.CPU) * 1e9) })
		m := list[len(list)/2]
		rate[way] = float64(len(episodes)*rivalTokens) / m.CPU
		b.Logf("%-10s %6.2f M tokens a CPU second, %5.2f bytes a token", way, rate[way]/1e6, float64(m.Bytes)/float64(len(episodes)*rivalTokens))
	}
	best := max(rate["plain"], rate["tuned"])
	b.ReportMetric(rate["part"]/best, "part/pyarrow")
	b.ReportMetric(rate["journal"]/best, "journal/pyarrow")
	b.ReportMetric(float64(ways["part"][0].Bytes)/float64(ways["plain"][0].Bytes), "bytes/pyarrow")
	b.ReportMetric(float64(ways["part"][0].Bytes)/float64(ways["jsonl"][0].Bytes), "bytes/jsonl")
}

// BenchmarkOurs is our own ways of BenchmarkRivals alone, to be profiled.
func BenchmarkOurs(b *testing.B) {
	episodes := rivalEpisodes(b)
	for way, write := range map[string]func(b *testing.B) written{
		"part":    func(b *testing.B) written { return timePart(b, episodes) },
		"journal": func(b *testing.B) written { return cpuOf(b, func() int64 { return writeRivalRun(b, episodes) }) },
	} {
		b.Run(way, func(b *testing.B) {
			var spent float64
			for range b.N {
				spent += write(b).CPU
			}
			b.ReportMetric(float64(b.N*len(episodes)*rivalTokens)/spent/1e6, "Mtokens/cpu-s")
		})
	}
}

// timePart writes rows that are there for it alone: the journal has episodes to write, and a heap with rows beside them would be no run's.
func timePart(b *testing.B, episodes []*episode.Episode) written {
	b.Helper()
	rows := rowsOfAll(episodes)
	return cpuOf(b, func() int64 { return writeRivalPart(b, b.TempDir(), rows).Bytes })
}

func rowsOfAll(episodes []*episode.Episode) []Row {
	rows := make([]Row, len(episodes))
	for i, e := range episodes {
		rows[i] = RowOf(e)
	}
	return rows
}

// rivalEpisodes makes episodes of real text, Go's own sources, whose words are the tokens; samples of a task share their prompt.
func rivalEpisodes(b *testing.B) (episodes []*episode.Episode) {
	b.Helper()
	text := sourceText(b, rivalTasks*(rivalSamples*3+1)*rivalTokens)
	take := func(tokens int) (said string, ids []int32) {
		end := 0
		for len(ids) < tokens {
			n := wordOf(text[end:])
			ids = append(ids, int32(crc32.ChecksumIEEE([]byte(text[end:end+n]))%150_000))
			end += n
		}
		said, text = text[:end], text[end:]
		return said, ids
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for task := range rivalTasks {
		question, prompt := take(rivalTokens / 4)
		for sample := range rivalSamples {
			answer, ids := take(rivalTokens - rivalTokens/4)
			e := made{run: "rivals", group: rivalSamples}.episode(task, sample)
			e.Messages[0].Content, e.Messages[1].Content = &question, &answer
			lps := make([]episode.Logprob, len(ids))
			for i := range lps { // most tokens are nearly certain
				lps[i] = episode.Logprob{Value: float32(-math.Exp(-12 * rng.Float64())), Known: true}
				if rng.IntN(5) < 2 {
					lps[i].Value = float32(-rng.ExpFloat64())
				}
			}
			e.Tokens = episode.Tokens{}
			e.Tokens.Extend(prompt, ids, lps, episode.Ptr[int32](1))
			episodes = append(episodes, e)
		}
	}
	return episodes
}

// sourceText is so many bytes of the Go sources of this toolchain.
func sourceText(b *testing.B, bytes int) string {
	b.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Skipf("go env GOROOT: %v", err)
	}
	var all strings.Builder
	err = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(root)), "src"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || all.Len() > bytes {
			return err
		}
		text, err := os.ReadFile(path)
		if len(text) < 1<<18 && utf8.Valid(text) { // tables of numbers are no text
			all.Write(text)
		}
		return err
	})
	if err != nil || all.Len() < bytes {
		b.Skipf("the sources of Go have %d bytes of the %d that are needed: %v", all.Len(), bytes, err)
	}
	return all.String()
}

// wordOf is how long the token is that a text begins with: a space and a word of up to six letters, or one or two other characters.
func wordOf(text string) int {
	letter := func(c byte) bool { return c|32 >= 'a' && c|32 <= 'z' || c >= 0x80 }
	n := 0
	if text[0] == ' ' {
		n = 1
	}
	for n < len(text) && n < 7 && letter(text[n]) {
		n++
	}
	if n > 1 || n == 1 && letter(text[0]) {
		return n
	}
	n = 1
	for n < len(text) && n < 8 && text[n] == text[0] {
		n++
	}
	_, size := utf8.DecodeRuneInString(text)
	return max(n, size)
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

func rivalParts(b *testing.B, rows []Row) string {
	b.Helper()
	dir := b.TempDir()
	return filepath.Join(dir, filepath.FromSlash(writeRivalPart(b, dir, rows).Path))
}

// startRival starts pyarrow beside us. The function it returns has it write once, in the way that is named.
func startRival(b *testing.B, part string) func(way string) written {
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
	return func(way string) (s written) {
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
