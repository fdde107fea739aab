package inference

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
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

// truth is what a record says, found by another way than the code under test: generic maps.
type truth struct {
	text  bool
	usage bool
	tool  bool
	cache bool
	lps   int
}

func truthOf(body string, stream bool) truth {
	var out truth
	if !stream {
		out.add(body)
		return out
	}
	for _, line := range strings.Split(body, "\n") {
		if data, ok := strings.CutPrefix(strings.TrimRight(line, "\r"), "data:"); ok {
			out.add(data)
		}
	}
	return out
}

func (out *truth) add(doc string) {
	var m map[string]any
	if json.Unmarshal([]byte(doc), &m) != nil {
		return
	}
	for _, u := range []any{m["usage"], dig(m, "x_groq", "usage")} {
		if u, ok := u.(map[string]any); ok && u["prompt_tokens"] != nil {
			out.usage = true
			if dig(u, "prompt_tokens_details", "cached_tokens") != nil {
				out.cache = true
			}
		}
	}
	choices, _ := m["choices"].([]any)
	for _, c := range choices {
		for _, k := range []string{"message", "delta"} {
			for _, f := range []string{"content", "reasoning", "reasoning_content", "refusal"} {
				s, _ := dig(c, k, f).(string)
				out.text = out.text || s != ""
			}
			calls, _ := dig(c, k, "tool_calls").([]any)
			out.tool = out.tool || len(calls) > 0
		}
		s, _ := dig(c, "text").(string)
		out.text = out.text || s != ""
		l, _ := dig(c, "logprobs", "content").([]any)
		out.lps += len(l)
	}
}

func dig(v any, path ...string) any {
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

// TestEveryRecordedResponse replays each record over the wire through Generate and checks what was understood.
func TestEveryRecordedResponse(t *testing.T) {
	records := responses(t)
	if len(records) < 250 {
		t.Fatalf("%d records, expected at least 250", len(records))
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
	fmt.Fprintln(tw, "group\trecords\ttext\treasoning\ttool calls\tusage\tcached\tlogprobs\tfinish\tfaults")
	groups := map[string]*group{}
	inBand := 0
	for _, current = range records {
		body, stream = current.wire(t)
		r, err := e.Generate(t.Context(), call("x"), 0, 64)
		key := current.Source + " " + current.Server
		if groups[key] == nil {
			groups[key] = &group{finish: map[string]int{}, faults: map[string]int{}}
		}
		groups[key].add(r, err)
		if current.Status != 200 {
			checkRecordedFault(t, current, err)
			continue
		}
		if err != nil {
			if faultOf(t, err).Class != episode.ClassBadRequest || !strings.Contains(body, `"error"`) {
				t.Errorf("%s: %v", current.ID, err)
			}
			inBand++
			continue
		}
		checkRecordedReply(t, current, r, truthOf(body, stream), stream)
	}
	if inBand != 3 {
		t.Errorf("%d errors inside 200 answers found; the collection holds 3", inBand)
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintln(tw, key+"\t"+groups[key].row())
	}
	tw.Flush()
	t.Logf("%d records understood:\n%s", len(records), table.String())
}

func checkRecordedReply(t *testing.T, rec record, r *episode.Reply, want truth, stream bool) {
	t.Helper()
	text := r.Message.Text()
	if r.Message.ReasoningContent != nil {
		text += *r.Message.ReasoningContent
	}
	if want.text != (text != "") {
		t.Errorf("%s: text present %v, understood %q", rec.ID, want.text, text)
	}
	if want.tool != (len(r.Message.ToolCalls) > 0) {
		t.Errorf("%s: tool calls present %v, understood %d", rec.ID, want.tool, len(r.Message.ToolCalls))
	}
	for _, c := range r.Message.ToolCalls {
		if c.Function.Name == "" || c.ID == "" || !json.Valid([]byte(orObject(c.Function.Arguments))) {
			t.Errorf("%s: tool call %+v", rec.ID, c)
		}
	}
	if want.usage != (r.Usage.Prompt != nil && r.Usage.Completion != nil) {
		t.Errorf("%s: usage present %v, understood %v", rec.ID, want.usage, r.Usage)
	}
	if want.cache && r.Usage.Cached == nil {
		t.Errorf("%s: cached tokens lost", rec.ID)
	}
	if want.lps != len(r.Logprobs) {
		t.Errorf("%s: %d logprobs on the wire, %d understood", rec.ID, want.lps, len(r.Logprobs))
	}
	if r.RawEnd == "" {
		t.Errorf("%s: no finish reason", rec.ID)
	}
	if stream && (want.text || want.tool) && r.TTFT == nil {
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
	if f.Class != want || f.Retry != (rec.Status == 429) {
		t.Errorf("%s: class %s retry %v, want %s: %v", rec.ID, f.Class, f.Retry, want, err)
	}
	if len(f.Cause.Error()) < 30 || strings.Contains(f.Cause.Error(), `{"`) {
		t.Errorf("%s: the cause does not hold the server's own words: %q", rec.ID, f.Cause)
	}
}

type group struct {
	n, text, reasoning, calls, usage, cached, logprobs int
	finish, faults                                     map[string]int
}

func (g *group) add(r *episode.Reply, err error) {
	g.n++
	if err != nil {
		g.faults[string(episode.AsFault(episode.StageModel, err).Class)]++
		return
	}
	count := func(p *int, ok bool) {
		if ok {
			*p++
		}
	}
	count(&g.text, r.Message.Text() != "")
	count(&g.reasoning, r.Message.ReasoningContent != nil)
	count(&g.calls, len(r.Message.ToolCalls) > 0)
	count(&g.usage, r.Usage.Prompt != nil)
	count(&g.cached, r.Usage.Cached != nil)
	count(&g.logprobs, r.Logprobs != nil)
	g.finish[r.Finish]++
}

func (g *group) row() string {
	return fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%d\t%d\t%v\t%v", g.n, g.text, g.reasoning, g.calls, g.usage, g.cached, g.logprobs, g.finish, g.faults)
}
