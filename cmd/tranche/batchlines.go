package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/maphash"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"tranche/episode"
	"tranche/sampler/taskfile"
)

// batchRoute is one kind of request a batch file may hold.
type batchRoute struct {
	url   string
	needs string   // field with the prompt
	most  []string // fields that bound the answer, tokens; the first that is there counts
}

// batchRoutes lists them: those of OpenAI's batches, and two more of vllm run-batch.
func batchRoutes() []batchRoute {
	return []batchRoute{
		{"/v1/chat/completions", "messages", []string{"max_completion_tokens", "max_tokens"}},
		{"/v1/completions", "prompt", []string{"max_tokens"}},
		{"/v1/embeddings", "input", nil},
		{"/v1/responses", "input", []string{"max_output_tokens"}},
		{"/v1/score", "", nil},
		{"/v1/rerank", "query", nil},
	}
}

// routeOf finds a route by its url.
func routeOf(url string) (batchRoute, bool) {
	all := batchRoutes()
	i := slices.IndexFunc(all, func(r batchRoute) bool { return r.url == url })
	if i < 0 {
		return batchRoute{}, false
	}
	return all[i], true
}

// batchRequest is one line {custom_id, method, url, body}. Its parts lie in the line's bytes.
type batchRequest struct {
	id     string
	model  string // the body names; "" = none
	route  batchRoute
	body   json.RawMessage
	fields map[string]json.RawMessage // of the body
}

