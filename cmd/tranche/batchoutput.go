package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"tranche/episode"
)

// The shape of a line of an output or error file is OpenAI's:
//
//	{"id": …, "custom_id": …, "response": {"status_code": …, "request_id": …, "body": …} | null, "error": {"code": …, "message": …} | null}
//
// A request that a server refused has that server's status and body; one that got no answer at all has an error.
type outputLine struct {
	ID       string          `json:"id"`
	CustomID string          `json:"custom_id"`
	Response *outputResponse `json:"response"`
	Error    *outputError    `json:"error"`
}

type outputResponse struct {
	StatusCode int             `json:"status_code"`
	RequestID  string          `json:"request_id"`
	Body       json.RawMessage `json:"body"`
}

type outputError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// codeContextFull is the error of a request that no endpoint holds, so that it was not sent.
const codeContextFull = "context_length_exceeded"

// resultLine is the output line of an ended request.
func resultLine(e *episode.Episode) (text []byte, failed bool, err error) {
	l := outputLine{ID: "batch_req_" + e.ID, CustomID: e.Task.ID}
	answer := e.Answer
	if failed = e.Status != episode.StatusCompleted; failed && e.Fault != nil {
		answer = e.Fault.Answer
	}
	switch {
	case answer != nil:
		l.Response = &outputResponse{answer.Status, answer.ID, jsonBody(answer)}
		if failed && answer.Status == http.StatusOK { // an error in the place of the answer: the status alone would hide it
			l.Error = &outputError{string(e.Fault.Class), e.Fault.Error()}
		}
	case e.Fault != nil:
		l.Error = &outputError{string(e.Fault.Class), e.Fault.Error()}
	case e.Stop == episode.StopContextFull:
		l.Error = &outputError{codeContextFull, "the request was not sent: it is longer than what any endpoint can hold"}
	default:
		return nil, false, fmt.Errorf("request %s ended as %s (%s) without an answer", e.Task.ID, e.Status, e.Stop)
	}
	return l.text(), failed, nil
}

// text writes the line without its line end. The body stands in it byte for byte but for what onOneLine does.
func (l *outputLine) text() []byte {
	var body json.RawMessage
	if l.Response != nil {
		body = l.Response.Body
	}
	out := make([]byte, 0, len(body)+300)
	out = append(append(out, `{"id":`...), encode(l.ID)...)
	out = append(append(out, `,"custom_id":`...), safely(l.CustomID)...)
	if l.Response == nil {
		out = append(out, `,"response":null`...)
	} else {
		out = append(strconv.AppendInt(append(out, `,"response":{"status_code":`...), int64(l.Response.StatusCode), 10), `,"request_id":`...)
		out = append(append(append(append(out, safely(l.Response.RequestID)...), `,"body":`...), body...), '}')
	}
	out = append(append(out, `,"error":`...), safely(l.Error)...)
	return append(out, '}')
}

// safely writes a value as JSON that may stand on a line.
func safely(v any) []byte {
	text, _ := onOneLine(encode(v)) // it fails on broken JSON only
	return text
}

// jsonBody is an answer's body as it may stand in the line. A refusal that is no JSON becomes the message of an error object.
func jsonBody(a *episode.Answer) json.RawMessage {
	if json.Valid(a.Body) {
		if body, err := onOneLine(a.Body); err == nil {
			return body
		}
	}
	return safely(map[string]any{"error": map[string]any{"message": string(a.Body), "type": "not_json", "param": nil, "code": a.Status}})
}

// batchOutput is the files a batch ends in. They appear whole, when every line has its result.
type batchOutput struct {
	out    string
	errors string // "" = failed lines stand in out, as those of vllm run-batch do
}

