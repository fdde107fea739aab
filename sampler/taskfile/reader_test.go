package taskfile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tranche/episode"
)

func ids(tasks []*episode.Task) string {
	var out []string
	for _, t := range tasks {
		out = append(out, t.ID)
	}
	return strings.Join(out, " ")
}

const two = `{"id":"a","prompt":"x"}` + "\n" + `{"id":"b","prompt":"y"}` + "\n"

func TestFiles(t *testing.T) {
	for _, c := range []struct{ name, text string }{
		{"plain", two},
		{"no newline at the end", strings.TrimSuffix(two, "\n")},
		{"byte order mark", "\ufeff" + two},
		{"CRLF", strings.ReplaceAll(two, "\n", "\r\n")},
		{"blank lines", "\n \t\n" + strings.ReplaceAll(two, "\n", "\n\n\r\n")},
		{"gzip", gzipped(t, two)},
		{"gzip of a file with a byte order mark", gzipped(t, "\ufeff"+two)},
		{"gzip in two members", gzipped(t, two[:20]) + gzipped(t, two[20:])},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{Paths: []string{file(t, "any.name", c.text)}}
			if got := ids(readAll(t, cfg)); got != "a b" {
				t.Errorf("ids %q, want a b", got)
			}
			if rep := check(t, cfg); rep.Tasks != 2 || rep.Rows != 2 {
				t.Errorf("report %+v, want 2 tasks of 2 rows", rep)
			}
		})
	}
}

