package verify

import (
	"slices"
	"time"

	"tranche/storage"
)

// home is where a row lies.
type home int

const (
	inParts home = iota
	inFailures
	inJournal
	inSet // of rescored rewards
)

// row is a row with what the checks have to know besides it.
type row struct {
	*storage.Row
	home    home
	older   []string // columns that its file does not have
	run     string   // the run's id by run.yaml; "" = not known
	total   Total    // nil = the rule is not known
	now     time.Time
	turnsAt []span // made at the first need
	walked  bool
	trouble string // why they could not be made, where that is a fault of the row
}

// lacks says that the row's file is of before there was the column.
func (r *row) lacks(column string) bool { return slices.Contains(r.older, column) }

func (r *row) flagged(flags ...string) bool {
	return slices.ContainsFunc(flags, func(f string) bool { return slices.Contains(r.Flags, f) })
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
