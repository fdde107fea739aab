package taskfile

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tranche/episode"
)

// file writes a task file and returns its path.
func file(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func gzipped(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// check runs Check and demands success.
func check(t testing.TB, cfg Config) Report {
	t.Helper()
	rep, err := Check(t.Context(), cfg)
	if err != nil {
		t.Fatalf("Check: %v", err)
	}
	return rep
}

// refused runs Check and returns the text of its InputError, the directory of each path cut off.
func refused(t testing.TB, cfg Config) string {
	t.Helper()
	_, err := Check(t.Context(), cfg)
	var in *InputError
	if !errors.As(err, &in) {
		t.Fatalf("Check gave %v, want an InputError", err)
	}
	text := in.Error()
	for _, p := range cfg.Paths {
		text = strings.ReplaceAll(text, filepath.Dir(p)+string(filepath.Separator), "")
	}
	return text
}

// readAll streams every task.
func readAll(t testing.TB, cfg Config) []*episode.Task {
	t.Helper()
	r, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out []*episode.Task
	for {
		task, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
		out = append(out, task)
	}
}

// one reads the only task of a one-row file.
func one(t testing.TB, row string, cfg Config) *episode.Task {
	t.Helper()
	cfg.Paths = []string{file(t, "t.jsonl", row)}
	tasks := readAll(t, cfg)
	if len(tasks) != 1 {
		t.Fatalf("%d tasks, want 1", len(tasks))
	}
	return tasks[0]
}

// dataDir is the folder of public data sets; the test is skipped where it is absent.
func dataDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("TRANCHE_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no data sets at %s (TRANCHE_DATA names another place)", dir)
	}
	return dir
}
