package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"tranche/episode"
	"tranche/storage"
)

// A batch's journal stands beside its output until all of it is answered: one line of JSON that says whose it is, then one line for
// each answered line of the input, in the order they were answered:
//
//	crc32c of the rest, 8 hex digits · space · line from 0 · space · + or - (failed) · space · the line of the output
//
// It is only ever appended to, so what a crash leaves of the last write is at its end. A record that is damaged elsewhere is passed over.
// With --retry-failed a line may have several: one that failed gives way to a later one. The journal of a finished batch that is asked again
// begins with the results of its output, and its head is written when all of them are durable: until then the file begins with zeros.
type batchJournal struct {
	file     *os.File
	path     string
	size     int64          // durable
	damaged  int            // records that were read and are no results, whole ones behind them; set when it is opened
	fresh    bool           // it was begun when it was opened
	replaces *batchReplaced // files that its first results came from; nil = none. Set when it is opened
	queue    chan *batchEntry
	ended    chan struct{} // closed by commit when it has ended

	mu     sync.Mutex // guards what is below
	where  []batchPlace
	failed int // without those that are asked again
	good   int
}

// batchPlace is where a line's result stands in the journal; no bytes = it has none yet.
type batchPlace struct {
	at     int64
	bytes  uint32 // of the output line
	failed bool
	again  bool // it failed and is asked again: this result is not the last
}

// batchHead says whose a journal is.
type batchHead struct {
	Journal  string `json:"journal"` // batchJournalName
	Input    string `json:"input_sha256"`
	Lines    int    `json:"lines"`
	OwnModel string `json:"own_model"` // what takes the place of the lines' own; "" = nothing does

	Replaces *batchReplaced `json:"replaces,omitempty"` // nil = the batch was not finished before
}

const batchJournalName = "tranche batch 1"

// batchEntry is a result on its way to the disk.
type batchEntry struct {
	line   int
	failed bool
	text   []byte
	err    chan error // buffered, one
}

// batchJournalPath is where the journal of an output is.
func batchJournalPath(out string) string { return out + ".journal" }

// openBatchJournal opens or begins the journal and reads what is durable. dropped is how many bytes at its end were no whole
// result. It is a codeRefused error when another process has it or when it belongs to another batch. A new one begins with the
// results of from, where it is not nil and its files are there.
func openBatchJournal(path string, head batchHead, from *batchEnded) (j *batchJournal, dropped int64, err error) {
	f, err := lockJournal(path)
	if err != nil {
		return nil, 0, err
	}
	j = &batchJournal{file: f, path: path, queue: make(chan *batchEntry), ended: make(chan struct{}), where: make([]batchPlace, head.Lines)}
	if dropped, err = j.begin(head, from); err != nil {
		f.Close()
		return nil, 0, err
	}
	go j.commit()
	return j, dropped, nil
}

// lockJournal opens the file and locks it. A journal is removed when its batch is done, perhaps between the two.
func lockJournal(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, withCode(codeDisk, fmt.Errorf("open the journal: %w", err))
		}
		err = storage.LockFile(f)
		if errors.Is(err, storage.ErrLocked) {
			f.Close()
			return nil, withCode(codeRefused, fmt.Errorf("%s: another process is at this batch", path))
		}
		if err != nil {
			f.Close()
			return nil, withCode(codeDisk, fmt.Errorf("lock %s: %w", path, err))
		}
		mine, err := f.Stat()
		there, terr := os.Stat(path)
		if err == nil && terr == nil && os.SameFile(mine, there) {
			return f, nil
		}
		f.Close()
	}
}

// begin reads what is there, or writes the head of a new journal.
func (j *batchJournal) begin(head batchHead, from *batchEnded) (dropped int64, err error) {
	info, err := j.file.Stat()
	if err != nil {
		return 0, withCode(codeDisk, fmt.Errorf("open the journal: %w", err))
	}
	r := bufio.NewReaderSize(j.file, 1<<20)
	first, err := journalHead(r)
	if err != nil {
		return 0, withCode(codeDisk, fmt.Errorf("read %s: %w", j.path, err))
	}
	if first == nil {
		return 0, withCode(codeDisk, j.start(head, from))
	}
	if j.replaces, err = head.accept(j.path, first); err != nil {
		return 0, withCode(codeRefused, err)
	}
	if err := j.replay(r, int64(len(first))); err != nil {
		return 0, withCode(codeDisk, err)
	}
	if dropped = info.Size() - j.size; dropped > 0 {
		if err := j.cut(); err != nil {
			return 0, withCode(codeDisk, err)
		}
	}
	_, err = j.file.Seek(j.size, io.SeekStart)
	return dropped, withCode(codeDisk, err)
}

