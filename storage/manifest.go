package storage

import (
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// Manifest is manifest.json: the only thing a reader trusts. A file that it does not list is not part of the dataset.
type Manifest struct {
	SchemaVersion int `json:"schema_version"`
	// Generation grows by one with every replacement.
	Generation int64 `json:"generation"`
	// FirstSegment is the number of the oldest journal segment that counts; older ones are in the parts.
	FirstSegment int `json:"first_segment"`
	// NextPart and NextFailure number the next file of each kind; numbers are never used again.
	NextPart    int `json:"next_part"`
	NextFailure int `json:"next_failure"`

	Rows        int64 `json:"rows"`         // in Parts
	FailureRows int64 `json:"failure_rows"` // in Failures

	Parts    []Part `json:"parts"`
	Failures []Part `json:"failures"`

	// RewardSets are the parts with other verdicts that rescoring made, and CurrentRewards names the one that readers see; "" = the run's
	// own.
	RewardSets     []RewardSet `json:"reward_sets,omitempty"`
	CurrentRewards string      `json:"current_rewards,omitempty"`
	// Rescored says of which run this is a copy with other verdicts; nil = of none.
	Rescored *Origin `json:"rescored,omitempty"`
	// Made says of which datasets this one was put together; nil = of none.
	Made *Making `json:"made,omitempty"`
}

// Part is one published Parquet file.
type Part struct {
	Path          string `json:"path"` // relative to the run directory, with forward slashes
	SchemaVersion int    `json:"schema_version"`
	Rows          int64  `json:"rows"`
	RowGroups     int    `json:"row_groups"`
	Bytes         int64  `json:"bytes"`
	RawBytes      int64  `json:"raw_bytes"` // before encoding, an estimate
	// Rewritten is how many raw bytes were written again to make this file of smaller ones, and them of others; 0 = it is as it was published.
	Rewritten int64  `json:"rewritten_bytes,omitempty"`
	SHA256    string `json:"sha256"`
	// FirstEpisode and LastEpisode are the ids of the first and the last row, MinEpisode and MaxEpisode the least and the
	// greatest; empty for a part without rows.
	FirstEpisode string    `json:"first_episode"`
	LastEpisode  string    `json:"last_episode"`
	MinEpisode   string    `json:"min_episode"`
	MaxEpisode   string    `json:"max_episode"`
	Published    time.Time `json:"published"`
}

// how is the command that put a dataset of other runs' rows together; "" for a run.
func (m Manifest) how() string {
	switch {
	case m.Made != nil:
		return m.Made.How
	case m.Rescored != nil:
		return "rescore"
	}
	return ""
}

func partName(folder string, number int) string {
	return path.Join(folder, fmt.Sprintf("part-%05d.parquet", number))
}

func partNumber(name string) (int, bool) {
	var n int
	base := path.Base(name)
	if _, err := fmt.Sscanf(base, "part-%d.parquet", &n); err != nil || path.Base(partName("", n)) != base {
		return 0, false
	}
	return n, true
}

// with returns the manifest after a publication: removed files out, added ones at the end.
func (m Manifest) with(parts, failures []Part, removed map[string]bool, firstSegment int) Manifest {
	gone := func(p Part) bool { return removed[p.Path] }
	m.Parts = append(slices.DeleteFunc(slices.Clone(m.Parts), gone), parts...)
	m.Failures = append(slices.DeleteFunc(slices.Clone(m.Failures), gone), failures...)
	m.Rows, m.FailureRows = rowsIn(m.Parts), rowsIn(m.Failures)
	m.FirstSegment = firstSegment
	m.NextPart, m.NextFailure = after(m.NextPart, parts), after(m.NextFailure, failures)
	m.Generation++
	return m
}

// after is the number that follows next and those of the new files.
func after(next int, files []Part) int {
	for _, p := range files {
		if n, ok := partNumber(p.Path); ok {
			next = max(next, n+1)
		}
	}
	return next
}

func rowsIn(parts []Part) int64 {
	var n int64
	for _, p := range parts {
		n += p.Rows
	}
	return n
}

// files is every published file, parts first.
func (m Manifest) files() []Part { return slices.Concat(m.Parts, m.Failures) }

func loadManifest(fsys fileSystem, dir string) (Manifest, error) {
	m, _, err := readManifest(fsys, dir)
	return m, err
}

func saveManifest(fsys fileSystem, dir string, m Manifest) error {
	b, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return fmt.Errorf("encode the manifest: %w", err)
	}
	return replaceFile(fsys, filepath.Join(dir, manifestName), append(b, '\n'))
}
