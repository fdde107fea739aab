package audit

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"tranche/episode"
)

// Twins finds tasks that ask the same. It keeps two digests for each task.
type Twins struct{ first map[[16]byte]sibling }

type sibling struct {
	id    string
	truth [16]byte
}

// Twin is a task that asks what an earlier one asked.
type Twin struct {
	Task     string `json:"task"`
	Of       string `json:"of"`
	Conflict bool   `json:"conflict"` // their ground truths differ
}

// Add notes a task, and finds the earlier one that has the same messages and tools, but for case and spacing.
func (t *Twins) Add(task *episode.Task) (Twin, bool) {
	if t.first == nil {
		t.first = map[[16]byte]sibling{}
	}
	var asked strings.Builder
	for _, m := range task.Messages {
		fmt.Fprintf(&asked, "%s\x00", m.Role)
		if m.Content != nil {
			asked.WriteString(plain(*m.Content))
		}
	}
	asked.Write(task.Tools)
	k, truth := digest(asked.String()), digest("\x00none")
	if task.Answer != nil {
		truth = digest(plain(*task.Answer))
	}
	if old, ok := t.first[k]; ok {
		return Twin{task.ID, old.id, old.truth != truth}, true
	}
	t.first[k] = sibling{task.ID, truth}
	return Twin{}, false
}

func plain(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), " ")) }

func digest(s string) (k [16]byte) {
	sum := sha256.Sum256([]byte(s))
	copy(k[:], sum[:])
	return k
}