// check refuses paths that cannot be meant.
func (o batchOutput) check(in string) error {
	f := &faults{}
	for i, p := range []string{o.out, o.errors} {
		if p == "" {
			continue
		}
		name := []string{"output-file", "errors"}[i]
		if info, err := os.Stat(p); err == nil && !info.Mode().IsRegular() {
			f.add("%s: %s: expected the path of a file; this is something else", name, p)
		}
		if samePath(p, in) {
			f.add("%s: %s is the input", name, p)
		}
		if name == "errors" && samePath(p, batchJournalPath(o.out)) {
			f.add("errors: %s is the journal of this output; give one of them another name", p)
		}
		if info, err := os.Stat(filepath.Dir(p)); err != nil || !info.IsDir() {
			f.add("%s: %s: there is no such folder", name, filepath.Dir(p))
		}
	}
	if o.out != "" && samePath(in, batchJournalPath(o.out)) {
		f.add("in: %s is the journal of this output; give the output another name", in)
	}
	if o.errors != "" && samePath(o.out, o.errors) {
		f.add("errors: %s is the output", o.errors)
	}
	return f.err()
}

// samePath tells whether two paths name one file, be it there or not.
func samePath(a, b string) bool {
	x, xerr := os.Stat(a)
	y, yerr := os.Stat(b)
	if xerr == nil && yerr == nil {
		return os.SameFile(x, y)
	}
	p, perr := realPath(a)
	q, qerr := realPath(b)
	return perr == nil && qerr == nil && p == q
}

// realPath is the path of a file that need not be there, with the links of its folder followed.
func realPath(path string) (string, error) {
	all, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(all))
	return filepath.Join(dir, filepath.Base(all)), err
}

