package taskfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	if err := os.WriteFile(path, []byte("\xef\xbb\xbf{\"a\":1}\r\n\n  {\"b\": 2.0} \nno JSON at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := OpenLines(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, want := range []struct {
		raw  string
		line int
	}{{`{"a":1}`, 1}, {`{"b": 2.0}`, 3}, {`no JSON at all`, 4}} {
		raw, at, err := l.Next()
		if err != nil || string(raw) != want.raw || at.Line != want.line || at.File != path {
			t.Errorf("%q at %s (%v), want %+v", raw, at, err, want)
		}
	}
	if _, _, err := l.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestLinesNameWhatIsNoJSONLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	if err := os.WriteFile(path, []byte("[{}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := OpenLines(path)
	var rf *RowError
	if !errors.As(err, &rf) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "one JSON list") {
		t.Errorf("%v", err)
	}
	if _, err = OpenLines(path + ".gone"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
}
