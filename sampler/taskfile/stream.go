package taskfile

import (
	"bufio"
	"context"
	"errors"
	"io"
)

// Stream reads tasks from JSON Lines that come as they are made, one pass only: cfg.Paths names where they come from, for messages, and is not
// opened. What has the id and content of an earlier task is passed over. An input without a row is not an error: it may be that all was given
// before. close is called once, when the stream has ended or the Reader is closed.
func Stream(ctx context.Context, cfg Config, from io.Reader, close func() error) (*Reader, error) {
	if len(cfg.Paths) != 1 {
		return nil, errors.New("a stream of tasks has one name")
	}
	r, err := Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	r.s.src = &lines{file: closing(close), r: bufio.NewReaderSize(from, 64<<10), cap: cfg.maxLineBytes()}
	r.s.endless = true
	return r, nil
}

// closing is a function as an io.Closer.
type closing func() error

func (c closing) Close() error { return c() }