// exists names a file of the output that is there already, "" when none is.
func (o batchOutput) exists() (string, error) {
	for _, p := range []string{o.out, o.errors} {
		if p == "" {
			continue
		}
		if _, err := os.Lstat(p); err == nil {
			return p, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", nil
}

// publish writes the files from a complete journal, under other names first: a reader, and a crash at any moment, sees each whole or
// not at all. The error file comes first, so that an output that is there says that all is.
func (o batchOutput) publish(j *batchJournal) (err error) {
	may := j.mayReplace()
	out, err := newWhole(o.out, j.path, may.Out)
	if err != nil {
		return err
	}
	defer out.drop()
	bad := out
	if o.errors != "" {
		if bad, err = newWhole(o.errors, j.path, may.Errors); err != nil {
			return err
		}
		defer bad.drop()
	}
	err = j.each(func(failed bool, text []byte) error {
		if failed {
			return bad.line(text)
		}
		return out.line(text)
	})
	if err == nil && bad != out {
		err = bad.publish()
	}
	if err == nil {
		err = out.publish()
	}
	return err
}

// emptyErrors makes the error file of a finished batch in which nothing failed, where it is not there.
func (o batchOutput) emptyErrors() error {
	if o.errors == "" {
		return nil
	}
	f, err := os.OpenFile(o.errors, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// whole is a file that gets its name when it is complete.
type whole struct {
	path     string
	temp     string   // its name until then
	file     *os.File // nil = published
	w        *bufio.Writer
	replaces string // digest of the file it may take the place of; "" = of none
}

// newWhole begins a file of the batch whose journal that is; what an earlier process left of it is removed. Only who has the journal
// may call it.
func newWhole(path, journal, replaces string) (*whole, error) {
	temp, err := tempName(path, journal)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return &whole{path, temp, f, bufio.NewWriterSize(f, 1<<20), replaces}, nil
}

// tempName is a name beside path that no file but this batch's has. It does not grow with path, whose name may be as long as names can be.
func tempName(path, journal string) (string, error) {
	owner, err := realPath(journal)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(owner + "\x00" + filepath.Base(path)))
	return filepath.Join(filepath.Dir(path), fmt.Sprintf(".tranche-batch-%x.tmp", sum[:12])), nil
}

func (w *whole) line(text []byte) error {
	_, err := w.w.Write(text)
	if err == nil {
		err = w.w.WriteByte('\n')
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", w.path, err)
	}
	return nil
}

func (w *whole) publish() error {
	err := w.w.Flush()
	if err == nil {
		err = w.file.Sync()
	}
	if err == nil {
		err = w.file.Close()
	}
	if err == nil {
		err = w.name()
	}
	if err == nil {
		w.file = nil
		err = syncFolder(w.path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", w.path, err)
	}
	return nil
}

// name gives the file its name. One that has it already is replaced by its equal, which a crash between the files of a batch leaves, and
// where it is the earlier result of this batch.
func (w *whole) name() error {
	same, err := sameContent(w.temp, w.path)
	if err == nil && !same && w.replaces != "" {
		var digest string
		digest, err = fileDigest(w.path)
		same = digest == w.replaces
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && same:
		return os.Rename(w.temp, w.path)
	case err != nil:
		return err
	}
	return withCode(codeRefused, errors.New("a file of that name is there already and holds something else; remove it, or give another name"))
}

// sameContent tells whether two files hold the same bytes.
func sameContent(a, b string) (bool, error) {
	x, err := os.Open(a)
	if err != nil {
		return false, err
	}
	defer x.Close()
	y, err := os.Open(b)
	if err != nil {
		return false, err
	}
	defer y.Close()
	p, q := bufio.NewReaderSize(x, 1<<16), bufio.NewReaderSize(y, 1<<16)
	for {
		one, err := p.ReadByte()
		other, also := q.ReadByte()
		switch {
		case err == io.EOF && also == io.EOF:
			return true, nil
		case err == io.EOF && also == nil, also == io.EOF && err == nil, err == nil && also == nil && one != other:
			return false, nil
		case err != nil || also != nil:
			return false, errors.Join(err, also)
		}
	}
}

// drop removes what was not published.
func (w *whole) drop() {
	if w.file != nil {
		w.file.Close()
		os.Remove(w.temp)
	}
}

// batchFound is what the files hold that are there already.
type batchFound struct {
	failed  int  // lines whose result is no answer
	missing int  // lines without a result
	mixed   bool // failed ones stand in the output
	foreign bool // they hold something else than results of the input, each once and in its order
}

// look compares the files with the input, and hands out the result of each line as it stands there; each may be nil, text is valid during the call.
func (o batchOutput) look(f *batchFile, each func(line int, failed bool, text []byte) error) (found batchFound, err error) {
	var results []*resultReader
	for _, p := range []string{o.out, o.errors} {
		if p == "" {
			continue
		}
		r, err := openResults(p)
		if err != nil {
			return batchFound{foreign: true}, nil // something else, whatever it is
		}
		defer r.close()
		results = append(results, r)
	}
	lines, err := openBatch(f.path)
	if err != nil {
		return found, err
	}
	defer lines.close()
	for line := 0; ; line++ {
		raw, _, err := lines.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return found, err
		}
		var in struct {
			CustomID string `json:"custom_id"`
		}
		if err := json.Unmarshal(raw, &in); err != nil {
			return found, fmt.Errorf("%s: was changed since it was checked: %w", f.path, err)
		}
		if err := found.take(results, line, in.CustomID, each); err != nil {
			return found, err
		}
	}
	for _, r := range results {
		found.foreign = found.foreign || r.more || r.broken
	}
	return found, nil
}

// take looks for the result of one line at the heads of the files, the output's first.
func (f *batchFound) take(results []*resultReader, line int, id string, each func(int, bool, []byte) error) error {
	i := slices.IndexFunc(results, func(r *resultReader) bool { return r.more && r.head.CustomID == id })
	if i < 0 {
		f.missing++
		return nil
	}
	h := results[i].head
	failed := h.Error != nil || h.Response == nil || h.Response.StatusCode != http.StatusOK
	if failed {
		f.failed++
		f.mixed = f.mixed || i == 0
	}
	if each != nil {
		if err := each(line, failed, results[i].raw); err != nil {
			return err
		}
	}
	results[i].next()
	return nil
}

// resultReader reads a file of results; head is the one in hand while there are more.
type resultReader struct {
	reader *batchReader
	head   outputLine
	raw    []byte // its line
	more   bool
	broken bool // it holds something that is no result
}

func openResults(path string) (*resultReader, error) {
	r := &resultReader{}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return r, nil // no results
	}
	if err != nil {
		return nil, err
	}
	if r.reader, err = openBatch(path); err != nil {
		return nil, err
	}
	r.next()
	return r, nil
}

func (r *resultReader) next() {
	raw, _, err := r.reader.next()
	r.head, r.raw = outputLine{}, raw
	if err == nil {
		err = json.Unmarshal(raw, &r.head)
	}
	r.more, r.broken = err == nil, err != nil && err != io.EOF
}

func (r *resultReader) close() {
	if r.reader != nil {
		r.reader.close()
	}
}
