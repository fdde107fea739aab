package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

type foreign struct {
	Question string           `parquet:"question"`
	Prompt   []foreignMessage `parquet:"prompt,list"`
	Answer   *string          `parquet:"answer,optional"`
	Numbers  []int64          `parquet:"numbers,optional,list"`
	Reward   foreignReward    `parquet:"reward_model"`
	Score    float64          `parquet:"score"`
}

type foreignMessage struct {
	Role    string `parquet:"role"`
	Content string `parquet:"content"`
}

type foreignReward struct {
	Style       string `parquet:"style"`
	GroundTruth string `parquet:"ground_truth"`
}

func writeForeign(t *testing.T, rows int, text int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tasks.parquet")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := parquet.NewGenericWriter[foreign](f, parquet.Compression(&parquet.Zstd))
	for i := range rows {
		r := foreign{Question: fmt.Sprintf("q%d", i) + strings.Repeat("y", text), Prompt: []foreignMessage{{"user", fmt.Sprint(i)}}, Numbers: []int64{1 << 60, int64(i)},
			Reward: foreignReward{"rule", "4"}, Score: 0.5}
		if i%2 == 1 {
			a := ""
			r.Answer, r.Numbers = &a, nil
		}
		if _, err := w.Write([]foreign{r}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadObjectsKeepsNestingOrderAndNulls(t *testing.T) {
	path := writeForeign(t, 150, 0) // more than one batch
	var got []string
	for o, err := range ReadObjects(path) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(o))
	}
	if len(got) != 150 {
		t.Fatalf("%d rows", len(got))
	}
	for i, want := range map[int]string{
		0: `{"question":"q0","prompt":[{"role":"user","content":"0"}],"answer":null,"numbers":[1152921504606846976,0],"reward_model":{"style":"rule","ground_truth":"4"},"score":0.5}`,
		1: `{"question":"q1","prompt":[{"role":"user","content":"1"}],"answer":"","numbers":null,"reward_model":{"style":"rule","ground_truth":"4"},"score":0.5}`,
	} {
		if got[i] != want {
			t.Errorf("row %d\n got %s\nwant %s", i, got[i], want)
		}
	}
	n := 0
	for range ReadObjects(path) {
		if n++; n == 70 {
			break
		}
	}
	if n != 70 {
		t.Errorf("left after %d rows", n)
	}
}

func TestReadObjectsReadsOurOwnParts(t *testing.T) {
	path := writePart(t, t.TempDir(), "part-00000.parquet", withCalls(1, `{"a":1}`), withCalls(2))
	n := 0
	for o, err := range ReadObjects(path) {
		if err != nil {
			t.Fatal(err)
		}
		var r struct {
			TaskID   string `json:"task_id"`
			Logprobs []*float64
			Messages []Message
		}
		if err := json.Unmarshal(o, &r); err != nil || r.TaskID != fmt.Sprintf("task-%04d", n+1) || r.Logprobs[0] != nil || len(r.Messages) != 3-n {
			t.Errorf("row %d: %v %+v", n, err, r)
		}
		n++
	}
	if n != 2 {
		t.Errorf("%d rows", n)
	}
}

func TestReadObjectsInConstantMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("memory is judged without the race detector")
	}
	peak := func(rows int) uint64 {
		path := writeForeign(t, rows, 4000)
		var most uint64
		n := 0
		for _, err := range ReadObjects(path) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n%(rows/8) == 0 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}
		}
		return most
	}
	small, large := peak(2_000), peak(20_000)
	t.Logf("live heap: %d KiB at 2,000 rows, %d KiB at 20,000", small>>10, large>>10)
	if large > small+16<<20 {
		t.Errorf("memory grows with the file: %d bytes, then %d", small, large)
	}
}

// dataDir is the folder of real files, or a skip that says so.
func dataDir(t *testing.T, name string) string {
	t.Helper()
	root := os.Getenv("TRANCHE_DATA")
	if root == "" {
		root = filepath.Join("..", "..", "shared", "data")
	}
	dir := filepath.Join(root, name)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no test data at %s (set TRANCHE_DATA): %v", dir, err)
	}
	return dir
}

