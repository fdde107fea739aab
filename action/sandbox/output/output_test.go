//go:build linux

package output

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
	"time"
)

func TestTakeSeesWhatWasWritten(t *testing.T) {
	p, w, err := Stream(nil, 100, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() // open until after Close: a grandchild that holds the pipe
	for i := range 200 {
		if _, err := w.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if out := p.Take(); len(out.Head) != 1 || out.Head[0] != byte(i) {
			t.Fatalf("write %d: took %v", i, out)
		}
	}
	if _, err := w.WriteString("last"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if out := p.Close(); string(out.Head) != "last" || time.Since(began) > time.Minute {
		t.Errorf("closed with %q after %v", out.Head, time.Since(began))
	}
}

func TestFloodNeitherBlocksNorGrows(t *testing.T) {
	var told int64
	p, w, err := Stream(nil, 4096, func(n int) { told += int64(n) })
	if err != nil {
		t.Fatal(err)
	}
	block := bytes.Repeat([]byte("x"), 1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 64 {
		if _, err := w.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	<-p.done
	out := p.Close()
	runtime.ReadMemStats(&after)
	if out.Total != 64<<20 || told != out.Total || len(out.Head) != 2048 || len(out.Tail) != 2048 {
		t.Errorf("total %d, told %d, kept %d + %d", out.Total, told, len(out.Head), len(out.Tail))
	}
	if grown := int64(after.TotalAlloc) - int64(before.TotalAlloc); grown > 1<<20 {
		t.Errorf("reading 64 MiB allocated %d bytes", grown)
	}
}

// limited takes so many bytes and then nothing more, as a closed pipe does.
type limited struct {
	bytes.Buffer
	room int
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) == 0 {
		panic("an empty write: one to an io.Pipe would not return")
	}
	if l.room -= len(p); l.room < 0 {
		return 0, errors.New("nobody reads")
	}
	return l.Buffer.Write(p)
}

func TestStreamHandsOnAndKeepsNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		room int
		want int
	}{{"all of it", 1 << 30, 8 << 20}, {"as much as the writer takes", 0, 0}} {
		t.Run(c.name, func(t *testing.T) {
			to := &limited{room: c.room}
			p, w, err := Stream(to, 100, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := bytes.Repeat([]byte("0123456\n"), 1<<20)
			if _, err := w.Write(want); err != nil {
				t.Fatal(err)
			}
			w.Close()
			<-p.done
			out := p.Close()
			if out.Total != 8<<20 || out.Head != nil || out.Tail != nil {
				t.Errorf("total %d, kept %d + %d", out.Total, len(out.Head), len(out.Tail))
			}
			if !bytes.Equal(to.Bytes(), want[:c.want]) {
				t.Errorf("the writer got %d bytes that are not the program's", to.Len())
			}
		})
	}
}