// journalHead reads the first line of a journal; nil when it is new, or the process died before that line was whole.
func journalHead(r *bufio.Reader) ([]byte, error) {
	first, err := r.ReadBytes('\n')
	if err == io.EOF || err == nil && first[0] == 0 {
		return nil, nil
	}
	return first, err
}

// journalBegun tells whether there is a journal that holds more than nothing.
func journalBegun(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	first, err := journalHead(bufio.NewReader(f))
	return first != nil, err
}

// start writes the head behind which all else is durable; the file's name is durable with it.
func (j *batchJournal) start(head batchHead, from *batchEnded) (err error) {
	j.size, j.fresh, head.Journal = 0, true, batchJournalName
	if from != nil {
		if head.Replaces, err = from.replaced(); err != nil {
			return fmt.Errorf("begin %s: %w", j.path, err)
		}
	}
	j.replaces = head.Replaces
	text := append(encode(head), '\n')
	err = j.cut()
	j.size = int64(len(text))
	if err == nil && j.replaces != nil {
		err = j.takeIn(from, j.size)
	}
	if err == nil {
		_, err = j.file.WriteAt(text, 0)
	}
	if err == nil {
		_, err = j.file.Seek(j.size, io.SeekStart)
	}
	if err == nil {
		err = j.file.Sync()
	}
	if err == nil {
		err = syncFolder(j.path)
	}
	if err != nil {
		return fmt.Errorf("begin %s: %w", j.path, err)
	}
	return nil
}

// accept refuses the journal of another batch, and returns what that of this one may replace.
func (h batchHead) accept(path string, first []byte) (*batchReplaced, error) {
	var was batchHead
	if json.Unmarshal(first, &was) != nil || was.Journal != batchJournalName {
		return nil, fmt.Errorf("%s: is no journal of a batch; give the output another name", path)
	}
	switch {
	case was.Input != h.Input || was.Lines != h.Lines:
		return nil, fmt.Errorf("%s: holds results of another input (%d lines, sha256 %s; this one has %d, %s); give the output another name, or remove it to begin anew",
			path, was.Lines, short(was.Input, 12), h.Lines, short(h.Input, 12))
	case was.OwnModel != h.OwnModel:
		return nil, fmt.Errorf("%s: was begun with another model in the lines' place (%s, now %s); go on with that, or remove it to begin anew",
			path, orNone(was.OwnModel), orNone(h.OwnModel))
	}
	return was.Replaces, nil
}

// replay reads results. What is not whole behind the last one that is, a crash left; before that it was damaged, and costs itself alone.
func (j *batchJournal) replay(r *bufio.Reader, at int64) error {
	j.size = at
	bad := 0 // since the last whole one
	for {
		record, err := r.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", j.path, err)
		}
		start := at
		at += int64(len(record))
		line, failed, text, err := parseRecord(record)
		if err != nil || line >= len(j.where) {
			bad++
			continue
		}
		j.count(line, failed, start+int64(len(record)-len(text)-1), len(text))
		j.size, j.damaged, bad = at, j.damaged+bad, 0
	}
}

// count takes note of a result; mu is held, or nobody else is there yet.
func (j *batchJournal) count(line int, failed bool, at int64, n int) {
	switch old := j.where[line]; {
	case old.bytes > 0 && !old.failed:
		return // an answer stands
	case old.failed && !old.again:
		j.failed--
	}
	j.where[line] = batchPlace{at: at, bytes: uint32(n), failed: failed}
	if failed {
		j.failed++
		return
	}
	j.good++
}

// cut takes off what is behind the durable part.
func (j *batchJournal) cut() error {
	err := j.file.Truncate(j.size)
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("cut %s to %d bytes: %w", j.path, j.size, err)
	}
	return nil
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// appendRecord writes a result as a record.
func appendRecord(dst []byte, line int, failed bool, text []byte) []byte {
	mark := byte('+')
	if failed {
		mark = '-'
	}
	rest := append(append(strconv.AppendInt(nil, int64(line), 10), ' ', mark, ' '), text...)
	dst = fmt.Appendf(dst, "%08x ", crc32.Checksum(rest, castagnoli()))
	return append(append(dst, rest...), '\n')
}

