package storage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// The disk fails at every operation in turn: the file is there whole or as it was, and nothing is left beside it.
func TestPublishedFileIsWholeOrAsItWas(t *testing.T) {
	for failAt := 1; ; failAt++ {
		dir := t.TempDir()
		path := filepath.Join(dir, "out.jsonl")
		if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
			t.Fatal(err)
		}
		fsys := newFaultyDisk(failAt, false)
		err := publishFile(fsys, path, true, writes("new"), readsBack("new"))
		if text := readText(t, path); err != nil && text != "old" && text != "new" || err == nil && text != "new" {
			t.Errorf("failure at %d: error %v, the file holds %q", failAt, err, text)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Errorf("failure at %d: %d files are there", failAt, len(entries))
		}
		if !fsys.hit {
			if err != nil || failAt < 5 {
				t.Errorf("%v after %d operations", err, failAt-1)
			}
			return
		}
		if err == nil || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("failure at %d is reported as %v", failAt, err)
		}
	}
}

func TestPublishRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	broken := errors.New("broken")
	if err := PublishFile(path, false, func(io.Writer) error { return broken }, readsBack("")); !errors.Is(err, broken) {
		t.Errorf("the writer's error is %v", err)
	}
	if err := PublishFile(path, false, writes("a"), readsBack("b")); err == nil {
		t.Error("a file that reads back as another was published")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("%d files are left", len(entries))
	}
	if err := PublishFile(path, false, writes("a"), readsBack("a")); err != nil {
		t.Fatal(err)
	}
	if err := PublishFile(path, false, writes("b"), readsBack("b")); !errors.Is(err, ErrExists) || readText(t, path) != "a" {
		t.Errorf("error %v, the file holds %q", err, readText(t, path))
	}
	if err := PublishFile(dir, true, writes("b"), readsBack("b")); err == nil {
		t.Error("a folder was replaced")
	}
}

func writes(text string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
}

func readsBack(want string) func(string) error {
	return func(path string) error {
		text, err := os.ReadFile(path)
		if err == nil && string(text) != want {
			err = fmt.Errorf("it holds %q", text)
		}
		return err
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
