package main

import (
	"fmt"
	"strings"
	"sync/atomic"

	"tranche/episode"
	"tranche/storage"
)

// goneOn counts what came of episodes that an earlier process had begun.
type goneOn struct {
	on, again atomic.Int64
	why       atomic.Pointer[string] // the first that should have gone on and could not
}

// tell is told of each when it is played.
func (g *goneOn) tell(e *episode.Episode, err error) {
	switch {
	case err != nil:
		why := err.Error()
		g.why.CompareAndSwap(nil, &why)
		g.again.Add(1)
	case len(e.Turns) > 0:
		g.on.Add(1)
	}
}

// notes tells of those that should have gone on, and of turns that could not be kept.
func (g *goneOn) notes(w *storage.Writer) (notes []string) {
	if n := g.again.Load(); n > 0 {
		what := "1 episode that had begun could not be gone on with and began again:"
		if n > 1 {
			what = fmt.Sprintf("%d episodes that had begun could not be gone on with and began again; the first:", n)
		}
		notes = append(notes, what+" "+short(visibleLine(*g.why.Load()), 300))
	}
	if err := w.TurnTrouble(); err != nil {
		notes = append(notes, fmt.Sprintf("turns of open episodes: %s; no row is lost by that, but an interrupted episode may have to begin again", visibleLine(err.Error())))
	}
	return notes
}

// openText says what becomes of episodes that an earlier process had begun, "" where none is known.
func openText(o storage.OpenEpisodes) string {
	var parts []string
	switch {
	case o.GoOn == 1:
		parts = append(parts, fmt.Sprintf("1 open episode goes on where it stopped, after %s", turnsText(o.Turns)))
	case o.GoOn > 1:
		parts = append(parts, fmt.Sprintf("%d open episodes go on where they stopped, after %.1f turns on average", o.GoOn, float64(o.Turns)/float64(o.GoOn)))
	}
	switch kept := short(strings.Join(o.Kept, ", "), 100); {
	case o.Again == 1:
		parts = append(parts, fmt.Sprintf("1 begins again: its tools keep state (%s)", kept))
	case o.Again > 1:
		parts = append(parts, fmt.Sprintf("%d begin again: their tools keep state (%s)", o.Again, kept))
	}
	return strings.Join(parts, "; ")
}

func turnsText(n int) string {
	if n == 1 {
		return "1 turn"
	}
	return fmt.Sprintf("%d turns", n)
}
