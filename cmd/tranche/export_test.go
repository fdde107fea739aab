package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tranche/storage"
)

// Where the run's tools cannot be had, what the model was told is not known: the export ends, also at its last row, and says what to do.
func TestExportNeedsTheRunsTools(t *testing.T) {
	set := defaults()
	set.Tools = []string{"gone"}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	o := &offers{ctx: ctx, cancel: cancel, app: newShell(t).app, dir: "x", only: &offer{file: &runFile{Settings: set}}}
	defer o.close()
	_, err := o.of(&storage.Row{})
	if err == nil || codeOf(err) != codeUsage || !strings.Contains(err.Error(), "--tools none does without") || context.Cause(ctx) != err {
		t.Errorf("error %v, the export ends with %v", err, context.Cause(ctx))
	}
	set.Tools = nil
	plain := &offers{ctx: ctx, cancel: cancel, app: newShell(t).app, dir: "x", only: &offer{file: &runFile{Settings: set}}}
	defer plain.close()
	stated := `[{"type":"function","function":{"name":"theirs","parameters":{"type":"object"}}}]`
	if defs, err := plain.of(&storage.Row{Tools: &stated}); err != nil || string(defs) != stated || plain.only.actor != nil {
		t.Errorf("%s, %v", defs, err)
	}
	named := `["calculator"]`
	if defs, err := plain.of(&storage.Row{Tools: &named}); err != nil || !strings.Contains(string(defs), `"name":"calculator"`) {
		t.Errorf("%s, %v", defs, err)
	}
}

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