// parseRecord reads a record with its line end. text is part of it.
func parseRecord(record []byte) (line int, failed bool, text []byte, err error) {
	bad := errors.New("is no record")
	sum, rest, ok := bytes.Cut(bytes.TrimSuffix(record, []byte("\n")), []byte(" "))
	if !ok || string(sum) != fmt.Sprintf("%08x", crc32.Checksum(rest, castagnoli())) {
		return 0, false, nil, bad
	}
	number, rest, ok := bytes.Cut(rest, []byte(" "))
	line, err = strconv.Atoi(string(number))
	if !ok || err != nil || line < 0 || strconv.Itoa(line) != string(number) || len(rest) < 2 || rest[0] != '+' && rest[0] != '-' || rest[1] != ' ' {
		return 0, false, nil, bad
	}
	return line, rest[0] == '-', rest[2:], nil
}

// Write is episode.Sink: the result of one line, durable when it returns.
func (j *batchJournal) Write(_ context.Context, e *episode.Episode) error {
	text, failed, err := resultLine(e)
	if err != nil {
		return err
	}
	entry := &batchEntry{line: int(e.Task.Index), failed: failed, text: text, err: make(chan error, 1)}
	j.queue <- entry
	return <-entry.err
}

// commit appends results: all that wait share one fsync. After an error nothing more is written, and what the disk holds is the part
// that was acknowledged. It ends when close closes the queue.
func (j *batchJournal) commit() {
	defer close(j.ended)
	var broken error
	for first := range j.queue {
		batch, open := j.gather(first)
		if broken == nil {
			broken = j.append(batch)
		}
		for _, e := range batch {
			e.err <- withCode(codeDisk, broken)
		}
		if !open {
			return
		}
	}
}

// gather takes what else waits, up to a few megabytes.
func (j *batchJournal) gather(first *batchEntry) (batch []*batchEntry, open bool) {
	const most = 4 << 20
	batch, size := []*batchEntry{first}, len(first.text)
	for size < most {
		select {
		case e, ok := <-j.queue:
			if !ok {
				return batch, false
			}
			batch, size = append(batch, e), size+len(e.text)
		default:
			return batch, true
		}
	}
	return batch, true
}

func (j *batchJournal) append(batch []*batchEntry) error {
	var text []byte
	ends := make([]int64, len(batch))
	for i, e := range batch {
		text = appendRecord(text, e.line, e.failed, e.text)
		ends[i] = j.size + int64(len(text))
	}
	_, err := j.file.Write(text)
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("append to %s: %w", j.path, err), j.cut())
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.size += int64(len(text))
	for i, e := range batch {
		j.count(e.line, e.failed, ends[i]-1-int64(len(e.text)), len(e.text))
	}
	return nil
}

// done reports whether a line has a durable result.
func (j *batchJournal) done(line int) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.where[line].bytes > 0 && !j.where[line].again
}

// counts are the lines with a durable result: answered, and failed without those that are asked again.
func (j *batchJournal) counts() (good, failed int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.good, j.failed
}

// each hands out the results in the order of the input; every line must have one. text is valid during the call.
func (j *batchJournal) each(f func(failed bool, text []byte) error) error {
	var buf []byte
	for line, p := range j.where {
		head := int64(len("00000000  + ") + len(strconv.Itoa(line)))
		n := int(head) + int(p.bytes) + 1
		if cap(buf) < n {
			buf = make([]byte, n, n+n/4)
		}
		buf = buf[:n]
		if _, err := j.file.ReadAt(buf, p.at-head); err != nil {
			return fmt.Errorf("read the result of line %d in %s: %w", line, j.path, err)
		}
		got, failed, text, err := parseRecord(buf)
		if err != nil || got != line {
			return fmt.Errorf("%s was damaged after it was written, at byte %d; remove it to begin anew", j.path, p.at)
		}
		if err := f(failed, text); err != nil {
			return err
		}
	}
	return nil
}

// empty tells that it holds no result. Call it when no Write is running.
func (j *batchJournal) empty() bool {
	return !slices.ContainsFunc(j.where, func(p batchPlace) bool { return p.bytes > 0 })
}

// close ends the writing; the file stays open for reading and locked until release. Call it when no Write is running.
func (j *batchJournal) close() {
	close(j.queue)
	<-j.ended
}

// release lets go of the file, removing it first when its results stand elsewhere.
func (j *batchJournal) release(remove bool) error {
	var err error
	if remove {
		err = os.Remove(j.path)
	}
	return errors.Join(err, j.file.Close())
}

// syncFolder makes the name of a file durable.
func syncFolder(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) { // some file systems know no such thing
		return err
	}
	return nil
}
