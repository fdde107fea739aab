package storage

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"tranche/episode"
)

// FlagZeroVariance marks the rows of a whole group whose rewards are all the same, where Config.MarkEqual or Rescoring.MarkEqual asks for it: a
// group-relative trainer learns nothing from them.
const FlagZeroVariance = "zero_variance"

// Names of files that a run's sampler keeps in the run directory; storage only knows that they belong there.
const (
	DrawsName      = "draws.jsonl"
	TaskStatesName = "task-states.json"
	StreamName     = "tasks.jsonl"
)

// EndGroup says that a group has no more than so many samples, though its rows say more: it is published without the others, with
// group_size set to what there is. Call it when these samples are durable; after a restart again, for it is not written down. On a
// group that is published already it does nothing.
func (w *Writer) EndGroup(groupID string, samples int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ledger.end(keyOf(groupID), samples)
	w.wakeSealer()
}

// WriteTaskStates replaces task-states.json: what the caller's sampler knows of each task.
func (w *Writer) WriteTaskStates(states any) error { return w.replaceJSON(TaskStatesName, states) }

// ReadTaskStates reads what WriteTaskStates left in a run directory; false when there is none.
func ReadTaskStates(dir string, states any) (bool, error) {
	return readJSON(dir, TaskStatesName, states)
}

// amend brings what is known of a row's group into the row.
func (r *record) amend(row *Row) {
	if r.ended {
		row.GroupSize = r.groupSize
	}
	if r.equal {
		row.markEqual()
	}
}

func (r *Row) markEqual() {
	if !slices.Contains(r.Flags, FlagZeroVariance) {
		r.Flags = append(slices.Clone(r.Flags), FlagZeroVariance)
		slices.Sort(r.Flags)
	}
}

func (r *Row) unmarkEqual() {
	if i := slices.Index(r.Flags, FlagZeroVariance); i >= 0 {
		r.Flags = slices.Delete(slices.Clone(r.Flags), i, i+1)
	}
}

// markEqual marks a group whose rewards came when it was published, by the rule of ledger.markEqual: none of its samples failed, two or
// more verdicts, all the same.
func markEqual(rows []*Row) {
	if len(rows) < 2 || len(rows) != int(rows[0].GroupSize) {
		return
	}
	for _, r := range rows {
		if r.Reward == nil || *r.Reward != *rows[0].Reward {
			return
		}
	}
	for _, r := range rows {
		r.markEqual()
	}
}

// Outcome is the few columns of a row that group statistics and task states need.
type Outcome struct {
	EpisodeID   string   `parquet:"episode_id"`
	GroupID     string   `parquet:"group_id"`
	TaskID      string   `parquet:"task_id"`
	TaskHash    string   `parquet:"task_hash"`
	Round       int32    `parquet:"round"`
	SampleIndex int32    `parquet:"sample_index"`
	GroupSize   int32    `parquet:"group_size"`
	DataSource  string   `parquet:"data_source"`
	Split       string   `parquet:"split"`
	Status      *string  `parquet:"status,optional"`
	Reward      *float64 `parquet:"reward,optional"`
}

// OutcomeOf is what a row says of it.
func OutcomeOf(r *Row) Outcome {
	return Outcome{EpisodeID: r.EpisodeID, GroupID: r.GroupID, TaskID: r.TaskID, TaskHash: r.TaskHash, Round: r.Round, SampleIndex: r.SampleIndex, GroupSize: r.GroupSize,
		DataSource: r.DataSource, Split: r.Split, Status: r.Status, Reward: r.Reward}
}

// Outcomes yields what came of every row once, as Rows does, and reads only these columns of the parts.
func (r *Run) Outcomes() iter.Seq2[Outcome, error] {
	return func(yield func(Outcome, error) bool) {
		w := walk[Outcome]{run: r, id: func(o *Outcome) string { return o.EpisodeID },
			failed: func(o *Outcome) bool { return bad(o.Status) },
			decode: func(payload []byte) (*Outcome, error) {
				row, err := decodeRow(payload)
				if err != nil {
					return nil, err
				}
				return episode.Ptr(OutcomeOf(row)), nil
			},
			yield: func(o *Outcome) bool { return yield(*o, nil) }}
		if err := w.all(); err != nil && !errors.Is(err, errStop) {
			yield(Outcome{}, fmt.Errorf("read run %s: %w", r.dir, err))
		}
	}
}
