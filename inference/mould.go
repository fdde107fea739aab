package inference

import "bytes"

// mould is the form that the events of a stream have in common. One after the other they repeat every byte but those of the piece they
// bring, so an event is read in two ways: by the scanner, which notes where the values stood that will differ (the holes), or, where all
// between the holes is as it was, by those values alone. They go into the wire answer that the scanner had filled, so the two ways come
// to the same (FuzzMould); what is no such repetition is the scanner's.
type mould struct {
	form  []byte  // the last event that was scanned
	holes []hole  // of it; none = nothing is known
	grows *pieces // what a repetition adds its one text to, where it does nothing else; nil = it is to be taken as a whole
}

// hole is where a value stood, and where the next one goes: to one of the three.
type hole struct {
	from, to int
	text     *text
	ids      *[]int32
	logprobs **wireLogprobs
}

// mostForm is the longest event that is kept as a form, bytes: the first of a stream may hold the ids of its prompt.
const mostForm = 4 << 10

// set keeps an event that has just been scanned and taken.
func (m *mould) set(event []byte, holes []hole) {
	m.forget()
	if len(event) <= mostForm {
		m.form, m.holes = append(m.form[:0], event...), append(m.holes, holes...)
	}
}

func (m *mould) forget() {
	clear(m.holes)
	m.holes, m.grows = m.holes[:0], nil
}

// repeats takes an event that repeats the last one; false = it does not.
func (a *answer) repeats(event []byte) bool {
	d := a.desk
	if !d.mould.fill(event, &d.room) {
		return false
	}
	if p := d.mould.grows; p != nil {
		*p = append(*p, *d.mould.holes[0].text...)
	} else {
		a.take(&d.wire)
	}
	return true
}

// grownBy is the text that a piece adds its one text to, if that is all it does when it comes again: what else it holds is not added to what was
// there but put in its place. The piece has been taken.
func (a *answer) grownBy(w *wireChoice, holes []hole) *pieces {
	index := 0
	if w.Index != nil {
		index = *w.Index
	}
	c, m := a.choices[index], w.Delta
	if c == nil || m == nil || len(holes) != 1 || len(m.ToolCalls) > 0 || m.FunctionCall.of != nil || m.ReasoningDetails != nil {
		return nil
	}
	switch t := holes[0].text; {
	case t == nil:
	case m.Content != nil && t == &m.Content.said:
		return &c.content
	case t == m.Reasoning || t == m.ReasoningContent:
		return &c.reasoning
	}
	return nil
}

// fill reads an event of the same form; false = it has another, and what the holes go to is spoilt.
func (m *mould) fill(event []byte, room *scanRoom) bool {
	if len(m.holes) == 0 {
		return false
	}
	room.texts = room.texts[:0]
	s := scan{b: event, room: room}
	at := 0
	for i := range m.holes {
		h := &m.holes[i]
		before := m.form[at:h.from]
		if !bytes.HasPrefix(event[s.at:], before) {
			return false
		}
		s.at += len(before)
		if !s.value(h) {
			return false
		}
		at = h.to
	}
	return bytes.Equal(event[s.at:], m.form[at:])
}

// varying takes a value that will be another one in the next event, and notes where it stood.
func (s *scan) varying(h hole) bool {
	s.space()
	h.from = s.at
	ok := s.value(&h)
	h.to = s.at
	s.room.holes = append(s.room.holes, h)
	return ok
}

// value takes the value of a hole.
func (s *scan) value(h *hole) (ok bool) {
	switch {
	case h.text != nil:
		*h.text, ok = s.text()
		return ok
	case h.ids != nil:
		return s.int32List(h.ids)
	}
	return s.logprobs(h.logprobs)
}
