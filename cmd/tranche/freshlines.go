package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

// mostRepeats is how many lines in a row may be blank or have been there before. A program that begins anew after a resume repeats what it gave; one that
// repeats without end never gives another task.
const mostRepeats = 10_000_000

// errCutOff is the end of what a program gave that failed: an end like any other, but for a line that it had begun.
var errCutOff = errors.New("cut off")

// freshLines passes on the lines that have not been there before, kept first: neither what a program repeats nor a line without an end may fill the disk.
type freshLines struct {
	from *bufio.Reader
	keep keptRows
	most int // bytes a line may have

	seen    map[[sha256.Size]byte]struct{}
	repeats int    // in a row
	rest    []byte // kept, and to be passed on
}

// newFreshLines knows the lines that were kept earlier.
func newFreshLines(from io.Reader, keep keptRows, earlier []byte, most int) *freshLines {
	l := &freshLines{from: bufio.NewReaderSize(from, 64<<10), keep: keep, most: most, seen: map[[sha256.Size]byte]struct{}{}}
	for line := range bytes.Lines(earlier) {
		l.fresh(bytes.TrimSpace(line))
	}
	return l
}

// fresh notes a line and reports whether it is new.
func (l *freshLines) fresh(line []byte) bool {
	id := sha256.Sum256(line)
	if _, there := l.seen[id]; there {
		return false
	}
	l.seen[id] = struct{}{}
	return true
}

// Read passes lines on.
func (l *freshLines) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		if err := l.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// fill waits for one new line and takes with it those that have come already: they are made durable together.
func (l *freshLines) fill() error {
	var batch []byte
	for len(batch) == 0 || l.ready() {
		line, err := l.line()
		if err != nil && err != io.EOF {
			line = nil // the beginning of a line that was never written whole is no task
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && l.fresh(line) {
			batch, l.repeats = append(append(batch, line...), '\n'), 0
		} else if l.repeats++; err == nil && l.repeats > mostRepeats {
			err = fmt.Errorf("%d lines in a row were blank or there before", mostRepeats)
		}
		if errors.Is(err, errCutOff) {
			err = io.EOF
		}
		if err != nil && len(batch) == 0 {
			return err
		}
		if err != nil {
			break // comes again with the next read
		}
	}
	if _, err := l.keep.Write(batch); err != nil {
		return fmt.Errorf("keep the tasks: %w", err)
	}
	if err := l.keep.Sync(); err != nil {
		return fmt.Errorf("keep the tasks: %w", err)
	}
	l.rest = batch
	return nil
}

// ready reports whether a whole line has come already.
func (l *freshLines) ready() bool {
	b, _ := l.from.Peek(l.from.Buffered())
	return bytes.IndexByte(b, '\n') >= 0
}

// line reads to the end of a line; what stands behind the last one is a line too.
func (l *freshLines) line() (line []byte, err error) {
	for {
		part, err := l.from.ReadSlice('\n')
		if line = append(line, part...); len(line) > l.most {
			return nil, fmt.Errorf("a line is longer than %d bytes", l.most)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
