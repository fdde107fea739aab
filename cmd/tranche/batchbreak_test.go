package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tranche/episode"
)

// A batch names up to five files. None may be another, by whatever path, and what is there by another name stays.
func TestBatchNamesMeet(t *testing.T) {
	text, err := os.ReadFile(embeddings(t, "a", "bad b"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		in, out, errors string
		code            code
		want            string
	}{
		"input as out.tmp":               {"z.tmp", "z", "", codePartial, ""},
		"input as errors.tmp":            {"w.tmp", "y", "w", codePartial, ""},
		"errors as out.tmp":              {"in", "y", "y.tmp", codePartial, ""},
		"output as errors.tmp":           {"in", "y.tmp", "y", codePartial, ""},
		"input as the journal":           {"y.journal", "y", "", codeUsage, "in: "},
		"errors as the journal":          {"in", "y", "y.journal", codeUsage, "errors: "},
		"errors as the journal, by link": {"in", "y", "link/y.journal", codeUsage, "errors: "},
		"errors as the output, by link":  {"in", "y", "link/y", codeUsage, "errors: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
				t.Fatal(err)
			}
			in := filepath.Join(dir, c.in)
			if err := os.WriteFile(in, text, 0o644); err != nil {
				t.Fatal(err)
			}
			args := []string{"batch", in, "-o", filepath.Join(dir, c.out), "--endpoint", newEcho(t, nil).URL()}
			if c.errors != "" {
				args = append(args, "--errors", filepath.Join(dir, c.errors))
			}
			s := newShell(t)
			s.do(c.code, args...)
			if !strings.Contains(s.err.String(), c.want) {
				t.Errorf("said %s, want a word of %q", s.err.String(), c.want)
			}
			if now, err := os.ReadFile(in); err != nil || !bytes.Equal(now, text) {
				t.Errorf("the input is now %q (%v)", now, err)
			}
			left := 2 // the input and the link
			if c.code == codePartial {
				left++
				n := len(results(t, filepath.Join(dir, c.out)))
				if c.errors != "" {
					n, left = n+len(results(t, filepath.Join(dir, c.errors))), left+1
				}
				if n != 2 {
					t.Errorf("%d results in the files, want 2", n)
				}
			}
			if list, _ := os.ReadDir(dir); len(list) != left {
				t.Errorf("left behind: %v", list)
			}
		})
	}
}

func authority(t *testing.T, server *httptest.Server) string {
	return write(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
}

// Batches and probes over https trust an authority of one's own, by flag and by file.
func TestBatchAndProbeTakeAnAuthority(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == "GET" {
			fmt.Fprint(w, `{"object":"list","data":[{"id":"mock"}]}`)
			return
		}
		fmt.Fprint(w, `{"object":"list","data":[]}`)
	}))
	defer server.Close()
	ca, in, dir := authority(t, server), embeddings(t, "a"), t.TempDir()
	config := write(t, "c.yaml", "ca-file: "+ca+"\n")
	newShell(t).do(codeOK, "batch", in, "-o", dir+"/flag", "--endpoint", server.URL, "--ca-file", ca)
	newShell(t).do(codeOK, "batch", in, "-o", dir+"/file", "--endpoint", server.URL, "-c", config)
	newShell(t).do(codeEndpoint, "batch", in, "-o", dir+"/none", "--endpoint", server.URL)
	newShell(t).do(codeOK, "probe", server.URL, "--quick", "--ca-file", ca)
	newShell(t).do(codeEndpoint, "probe", server.URL, "--quick")
}

