package inference

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// lineTooLongError says that a stream held a line over the cap.
type lineTooLongError struct{ limit int }

func (e *lineTooLongError) Error() string {
	return fmt.Sprintf("a line of the stream is longer than the cap of %d bytes (MaxLineBytes)", e.limit)
}

// tooLargeError says that an answer is longer than the cap.
type tooLargeError struct{ limit int }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("the answer is longer than the cap of %d bytes (MaxReplyBytes)", e.limit)
}

// events reads server-sent events: data lines of one event joined by newlines, comments and other fields skipped, lines
// of any length up to a cap, ended by LF or CRLF. It works on bytes, so a character split over two writes is whole again.
type events struct {
	r         *bufio.Reader
	maxLine   int
	line      []byte // the line being read; grows, and is used again
	data      []byte // the event being read
	kind      []byte // its event field
	firstLine bool
	open      bool // the last event ended with the input, not with a blank line
}

func newEvents(r io.Reader, maxLine int) *events {
	return &events{r: bufio.NewReaderSize(r, 16<<10), maxLine: maxLine, firstLine: true}
}

var byteOrderMark = []byte("\xEF\xBB\xBF")

// next returns the data of the next event that has any, valid until the next call, and whether the event was named
// "error". At the end of the input it returns io.EOF; an event that was not closed by a blank line still counts, because
// servers that end right after their last line exist.
func (e *events) next() (data []byte, isError bool, err error) {
	e.data, e.kind, e.open = e.data[:0], e.kind[:0], false
	some := false
	for {
		line, err := e.readLine()
		if err != nil && !(errors.Is(err, io.EOF) && len(line) > 0) {
			if some && errors.Is(err, io.EOF) {
				e.open = true
				return e.data, string(e.kind) == "error", nil
			}
			return nil, false, err
		}
		if len(line) == 0 {
			if some {
				return e.data, string(e.kind) == "error", nil
			}
			continue
		}
		some = e.field(line, some) || some
	}
}

// field takes one line into the event and reports whether it was data.
func (e *events) field(line []byte, some bool) bool {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		if some {
			e.data = append(e.data, '\n')
		}
		e.data = append(e.data, value...)
		return true
	case "event":
		e.kind = append(e.kind[:0], value...)
	}
	return false
}

// readLine returns the next line without its end. At the end of the input it returns what is left together with io.EOF.
func (e *events) readLine() ([]byte, error) {
	e.line = e.line[:0]
	for {
		part, err := e.r.ReadSlice('\n')
		e.line = append(e.line, part...)
		if len(e.line)-1 > e.maxLine { // 1: the line end is not counted
			return nil, &lineTooLongError{limit: e.maxLine}
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		line := bytes.TrimSuffix(bytes.TrimSuffix(e.line, []byte("\n")), []byte("\r"))
		if e.firstLine {
			line = bytes.TrimPrefix(line, byteOrderMark)
			e.firstLine = false
		}
		return line, err
	}
}
