package inference

import "bytes"

// mould is the form that the events of a stream have in common. One after the other they repeat every byte but those of the piece they
// bring, so an event is read in two ways: by the scanner, which notes where the values stood that will differ (the holes), or, where all
// between the holes is as it was, by those values alone. They go into the wire answer that the scanner had filled, so the two ways come
// to the same (FuzzMould); what is no such repetition is the scanner's.
type mould struct {
	form  []byte // the last event that was scanned
	holes []hole // of it; none = nothing is known
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

// set keeps an event that has just been scanned.
func (m *mould) set(event []byte, holes []hole) {
	m.form, m.holes = m.form[:0], m.holes[:0]
	if len(event) <= mostForm {
		m.form, m.holes = append(m.form, event...), append(m.holes, holes...)
	}
}

func (m *mould) forget() {
	clear(m.holes)
	m.holes = m.holes[:0]
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