// A file of authorities that holds none is a wrong setting, named by its key, and not a dead server.
func TestBadAuthorities(t *testing.T) {
	in, tasks, dir := embeddings(t, "a"), taskFile(t, 1, ""), t.TempDir()
	for name, file := range map[string]string{"no PEM": write(t, "a.pem", "hello\n"), "empty": write(t, "b.pem", ""), "a folder": dir, "a device": os.DevNull} {
		t.Run(name, func(t *testing.T) {
			config := write(t, "c.yaml", "endpoint:\n  - url: https://127.0.0.1:1/v1\n    ca-file: "+file+"\n")
			for _, args := range [][]string{
				{"batch", in, "-o", dir + "/o", "--endpoint", "https://127.0.0.1:1/v1", "--ca-file", file}, {"batch", in, "-o", dir + "/o", "-c", config},
				{"probe", "https://127.0.0.1:1/v1", "--ca-file", file}, {"probe", "-c", config},
				{"run", tasks, "-o", dir + "/run", "--endpoint", "https://127.0.0.1:1/v1", "--ca-file", file},
			} {
				s := newShell(t)
				s.do(codeUsage, args...)
				if said := s.err.String(); !strings.Contains(said, "ca-file: ") || !strings.Contains(said, file) {
					t.Errorf("%v: said %s", args, said)
				}
			}
		})
	}
}

// A finished batch is looked at again with the files named in other ways: what is said of them is true.
func TestBatchFinishedUnderOtherNames(t *testing.T) {
	const mixed, apart = false, true
	for name, c := range map[string]struct {
		inputs []string
		apart  bool   // the failed lines went to "errors"
		lose   string // a file that is removed then
		errors string // of the second command
		code   code
		want   string
	}{
		"failed ones in the output, errors now":     {[]string{"a", "bad b"}, mixed, "", "later", codeRefused, "holds the lines that failed itself: leave --errors out"},
		"nothing failed, errors now":                {[]string{"a", "b"}, mixed, "", "later", codeOK, "finished already"},
		"failed ones apart, no errors now":          {[]string{"a", "bad b"}, apart, "", "", codeRefused, "the lines that failed are missing: give --errors FILE"},
		"failed ones apart, errors removed":         {[]string{"a", "bad b"}, apart, "errors", "errors", codeRefused, "the lines that failed are missing"},
		"failed ones apart, all as it was":          {[]string{"a", "bad b"}, apart, "", "errors", codePartial, "finished already"},
		"all failed, no errors now":                 {[]string{"bad a", "bad b"}, apart, "", "", codeRefused, "the lines that failed are missing: give --errors FILE"},
		"the output removed":                        {[]string{"a", "bad b"}, apart, "out", "errors", codeRefused, "is not the result of"},
		"nothing failed, errors apart, errors lost": {[]string{"a"}, apart, "errors", "errors", codeOK, "finished already"},
	} {
		t.Run(name, func(t *testing.T) {
			e, dir := newEcho(t, nil), t.TempDir()
			first := []string{"batch", embeddings(t, c.inputs...), "-o", dir + "/out", "--endpoint", e.URL()}
			again := first
			if c.apart {
				first = append(first[:len(first):len(first)], "--errors", dir+"/errors")
			}
			if c.errors != "" {
				again = append(again[:len(again):len(again)], "--errors", dir+"/"+c.errors)
			}
			newShell(t).app.main(t.Context(), first)
			asked := len(e.Requests())
			if c.lose != "" {
				if err := os.Remove(dir + "/" + c.lose); err != nil {
					t.Fatal(err)
				}
			}
			s := newShell(t)
			s.do(c.code, again...)
			if !strings.Contains(s.err.String(), c.want) {
				t.Errorf("said %s, want a word of %q", s.err.String(), c.want)
			}
			if len(e.Requests()) != asked {
				t.Error("something was sent again")
			}
			if _, err := os.Stat(dir + "/" + c.errors); err != nil && c.code != codeRefused {
				t.Errorf("a file that was named is not there: %v", err)
			}
		})
	}
}

