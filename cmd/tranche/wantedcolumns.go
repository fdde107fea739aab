package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tranche/episode"
)

// wantedColumns are the columns that settings name: one that no task has is a mistake in its name.
type wantedColumns map[string]string // column by key

func (w *wantedColumns) want(key, column string) {
	if column == "" {
		return
	}
	if *w == nil {
		*w = wantedColumns{}
	}
	(*w)[key] = column
}

// watch looks for the columns in every task that sound is asked about, until all were seen.
func (w wantedColumns) watch(sound func(*episode.Task) error) func(*episode.Task) error {
	if len(w) == 0 {
		return sound
	}
	return func(t *episode.Task) error {
		if len(w) > 0 {
			own := columnsOf(t)
			maps.DeleteFunc(w, func(_, column string) bool { _, has := own[column]; return has })
		}
		return sound(t)
	}
}

func columnsOf(t *episode.Task) (columns map[string]json.RawMessage) {
	if len(t.Extra) > 0 {
		_ = json.Unmarshal(t.Extra, &columns) // the task's reader made it
	}
	return columns
}

// missing says which columns no task had, and which there are in one of them.
func (w wantedColumns) missing(example *episode.Task) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(w)) {
		there := "a column besides those with a meaning of their own, and the first task has none"
		if names := slices.Sorted(maps.Keys(columnsOf(example))); len(names) > 0 {
			there = "one besides those with a meaning of their own, such as " + strings.Join(names, ", ")
		}
		errs = append(errs, fmt.Errorf("%s: no task has a column %q; expected %s", key, w[key], there))
	}
	return errors.Join(errs...)
}
