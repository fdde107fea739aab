package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tranche/episode"
)

// The memory tests run a writer in a process of its own and read the most memory it ever held.
const loadEnv = "TRANCHE_STORAGE_LOAD"

// load is what such a process writes: rows, bytes of prompt and answer, target size of a row group (0 = default).
type load struct {
	rows, prompt, answer int
	group, part          int64
	writers              int
	tokens               int    // with ids, mask, logprobs and versions
	limit                string // GOMEMLIMIT of the process; "" = none
}

func (l load) String() string {
	return fmt.Sprintf("%d %d %d %d %d %d %d", l.rows, l.prompt, l.answer, l.group, l.part, max(l.writers, 1), l.tokens)
}

// runLoad writes a load into a new run and returns the peak resident memory of the process that did.
func runLoad(t *testing.T, dir string, l load) (peak int64) {
	t.Helper()
	if raceEnabled {
		t.Skip("the race detector multiplies memory: peaks are judged without it (go test ./storage)")
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("no /proc: peak memory cannot be read here")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestWriteLoad$")
	cmd.Env = append(os.Environ(), loadEnv+"="+l.String(), loadEnv+"_DIR="+dir, "GOGC=40") // as the program sets it
	if l.limit != "" {
		cmd.Env = append(cmd.Env, "GOMEMLIMIT="+l.limit)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if v, ok := strings.CutPrefix(line, "peak "); ok {
			peak, err = strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	if peak == 0 || err != nil {
		t.Fatalf("no peak in %q, %v", out, err)
	}
	return peak
}

// TestWriteLoad is the child of runLoad.
func TestWriteLoad(t *testing.T) {
	spec := os.Getenv(loadEnv)
	if spec == "" {
		t.Skip("runs only as a child of the memory tests")
	}
	var l load
	if _, err := fmt.Sscan(spec, &l.rows, &l.prompt, &l.answer, &l.group, &l.part, &l.writers, &l.tokens); err != nil {
		t.Fatal(err)
	}
	dir := os.Getenv(loadEnv + "_DIR")
	if l.rows == 0 { // what is there is compacted
		done, err := Compact(t.Context(), Compaction{Dir: dir})
		fmt.Printf("merged %d files with %d MiB into %d, %v\n", done.Files, done.RawBytes>>20, done.Into, err)
		printPeak(t)
		return
	}
	w := mustOpen(t, Config{Dir: dir, RowGroupBytes: l.group, PartBytes: l.part, SyncInterval: time.Millisecond})
	next := make(chan int)
	var wg sync.WaitGroup
	for range l.writers {
		wg.Go(func() {
			for i := range next {
				if err := w.Write(context.Background(), l.episode(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range l.rows {
		next <- i
	}
	close(next)
	wg.Wait()
	mustClose(t, w)
	printPeak(t)
}

func printPeak(t *testing.T) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(status) {
		var kib int64
		if _, err := fmt.Sscanf(string(line), "VmHWM: %d kB", &kib); err == nil {
			fmt.Println("peak", kib<<10)
		}
	}
}

func (l load) episode(i int) *episode.Episode {
	rng := rand.New(rand.NewPCG(uint64(i), 1))
	words := func(n int) *string {
		var b strings.Builder
		b.Grow(n + 8)
		for b.Len() < n {
			fmt.Fprintf(&b, "%x ", rng.Uint32N(1<<20))
		}
		s := b.String()[:n]
		return &s
	}
	task := &episode.Task{ID: fmt.Sprint(i), Messages: []episode.Message{{Role: "user", Content: words(l.prompt)}}}
	e := episode.New("load", episode.Draw{Task: task, Samples: 1}, 0, episode.Sampling{}, episode.Budget{}, time.Now())
	e.AddReply(&episode.Reply{Message: episode.Message{Role: "assistant", Content: words(l.answer)}, Finish: episode.FinishStop},
		episode.Turn{PromptTokens: episode.Ptr(int32(500)), CompletionTokens: episode.Ptr(int32(250))})
	if l.tokens > 0 {
		l.sample(e, rng)
	}
	return e
}

// sample gives an episode its tokens: ids of a skewed distribution, a quarter of them the prompt.
func (l load) sample(e *episode.Episode, rng *rand.Rand) {
	ids, logprobs := make([]int32, l.tokens), make([]episode.Logprob, l.tokens-l.tokens/4)
	for i := range ids {
		x := rng.Float32()
		ids[i] = int32(x * x * x * x * 150_000)
	}
	for i := range logprobs {
		logprobs[i] = episode.Logprob{Value: -rng.Float32(), Known: true}
	}
	e.Tokens.Extend(ids[:l.tokens/4], ids[l.tokens/4:], logprobs, episode.Ptr[int32](1))
}

// ME-o1, the half that storage can spoil: at most 400 MiB, and within a quarter of what a run of 20,000 rows holds. The sizes of the
// case (20,000 and 200,000) with TRANCHE_SOAK=1.
func TestMemoryDoesNotGrowWithTheRun(t *testing.T) {
	small, large := 20_000, 60_000
	if os.Getenv("TRANCHE_SOAK") != "" {
		small, large = 20_000, 200_000
	} else if testing.Short() {
		t.Skip("writes 250 MB: skipped with -short")
	}
	a := runLoad(t, t.TempDir(), load{rows: small, prompt: 2 << 10, answer: 1 << 10, writers: 64})
	b := runLoad(t, t.TempDir(), load{rows: large, prompt: 2 << 10, answer: 1 << 10, writers: 64})
	t.Logf("peak %d MiB at %d rows, %d MiB at %d rows", a>>20, small, b>>20, large)
	if b > 400<<20 || b > a*5/4 {
		t.Errorf("peak %d MiB at %d rows, %d MiB at %d rows: want at most 400 MiB and at most a quarter more", a>>20, small, b>>20, large)
	}
}

// A million rows of 2,000 tokens, some 11 GB of parts, in the memory that 20,000 of them take. It takes half an hour: TRANCHE_MILLION=1.
func TestMillionRows(t *testing.T) {
	if os.Getenv("TRANCHE_MILLION") == "" {
		t.Skip("writes 11 GB in half an hour: only with TRANCHE_MILLION=1")
	}
	a := runLoad(t, t.TempDir(), load{rows: 20_000, prompt: 256, answer: 256, writers: 64, tokens: 2000})
	dir := t.TempDir()
	began := time.Now()
	b := runLoad(t, dir, load{rows: 1_000_000, prompt: 256, answer: 256, writers: 64, tokens: 2000})
	took := time.Since(began)
	run, err := OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := run.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	var size int64
	for _, p := range m.Parts {
		size += p.Bytes
	}
	t.Logf("peak %d MiB at 20,000 rows, %d MiB at 1,000,000; %d parts, %.2f bytes a token; %.0f s", a>>20, b>>20, len(m.Parts), float64(size)/2e9, took.Seconds())
	if m.Rows != 1_000_000 || b > 400<<20 || b > a*5/4 {
		t.Errorf("%d rows; peak %d MiB at 20,000 rows, %d MiB at 1,000,000: want at most 400 MiB and at most a quarter more", m.Rows, a>>20, b>>20)
	}
}

// Merging takes a row group and a few pages, however much is merged: 16 MiB of small parts and 64 MiB of them. With TRANCHE_SOAK=1.
func TestMergingTakesLittleMemory(t *testing.T) {
	if os.Getenv("TRANCHE_SOAK") == "" {
		t.Skip("writes and merges 80 MB: runs with TRANCHE_SOAK=1")
	}
	peak := func(rows int) int64 {
		dir := t.TempDir()
		runLoad(t, dir, load{rows: rows, prompt: 2 << 10, answer: 1 << 10, part: 2 << 20, writers: 64})
		before, _ := loadManifest(disk{}, dir)
		p := runLoad(t, dir, load{})
		after, _ := loadManifest(disk{}, dir)
		t.Logf("%d rows: %d files became %d, peak %d MiB", rows, len(before.Parts), len(after.Parts), p>>20)
		if len(after.Parts) > len(before.Parts)/8+1 || after.Rows != int64(rows) {
			t.Errorf("%d files are left of %d", len(after.Parts), len(before.Parts))
		}
		return p
	}
	few, many := peak(5_000), peak(18_000)
	if many > few*5/4 {
		t.Errorf("peak %d MiB for 5,000 rows, %d MiB for 18,000: want at most a quarter more", few>>20, many>>20)
	}
}

// ME-o2. A row of 4 MiB passes through about a dozen buffers of its size (the episode, its JSON, its frame, and the column, page
// and compression buffers of the Parquet writer), and Go's collector lets garbage reach the size of what is live. So the peak
// is held against eight targets, and under a memory limit: what is measured is what is needed.
func TestHugeRowsCloseRowGroupsByBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 160 MB: skipped with -short")
	}
	const target = 16 << 20
	dir := t.TempDir()
	peak := runLoad(t, dir, load{rows: 40, prompt: 2 << 20, answer: 2 << 20, group: target, limit: "64MiB"})
	m, err := loadManifest(disk{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if m.Rows != 40 {
		t.Fatalf("%d rows", m.Rows)
	}
	for _, p := range m.Parts {
		f, _ := disk{}.Open(filepath.Join(dir, p.Path))
		pf, err := openParquet(f)
		if err != nil {
			t.Fatal(err)
		}
		for i, g := range pf.Metadata().RowGroups {
			if g.TotalByteSize > target*3/2 {
				t.Errorf("%s row group %d holds %d bytes, target %d", p.Path, i, g.TotalByteSize, target)
			}
		}
		f.Close()
	}
	t.Logf("peak %d MiB", peak>>20)
	if peak > 8*target {
		t.Errorf("peak %d MiB, want at most %d", peak>>20, 8*target>>20)
	}
}

// ME-o3
func TestTinyRowsMakeFewRowGroups(t *testing.T) {
	rows := 50_000
	if testing.Short() {
		rows = 5_000
	}
	dir := t.TempDir()
	runLoad(t, dir, load{rows: rows, prompt: 5, answer: 5, writers: 64})
	m, err := loadManifest(disk{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	groups, footers := 0, int64(0)
	for _, p := range m.Parts {
		groups += p.RowGroups
		footers += footerBytes(t, filepath.Join(dir, p.Path))
	}
	t.Logf("%d rows: %d parts, %d row groups, %d KiB of footers", m.Rows, len(m.Parts), groups, footers>>10)
	if m.Rows != int64(rows) || groups > 20 || footers > 1<<20 {
		t.Errorf("%d rows, %d row groups, %d bytes of footers", m.Rows, groups, footers)
	}
}

func footerBytes(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tail := make([]byte, 8)
	if _, err := f.Seek(-8, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(f, tail); err != nil {
		t.Fatal(err)
	}
	return int64(binary.LittleEndian.Uint32(tail))
}
