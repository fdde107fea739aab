package sampler

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"tranche/episode"
)

// wish is what the columns of a task ask for: how soon, and by when.
type wish struct {
	priority int
	due      time.Time // zero = whenever
}

// wish reads the columns that the Config names; a task without them wishes nothing.
func (k *Knobs) wish(t *episode.Task) (w wish, err error) {
	if k.cfg.PriorityColumn == "" && k.cfg.DeadlineColumn == "" || len(t.Extra) == 0 {
		return w, nil
	}
	var columns map[string]json.RawMessage
	if err := json.Unmarshal(t.Extra, &columns); err != nil {
		return w, fmt.Errorf("columns of task %q: %w", t.ID, err)
	}
	fault := func(column string, raw []byte, expected string) error {
		return fmt.Errorf("column %q: expected %s, found %.40s", column, expected, raw)
	}
	if raw, ok := columns[k.cfg.PriorityColumn]; ok && k.cfg.PriorityColumn != "" && string(raw) != "null" {
		if json.Unmarshal(raw, &w.priority) != nil || w.priority < math.MinInt32 || w.priority > math.MaxInt32 {
			return w, fault(k.cfg.PriorityColumn, raw, "a whole number")
		}
	}
	if raw, ok := columns[k.cfg.DeadlineColumn]; ok && k.cfg.DeadlineColumn != "" && string(raw) != "null" {
		if w.due, ok = deadline(raw, k.cfg.Began); !ok {
			return w, fault(k.cfg.DeadlineColumn, raw, `a time such as "2026-01-31T18:00:00Z", or how long after the run's start: "90m", or seconds`)
		}
	}
	return w, nil
}

// deadline reads a time, or a span after the run's beginning.
func deadline(raw json.RawMessage, began time.Time) (time.Time, bool) {
	var seconds float64
	if json.Unmarshal(raw, &seconds) == nil {
		const most = float64(math.MaxInt64) / float64(time.Second) / 2
		return began.Add(time.Duration(seconds * float64(time.Second))), seconds >= 0 && seconds < most
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return time.Time{}, false
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, true
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return deadline(json.RawMessage(strconv.FormatFloat(n, 'g', -1, 64)), began)
	}
	span, err := time.ParseDuration(text)
	return began.Add(span), err == nil && span >= 0
}

// Sound says what is wrong with the columns of a task that PriorityColumn and DeadlineColumn name.
func (c Config) Sound(t *episode.Task) error {
	_, err := (&Knobs{cfg: c}).wish(t)
	return err
}

// Due is when the episodes of a task must have ended; zero = no such time. A faulty column was refused before the task was drawn.
func (k *Knobs) Due(t *episode.Task) time.Time {
	w, err := k.wish(t)
	if err != nil {
		return time.Time{}
	}
	return w.due
}

// sound says what is wrong with a task's own parameters and wishes: episodes are opened where no error can be returned any more.
func (k *Knobs) sound(t *episode.Task) error {
	if _, err := overrides(t); err != nil {
		return err
	}
	if err := k.cfg.Sound(t); err != nil {
		return fmt.Errorf("%s: %w", t.Where, err)
	}
	return nil
}
