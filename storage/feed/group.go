package feed

import (
	"iter"

	"tranche/storage"
)

// group is the rows of one group that are published together, good ones or failures.
type group struct {
	rows   []*storage.Row
	next   int64 // the index behind them
	failed bool
}

// groups cuts rows into groups. A row without a group is one. Failures are never with the good rows of their group: whether they stand beside them in the
// order is a matter of time.
func groups(rows iter.Seq2[storage.Placed, error]) iter.Seq2[group, error] {
	return func(yield func(group, error) bool) {
		var g group
		for p, err := range rows {
			if err != nil {
				yield(group{}, err)
				return
			}
			if len(g.rows) > 0 && (p.Row.GroupID == "" || p.Row.GroupID != g.rows[0].GroupID || p.Failed != g.failed) {
				if !yield(g, nil) {
					return
				}
				g.rows = nil
			}
			g.rows, g.next, g.failed = append(g.rows, p.Row), p.Index+1, p.Failed
		}
		if len(g.rows) > 0 {
			yield(g, nil)
		}
	}
}
