package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// RewardSet is a set of parts that stand in the place of the run's own: the same rows in the same order, with other verdicts. Failures
// have none.
type RewardSet struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // of what decided the verdicts
	// Rule is how its rewards are made of their components, in the caller's words; absent = that is not known.
	Rule     json.RawMessage `json:"rule,omitempty"`
	Complete bool            `json:"complete"` // every part that was there has its counterpart; else it was stopped on the way
	Began    time.Time       `json:"began"`
	Parts    []Part          `json:"parts"` // rewards/NAME/part-00003.parquet stands in the place of parts/part-00003.parquet
}

// Origin says of which run a dataset is that has its verdicts from rescoring alone.
type Origin struct {
	Dir string    `json:"dir"`
	Run string    `json:"run"` // its id: the graders may be those of many runs
	Set RewardSet `json:"set"` // without parts: they are the dataset's own
}

// Errors of rescoring.
var (
	// ErrOtherSet: the name, or the directory, is that of a set that was made with other settings or of another run.
	ErrOtherSet = errors.New("made with other settings")
	// ErrNoSet: the run has no such complete set.
	ErrNoSet = errors.New("no such set of rewards")
	// ErrMoved: the run is being written, and files that were to be read are in others now. The same again goes on.
	ErrMoved = errors.New("the run moved on")
)

// PlayedRewards names the verdicts that the run itself gave.
const PlayedRewards = "played"

const rewardsDir = "rewards"

// counterpart is the part of the set that stands in the place of one of the run's own.
func (s RewardSet) counterpart(p Part) (Part, bool) {
	i := slices.IndexFunc(s.Parts, func(o Part) bool { return path.Base(o.Path) == path.Base(p.Path) })
	if i < 0 {
		return p, false
	}
	return s.Parts[i], true
}

// rewardSet is nil where there is none of that name.
func (m *Manifest) rewardSet(name string) *RewardSet {
	i := slices.IndexFunc(m.RewardSets, func(s RewardSet) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &m.RewardSets[i]
}

// current is the run's parts as readers see them: those of the current set where it has them. A part that was written later has none.
func (m Manifest) current() []Part {
	list := slices.Clone(m.Parts)
	if set := m.rewardSet(m.CurrentRewards); set != nil {
		for i, p := range list {
			list[i], _ = set.counterpart(p)
		}
	}
	return list
}

// rewards names the set whose rewards readers see, "" = the run's own, and the rule of it where all parts are of that set.
func (m Manifest) rewards() (name string, rule json.RawMessage) {
	if m.Rescored != nil {
		return m.Rescored.Set.Name, m.Rescored.Set.Rule
	}
	set := m.rewardSet(m.CurrentRewards)
	if set == nil {
		return "", nil
	}
	for _, p := range m.Parts {
		if _, ok := set.counterpart(p); !ok && p.Rows > 0 {
			return set.Name, nil
		}
	}
	return set.Name, set.Rule
}

// read is every file that readers look at, parts first.
func (m Manifest) read() []Part { return slices.Concat(m.current(), m.Failures) }

// UseRewards makes another set the current one; PlayedRewards are the run's own. It takes the run's lock.
func UseRewards(dir, name string) error {
	fsys := disk{}
	if _, err := loadManifest(fsys, dir); err != nil {
		return err
	}
	lock, err := fsys.Lock(filepath.Join(dir, lockName))
	if err != nil {
		return fmt.Errorf("run directory %s: %w", dir, err)
	}
	defer lock.Close()
	m, err := loadManifest(fsys, dir)
	if err != nil {
		return err
	}
	if name == PlayedRewards {
		m.CurrentRewards = ""
	} else if set := m.rewardSet(name); set != nil && set.Complete {
		m.CurrentRewards = name
	} else {
		return fmt.Errorf("%s: %w: %q", dir, ErrNoSet, name)
	}
	m.Generation++
	return saveManifest(fsys, dir, m)
}