// Behind the results of an output there is nothing else.
func TestBatchOutputWithMoreBehindIt(t *testing.T) {
	e, out := newEcho(t, nil), filepath.Join(t.TempDir(), "out")
	args := []string{"batch", embeddings(t, "a"), "-o", out, "--endpoint", e.URL()}
	newShell(t).do(codeOK, args...)
	raw, err := os.ReadFile(out)
	if err == nil {
		err = os.WriteFile(out, append(raw, "my notes\n"...), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	newShell(t).do(codeRefused, args...)
}

// Nobody gets made-up answers for want of a flag.
func TestBatchNeedsAnEndpoint(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	s := newShell(t)
	s.do(codeUsage, "batch", embeddings(t, "a"), "-o", out)
	if !strings.Contains(s.err.String(), "endpoint: is missing") {
		t.Errorf("said %s", s.err.String())
	}
	nothingLeft(t, out)
}

// One damaged record costs its own line only, and the result says so, under -q too.
func TestBatchJournalDamagedInTheMiddle(t *testing.T) {
	inputs := numbered(6)
	e, in, out := newEcho(t, nil), embeddings(t, inputs...), filepath.Join(t.TempDir(), "out")
	f, err := checkBatch(t.Context(), in, false)
	if err != nil {
		t.Fatal(err)
	}
	j, _, err := openBatchJournal(batchJournalPath(out), batchHead{Input: f.digest, Lines: f.lines}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var at int64 // inside the second result
	for line := range 5 {
		if line == 2 {
			at = j.size - 9
		}
		if err := j.Write(t.Context(), ended(line, `{"of":`+string(encode(map[string]any{"input": inputs[line]}))+`}`)); err != nil {
			t.Fatal(err)
		}
	}
	_, err = j.file.WriteAt([]byte("#"), at)
	j.close()
	if err = errors.Join(err, j.release(false)); err != nil {
		t.Fatal(err)
	}
	s := newShell(t)
	s.do(codeOK, "batch", in, "-o", out, "--endpoint", e.URL(), "-q", "--json")
	for line, input := range inputs {
		want := 0
		if line == 1 || line == 5 {
			want = 1
		}
		if n := e.times(input); n != want {
			t.Errorf("line %d was asked %d times, want %d", line, n, want)
		}
	}
	if list := results(t, out); len(list) != 6 || list[1].CustomID != "r1" {
		t.Errorf("%d results", len(list))
	}
	var r batchReport
	if err := json.Unmarshal(s.out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Notes) == 0 || !strings.Contains(r.Notes[0], "1 damaged records") {
		t.Errorf("notes: %q", r.Notes)
	}
}

// Text is Unicode when its bytes are and its escapes are; U+FFFD is a character like others.
func TestBatchUnicode(t *testing.T) {
	line := func(id, input string) string {
		return `{"custom_id":"` + id + `","method":"POST","url":"/v1/embeddings","body":{"input":"` + input + `"}}`
	}
	for name, c := range map[string]struct {
		text string
		code code
		want string
	}{
		"an escaped U+FFFD":      {line(`\ufffd`, "x"), codeOK, ""},
		"U+FFFD itself":          {line("\ufffd", "\ufffd"), codeOK, ""},
		"a pair":                 {line(`\ud83d\ude00`, "x"), codeOK, ""},
		"an escaped backslash":   {line(`\\ud800`, "x"), codeOK, ""},
		"half a pair":            {line(`\ud800`, "x"), codeTasks, `field "custom_id": expected valid Unicode`},
		"the second half":        {line(`a\uDE00`, "x"), codeTasks, `field "custom_id": expected valid Unicode`},
		"two first halves":       {line(`\ud800\ud800`, "x"), codeTasks, `field "custom_id": expected valid Unicode`},
		"half, then another":     {line(`\ud800\u0041\udc00`, "x"), codeTasks, `field "custom_id": expected valid Unicode`},
		"a raw byte in the body": {line("a", "x\xfe"), codeTasks, "in.jsonl:1: expected UTF-8, found the byte 0xfe at byte 75 of the line"},
		"a raw byte in the id":   {line("a\xfe", "x"), codeTasks, "in.jsonl:1: expected UTF-8, found the byte 0xfe at byte 16 of the line"},
	} {
		t.Run(name, func(t *testing.T) {
			e, out := newEcho(t, nil), filepath.Join(t.TempDir(), "out")
			s := newShell(t)
			s.do(c.code, "batch", write(t, "in.jsonl", c.text), "-o", out, "--endpoint", e.URL())
			if !strings.Contains(s.err.String(), c.want) {
				t.Errorf("said %s, want a word of %q", s.err.String(), c.want)
			}
			if c.code != codeOK {
				return
			}
			var in struct {
				CustomID string `json:"custom_id"`
			}
			if err := json.Unmarshal([]byte(c.text), &in); err != nil {
				t.Fatal(err)
			}
			if got := results(t, out)[0].CustomID; got != in.CustomID {
				t.Errorf("%q came back as %q", in.CustomID, got)
			}
		})
	}
}

// What ended a batch is said in the words of the batch: the line, the file, the cause.
func TestBatchSaysWhatEndedIt(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	j, _, err := openBatchJournal(batchJournalPath(out), batchHead{Lines: 8}, nil)
	if err != nil {
		t.Fatal(err)
	}
	j.file.Close() // from here on nothing can be written
	sink := &batchSink{journal: j, tally: &tally{}, by: map[string]int64{}}
	err = sink.Write(t.Context(), ended(7, `{}`))
	j.close()
	why := (&batch{session: newSession(&app{}, defaults())}).ending(fmt.Errorf("write episode d729ee50: %w", err), false, 0)
	for _, said := range []string{why.text, why.err.Error()} {
		if !strings.Contains(said, `custom_id "r7"`) || !strings.Contains(said, "out.journal") || !strings.Contains(said, "closed") || strings.Contains(said, "episode") {
			t.Errorf("said %s", said)
		}
	}
	if why.code != codeDisk {
		t.Errorf("exit status %d", why.code)
	}
}

// An answered batch whose files a crash kept from being named is named by the next try: over its own files, never over another's.
func TestBatchReplacesNothing(t *testing.T) {
	in, dir := embeddings(t, "a", "b"), t.TempDir()
	out, bad := filepath.Join(dir, "out"), filepath.Join(dir, "errors")
	f, err := checkBatch(t.Context(), in, false)
	if err != nil {
		t.Fatal(err)
	}
	j, _, err := openBatchJournal(batchJournalPath(out), batchHead{Input: f.digest, Lines: f.lines}, nil)
	if err != nil {
		t.Fatal(err)
	}
	refused := ended(1, `{"error":{}}`)
	refused.Status, refused.Fault = episode.StatusFailed, &episode.Fault{Class: episode.ClassBadRequest, Answer: &episode.Answer{Status: 400, Body: []byte(`{}`)}}
	for _, e := range []*episode.Episode{ended(0, `{}`), refused} {
		if err := j.Write(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	j.close()
	if err := j.release(false); err != nil {
		t.Fatal(err)
	}
	args := []string{"batch", in, "-o", out, "--errors", bad, "--endpoint", "http://127.0.0.1:1/v1"}
	for _, path := range []string{bad, out} {
		if err := os.WriteFile(path, []byte("mine\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		s := newShell(t)
		s.do(codeRefused, args...)
		if raw, err := os.ReadFile(path); err != nil || string(raw) != "mine\n" || !strings.Contains(s.err.String(), path+": a file of that name is there already") {
			t.Errorf("%q (%v), said %s", raw, err, s.err.String())
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if len(results(t, bad)) != 1 { // it was named before the output was refused, as before a crash
		t.Error("the error file is not there")
	}
	newShell(t).do(codePartial, args...)
	if len(results(t, out)) != 1 || len(results(t, bad)) != 1 {
		t.Error("not one result in each file")
	}
	nothingLeft(t, out)
}
