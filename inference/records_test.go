package inference

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"tranche/episode"
	"tranche/internal/mock"
)

// record is one recorded exchange of the response collection.
type record struct {
	ID, Source, Server, Form string
	Status                   int
	Stream                   bool
	Headers                  map[string]string
	Request                  json.RawMessage
	Body                     json.RawMessage
	Features                 []string
}

func responses(t *testing.T) []record {
	t.Helper()
	dir := os.Getenv("TRANCHE_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "data")
	}
	dir = filepath.Join(dir, "responses")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no recorded responses at %s; set TRANCHE_DATA to the data folder", dir)
	}
	var out []record
	for _, name := range []string{"fantasy.jsonl.gz", "llama-stack.jsonl", "otel-contrib.jsonl", "pydantic-ai.jsonl", "sglang-docs.jsonl", "vercel-ai.jsonl.gz"} {
		out = append(out, readRecords(t, filepath.Join(dir, name))...)
	}
	return out
}

func readRecords(t *testing.T, file string) []record {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(file, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	var out []record
	lines := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var rec record
			if err := json.Unmarshal(line, &rec); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			out = append(out, rec)
		}
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// wire brings a record back to what was on the wire.
func (r record) wire(t *testing.T) (body string, stream bool) {
	t.Helper()
	var s string
	var chunks []json.RawMessage
	switch r.Form {
	case "raw", "json":
		if err := json.Unmarshal(r.Body, &s); err != nil {
			t.Fatal(err)
		}
		if r.Stream && !strings.Contains(s, "data:") { // payloads one per line, their frame left out
			return frame(strings.Split(strings.TrimSpace(s), "\n")), true
		}
		return s, r.Stream
	case "chunks":
		var list []string
		if err := json.Unmarshal(r.Body, &list); err != nil {
			t.Fatal(err)
		}
		return frame(list), true
	case "sdk":
		if r.Status != 200 {
			var e struct{ Body json.RawMessage }
			if err := json.Unmarshal(r.Body, &e); err != nil {
				t.Fatal(err)
			}
			return `{"error":` + string(e.Body) + `}`, false
		}
		if json.Unmarshal(r.Body, &chunks) != nil {
			return string(r.Body), false
		}
		var list []string
		for _, c := range chunks {
			list = append(list, string(c))
		}
		return frame(append(list, "[DONE]")), true
	}
	t.Fatalf("record of unknown form %q", r.Form)
	return "", false
}

func frame(payloads []string) string {
	var b strings.Builder
	for _, p := range payloads {
		b.WriteString("data: " + p + "\n\n")
	}
	return b.String()
}

var update = flag.Bool("update", false, "rewrite testdata/records.txt")

// TestEveryRecordedResponse sends each record over the wire, has Generate read it, and compares what was understood with what the
// record says and with the table in testdata/records.txt, which is for people: one line a record.
func TestEveryRecordedResponse(t *testing.T) {
	records := responses(t)
	if len(records) != 273 {
		t.Fatalf("%d records, expected 273", len(records))
	}
	var current record
	var body string
	var stream bool
	s := mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) {
		for k, v := range current.Headers {
			if http.CanonicalHeaderKey(k) != "Content-Type" {
				w.Header(k, v)
			}
		}
		kind := "application/json"
		if stream {
			kind = "text/event-stream"
		}
		w.Raw(current.Status, kind, body)
	}})
	e := open(t, s, func(c *Config) { c.Stream = true; c.AttemptTimeout = 10 * time.Second })

	var table bytes.Buffer
	tw := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, tableHead)
	inBand := 0
	for _, current = range records {
		body, stream = current.wire(t)
		r, err := e.Generate(t.Context(), call("x"), 0, 1<<20)
		fmt.Fprintln(tw, current.row(t, stream, r, err))
		switch {
		case current.Status != 200:
			checkRecordedFault(t, current, err)
		case err != nil:
			want := episode.ClassBadRequest
			if strings.Contains(body, "failed_generation") {
				want = episode.ClassToolUse
			}
			if faultOf(t, err).Class != want || !strings.Contains(body, `"error"`) {
				t.Errorf("%s: %v", current.ID, err)
			}
			inBand++
		default:
			checkRecordedReply(t, current, r, stream)
		}
	}
	if inBand != 3 {
		t.Errorf("%d errors inside 200 answers found; the collection holds 3", inBand)
	}
	tw.Flush()
	compareTable(t, filepath.Join("testdata", "records.txt"), table.Bytes())
}

