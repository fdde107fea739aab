package inference

import (
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
//
// Two things that the standard does not know are understood, because servers do them and would else be waited for, or not heard:
// events without the blank line between them, and a JSON object (in general an error) on a line of its own without "data:".
type events struct {
	r         io.Reader
	buf       []byte
	at, end   int   // what is in buf and was not read
	ended     error // what r ended with; nil = it goes on
	maxLine   int
	line      []byte // of the line being read, what is no longer in buf; grows, and is used again
	data      []byte // the event being read
	kind      []byte // its event field
	aside     []byte // an event field behind the first data line: of this event, unless the next data line begins another; nil = none
	held      []byte // a data line that belongs to the next event; nil = none
	firstLine bool
	open      bool // the last event ended with the input, not with a blank line
}

// eventBuffer is how much of a stream is read at a time, bytes.
const eventBuffer = 16 << 10

func newEvents(r io.Reader, maxLine int) *events {
	e := &events{}
	e.reset(r, maxLine)
	return e
}

// reset begins another stream, in the memory of the one before it.
func (e *events) reset(r io.Reader, maxLine int) {
	*e = events{r: r, maxLine: maxLine, firstLine: true, buf: e.buf, line: e.line[:0], data: e.data[:0], kind: e.kind[:0]}
	if e.buf == nil && r != nil {
		e.buf = make([]byte, eventBuffer)
	}
}

var byteOrderMark = []byte("\xEF\xBB\xBF")

// next returns the data of the next event that has any, valid until the next call, and whether the event was named
// "error". At the end of the input it returns io.EOF; an event that was not closed by a blank line still counts, because
// servers that end right after their last line exist.
func (e *events) next() (data []byte, isError bool, err error) {
	if data, ok := e.usual(); ok {
		return data, false, nil
	}
	e.data, e.kind, e.open = e.data[:0], append(e.kind[:0], e.aside...), false
	e.aside = nil
	some := false
	if e.held != nil {
		e.data, e.held, some = append(e.data, e.held...), nil, true
		if bytes.Equal(e.data, endMarker) {
			return e.data, false, nil
		}
	}
	for {
		line, err := e.readLine()
		if err != nil && !(errors.Is(err, io.EOF) && len(line) > 0) {
			if some && errors.Is(err, io.EOF) {
				e.open = true
				return e.data, e.isError(), nil
			}
			return nil, false, err
		}
		if len(line) == 0 {
			if some {
				return e.data, e.isError(), nil
			}
			continue
		}
		name, value := field(line)
		switch {
		case name == fieldEvent && some:
			e.aside = append([]byte{}, value...)
		case name == fieldEvent:
			e.kind = append(e.kind[:0], value...)
		case name == fieldError: // whatever stands before it
			e.data, e.kind, some = append(e.data[:0], value...), append(e.kind[:0], "error"...), true
		case name != fieldData:
		case some && e.endsBefore(value):
			e.held = append([]byte{}, value...)
			return e.data, string(e.kind) == "error", nil
		case some:
			e.data = append(append(e.data, '\n'), value...)
		case bytes.Equal(value, endMarker): // nothing comes after it, and perhaps no blank line either
			return append(e.data, value...), false, nil
		default:
			e.data, some = append(e.data, value...), true
		}
	}
}

// usual takes an event of the usual form where it lies, if that is what comes and it has come whole: an object on one data line, and a
// blank line.
func (e *events) usual() (data []byte, ok bool) {
	if e.held != nil || e.aside != nil {
		return nil, false
	}
	if e.at == e.end {
		e.fill()
	}
	b := e.buf[e.at:e.end]
	if !bytes.HasPrefix(b, []byte("data: {")) {
		return nil, false
	}
	n := bytes.IndexByte(b, '\n')
	if n < 0 || n > e.maxLine || n+1 == len(b) {
		return nil, false
	}
	data, rest := b[len("data: "):n], b[n+1:]
	switch {
	case rest[0] == '\n':
		e.at += n + 2
	case rest[0] == '\r' && len(rest) > 1 && rest[1] == '\n':
		e.at += n + 3
	default:
		return nil, false
	}
	e.open, e.firstLine = false, false
	return bytes.TrimSuffix(data, []byte("\r")), true
}

// isError reports whether an event that has ended by itself was named an error.
func (e *events) isError() bool {
	if e.aside != nil {
		e.kind, e.aside = e.aside, nil
	}
	return string(e.kind) == "error"
}

// endsBefore reports whether the event is over though no blank line came: an object is whole, or the stream is at its end. Inside
// one JSON text no line that begins with a brace follows one that ends with a brace.
func (e *events) endsBefore(value []byte) bool {
	return bytes.Equal(value, endMarker) || bytes.HasSuffix(e.data, []byte("}")) && bytes.HasPrefix(value, []byte("{"))
}

type fieldName int

const (
	fieldOther fieldName = iota // id, retry, comments, what nobody knows
	fieldData
	fieldEvent
	fieldError // an object in a field named error: llama-server until September 2025
)

func field(line []byte) (fieldName, []byte) {
	if bytes.HasPrefix(line, []byte(`{"`)) {
		return fieldData, line
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		return fieldData, value
	case "event":
		return fieldEvent, value
	case "error":
		if bytes.HasPrefix(value, []byte("{")) {
			return fieldError, value
		}
	}
	return fieldOther, nil
}

// readLine returns the next line without its end, valid until the next call. At the end of the input it returns what is left together
// with io.EOF.
func (e *events) readLine() ([]byte, error) {
	line, err := e.nextLine()
	if len(line)-1 > e.maxLine { // 1: the line end is not counted
		return nil, &lineTooLongError{limit: e.maxLine}
	}
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	if e.firstLine {
		line = bytes.TrimPrefix(line, byteOrderMark)
		e.firstLine = false
	}
	return line, err
}

// nextLine returns the next line with its end, or the beginning of one that is too long.
func (e *events) nextLine() ([]byte, error) {
	e.line = e.line[:0]
	for {
		b := e.buf[e.at:e.end]
		if n := bytes.IndexByte(b, '\n'); n >= 0 {
			e.at += n + 1
			if len(e.line) == 0 {
				return b[:n+1], nil
			}
			e.line = append(e.line, b[:n+1]...)
			return e.line, nil
		}
		if e.line = append(e.line, b...); len(e.line)-1 > e.maxLine {
			return e.line, nil
		}
		e.at = e.end
		if !e.fill() {
			return e.line, e.ended
		}
	}
}

// fill reads on into the buffer, which is empty; false = nothing came, and ended says why.
func (e *events) fill() bool {
	e.at, e.end = 0, 0
	for tries := 0; e.ended == nil && e.end == 0; tries++ {
		if tries == 100 {
			e.ended = io.ErrNoProgress
			break
		}
		e.end, e.ended = e.r.Read(e.buf)
	}
	return e.end > 0
}
