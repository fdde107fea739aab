package feed

import (
	"iter"

	"tranche/storage"
)

// group is the rows of one group that are published together.
type group struct {
	rows []*storage.Row
	next int64 // the index behind them
}

// groups cuts rows into groups. A row without a group is one.
func groups(rows iter.Seq2[storage.Placed, error]) iter.Seq2[group, error] {
	return func(yield func(group, error) bool) {
		var g group
		for p, err := range rows {
			if err != nil {
				yield(group{}, err)
				return
			}
			if len(g.rows) > 0 && (p.Row.GroupID == "" || p.Row.GroupID != g.rows[0].GroupID) {
				if !yield(g, nil) {
					return
				}
				g.rows = nil
			}
			g.rows, g.next = append(g.rows, p.Row), p.Index+1
		}
		if len(g.rows) > 0 {
			yield(g, nil)
		}
	}
}