func compareTable(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, wanted := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(lines), len(wanted)) {
		if i >= len(lines) || i >= len(wanted) || lines[i] != wanted[i] {
			t.Fatalf("%s, line %d is not what was understood (go test -run %s -update rewrites it):\n%q\n%q", file, i+1, t.Name(), at(wanted, i), at(lines, i))
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}

const tableHead = "record\tserver\troute\tform\tchoices\tcontent\treasoning\tcalls\tids\tlogprobs\tusage\tfinish\traw\tflags\tfault"

// row is what was understood of a record: lengths in bytes, - for null, usage as prompt/completion/cached.
func (r record) row(t *testing.T, stream bool, got *episode.Reply, err error) string {
	t.Helper()
	form := "whole"
	if stream {
		form = "stream"
	}
	head := fmt.Sprintf("%s\t%s\t%s\t%s", r.ID, strings.ReplaceAll(r.Server, " ", "-"), r.route(), form)
	if err != nil {
		return fmt.Sprintf("%s\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t%s", head, faultOf(t, err).Class)
	}
	m := got.Message
	return fmt.Sprintf("%s\t%d\t%s\t%s\t%d\t%s\t%s\t%s/%s/%s\t%s\t%s\t%s\t-", head, r.choices(t), length(m.Content), length(m.ReasoningContent), len(m.ToolCalls),
		size(got.SampledIDs), size(got.Logprobs), number(got.Usage.Prompt), number(got.Usage.Completion), number(got.Usage.Cached),
		orDash(got.Finish), orDash(got.RawEnd), orDash(strings.Join(got.Flags, ",")))
}

// route is where the question went: the recordings of completions are those whose choices have a text.
func (r record) route() string {
	if strings.Contains(string(r.Body), `"object":"text_completion"`) {
		return "completions"
	}
	return "chat"
}

// choices is how many choices the record's answer has.
func (r record) choices(t *testing.T) int {
	seen := map[string]bool{}
	for _, d := range r.documents(t) {
		list, _ := dig(d, "choices").([]any)
		for _, c := range list {
			seen[fmt.Sprint(dig(c, "index"))] = true
		}
	}
	return len(seen)
}

func length(s *string) string {
	if s == nil {
		return "-"
	}
	return fmt.Sprint(len(*s))
}

func size[T any](s []T) string {
	if s == nil {
		return "-"
	}
	return fmt.Sprint(len(s))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func checkRecordedReply(t *testing.T, rec record, r *episode.Reply, stream bool) {
	t.Helper()
	docs := rec.documents(t)
	if diff := expect(docs, 0).differs(r); diff != "" {
		t.Errorf("%s: %s", rec.ID, diff)
	}
	for i := 1; i < rec.choices(t); i++ { // what Generate does not return is read all the same
		a := &answer{}
		for _, d := range docs {
			raw, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.takeEvent(raw); err != nil {
				t.Fatal(err)
			}
		}
		if diff := expect(docs, i).differs(a.replyOf(a.choices[i], episode.Sampling{}, 0)); diff != "" {
			t.Errorf("%s, choice %d: %s", rec.ID, i, diff)
		}
	}
	for _, c := range r.Message.ToolCalls {
		if c.Function.Name == "" || c.ID == "" || !json.Valid([]byte(orObject(c.Function.Arguments))) {
			t.Errorf("%s: tool call %+v", rec.ID, c)
		}
	}
	if m := r.Message; stream && (m.Text() != "" || m.ReasoningContent != nil || len(m.ToolCalls) > 0) && r.TTFT == nil {
		t.Errorf("%s: a stream without time to first token", rec.ID)
	}
	if slices.Contains(r.Flags, episode.FlagTextRepaired) {
		t.Errorf("%s: text repaired; no recording is damaged", rec.ID)
	}
}

func orObject(s string) string {
	if s == "" {
		return "{}" // some servers send no arguments for a tool without parameters
	}
	return s
}

func checkRecordedFault(t *testing.T, rec record, err error) {
	t.Helper()
	f := faultOf(t, err)
	want := map[int]episode.Class{400: episode.ClassBadRequest, 404: episode.ClassNotFound, 429: episode.ClassRateLimited}[rec.Status]
	if strings.Contains(string(rec.Body), "context length") {
		want = episode.ClassOverflow
		if f.Limit != 4096 {
			t.Errorf("%s: limit %d, want 4096", rec.ID, f.Limit)
		}
	}
	if strings.Contains(string(rec.Body), "failed_generation") {
		want = episode.ClassToolUse
	}
	if f.Class != want || f.Retry != (rec.Status == 429 || want == episode.ClassToolUse) {
		t.Errorf("%s: class %s retry %v, want %s: %v", rec.ID, f.Class, f.Retry, want, err)
	}
	if len(f.Cause.Error()) < 30 || strings.Contains(f.Cause.Error(), `{"`) {
		t.Errorf("%s: the cause does not hold the server's own words: %q", rec.ID, f.Cause)
	}
}
