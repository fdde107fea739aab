package inference

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"tranche/episode"
)

// documents are the JSON texts of a record's answer: one, or the payloads of its stream in order, the end marker left out.
func (r record) documents(t *testing.T) []any {
	t.Helper()
	body, stream := r.wire(t)
	texts := []string{body}
	if stream {
		texts = payloads(body)
	}
	docs := make([]any, len(texts))
	for i, s := range texts {
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		if err := d.Decode(&docs[i]); err != nil {
			t.Fatalf("%s: %q: %v", r.ID, s, err)
		}
	}
	return docs
}

// payloads reads data lines in the simplest way there is: no recording has an event of more than one.
func payloads(body string) (out []string) {
	for line := range strings.Lines(body) {
		data, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "data:")
		if data = strings.TrimSpace(data); ok && data != "" && data != "[DONE]" {
			out = append(out, data)
		}
	}
	return out
}

// read understands documents as the endpoint does, and says what came out: every choice's reply, or the fault.
func read(t *testing.T, status int, docs []any) string {
	t.Helper()
	f := failure{reach: reachAnswer, status: status, answer: &answer{}}
	for _, d := range docs {
		raw, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if f.body = raw; status == http.StatusOK {
			if f.body, f.err = f.answer.takeEvent(raw); f.err != nil {
				break
			}
		}
		if f.body != nil {
			f.answer.takeFailed(f.body)
			break
		}
	}
	if f.body != nil || f.err != nil {
		return showFault(classify(f, time.Unix(0, 0)))
	}
	var b strings.Builder
	for _, i := range slices.Sorted(maps.Keys(f.answer.choices)) {
		fmt.Fprintf(&b, "%d: %s\n", i, showReply(f.answer.replyOf(f.answer.choices[i], episode.Sampling{}, 0)))
	}
	return b.String()
}

func showFault(f *episode.Fault) string {
	said := &openai.APIError{}
	errors.As(f.Cause, &said)
	return fmt.Sprintf("%s retry %v limit %d prompt %d: %v (code %v type %v param %v); had %q", f.Class, f.Retry, f.Limit, f.Prompt, f.Cause, said.Code, said.Type, text1(said.Param), f.Partial)
}

func showReply(r *episode.Reply) string {
	version := "-"
	if r.Version != nil {
		version = fmt.Sprint(*r.Version)
	}
	return fmt.Sprintf("%q tagged %+v finish %s raw %s stop %s prompt %v ids %v logprobs %v usage %s %s %s model %s version %s flags %v", show(r.Message), r.Message.Tagged,
		r.Finish, r.RawEnd, text1(r.StopSeq), r.PromptIDs, r.SampledIDs, r.Logprobs, number(r.Usage.Prompt), number(r.Usage.Completion), number(r.Usage.Cached),
		r.Model, version, r.Flags)
}

// edit walks a JSON value and replaces its leaves by what f makes of them; path is the leaf's place in the names of docs/answers.md.
// Null and empty lists and objects are no leaves: they hold nothing.
func edit(v any, path string, f func(path string, leaf any) any) any {
	switch v := v.(type) {
	case nil:
		return nil
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			at := strings.TrimPrefix(path+"."+k, ".")
			if k == "delta" && path == "choices[]" {
				at = "choices[].message"
			}
			out[k] = edit(x, at, f)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = edit(x, path+"[]", f)
		}
		return out
	}
	return f(path, v)
}

func editAll(docs []any, f func(path string, leaf any) any) []any {
	out := make([]any, len(docs))
	for i, d := range docs {
		out[i] = edit(d, "", f)
	}
	return out
}

// another is a value of the same type that says something else.
func another(leaf any) any {
	switch v := leaf.(type) {
	case string:
		return v + "~"
	case bool:
		return !v
	case json.Number:
		n, err := v.Float64()
		if err != nil {
			panic(err)
		}
		return n + 1
	}
	panic(fmt.Sprintf("leaf %v", leaf))
}

// without takes fields out, given by their places.
func without(v any, path string, fields []string) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			at := strings.TrimPrefix(path+"."+k, ".")
			if k == "delta" && path == "choices[]" {
				at = "choices[].message"
			}
			if x != nil && !slices.Contains(fields, at) {
				out[k] = without(x, at, fields)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = without(x, path+"[]", fields)
		}
		return out
	}
	return v
}

func withoutAll(docs []any, fields []string) []any {
	out := make([]any, len(docs))
	for i, d := range docs {
		out[i] = without(d, "", fields)
	}
	return out
}

// documented are the two tables of docs/answers.md. kept has the fields that a field stands in for.
type documented struct {
	kept   map[string][]string
	hidden map[string]*regexp.Regexp // not kept; a star is any name
}

