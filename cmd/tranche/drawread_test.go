package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tranche/internal/mock"
	"tranche/storage"
)

// A look at a run reads its record of draws once, however many figures come of it: the record of a long run is large, and one that grows
// between two readings would give figures that do not belong together.
func TestTheRecordOfDrawsIsReadOnce(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) { mock.Text("always").Send(r, w) }})
	s, dir := newShell(t), newRunDir(t)
	file := write(t, "tasks.jsonl", `{"id":"a","prompt":"A","answer":"never"}`+"\n"+`{"id":"b","prompt":"B","answer":"never"}`+"\n")
	s.do(codeOK, "run", file, "-o", dir, "-n", "2", "--useful", "1", "--reward", "exact", "--endpoint", server.URL(), "--progress", "none")
	path := filepath.Join(dir, storage.DrawsName)
	text, err := os.ReadFile(path)
	if err == nil {
		err = errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan int)
	end := make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			f, err := os.OpenFile(path, os.O_WRONLY, 0) // waits for a reader
			select {
			case <-end:
				read <- n
				f.Close()
				return
			default:
			}
			if err == nil {
				err = errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) // the next reader gets another
				_, werr := f.Write(text)
				err = errors.Join(err, werr, f.Close())
			}
			if err != nil {
				t.Errorf("give the record: %v", err)
			}
		}
	}()
	s.do(codeOK, "view", dir)
	if !strings.Contains(s.out.String(), "not as many useful groups as wanted") {
		t.Errorf("the record is not told of:\n%s", s.out.String())
	}
	close(end)
	last, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	if n := <-read; n != 1 {
		t.Errorf("the record was read %d times", n)
	}
}
