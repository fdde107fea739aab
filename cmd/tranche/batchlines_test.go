package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"tranche/episode"
	"tranche/internal/mock"
	"tranche/sampler/taskfile"
)

// longLine is a chat request whose prompt has that many bytes, with what a text has: letters of several bytes, line ends, quotes.
func longLine(size int) []byte {
	text := strings.Repeat(`The quick brown fox said: \"é中\" and jumps over the lazy dog.\n`, size/66+1)[:size/66*66]
	return fmt.Appendf(nil, `{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "%s"}], "max_tokens": 9}}`, text)
}

// BenchmarkBatchLine reads a line of 5 MB as it is read before anything is sent, and as it is drawn.
func BenchmarkBatchLine(b *testing.B) {
	raw := longLine(5 << 20)
	for name, draw := range map[string]bool{"check": false, "draw": true} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				l, bad := batchLine(raw, episode.Position{}, false)
				if bad != nil {
					b.Fatal(bad)
				}
				if draw && len(l.task(episode.Position{}, false).Messages) != 2 {
					b.Fatal("not two messages")
				}
			}
		})
	}
}

// A line has a longest length, which is said; one of megabytes below it is read like others.
func TestBatchLongLines(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	if err := os.WriteFile(in, longLine(3<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	server := mock.New(t, mock.Config{})
	newShell(t).do(codeOK, "batch", in, "-o", filepath.Join(dir, "out"), "--endpoint", server.URL(), "--replace-model")
	if chats := server.Chats(); len(chats) != 1 || len(userText(chats[0])) < 2<<20 {
		t.Fatalf("%d requests came", len(chats))
	}
	if testing.Short() {
		t.Skip("a line over the limit has 64 MiB: left out by -short")
	}
	f, err := os.Create(in)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(`{"custom_id":"a"`)
	if err == nil {
		err = f.Truncate(taskfile.DefaultMaxLineBytes + 3)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	s := newShell(t)
	s.do(codeTasks, "batch", in, "-o", filepath.Join(dir, "other"), "--endpoint", server.URL())
	if !strings.Contains(s.err.String(), "in:1: the line is longer than 67108864 bytes") {
		t.Errorf("said %s", s.err.String())
	}
}

// What is split without being read is what encoding/json reads.
func FuzzSplitJSON(f *testing.F) {
	f.Add([]byte(` { "a" : "x\\" , "b\u0041\"" : [ 1 , {"c":"]}\\\""} ] , "a":-1.5e3 , "d":{}, "e":[], "":null } `))
	f.Add([]byte(`[1, "a,]", [], {"b":[true]} ,false ]`))
	f.Add([]byte(`"text"`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if !utf8.Valid(doc) || !json.Valid(doc) {
			t.Skip()
		}
		var object map[string]json.RawMessage
		var list []json.RawMessage
		if json.Unmarshal(doc, &object) != nil {
			object = nil
		}
		if json.Unmarshal(doc, &list) != nil {
			list = nil
		}
		if got := splitObject(doc); !maps.EqualFunc(got, object, sameBytes) || (got == nil) != (object == nil) {
			t.Fatalf("%q was split into %q, not %q", doc, got, object)
		}
		if got := splitList(doc); !slices.EqualFunc(got, list, sameBytes) || (got == nil) != (list == nil) {
			t.Fatalf("%q was split into %q, not %q", doc, got, list)
		}
	})
}

func sameBytes(a, b json.RawMessage) bool { return bytes.Equal(a, b) }
