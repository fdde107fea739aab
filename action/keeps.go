package action

import (
	"slices"

	"tranche/episode"
)

// Keeps names the tools that hold something of the episode besides its messages: of those that it has called, all that do not say that they hold
// nothing. See episode.Keeper.
func (s *Set) Keeps(e *episode.Episode) []string {
	var names []string
	for _, act := range e.Actions {
		t, known := s.all[act.Name]
		if !known || slices.Contains(names, act.Name) { // what is not known was not run
			continue
		}
		if k, ok := t.tool.(Keeper); !ok || k.Keeps(e.ID) {
			names = append(names, act.Name)
		}
	}
	return names
}
