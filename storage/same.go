package storage

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"tranche/episode"
)

// lasting is a copy of a row without what tells how it went that time: what docs/format.md names under "Order". Two runs of the same
// settings, tasks and seed against servers that answer alike have the same lasting rows.
func (r *Row) lasting() *Row {
	c := *r
	c.CreatedAt, c.Timing, c.Attempt, c.Raw = time.Time{}, Timing{}, 0, nil
	if i := slices.Index(r.Flags, episode.FlagResumed); i >= 0 {
		c.Flags = slices.Delete(slices.Clone(r.Flags), i, i+1)
	}
	c.Turns, c.Actions, c.Rewards = slices.Clone(r.Turns), slices.Clone(r.Actions), slices.Clone(r.Rewards)
	for i := range c.Turns {
		t := &c.Turns[i]
		t.QueueMS, t.TTFTMS, t.ServiceMS, t.Retries, t.Endpoint, t.CachedTokens = nil, nil, nil, 0, nil, nil
	}
	c.FaultAttempts = slices.Clone(r.FaultAttempts)
	for i := range c.FaultAttempts {
		a := &c.FaultAttempts[i]
		a.Began, a.Ended, a.Endpoint = nil, nil, nil
	}
	for i := range c.Actions {
		a := &c.Actions[i]
		a.WallMS, a.CPUMS, a.QueueMS, a.SetupMS, a.PeakMemory = nil, nil, nil, nil, nil
	}
	for i := range c.Rewards {
		c.Rewards[i].WallMS, c.Rewards[i].CPUMS = nil, nil
	}
	return &c
}

// LastingSum is a digest of a row but for what tells how it went that time.
func (r *Row) LastingSum() ([16]byte, error) {
	sum, _, err := sumOfRow(r.lasting(), nil)
	return sum, err
}

// Difference is one place where two rows differ.
type Difference struct {
	Field string `json:"field"` // turns[1].finish_reason
	A     string `json:"a"`     // as text, cut; "null" for null
	B     string `json:"b"`
}

// Differences names the first places, at most so many, where two rows differ, but for what tells how it went that time. Of two lists of
// different lengths it names the lengths alone.
func Differences(a, b *Row, most int) []Difference {
	d := differ{most: most}
	d.values("", reflect.ValueOf(a.lasting()).Elem(), reflect.ValueOf(b.lasting()).Elem())
	return d.found
}

type differ struct {
	most  int
	found []Difference
}

func (d *differ) add(field, a, b string) {
	if len(d.found) < d.most {
		d.found = append(d.found, Difference{field, a, b})
	}
}

func (d *differ) values(field string, a, b reflect.Value) {
	if len(d.found) >= d.most {
		return
	}
	switch a.Kind() {
	case reflect.Struct:
		if at, ok := a.Interface().(time.Time); ok {
			if bt := b.Interface().(time.Time); !at.Equal(bt) {
				d.add(field, at.Format(time.RFC3339Nano), bt.Format(time.RFC3339Nano))
			}
			return
		}
		for i := range a.NumField() {
			name := a.Type().Field(i).Tag.Get("json")
			d.values(strings.TrimPrefix(field+"."+name, "."), a.Field(i), b.Field(i))
		}
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			if a.IsNil() != b.IsNil() {
				d.add(field, brief(a), brief(b))
			}
			return
		}
		d.values(field, a.Elem(), b.Elem())
	case reflect.Slice:
		d.lists(field, a, b)
	default:
		if !a.Equal(b) && !(a.CanFloat() && a.Float() != a.Float() && b.Float() != b.Float()) { // NaN twice is no difference
			d.add(field, brief(a), brief(b))
		}
	}
}

func (d *differ) lists(field string, a, b reflect.Value) {
	switch {
	case a.IsNil() != b.IsNil():
		d.add(field, brief(a), brief(b))
	case a.Len() != b.Len():
		d.add(field, fmt.Sprintf("%d values", a.Len()), fmt.Sprintf("%d values", b.Len()))
	default:
		for i := range a.Len() {
			d.values(fmt.Sprintf("%s[%d]", field, i), a.Index(i), b.Index(i))
		}
	}
}

// brief is a value as text; long ones are cut.
func brief(v reflect.Value) string {
	const most = 60 // characters
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "null"
		}
		return brief(v.Elem())
	case reflect.Slice:
		if v.IsNil() {
			return "null"
		}
		return fmt.Sprintf("%d values", v.Len())
	case reflect.String:
		text := []rune(v.String())
		if len(text) > most {
			return fmt.Sprintf("%q…", string(text[:most]))
		}
		return fmt.Sprintf("%q", string(text))
	}
	return fmt.Sprint(v.Interface())
}
