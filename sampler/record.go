package sampler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// A Plan that decides by results writes down what it decided: one JSON object a line, in the order of the decisions. After a restart the
// record is played back: what was drawn is drawn again, and what was known is known again.

// Record keeps the lines. Append is called by one goroutine at a time; durable says that the line must survive a loss of power before anything
// that follows from it is done.
type Record interface {
	Append(line []byte, durable bool) error
}

// event is a line. One field is set, or the last evaluation stands with the end.
type event struct {
	Draw *drawEvent `json:"draw,omitempty"` // a group, or the rest of one
	Done *doneEvent `json:"done,omitempty"` // all of a group has ended
	Eval *int       `json:"eval,omitempty"` // an evaluation, by its number
	End  bool       `json:"end,omitempty"`  // nothing more is drawn
}

type drawEvent struct {
	Number int64  `json:"n"`
	Task   string `json:"task"`
	Hash   string `json:"hash"`
	Round  int    `json:"round"`
	Lap    int    `json:"lap,omitempty"`
	Size   int    `json:"size"` // samples of the group at most
	From   int    `json:"from,omitempty"`
	To     int    `json:"to"`
}

type doneEvent struct {
	Task    string     `json:"task"`
	Round   int        `json:"round"`
	Rewards []*float64 `json:"rewards"` // by sample; null = no verdict
}

// events reads a record. Its last line may be torn: whole is how many bytes of it are good.
func events(text []byte) (list []event, whole int, err error) {
	for n := 1; whole < len(text); n++ {
		line, _, ended := bytes.Cut(text[whole:], []byte("\n"))
		if !ended {
			return list, whole, nil
		}
		var e event
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil || !e.sound() {
			return nil, 0, fmt.Errorf("line %d is no decision: %.80s", n, line)
		}
		if _, err := d.Token(); err != io.EOF {
			return nil, 0, fmt.Errorf("line %d holds more than one decision", n)
		}
		list = append(list, e)
		whole += len(line) + 1
	}
	return list, whole, nil
}

// sound says whether the event is one that a Plan writes.
func (e event) sound() bool {
	fields := 0
	for _, set := range []bool{e.Draw != nil, e.Done != nil, e.Eval != nil, e.End} {
		if set {
			fields++
		}
	}
	if d := e.Draw; d != nil && !(d.From >= 0 && d.From < d.To && d.To <= d.Size && d.Size < 1<<24 && d.Round >= 0 && d.Lap >= 0 && (d.From == 0 || d.Lap == 0)) {
		return false
	}
	if e.Eval != nil && *e.Eval < 0 {
		return false
	}
	return fields == 1 || fields == 2 && e.Eval != nil && e.End
}

// Recorded is what a record says without its tasks: for a report on a run.
type Recorded struct {
	Whole    int   // bytes of the record that are good
	Groups   int64 // training groups drawn
	Episodes int64 // episodes drawn for training
	Evals    int   // evaluations
	Useful   int64 // groups that ended with rewards that differ
	Equal    int64 // groups that ended with rewards all the same
	Short    []ShortGroup
	Saved    int64 // samples that were not played because of that
	Ended    bool  // nothing more is to be drawn
}

// ShortGroup is a group that was ended before it had all its samples.
type ShortGroup struct {
	Task           string
	Round, Samples int
}

// ReadRecord sums a record up.
func ReadRecord(text []byte) (r Recorded, err error) {
	list, whole, err := events(text)
	if err != nil {
		return r, err
	}
	r.Whole = whole
	sizes := map[groupKey]int{}
	for _, e := range list {
		switch {
		case e.Draw != nil:
			r.Episodes += int64(e.Draw.To - e.Draw.From)
			if e.Draw.From == 0 {
				r.Groups++
			}
			sizes[groupKey{e.Draw.Task, e.Draw.Round}] = e.Draw.Size
		case e.Done != nil:
			k := groupKey{e.Done.Task, e.Done.Round}
			switch useful, judged := differ(e.Done.Rewards); {
			case useful:
				r.Useful++
			case judged > 1:
				r.Equal++
			}
			if saved := sizes[k] - len(e.Done.Rewards); saved > 0 {
				r.Short = append(r.Short, ShortGroup{k.task, k.round, len(e.Done.Rewards)})
				r.Saved += int64(saved)
			}
			delete(sizes, k)
		case e.Eval != nil:
			r.Evals++
		}
		r.Ended = r.Ended || e.End
	}
	return r, nil
}

// differ says whether two rewards are unlike, and how many there are.
func differ(rewards []*float64) (useful bool, judged int) {
	var first *float64
	for _, r := range rewards {
		if r == nil {
			continue
		}
		judged++
		if first == nil {
			first = r
		}
		useful = useful || *r != *first
	}
	return useful, judged
}
