package taskfile

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// write makes a gzip task file of n tasks with prompts of size bytes.
func write(t testing.TB, n, size int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tasks.jsonl.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(z, 1<<20)
	text := strings.Repeat("lorem ipsum \\n dolor ", size/20)
	for i := range n {
		fmt.Fprintf(w, `{"id":"task-%d","prompt":"%d %s","answer":"%d"}`+"\n", i, i, text, i)
	}
	for _, c := range []func() error{w.Flush, z.Close, f.Close} {
		if err := c(); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// heap is what is live, bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestCaseMEo1 is the input's share of case ME-o1: 200,000 prompts of 2 KiB are streamed (Check reads through the same scanner),
// and what stays live is the id table (24 bytes a task) and a few buffers, with ten times fewer tasks as with all.
func TestCaseMEo1(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 400 MB")
	}
	const buffers = 3 << 20
	for _, n := range []int{20_000, 200_000} {
		cfg := Config{Paths: []string{write(t, n, 2048)}}
		before := heap()
		r, err := Open(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		most, tasks := uint64(0), 0
		for i := 0; ; i++ {
			_, err := r.Next()
			if err == io.EOF {
				break
			}
			tasks++
			if err != nil {
				t.Fatal(err)
			}
			if i%(n/8) == n/8-1 {
				most = max(most, heap())
			}
		}
		most = max(most, heap()) - min(before, most)
		t.Logf("%d tasks: %.1f MiB live, id table %.1f bytes a task", n, float64(most)/(1<<20), float64(r.s.seen.bytes())/float64(n))
		if tasks != n || r.s.bytes < int64(n)*2048 {
			t.Errorf("%d tasks, %d bytes", tasks, r.s.bytes)
		}
		if limit := uint64(24*n + buffers); most > limit {
			t.Errorf("%d tasks hold %d bytes, want at most %d", n, most, limit)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A Reader that is told that ids are distinct gives the same tasks and remembers no id.
func TestDistinctIDsAreNotRemembered(t *testing.T) {
	path := file(t, "t.jsonl", `{"id":"a","prompt":"1"}`+"\n"+`{"id":"b","prompt":"2"}`+"\n")
	twice := file(t, "u.jsonl", `{"id":"a","prompt":"1"}`+"\n"+`{"id":"a","prompt":"1"}`+"\n")
	for _, c := range []struct {
		path            string
		distinct        bool
		tasks, remember int
	}{{path, true, 2, 0}, {twice, false, 1, 1}} {
		cfg := Config{Paths: []string{c.path}}
		if cfg.Distinct = check(t, cfg).Distinct(); cfg.Distinct != c.distinct {
			t.Errorf("%s: Check says distinct=%v", c.path, cfg.Distinct)
		}
		r, err := Open(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		tasks := 0
		for _, err = r.Next(); err == nil; _, err = r.Next() {
			tasks++
		}
		remembered := 0
		for _, s := range r.s.seen.shards {
			remembered += s.used
		}
		if err != io.EOF || tasks != c.tasks || remembered != c.remember {
			t.Errorf("%s: %d tasks, %d ids remembered, %v; want %d and %d", c.path, tasks, remembered, err, c.tasks, c.remember)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, c := range []struct {
		name string
		row  string
		cfg  Config
	}{
		{"prompt", `{"id":"%d","prompt":"` + strings.Repeat("lorem ipsum dolor ", 114) + `","answer":"1"}`, Config{}},
		{"messages", `{"id":"%d","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"` + strings.Repeat("lorem ipsum dolor ", 110) + `"}],"extra_info":{"a":1}}`, Config{}},
		{"template", `{"id":"%d","question":"` + strings.Repeat("lorem ipsum dolor ", 114) + `","answer":"x #### 1"}`,
			Config{Templates: Templates{Prompt: "{{.question}}", Answer: `{{.answer | afterLast "####"}}`}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var text strings.Builder
			for i := range 5000 {
				fmt.Fprintf(&text, c.row+"\n", i)
			}
			c.cfg.Paths = []string{file(b, "t.jsonl", text.String())}
			b.SetBytes(int64(text.Len()))
			b.ReportAllocs()
			for b.Loop() {
				if rep := check(b, c.cfg); rep.Tasks != 5000 {
					b.Fatal(rep.Tasks)
				}
			}
		})
	}
}