// batchLine reads one line, or says what is wrong with it.
func batchLine(raw []byte, at episode.Position, ownModel bool) (l *batchRequest, bad []*taskfile.RowError) {
	fault := func(field, format string, args ...any) {
		bad = append(bad, &taskfile.RowError{Where: at, Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	if !utf8.Valid(raw) {
		n := firstInvalid(raw)
		fault("", "expected UTF-8, found the byte %#x at byte %d of the line", raw[n], n+1)
		return nil, bad
	}
	var cols map[string]json.RawMessage
	if json.Valid(raw) {
		cols = splitObject(raw)
	}
	if cols == nil {
		fault("", "expected one JSON object {custom_id, method, url, body}, found %s", shown(raw))
		return nil, bad
	}
	l = &batchRequest{id: textOf(cols["custom_id"]), body: cols["body"], fields: splitObject(cols["body"])}
	switch {
	case l.id == "":
		fault("custom_id", "expected a text that no other line has, found %s", shown(cols["custom_id"]))
	case halfPair(cols["custom_id"]):
		fault("custom_id", "expected valid Unicode, found %s", shown(cols["custom_id"]))
	}
	if textOf(cols["method"]) != "POST" {
		fault("method", "expected \"POST\", found %s", shown(cols["method"]))
	}
	var known bool
	if l.route, known = routeOf(textOf(cols["url"])); !known {
		var urls []string
		for _, r := range batchRoutes() {
			urls = append(urls, r.url)
		}
		fault("url", "expected one of %s; found %s", joined(urls), shown(cols["url"]))
	}
	if l.fields == nil {
		fault("body", "expected the request as a JSON object, found %s", shown(cols["body"]))
		return nil, bad
	}
	if v, ok := l.fields["stream"]; ok && string(v) != "false" && string(v) != "null" {
		fault("body.stream", "expected false: an answer in a batch is one JSON document; found %s", shown(v))
	}
	if _, ok := l.fields[l.route.needs]; known && l.route.needs != "" && !ok {
		fault("body."+l.route.needs, "missing; %s needs it", l.route.url)
	}
	if v, ok := l.fields["model"]; ok {
		if l.model = textOf(v); l.model == "" && !ownModel {
			fault("body.model", "expected the name of a model, found %s", shown(v))
		}
	}
	if len(bad) > 0 {
		return nil, bad
	}
	return l, nil
}

// task makes a task of the line, whose request is the body, byte for byte. It keeps none of the line's bytes.
func (l *batchRequest) task(at episode.Position, ownModel bool) *episode.Task {
	return &episode.Task{
		ID: l.id, Where: at, DataSource: l.route.url, Tools: bytes.Clone(l.fields["tools"]), Messages: l.sized(),
		Request: &episode.Request{Route: strings.TrimPrefix(l.route.url, "/v1"), Body: bytes.Clone(l.body), OwnModel: ownModel, Most: l.route.bound(l.fields)},
	}
}

// textOf reads a JSON string; "" when it is none.
func textOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// firstInvalid is the index of the first byte that is no UTF-8; the length when all is.
func firstInvalid(text []byte) int {
	n := 0
	for n < len(text) {
		r, size := utf8.DecodeRune(text[n:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		n += size
	}
	return n
}

// halfPair tells whether a JSON string has an escape that is half of a surrogate pair: it stands for no character, and reading it gives
// U+FFFD, which is one.
func halfPair(doc []byte) bool {
	for len(doc) > 0 {
		i := bytes.IndexByte(doc, '\\')
		if i < 0 {
			return false
		}
		doc = doc[i:]
		r, isUnicode := escaped(doc)
		switch {
		case !isUnicode:
			doc = doc[2:]
			continue
		case utf16.IsSurrogate(r):
			second, _ := escaped(doc[6:])
			if utf16.DecodeRune(r, second) == utf8.RuneError {
				return true
			}
			doc = doc[6:]
		}
		doc = doc[6:]
	}
	return false
}

// escaped reads an escape \uXXXX at the beginning of text.
func escaped(text []byte) (r rune, ok bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}

// shown is a value for a message.
func shown(raw []byte) string {
	if len(raw) == 0 {
		return "nothing"
	}
	return short(strings.ToValidUTF8(string(raw[:min(len(raw), 1000)]), "�"), 60) // a line may have megabytes
}

// bound is how many tokens the body lets all answers have together; 0 = it does not say.
func (r batchRoute) bound(body map[string]json.RawMessage) int {
	const most = 1 << 30 // beyond every context
	for _, name := range r.most {
		var tokens, n float64
		if json.Unmarshal(body[name], &tokens) != nil || tokens < 1 {
			continue
		}
		if json.Unmarshal(body["n"], &n) != nil || n < 1 {
			n = 1
		}
		return int(min(tokens*n, most))
	}
	if r.url == "/v1/completions" {
		return 16 // what servers do without one
	}
	if r.most == nil {
		return 1 // nothing is generated
	}
	return 0
}

// sized is the prompt as far as its length and its beginning go: the scheduler places calls by them. They are never sent.
func (l *batchRequest) sized() []episode.Message {
	if items := splitList(l.fields["messages"]); l.route.needs == "messages" && items != nil {
		list := make([]episode.Message, len(items))
		for i, item := range items {
			m := splitObject(item)
			list[i] = episode.Message{Role: textOf(m["role"]), Content: episode.Ptr(plainText(m["content"]))}
		}
		return list
	}
	raw := l.fields[l.route.needs]
	if l.route.needs == "" { // every field is a prompt
		raw = l.body
	}
	return []episode.Message{{Role: episode.RoleUser, Content: episode.Ptr(plainText(raw))}}
}

// plainText is a JSON string's text, and the JSON itself of anything else.
func plainText(raw json.RawMessage) string {
	if n := len(raw) - 1; n > 0 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1:n])
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// batchFile is what a whole batch file was found to hold.
type batchFile struct {
	path   string
	lines  int
	digest string         // sha256 over the lines, hex
	models map[string]int // lines that name it; a nameless line counts under ""
}

// maxModels bounds the model names that are counted one by one.
const maxModels = 1000

// checkBatch reads every line once: whatever is wrong is said before the first request.
func checkBatch(ctx context.Context, path string, ownModel bool) (*batchFile, error) {
	lines, err := openBatch(path)
	if err != nil {
		return nil, err
	}
	defer lines.close()
	f := &batchFile{path: path, models: map[string]int{}}
	all, ids := &faultyLines{}, newIDSet()
	for ctx.Err() == nil {
		raw, at, err := lines.next()
		if err == io.EOF {
			break
		}
		var rf *taskfile.RowError
		if errors.As(err, &rf) {
			all.add(rf)
			continue
		}
		if err != nil {
			return nil, err
		}
		l, bad := batchLine(raw, at, ownModel)
		if bad != nil {
			all.add(bad...)
			continue
		}
		if first := ids.add(l.id, at.Line); first > 0 {
			all.add(&taskfile.RowError{Where: at, Field: "custom_id", Problem: fmt.Sprintf("expected one that no other line has; %q is that of line %d too", short(l.id, 60), first)})
		}
		f.lines++
		if _, ok := f.models[l.model]; ok || len(f.models) < maxModels {
			f.models[l.model]++
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if f.digest = lines.sum(); f.lines == 0 && all.n == 0 {
		return nil, fmt.Errorf("%s: is empty; expected at least one request", path)
	}
	return f, all.err()
}

// faultyLines collects the faults of a file; the first ones are listed.
type faultyLines struct {
	n    int
	list faults
}

func (f *faultyLines) add(bad ...*taskfile.RowError) {
	for _, b := range bad {
		if f.n++; f.n <= taskfile.MaxListedErrors {
			f.list.list = append(f.list.list, b)
		}
	}
}

func (f *faultyLines) err() error {
	if more := f.n - taskfile.MaxListedErrors; more > 0 {
		f.list.add("… and %d more faults (%d in all)", more, f.n)
	}
	return f.list.err()
}

// idSet finds ids that come twice. It keeps 128 bits of each instead of its text: a file may hold millions.
type idSet struct {
	seeds [2]maphash.Seed
	lines map[[2]uint64]int32
}

func newIDSet() *idSet {
	return &idSet{[2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, map[[2]uint64]int32{}}
}

// add returns the line that had the id first, 0 when none had.
func (s *idSet) add(id string, line int) int {
	k := [2]uint64{maphash.String(s.seeds[0], id), maphash.String(s.seeds[1], id)}
	if first, ok := s.lines[k]; ok {
		return int(first)
	}
	s.lines[k] = int32(line)
	return 0
}

// batchReader reads a batch file and digests what it read.
type batchReader struct {
	lines  *taskfile.Lines
	digest hash.Hash
}

func openBatch(path string) (*batchReader, error) {
	lines, err := taskfile.OpenLines(path)
	if err != nil {
		return nil, err
	}
	return &batchReader{lines, sha256.New()}, nil
}

func (r *batchReader) next() ([]byte, episode.Position, error) {
	raw, at, err := r.lines.Next()
	if err == nil {
		r.digest.Write(raw)
		r.digest.Write([]byte("\n"))
	}
	return raw, at, err
}

// sum is the digest of the lines read so far, hex.
func (r *batchReader) sum() string { return hex.EncodeToString(r.digest.Sum(nil)) }

func (r *batchReader) close() { _ = r.lines.Close() } // nothing was written

// batchSource draws the lines that have no durable result yet, in order. One goroutine owns it.
type batchSource struct {
	file     *batchFile
	reader   *batchReader
	done     func(line int) bool
	ownModel bool
	line     int // of the next one, from 0
}

// Next is episode.Source.
func (s *batchSource) Next(ctx context.Context) (episode.Draw, error) {
	for ctx.Err() == nil {
		raw, at, err := s.reader.next()
		if err == io.EOF {
			return episode.Draw{}, s.end()
		}
		if err != nil {
			return episode.Draw{}, err
		}
		line := s.line
		if s.line++; s.done(line) {
			continue
		}
		l, bad := batchLine(raw, at, s.ownModel)
		if bad != nil || line >= s.file.lines {
			return episode.Draw{}, s.changed()
		}
		task := l.task(at, s.ownModel)
		task.Index = int64(line)
		return episode.Draw{Task: task, Samples: 1}, nil
	}
	return episode.Draw{}, context.Cause(ctx)
}

func (s *batchSource) end() error {
	if s.reader.sum() != s.file.digest {
		return s.changed()
	}
	return episode.ErrEnd
}

func (s *batchSource) changed() error {
	return withCode(codeTasks, fmt.Errorf("%s: was changed since it was checked", s.file.path))
}

// onOneLine makes a JSON document safe to stand on one line of a file that others read: no line ends of any kind, of which some readers
// know more than \n, and valid UTF-8. The document's value stays the same; one that needs nothing is returned as it is.
func onOneLine(doc []byte) ([]byte, error) {
	if bytes.ContainsAny(doc, "\n\r") {
		var b bytes.Buffer
		if err := json.Compact(&b, doc); err != nil {
			return nil, fmt.Errorf("compact: %w", err)
		}
		doc = b.Bytes()
	}
	if !utf8.Valid(doc) {
		doc = bytes.ToValidUTF8(doc, []byte("\ufffd"))
	}
	for _, end := range []string{"\u2028", "\u2029", "\u0085"} {
		if bytes.Contains(doc, []byte(end)) { // in a string: nowhere else may it stand
			r, _ := utf8.DecodeRuneInString(end)
			doc = bytes.ReplaceAll(doc, []byte(end), fmt.Appendf(nil, "\\u%04x", r))
		}
	}
	return doc, nil
}
