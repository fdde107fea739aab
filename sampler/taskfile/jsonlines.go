package taskfile

import (
	"errors"
	"fmt"
	"io"

	"tranche/episode"
)

// Lines reads the rows of one JSON Lines file as they are, plain or gzip, for other things than tasks. It is not safe for
// concurrent use.
type Lines struct {
	path string
	rows rows
}

// OpenLines opens a file. Its errors name the file.
func OpenLines(path string) (*Lines, error) {
	r, err := openRows(path, Config{})
	if err != nil {
		return nil, fileFault(path, 0, err)
	}
	return &Lines{path, r}, nil
}

// Next returns the next line that is not blank, without the space around it, and where it stands. The bytes are valid until the
// call after. io.EOF is the end; a *RowError is about that line alone and reading may go on; any other error ends the file.
func (l *Lines) Next() ([]byte, episode.Position, error) {
	raw, line, err := l.rows.next()
	at := episode.Position{File: l.path, Line: line}
	var own *RowError
	switch {
	case errors.As(err, &own):
		return nil, at, &RowError{Where: at, Problem: own.Problem}
	case err != nil && err != io.EOF:
		return nil, at, fmt.Errorf("%s: %w", at, err)
	}
	return raw, at, err
}

// Close closes the file.
func (l *Lines) Close() error { return l.rows.close() }
