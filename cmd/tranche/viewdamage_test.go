package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"tranche/internal/mock"
)

// A journal whose last record was changed: view shows the rest, names the place and ends with 7; resume plays the row again and says so under -q too.
func TestLastRecordOfAJournalIsDamaged(t *testing.T) {
	const tasks, samples = 3, 2
	s, dir := newShell(t), newRunDir(t)
	var asked atomic.Int64
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		if asked.Add(1) == tasks*samples { // of one group one sample is in the journal alone
			awaitRows(dir, tasks*samples-1) // with no drain, what is still being scored or written would be cut
			s.signals <- os.Interrupt
			w.Hang()
			return
		}
		mock.Text("#### 7").Send(r, w)
	}})
	s.do(codeInt, "run", taskFile(t, tasks, ""), "-n", "2", "--endpoint", server.URL(), "--concurrency", "1", "--drain-timeout", "0s", "-o", dir, "-q")
	if n := len(rowsIn(t, dir)); n != tasks*samples-1 {
		t.Fatalf("%d rows before the damage", n)
	}
	spoilJournal(t, dir)

	v := newShell(t)
	v.do(codeDisk, "view", dir)
	if said := v.err.String(); !strings.Contains(said, "damaged bytes at byte 16") || !strings.Contains(said, "tranche resume "+dir) || !strings.Contains(v.out.String(), "4 of 6 stored") {
		t.Errorf("said %s\n%s", said, v.out.String())
	}
	again := newShell(t)
	again.do(codeOK, "resume", dir, "-q", "--json")
	if !strings.Contains(again.out.String(), "damaged bytes at byte 16") {
		t.Errorf("said %s", again.out.String())
	}
	if n := len(rowsIn(t, dir)); n != tasks*samples {
		t.Errorf("%d rows in the end", n)
	}
	if kept, _ := filepath.Glob(filepath.Join(dir, "journal", "*.damaged")); len(kept) != 1 {
		t.Errorf("kept aside: %v", kept)
	}
}

// spoilJournal changes the last byte of the only journal file of a run.
func spoilJournal(t *testing.T, dir string) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(dir, "journal", "*.log"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("journal files %v (%v)", segments, err)
	}
	raw, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-1] ^= 1
	if err := os.WriteFile(segments[0], raw, 0o644); err != nil {
		t.Fatal(err)
	}
}