func (d documented) ignores(path string) bool {
	for _, re := range d.hidden {
		if re.MatchString(path) {
			return true
		}
	}
	return false
}

var inPlaceOf = regexp.MustCompile(`in place of ([^;|]+)`)

func readDocument(t *testing.T) documented {
	t.Helper()
	text, err := os.ReadFile("../docs/answers.md")
	if err != nil {
		t.Fatal(err)
	}
	kept, ignored, ok := strings.Cut(string(text), "## Not kept")
	if !ok {
		t.Fatal("docs/answers.md has no section Not kept")
	}
	d := documented{map[string][]string{}, map[string]*regexp.Regexp{}}
	for cells := range tableRows(kept) {
		var primary []string
		if m := inPlaceOf.FindStringSubmatch(cells[3]); m != nil {
			primary = strings.Split(strings.TrimSpace(m[1]), " and ")
		}
		d.kept[strings.TrimSpace(cells[1])] = primary
	}
	for cells := range tableRows(ignored) {
		for name := range strings.SplitSeq(cells[1], ",") {
			name = strings.TrimSpace(name)
			d.hidden[name] = regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(name), `\*`, `[^.]+`) + "$")
		}
	}
	if len(d.kept) < 30 || len(d.hidden) < 60 {
		t.Fatalf("docs/answers.md names %d kept fields and %d others", len(d.kept), len(d.hidden))
	}
	return d
}

func tableRows(text string) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		for line := range strings.Lines(text) {
			cells := strings.Split(line, "|")
			if len(cells) > 3 && cells[1] != "---" && strings.TrimSpace(cells[1]) != "field" && !yield(cells) {
				return
			}
		}
	}
}

// TestNoFieldIsLost: every leaf of every recorded answer is in docs/answers.md, as a field that changes what is understood or as
// one that does not, and the reader agrees. The last part shows that each of these checks can fail.
func TestNoFieldIsLost(t *testing.T) {
	doc := readDocument(t)
	shown, seen := map[string]bool{}, map[string]bool{}
	for _, rec := range responses(t) {
		docs := rec.documents(t)
		was := read(t, rec.Status, docs)
		if now := read(t, rec.Status, withoutAll(docs, nil)); now != was {
			t.Errorf("%s: without its nulls it is another answer:\n%s\n%s", rec.ID, was, now)
		}
		here := map[string]bool{}
		changed := editAll(docs, func(path string, leaf any) any {
			here[path], seen[path] = true, true
			if _, kept := doc.kept[path]; !kept && doc.ignores(path) {
				return another(leaf)
			}
			return leaf
		})
		if now := read(t, rec.Status, changed); now != was {
			t.Errorf("%s: a field that docs/answers.md calls not kept changes the answer:\n%s\n%s", rec.ID, was, now)
		}
		for path := range here {
			primary, kept := doc.kept[path]
			switch {
			case !kept && !doc.ignores(path):
				t.Errorf("%s: %s is not in docs/answers.md", rec.ID, path)
			case kept && !shown[path]:
				shown[path] = tells(t, rec.Status, withoutAll(docs, primary), path)
			}
		}
	}
	for path := range doc.kept {
		if !shown[path] {
			t.Errorf("docs/answers.md says that %s is kept; in no recording does another value make another answer", path)
		}
	}
	for name, re := range doc.hidden {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(seen)), re.MatchString) {
			t.Errorf("docs/answers.md lists %s; no recording has it", name)
		}
	}
}

// tells reports whether another value of one field makes another answer: everywhere in it, or the first time alone.
func tells(t *testing.T, status int, docs []any, field string) bool {
	t.Helper()
	was := read(t, status, docs)
	for _, most := range []int{math.MaxInt, 1} {
		n := 0
		changed := editAll(docs, func(path string, leaf any) any {
			if path != field || n == most {
				return leaf
			}
			n++
			return another(leaf)
		})
		if read(t, status, changed) != was {
			return true
		}
	}
	return false
}

// llama-server's timings are a stand-in for usage: in every recording they say the same.
func TestTimingsAgreeWithUsage(t *testing.T) {
	n := 0
	for _, rec := range responses(t) {
		if rec.Server != "llama.cpp" {
			continue
		}
		n++
		docs := rec.documents(t)
		with, without := read(t, 200, docs), read(t, 200, withoutAll(docs, []string{"usage"}))
		if with != without {
			t.Errorf("%s:\n%s\n%s", rec.ID, with, without)
		}
	}
	if n != 10 {
		t.Errorf("%d recordings of llama-server, expected 10", n)
	}
}

