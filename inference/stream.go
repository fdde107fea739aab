package inference

import (
	"bytes"
	"errors"
	"io"
	"time"
)

const (
	// finishGrace is how long a stream is read on after its finish reason came: usage and end marker follow at once, and
	// servers that never end their stream exist.
	finishGrace = time.Second
	// endGrace is how long the connection is read on after the end marker, so that it can be used again.
	endGrace = 100 * time.Millisecond
)

var errCutStream = errors.New("the stream ended with neither a finish reason nor an end marker, or inside a tool call")

// readStream takes a stream into f.answer, or an error event into f.body. Success is an end marker or a finish reason;
// a stream that just ends is a failure, however much it brought, and so is one that ends inside a tool call without saying why:
// gateways turn a cut stream into an end in order.
func (e *Endpoint) readStream(r io.Reader, w *watch, began time.Time, f *failure) error {
	events := &f.answer.desk.events
	events.reset(r, e.cfg.MaxLineBytes)
	for {
		data, isErr, err := events.next()
		if err != nil {
			return endOfStream(f.answer, err)
		}
		if isErr {
			f.body = e.redact(bytes.Clone(data))
			return nil
		}
		if data = bytes.TrimSpace(data); len(data) == 0 {
			continue // a keep-alive written as an event
		}
		said, err := f.answer.takeEvent(data)
		if err != nil {
			if events.open { // the input ended inside this event
				return errCutStream
			}
			return &malformedError{describe(data, err)}
		}
		if said != nil {
			f.body = e.redact(said)
			return nil
		}
		if f.answer.timed {
			f.answer.stamp(time.Since(began))
		}
		if f.answer.first == 0 && f.answer.started() {
			f.answer.first = time.Since(began)
		}
		switch {
		case f.answer.ended:
			w.finished(endGrace)
			drain(events)
			return endOfStream(f.answer, io.EOF)
		case f.answer.finished():
			w.finished(finishGrace)
		}
	}
}

// endOfStream judges the error that ended the reading.
func endOfStream(a *answer, err error) error {
	if c := a.choice(); a.finished() || a.ended && (c == nil || !c.endsInsideCall()) {
		return nil // all there is has come; a connection that breaks now takes nothing away
	}
	if errors.Is(err, io.EOF) {
		return errCutStream
	}
	return err
}

// drain reads what follows the end marker, which is nothing, up to the end of the body.
func drain(e *events) {
	for range 16 {
		if _, _, err := e.next(); err != nil {
			return
		}
	}
}

var endMarker = []byte("[DONE]")

// takeEvent adds one event, or a whole answer. An error object inside it is returned as said.
func (a *answer) takeEvent(data []byte) (said []byte, err error) {
	data = bytes.TrimSpace(data)
	if a.desk == nil {
		a.desk = &desk{}
	}
	d := a.desk
	switch {
	case a.ended:
		return nil, nil
	case bytes.Equal(data, endMarker):
		a.ended = true
		return nil, nil
	case a.repeats(data):
		return nil, nil
	}
	d.mould.forget()
	wire, err := a.read(data)
	if err != nil {
		return nil, err
	}
	if isError(wire.Error) {
		return bytes.Clone(data), nil
	}
	for _, c := range wire.Choices {
		if isError(c.Error) {
			a.take(wire)
			return []byte(`{"error":` + string(c.Error) + `}`), nil
		}
	}
	if isFlatError(data, wire) {
		return bytes.Clone(data), nil
	}
	a.take(wire)
	if scanned := wire == &d.wire; scanned && len(wire.Choices) == 1 && !a.still {
		d.mould.set(data, d.room.holes)
		d.mould.grows = a.grownBy(&wire.Choices[0], d.mould.holes)
	}
	return nil, nil
}

// read takes data for what it is: an answer of the route's own form, or of OpenAI's.
func (a *answer) read(data []byte) (*wireAnswer, error) {
	if a.shape != nil {
		return a.shape(data)
	}
	a.desk.wire = wireAnswer{}
	if scanAnswer(data, &a.desk.wire, &a.desk.room) {
		return &a.desk.wire, nil
	}
	wire := &wireAnswer{}
	return wire, decode(data, wire)
}

// isFlatError recognises an error event without an error object: {"code":…,"message":…}.
func isFlatError(data []byte, w *wireAnswer) bool {
	if len(w.Choices) > 0 || w.Usage.of != nil || w.Model != "" {
		return false
	}
	said := readRefusal(data)
	return said.Code != nil && said.Message != "" || bytes.Contains(data, []byte(`"object":"error"`))
}

func (a *answer) finished() bool {
	c := a.choice()
	return c != nil && c.finish != ""
}

// started reports whether any piece of the answer itself has come, not only its role.
func (a *answer) started() bool {
	c := a.choice()
	return c != nil && (len(c.calls) > 0 || len(c.ids) > 0 || len(c.content) > 0 || len(c.reasoning) > 0 || len(c.refusal) > 0)
}