func TestFileFaults(t *testing.T) {
	small, whole := gzipped(t, two), gzipped(t, strings.Repeat(two, 200))
	flipped := []byte(whole)
	flipped[len(flipped)-6] ^= 0xff // in the checksum
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "t.jsonl: is empty; expected at least one task"},
		{"only blank lines", "\n\n  \n", "t.jsonl: is empty; expected at least one task"},
		{"gzip of nothing", gzipped(t, ""), "t.jsonl: is empty; expected at least one task"},
		{"small gzip cut short", small[:len(small)-9], "t.jsonl: the compressed file is cut short or damaged: unexpected EOF"},
		{"gzip without its end", whole[:len(whole)-8], "t.jsonl:401: the compressed file is cut short or damaged: unexpected EOF"},
		{"gzip with a wrong checksum", string(flipped), "t.jsonl:401: the compressed file is cut short or damaged: gzip: invalid checksum"},
		{"zstd", "\x28\xb5\x2f\xfd....", "t.jsonl: is compressed with zstd; expected plain or gzip JSON Lines, or Parquet"},
		{"zip", "PK\x03\x04....", "t.jsonl: is a zip archive; expected plain or gzip JSON Lines, or Parquet"},
		{"UTF-16", "\xff\xfe{\x00}\x00", "t.jsonl: is UTF-16 text; expected UTF-8"},
		{"one list", "\n [{}]", "t.jsonl: is one JSON list; expected one JSON object a line (jq -c '.[]' turns a list into lines)"},
		{"Parquet without a reader", "PAR1....", "t.jsonl: is a Parquet file, and no Parquet reader is set; expected JSON Lines"},
		{"Parquet inside gzip", gzipped(t, "PAR1...."), "t.jsonl: is a Parquet file inside gzip; unpack it first"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{Paths: []string{file(t, "t.jsonl", c.text)}, SkipBad: true} // a fault of a file is never skipped
			if got := refused(t, cfg); !strings.HasPrefix(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestEveryFileIsCheckedEvenWhenOneIsNotThere(t *testing.T) {
	dir := t.TempDir()
	bad := file(t, "bad.jsonl", two+"nonsense\n")
	cfg := Config{Paths: []string{filepath.Join(dir, "none.jsonl"), dir, bad, os.DevNull}}
	_, err := Check(t.Context(), cfg)
	if err == nil {
		t.Fatal("no error")
	}
	want := []string{
		cfg.Paths[0] + ": no such file",
		dir + ": is a directory; expected a file, so name the files in it",
		bad + ":3: byte 2: not valid JSON: invalid character 'o' in literal null (expecting 'u'); expected one whole JSON object on this line",
		os.DevNull + ": is no regular file; task files are read twice (checked first, then run), so save the tasks to a file",
	}
	if got := strings.Split(err.Error(), "\n"); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", err, strings.Join(want, "\n"))
	}
}

func TestLineCap(t *testing.T) {
	row := func(id string, n int) string {
		head := fmt.Sprintf(`{"id":%q,"prompt":"`, id)
		return head + strings.Repeat("x", n-len(head)-2) + `"}`
	}
	const limit = 600 << 10 // over the reader's own buffer
	text := row("fits", limit) + "\r\n" + row("long", limit+3) + "\n" + row("after", 100) + "\n" + row("end", limit+5)
	cfg := Config{Paths: []string{file(t, "t.jsonl", text)}, MaxLineBytes: limit}
	want := "t.jsonl:2: the line is longer than 614400 bytes; expected one JSON object a line\n" +
		"t.jsonl:4: the line is longer than 614400 bytes; expected one JSON object a line"
	if got := refused(t, cfg); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	cfg.SkipBad = true
	if got := ids(readAll(t, cfg)); got != "fits after" {
		t.Errorf("ids %q, want: fits after", got)
	}
}

// TestCaseRDo4: two rows with the same id but different prompts are an error before any request, never a silent loss.
func TestCaseRDo4(t *testing.T) {
	a := file(t, "a.jsonl", `{"id":"x","prompt":"one"}`+"\n"+`{"id":"y","prompt":"two"}`)
	b := file(t, "b.jsonl", `{"id":"z","prompt":"three"}`+"\n"+`{"id":"x","prompt":"another"}`+"\n"+`{"id":"y","prompt":"two"}`)
	cfg := Config{Paths: []string{a, b}}
	want := `b.jsonl:2: field "id": "x" was used at a.jsonl:1 for a task with other content; expected ids that are unique`
	if got := refused(t, cfg); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	r, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for range 3 {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	var in *InputError
	if _, err := r.Next(); !errors.As(err, &in) || in.Total != 1 {
		t.Errorf("the reader gave %v, want the same fault", err)
	}
	cfg.SkipBad = true
	rep := check(t, cfg)
	if rep.Tasks != 3 || rep.Bad.Rows != 1 || rep.Duplicates != 1 || rep.Rows != 5 {
		t.Errorf("report %+v, want 3 tasks, 1 bad, 1 duplicate of 5 rows", rep)
	}
	if got := ids(readAll(t, cfg)); got != "x y z" {
		t.Errorf("ids %q, want x y z", got)
	}
}

func TestRowsWithoutIDAreDroppedOnlyWhenTheyAreTheSame(t *testing.T) {
	text := `{"prompt":"x"}` + "\n" + `{"prompt":"x","k":1}` + "\n" + `{"prompt":"x"}` + "\n" + `{"prompt":"y"}`
	rep := check(t, Config{Paths: []string{file(t, "t.jsonl", text)}})
	if rep.Tasks != 3 || rep.Duplicates != 1 {
		t.Errorf("report %+v, want 3 tasks and 1 duplicate", rep)
	}
}

func TestAllFaultsAreCountedAndTheFirstListed(t *testing.T) {
	text := two + strings.Repeat(`{"id":"c","prompt":3}`+"\n", 250)
	cfg := Config{Paths: []string{file(t, "t.jsonl", text)}}
	got := refused(t, cfg)
	lines := strings.Split(got, "\n")
	if len(lines) != MaxListedErrors+1 || lines[0] != `t.jsonl:3: field "prompt": expected a string or a list of messages, found a number` ||
		lines[20] != "… and 230 more faults (250 in all)" {
		t.Errorf("got\n%s", got)
	}
	cfg.SkipBad = true
	rep := check(t, cfg)
	if rep.Tasks != 2 || rep.Bad.Rows != 250 || len(rep.Bad.Listed) != MaxListedBad || rep.Bad.Listed[99].Where.Line != 102 {
		t.Errorf("report: %d tasks, %d bad, %d listed", rep.Tasks, rep.Bad.Rows, len(rep.Bad.Listed))
	}
}

func TestOffsetAndLimitCountTasks(t *testing.T) {
	var b strings.Builder
	for i := range 10 {
		fmt.Fprintf(&b, `{"id":%d,"prompt":"p"}`+"\n"+`{"id":%d,"prompt":"p"}`+"\n"+"broken\n", i, i)
	}
	path := file(t, "t.jsonl", b.String())
	for _, c := range []struct {
		offset, limit int64
		want          string
	}{
		{0, 3, "0 1 2"}, {4, 2, "4 5"}, {8, 0, "8 9"}, {8, 99, "8 9"},
	} {
		cfg := Config{Paths: []string{path}, SkipBad: true, Offset: c.offset, Limit: c.limit}
		tasks := readAll(t, cfg)
		if ids(tasks) != c.want {
			t.Errorf("offset %d limit %d: %q, want %q", c.offset, c.limit, ids(tasks), c.want)
		}
		if rep := check(t, cfg); rep.Tasks != int64(len(tasks)) || rep.First.ID != tasks[0].ID {
			t.Errorf("offset %d limit %d: the report says %d tasks from %s", c.offset, c.limit, rep.Tasks, rep.First.ID)
		}
		if at := tasks[0]; at.Index != c.offset*3 || at.Where.Line != int(c.offset*3+1) {
			t.Errorf("task %s is index %d line %d", at.ID, at.Index, at.Where.Line)
		}
	}
	cfg := Config{Paths: []string{path}, Limit: 1}
	if rep := check(t, cfg); rep.Rows != 1 {
		t.Errorf("%d rows read for the first task, want 1", rep.Rows)
	}
	cfg = Config{Paths: []string{path}, SkipBad: true, Offset: 10}
	if got := refused(t, cfg); got != "t.jsonl: no task is left after offset 10: the input has 30 rows" {
		t.Error(got)
	}
	cfg = Config{Paths: []string{file(t, "t.jsonl", "x\ny\n")}, SkipBad: true}
	if got := refused(t, cfg); !strings.HasPrefix(got, "t.jsonl: no task is left: all 2 rows are bad, the first one: ") {
		t.Error(got)
	}
}

func TestParquetRowsComeThroughTheInjectedReader(t *testing.T) {
	path := file(t, "data.bin", "PAR1 and more")
	broken := errors.New("page 3: bad checksum")
	open := func(got string) iter.Seq2[json.RawMessage, error] {
		if got != path {
			t.Errorf("asked to open %s", got)
		}
		return func(yield func(json.RawMessage, error) bool) {
			_ = yield(json.RawMessage(`{"id":"a","prompt":"x"}`), nil) &&
				yield(json.RawMessage(`{"id":"b","prompt":7}`), nil) && yield(nil, broken)
		}
	}
	cfg := Config{Paths: []string{path}, OpenRows: open}
	want := `data.bin:2: field "prompt": expected a string or a list of messages, found a number` + "\n" +
		"data.bin:3: page 3: bad checksum"
	if got := refused(t, cfg); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestCancelledContextEndsAPass(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cfg := Config{Paths: []string{file(t, "t.jsonl", two)}}
	r, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := r.Next(); !errors.Is(err, context.Canceled) {
		t.Errorf("Next gave %v, want cancelled", err)
	}
	if _, err := Check(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("Check gave %v, want cancelled", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

func TestNextAfterCloseIsAnError(t *testing.T) {
	r, err := Open(t.Context(), Config{Paths: []string{file(t, "t.jsonl", two)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); err == nil || err == io.EOF {
		t.Errorf("Next after Close gave %v", err)
	}
}

func TestIgnoredFieldsAreCounted(t *testing.T) {
	text := `{"prompt":[{"role":"user","content":"a","weight":1}]}` + "\n" + `{"prompt":[{"role":"user","content":"b","weight":1,"name":"n"}]}`
	rep := check(t, Config{Paths: []string{file(t, "t.jsonl", text)}})
	if want := map[string]int64{"messages.weight": 2}; !reflect.DeepEqual(rep.Ignored, want) {
		t.Errorf("ignored %v, want %v", rep.Ignored, want)
	}
}

// What a check tells of tools and models, wherever in the file they are.
func TestToolsAndModelsAreCounted(t *testing.T) {
	batch := func(id, body string) string {
		return `{"custom_id":"` + id + `","method":"POST","url":"/v1/chat/completions","body":{` + body + `"messages":[{"role":"user","content":"hi"}]}}` + "\n"
	}
	text := `{"prompt":"a"}` + "\n" + `{"prompt":"b","tools":["x"]}` + "\n" + batch("1", `"model":"m",`) + batch("2", `"model":"m",`) + batch("3", `"model":"n",`) + batch("4", "")
	rep := check(t, Config{Paths: []string{file(t, "t.jsonl", text)}})
	if want := map[string]int64{"m": 2, "n": 1}; !reflect.DeepEqual(rep.Models, want) || rep.WithTools != 1 {
		t.Errorf("models %v, want %v; %d tasks with tools, want 1", rep.Models, want, rep.WithTools)
	}
}

// TestCheckAndReaderAgree is the law between the two passes, on inputs of good, bad, repeated and conflicting rows: the same
// tasks, the same digest, every row accounted for, ids unique.
func TestCheckAndReaderAgree(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		row := rapid.Custom(func(rt *rapid.T) string {
			id, body := rapid.IntRange(0, 6).Draw(rt, "id"), rapid.IntRange(0, 2).Draw(rt, "body")
			return rapid.SampledFrom([]string{
				fmt.Sprintf(`{"id":%d,"prompt":"%d"}`, id, body),
				fmt.Sprintf(`{"prompt":"%d"}`, body),
				`{"id":1}`, "garbage", "", fmt.Sprintf(`{"id":%d,"prompt":[]}`, id),
			}).Draw(rt, "row")
		})
		var paths []string
		for i, rows := range rapid.SliceOfN(rapid.SliceOfN(row, 1, 12), 1, 3).Draw(rt, "files") {
			path := filepath.Join(dir, fmt.Sprint(i))
			if err := os.WriteFile(path, []byte("\n{\"prompt\":\"one\"}\n"+strings.Join(rows, "\n")), 0o644); err != nil {
				rt.Fatal(err)
			}
			paths = append(paths, path)
		}
		cfg := Config{Paths: paths, SkipBad: true, Offset: rapid.Int64Range(0, 2).Draw(rt, "offset"), Limit: rapid.Int64Range(0, 5).Draw(rt, "limit")}
		r, err := Open(context.Background(), cfg)
		if err != nil {
			rt.Fatal(err)
		}
		defer r.Close()
		seen := map[string]bool{}
		for {
			task, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				rt.Fatal(err)
			}
			if seen[task.ID] {
				rt.Fatalf("id %s twice", task.ID)
			}
			seen[task.ID] = true
		}
		rep, err := Check(context.Background(), cfg)
		if (err == nil) != (len(seen) > 0) {
			rt.Fatalf("Check gave %v for %d tasks", err, len(seen))
		}
		if rep.Tasks != int64(len(seen)) || rep.SHA256 != r.SHA256() {
			rt.Fatalf("Check: %d tasks %s, reader: %d tasks %s", rep.Tasks, rep.SHA256, len(seen), r.SHA256())
		}
		if cfg.Limit == 0 && cfg.Offset == 0 && rep.Rows != rep.Tasks+rep.Duplicates+rep.Bad.Rows {
			rt.Fatalf("%d rows, but %d tasks, %d duplicates, %d bad", rep.Rows, rep.Tasks, rep.Duplicates, rep.Bad.Rows)
		}
	})
}

func TestDigestFollowsContentAndOrderOnly(t *testing.T) {
	sum := func(text string) string { return check(t, Config{Paths: []string{file(t, "t.jsonl", text)}}).SHA256 }
	lines := strings.SplitAfter(two, "\n")
	slices.Reverse(lines)
	if sum(two) != sum(gzipped(t, "\ufeff\n"+strings.ReplaceAll(two, ":", " :"))) {
		t.Error("packing and spacing changed the digest")
	}
	if sum(two) == sum(strings.Join(lines, "")) || sum(two) == sum(two+`{"id":"c","prompt":"z"}`) || sum(two) == sum(strings.Replace(two, "y", "Y", 1)) {
		t.Error("another input has the same digest")
	}
}

func TestIDTable(t *testing.T) {
	var table idTable
	for n := 1; n <= 300_000; n++ {
		id := fmt.Sprint("task-", n)
		if v := table.add(id, "content of "+id); v != fresh {
			t.Fatalf("%s is %v, want fresh", id, v)
		}
		if n >= 2_000 && n%500 == 0 && float64(table.bytes()) > 24*float64(n)+float64(len(table.shards)*16*16) {
			t.Fatalf("%d ids take %d bytes", n, table.bytes())
		}
	}
	if per := float64(table.bytes()) / 300_000; per > 24 {
		t.Errorf("%.1f bytes an id, want at most 24", per)
	}
	for n := 1; n <= 300_000; n += 7 {
		id := fmt.Sprint("task-", n)
		if v := table.add(id, "content of "+id); v != duplicate {
			t.Fatalf("%s is %v, want duplicate", id, v)
		}
		if v := table.add(id, "other"); v != conflict {
			t.Fatalf("%s with other content is %v, want conflict", id, v)
		}
	}
}
