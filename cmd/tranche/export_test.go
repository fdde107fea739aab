package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"tranche/storage"
)

// An export that is stopped leaves what was there, and nothing beside it.
func TestStoppedExportLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	newShell(t).do(codeOK, "run", taskFile(t, 3, ""), "-o", dir, "-q")
	run, err := storage.OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	kept := filepath.Join(out, "kept.jsonl")
	if err := os.WriteFile(kept, []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errInterrupted)
	for _, to := range []string{"messages", "dpo", "verl-rl"} {
		for _, path := range []string{kept, filepath.Join(out, "new.jsonl"), "-"} {
			s := newShell(t)
			c := exportCmd{Dir: dir, To: to, Out: path, Force: true, Pairs: "best-worst"}
			cfg, err := c.config()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.export(ctx, s.app, run, cfg); !errors.Is(err, errInterrupted) {
				t.Errorf("%s to %s: %v", to, path, err)
			}
		}
	}
	if entries, _ := os.ReadDir(out); len(entries) != 1 {
		t.Errorf("there are %d files", len(entries))
	}
	if text, _ := os.ReadFile(kept); string(text) != "kept" {
		t.Errorf("the file that was there holds %q", text)
	}
}
