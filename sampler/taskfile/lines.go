package taskfile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"

	"tranche/episode"
)

// rows yields the rows of one file, in order.
type rows interface {
	// next returns the JSON text of the next row, valid until the call after, and its line (JSON Lines) or row (Parquet) from 1.
	// A *RowError is about that row alone and reading goes on; io.EOF is the end; any other error ends the file.
	next() (raw []byte, line int, err error)
	// typed reports whether every row states every column, absent ones as null (Parquet).
	typed() bool
	close() error
}

// openRows opens a task file by its content: gzip, JSON Lines or Parquet.
func openRows(path string, cfg Config) (rows, error) {
	if err := regular(path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, unwrapPath(err)
	}
	r, err := sniff(f, cfg)
	if errors.Is(err, errParquet) {
		f.Close()
		return openParquet(path, cfg.OpenRows)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &lines{file: f, r: r, cap: cfg.maxLineBytes()}, nil
}

// regular refuses what cannot be read twice from its beginning.
func regular(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("no such file")
	case err != nil:
		return unwrapPath(err)
	case info.IsDir():
		return errors.New("is a directory; expected a file, so name the files in it")
	case !info.Mode().IsRegular():
		return errors.New("is no regular file; task files are read twice (checked first, then run), so save the tasks to a file")
	}
	return nil
}

// unwrapPath drops the path from a file error: the message has it already.
func unwrapPath(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("%s: %w", pe.Op, pe.Err)
	}
	return err
}

var errParquet = errors.New("a Parquet file")

// sniff looks at the first bytes and returns a reader over the plain lines, or errParquet.
func sniff(f io.Reader, cfg Config) (*bufio.Reader, error) {
	r := bufio.NewReaderSize(f, 256<<10)
	head, err := r.Peek(4)
	if err != nil && err != io.EOF {
		return nil, damaged(err)
	}
	if !bytes.HasPrefix(head, []byte{0x1f, 0x8b}) {
		return plain(r)
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("read the gzip header: %w", err)
	}
	r, err = plain(bufio.NewReaderSize(z, 256<<10))
	if errors.Is(err, errParquet) {
		return nil, errors.New("is a Parquet file inside gzip; unpack it first")
	}
	return r, err
}

// plain takes a byte order mark off and refuses, by name, what people mistake for JSON Lines.
func plain(r *bufio.Reader) (*bufio.Reader, error) {
	head, err := r.Peek(512)
	if err != nil && err != io.EOF {
		return nil, damaged(err)
	}
	switch {
	case bytes.HasPrefix(head, []byte("PAR1")):
		return nil, errParquet
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return nil, errors.New("is compressed with zstd; expected plain or gzip JSON Lines, or Parquet")
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return nil, errors.New("is a zip archive; expected plain or gzip JSON Lines, or Parquet")
	case bytes.HasPrefix(head, []byte{0xff, 0xfe}), bytes.HasPrefix(head, []byte{0xfe, 0xff}):
		return nil, errors.New("is UTF-16 text; expected UTF-8")
	case bytes.HasPrefix(head, []byte{0xef, 0xbb, 0xbf}):
		if _, err := r.Discard(3); err != nil {
			return nil, fmt.Errorf("read: %w", err)
		}
		head = head[3:]
	}
	if first(head) == '[' {
		return nil, errors.New("is one JSON list; expected one JSON object a line (jq -c '.[]' turns a list into lines)")
	}
	return r, nil
}

// lines reads JSON Lines.
type lines struct {
	file io.Closer
	r    *bufio.Reader
	cap  int    // bytes a line may have
	n    int    // lines read
	buf  []byte // a line longer than the reader's buffer
}

func (l *lines) typed() bool { return false }

func (l *lines) close() error { return l.file.Close() }

// next returns the next line that is not blank.
func (l *lines) next() ([]byte, int, error) {
	for {
		raw, err := l.line()
		if err != nil {
			return nil, l.n, err
		}
		if raw = bytes.TrimSpace(raw); len(raw) > 0 {
			return raw, l.n, nil
		}
	}
}

func (l *lines) line() ([]byte, error) {
	if cap(l.buf) > 1<<20 {
		l.buf = nil // one huge line must not hold its room for the rest of the file
	}
	l.buf = l.buf[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		whole := err == nil || err == io.EOF
		if len(l.buf) == 0 && whole && len(part) <= l.cap {
			return l.ended(part, err)
		}
		if len(l.buf)+len(part) > l.cap+len("\r\n") {
			return l.tooLong(err)
		}
		l.buf = append(l.buf, part...)
		if err != bufio.ErrBufferFull {
			return l.ended(l.buf, err)
		}
	}
}

// ended counts a line; the last one may lack its newline.
func (l *lines) ended(raw []byte, err error) ([]byte, error) {
	if err == io.EOF && len(raw) > 0 {
		err = nil
	}
	if err == io.EOF {
		return nil, io.EOF
	}
	l.n++
	if err != nil {
		return nil, damaged(err)
	}
	return raw, nil
}

// tooLong passes over the rest of the line.
func (l *lines) tooLong(err error) ([]byte, error) {
	for err == bufio.ErrBufferFull {
		_, err = l.r.ReadSlice('\n')
	}
	l.n++
	if err != nil && err != io.EOF {
		return nil, damaged(err)
	}
	return nil, &RowError{Problem: fmt.Sprintf("the line is longer than %d bytes; expected one JSON object a line", l.cap)}
}

func damaged(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, gzip.ErrChecksum) {
		return fmt.Errorf("the compressed file is cut short or damaged: %w", err)
	}
	return fmt.Errorf("read: %w", err)
}

// parquet reads rows through an injected reader.
type parquet struct {
	pull func() (json.RawMessage, error, bool)
	stop func()
	n    int
}

func openParquet(path string, open func(string) iter.Seq2[json.RawMessage, error]) (rows, error) {
	if open == nil {
		return nil, errors.New("is a Parquet file, and no Parquet reader is set; expected JSON Lines")
	}
	pull, stop := iter.Pull2(open(path))
	return &parquet{pull: pull, stop: stop}, nil
}

func (p *parquet) typed() bool { return true }

func (p *parquet) close() error {
	p.stop()
	return nil
}

func (p *parquet) next() ([]byte, int, error) {
	raw, err, ok := p.pull()
	if !ok {
		return nil, p.n, io.EOF
	}
	p.n++
	if err != nil {
		return nil, p.n, err // the reader says what it attempted
	}
	return bytes.TrimSpace(raw), p.n, nil
}

// fileFault words a fault of a whole file, or of all of it from a line on.
func fileFault(path string, line int, err error) *RowError {
	return &RowError{Where: episode.Position{File: path, Line: line}, Problem: err.Error()}
}
