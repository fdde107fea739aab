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
		notes = append(notes, fmt.Sprintf("%d episodes that had begun could not be gone on with and began again; the first: %s", n, short(visibleLine(*g.why.Load()), 300)))
	}
	if err := w.TurnTrouble(); err != nil {
		notes = append(notes, fmt.Sprintf("turns of open episodes: %s; no row is lost by that, but an interrupted episode may have to begin again", visibleLine(err.Error())))
	}
	return notes
}

// openText says what becomes of episodes that an earlier process had begun, "" where none is known.
func openText(o storage.OpenEpisodes) string {
	var parts []string
	if o.GoOn > 0 {
		parts = append(parts, fmt.Sprintf("%d open episodes go on where they stopped, after %.1f turns on average", o.GoOn, float64(o.Turns)/float64(o.GoOn)))
	}
	if o.Again > 0 {
		parts = append(parts, fmt.Sprintf("%d begin again: their tools keep state (%s)", o.Again, short(strings.Join(o.Kept, ", "), 100)))
	}
	return strings.Join(parts, "; ")
}