// refusedFiles are the official test files that are not read, with what is said of each; all others are.
var refusedFiles = map[string]string{
	"ARROW-GH-41317.parquet":                         "page header",
	"ARROW-GH-41321.parquet":                         "corrupted bit width",
	"ARROW-GH-45185.parquet":                         "record starts with a nonzero repetition level",
	"ARROW-GH-47662.parquet":                         "eof exception",
	"ARROW-RS-GH-6229-DICTHEADER.parquet":            "column region_key of row group 0 lies outside the file",
	"ARROW-RS-GH-6229-LEVELS.parquet":                "unexpected EOF",
	"PARQUET-1481.parquet":                           "invalid physical column type",
	"datapage_v1-corrupt-checksum.parquet":           "page 1 of column a in row group 0: its checksum",
	"datapage_v2_empty_datapage.snappy.parquet":      "could not decompress page", // others read its one null
	"hadoop_lz4_compressed.parquet":                  "compression for LZ4 unimplemented",
	"hadoop_lz4_compressed_larger.parquet":           "compression for LZ4 unimplemented",
	"incorrect_map_schema.parquet":                   "MAP keys must be required",
	"int96_from_spark.parquet":                       "INT96 timestamp is outside", // others make another time of it
	"large_string_map.brotli.parquet":                "uncompressed page size 1073741828 exceeds",
	"non_hadoop_lz4_compressed.parquet":              "compression for LZ4 unimplemented",
	"rle-dict-uncompressed-corrupt-checksum.parquet": "page 1 of column long_field in row group 0: its checksum",
	"unknown-logical-type.parquet":                   "invalid logical type",
}

// Each of the official test files, those that broke other readers among them, gives its rows or one error that names the file and what is wrong; never a
// panic. That the rows are right is for internal/interop to tell, which has another reader.
func TestReadObjectsSurvivesBadFiles(t *testing.T) {
	root := dataDir(t, "parquet-testing")
	files, err := filepath.Glob(filepath.Join(root, "*data", "*.parquet"))
	if err != nil || len(files) < 70 {
		t.Fatalf("%d files in %s: %v", len(files), root, err)
	}
	refused := 0
	for _, path := range files {
		err := drain(path)
		want, known := refusedFiles[filepath.Base(path)]
		switch {
		case err == nil && known:
			t.Errorf("%s is read; the table says it is refused: %s", path, want)
		case err != nil && !known:
			t.Errorf("%s: %v", path, err)
		case err != nil && (!strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%v: want one line with the file and %q", err, want)
		}
		if err != nil {
			refused++
		}
	}
	t.Logf("%d files read, %d refused", len(files)-refused, refused)
}

func drain(path string) error {
	n := 0
	for o, err := range ReadObjects(path) {
		if err != nil {
			return err
		}
		if !json.Valid(o) {
			return fmt.Errorf("%s: row %d is no JSON: %s", path, n, o)
		}
		n++
	}
	return nil
}

func TestReadObjectsNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.parquet")
	os.WriteFile(text, []byte("this is no parquet file at all"), 0o644)
	empty := filepath.Join(dir, "empty.parquet")
	os.WriteFile(empty, nil, 0o644)
	whole, _ := os.ReadFile(writeForeign(t, 100, 0))
	short := filepath.Join(dir, "short.parquet")
	os.WriteFile(short, whole[:len(whole)/2], 0o644)
	for _, path := range []string{text, empty, short, filepath.Join(dir, "absent.parquet")} {
		if err := drain(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := drain(filepath.Join(dir, "absent.parquet")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}

// Random damage must never end the program; what it does to values is for checksums, see TestFlippedBitsAreNoticed.
func TestReadObjectsNeverPanics(t *testing.T) {
	if raceEnabled {
		t.Skip("reads with one goroutine: the race detector sees nothing in it")
	}
	whole, err := os.ReadFile(writeForeign(t, 200, 10))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	path := filepath.Join(t.TempDir(), "damaged.parquet")
	refused := 0
	for range 1000 {
		b := append([]byte(nil), whole...)
		for range 1 + rng.IntN(3) {
			b[rng.IntN(len(b))] ^= byte(1 << rng.IntN(8))
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if drain(path) != nil {
			refused++
		}
	}
	t.Logf("%d of 1,000 damaged files were refused", refused)
}
