package taskfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"tranche/episode"
)

// Reader streams the tasks of a Config in the order of the files. It is not safe for concurrent use.
type Reader struct {
	s    *scanner
	skip bool
	err  error // sticky
}

// Open prepares a pass over the task files; a file is opened when its turn comes. ctx ends the pass early. Close the Reader.
func Open(ctx context.Context, cfg Config) (*Reader, error) {
	s, err := newScanner(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Reader{s: s, skip: cfg.SkipBad}, nil
}

// Next returns the next task, io.EOF after the last one. A bad row is passed over when the Config says so, else it is an
// *InputError, as is a file that cannot be read; after an error Next keeps returning it. The task is the caller's to keep.
func (r *Reader) Next() (*episode.Task, error) {
	for r.err == nil {
		row, err := r.s.next()
		var rf *RowError
		switch {
		case errors.As(err, &rf):
			r.err = inputError(rf)
		case err != nil:
			r.err = err
		case len(row.bad) > 0 && !r.skip:
			r.err = inputError(row.bad...)
		case row.task != nil:
			return row.task, nil
		}
	}
	return nil, r.err
}

// SHA256 is the digest of the tasks given so far; at the end it equals Report.SHA256 unless a file changed since Check.
func (r *Reader) SHA256() string { return r.s.sum() }

// Close ends the pass and closes the file in hand.
func (r *Reader) Close() error {
	if r.err == nil {
		r.err = errors.New("the task reader is closed")
	}
	return r.s.close()
}

func inputError(faults ...*RowError) *InputError {
	e := &InputError{}
	e.add(faults...)
	return e
}

// scanner goes over all rows of all files once and decides what each is: a task to give, a bad row, or nothing.
type scanner struct {
	ctx    context.Context
	cfg    Config
	parse  *parser
	seen   idTable
	digest parts

	path int  // the file in hand, or the next one
	src  rows // nil between files
	here int64

	endless bool // the input is a stream: it may be empty

	rows, bytes, duplicates, passed, given int64
}

// scanned is what one row came to. All zero = a duplicate, or a task before the offset.
type scanned struct {
	task *episode.Task
	bad  []*RowError
}

func newScanner(ctx context.Context, cfg Config) (*scanner, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("task settings: %w", err)
	}
	p, err := newParser(cfg)
	if err != nil {
		return nil, fmt.Errorf("task settings: %w", err)
	}
	return &scanner{ctx: ctx, cfg: cfg, parse: p, digest: parts{sha256.New()}}, nil
}

// next judges the next row. It returns io.EOF at the end, and a *RowError for a fault of a whole file, after which it goes on
// with the next file.
func (s *scanner) next() (scanned, error) {
	if err := s.ctx.Err(); err != nil {
		return scanned{}, fmt.Errorf("read tasks: %w", err)
	}
	if s.cfg.Limit > 0 && s.given == s.cfg.Limit {
		return scanned{}, io.EOF
	}
	if s.src == nil {
		if s.path == len(s.cfg.Paths) {
			return scanned{}, io.EOF
		}
		if err := s.open(); err != nil {
			return scanned{}, err
		}
	}
	raw, line, err := s.src.next()
	var own *RowError
	switch {
	case err == io.EOF:
		return scanned{}, s.endFile()
	case errors.As(err, &own):
		own.Where = s.where(line)
		s.count(0)
		return scanned{bad: []*RowError{own}}, nil
	case err != nil:
		return scanned{}, s.dropFile(line, err)
	}
	s.count(len(raw))
	t, bad := s.parse.row(raw, s.where(line), s.rows-1, s.src.typed())
	if len(bad) > 0 {
		return scanned{bad: bad}, nil
	}
	if s.cfg.Sound != nil {
		if err := s.cfg.Sound(t); err != nil {
			return scanned{bad: []*RowError{{Where: t.Where, Problem: err.Error()}}}, nil
		}
	}
	return s.admit(t), nil
}

func (s *scanner) where(line int) episode.Position {
	return episode.Position{File: s.cfg.Paths[s.path], Line: line}
}

func (s *scanner) count(n int) {
	s.rows++
	s.here++
	s.bytes += int64(n)
}

// admit applies the rule on ids, then offset and limit.
func (s *scanner) admit(t *episode.Task) scanned {
	id := fresh
	if !s.cfg.Distinct {
		id = s.seen.add(t.ID, t.Hash)
	}
	switch id {
	case duplicate:
		s.duplicates++
		return scanned{}
	case conflict:
		return scanned{bad: []*RowError{{Where: t.Where, Field: s.parse.idField(), conflict: t.ID,
			Problem: fmt.Sprintf("%q was used before for a task with other content; expected ids that are unique", t.ID)}}}
	}
	if s.passed < s.cfg.Offset {
		s.passed++
		return scanned{}
	}
	s.given++
	s.digest.text(t.ID)
	s.digest.text(t.Hash)
	return scanned{task: t}
}

func (s *scanner) open() error {
	src, err := openRows(s.cfg.Paths[s.path], s.cfg)
	if err != nil {
		return s.dropFile(0, err)
	}
	s.src, s.here = src, 0
	return nil
}

// dropFile leaves a file that cannot be read on and words why.
func (s *scanner) dropFile(line int, err error) error {
	fault := fileFault(s.cfg.Paths[s.path], line, err)
	s.leaveFile()
	return fault
}

func (s *scanner) endFile() error {
	empty := s.here == 0
	fault := fileFault(s.cfg.Paths[s.path], 0, errors.New("is empty; expected at least one task"))
	if err := s.leaveFile(); err != nil {
		return err
	}
	if empty && !s.endless {
		return fault
	}
	return nil
}

func (s *scanner) leaveFile() error {
	s.path++
	return s.close()
}

func (s *scanner) close() error {
	if s.src == nil {
		return nil
	}
	src := s.src
	s.src = nil
	if err := src.close(); err != nil {
		return fmt.Errorf("close task file: %w", err)
	}
	return nil
}

func (s *scanner) sum() string { return hex.EncodeToString(s.digest.h.Sum(nil)) }