// expected is what an answer says, read by another way than the code under test: generic maps, one field after the other.
type expected struct {
	content, reasoning, finish, stop string
	calls                            []string
	logprobs                         []float64
	usage                            [3]string // prompt, completion, cached
	model                            string
}

func expect(docs []any, choice int) (e expected) {
	e.content, e.reasoning, e.stop = "<null>", "<null>", "<null>"
	e.usage = [3]string{"-", "-", "-"}
	for _, d := range docs {
		e.take(d, choice)
	}
	return e
}

func (e *expected) take(doc any, choice int) {
	if s, _ := dig(doc, "model").(string); s != "" {
		e.model = s
	}
	for _, u := range []any{dig(doc, "x_groq", "usage"), dig(doc, "usage")} {
		e.takeUsage(u)
	}
	if n := dig(doc, "timings", "cache_n"); n != nil && e.usage[2] == "-" {
		e.usage[2] = fmt.Sprint(n)
	}
	choices, _ := dig(doc, "choices").([]any)
	for _, c := range choices {
		if n, _ := dig(c, "index").(json.Number).Int64(); int(n) != choice {
			continue
		}
		for _, m := range []any{dig(c, "message"), dig(c, "delta"), map[string]any{"content": dig(c, "text")}} {
			e.takeMessage(m)
		}
		if s, _ := dig(c, "finish_reason").(string); s != "" {
			e.finish = s
		}
		if s := dig(c, "matched_stop"); s != nil {
			e.stop = fmt.Sprint(s)
		}
		list, _ := dig(c, "logprobs", "content").([]any)
		for _, l := range list {
			v, err := dig(l, "logprob").(json.Number).Float64()
			if err != nil {
				panic(err)
			}
			e.logprobs = append(e.logprobs, v)
		}
	}
}

func (e *expected) takeMessage(m any) {
	grow(&e.content, dig(m, "content"))
	if r := dig(m, "reasoning_content"); r != nil {
		grow(&e.reasoning, r)
	} else {
		grow(&e.reasoning, dig(m, "reasoning"))
	}
	calls, _ := dig(m, "tool_calls").([]any)
	for _, c := range calls {
		name, _ := dig(c, "function", "name").(string)
		arguments, _ := dig(c, "function", "arguments").(string)
		if id, _ := dig(c, "id").(string); id != "" && !slices.ContainsFunc(e.calls, func(s string) bool { return strings.HasPrefix(s, id+" ") }) {
			e.calls = append(e.calls, id+" "+name+" ")
		}
		e.calls[len(e.calls)-1] += arguments
	}
}

func grow(s *string, more any) {
	if t, ok := more.(string); ok {
		*s = strings.TrimPrefix(*s, "<null>") + t
	}
}

func (e *expected) takeUsage(u any) {
	for i, path := range [][]string{{"prompt_tokens"}, {"completion_tokens"}, {"prompt_tokens_details", "cached_tokens"}} {
		if n := dig(u, path...); n != nil {
			e.usage[i] = fmt.Sprint(n)
		}
	}
	if n := dig(u, "prompt_cache_hit_tokens"); n != nil {
		e.usage[2] = fmt.Sprint(n)
	}
	if dig(u, "num_sources_used") != nil { // xAI
		var n [2]int
		_, _ = fmt.Sscan(fmt.Sprint(dig(u, "completion_tokens"), " ", dig(u, "completion_tokens_details", "reasoning_tokens")), &n[0], &n[1])
		e.usage[1] = fmt.Sprint(n[0] + n[1])
	}
}

// differs says where a reply is not what was expected. The thinking that stood in the content is put back for it.
func (e expected) differs(r *episode.Reply) string {
	m := r.Message
	if m.Tagged != nil {
		m = m.Sendable()
	}
	var calls []string
	for _, c := range r.Message.ToolCalls {
		calls = append(calls, c.ID+" "+c.Function.Name+" "+c.Function.Arguments)
	}
	logprobs := make([]float64, len(r.Logprobs))
	for i, l := range r.Logprobs {
		logprobs[i] = float64(l.Value)
	}
	same := slices.EqualFunc(logprobs, e.logprobs, func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Abs(b) })
	switch got := (expected{text1(m.Content), text1(m.ReasoningContent), r.RawEnd, text1(r.StopSeq), calls, logprobs,
		[3]string{number(r.Usage.Prompt), number(r.Usage.Completion), number(r.Usage.Cached)}, r.Model}); {
	case !same || got.content != e.content || got.reasoning != e.reasoning || got.finish != e.finish || got.stop != e.stop ||
		!slices.Equal(got.calls, e.calls) || got.usage != e.usage || got.model != e.model:
		return fmt.Sprintf("understood %+v\nwas %+v", got, e)
	}
	return ""
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
