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
		0: `{"question":"q0","prompt":[{"content":"0","role":"user"}],"answer":null,"numbers":[1152921504606846976,0],"reward_model":{"ground_truth":"4","style":"rule"},"score":0.5}`,
		1: `{"question":"q1","prompt":[{"content":"1","role":"user"}],"answer":"","numbers":null,"reward_model":{"ground_truth":"4","style":"rule"},"score":0.5}`,
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

// Files that broke other readers: an error that names the file, or rows; never a panic.
func TestReadObjectsSurvivesBadFiles(t *testing.T) {
	root := dataDir(t, "parquet-testing")
	read, failed := 0, 0
	for _, folder := range []string{"bad_data", "data"} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.parquet"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files in %s: %v", folder, err)
		}
		for _, path := range files {
			err := drain(path)
			if err == nil {
				read++
				continue
			}
			failed++
			t.Logf("%s/%s: %v", folder, filepath.Base(path), strings.SplitN(err.Error(), "\n", 2)[0])
			if !strings.Contains(err.Error(), path) {
				t.Errorf("the error does not name the file: %v", err)
			}
		}
	}
	t.Logf("%d files read, %d refused", read, failed)
	if read < 50 {
		t.Errorf("only %d files could be read", read)
	}
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
