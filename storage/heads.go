package storage

import (
	"errors"
	"fmt"
	"iter"
)

// headColumns are the columns of a row by which it is found, grouped and chosen.
type headColumns struct {
	RunID       string   `parquet:"run_id"`
	EpisodeID   string   `parquet:"episode_id"`
	GroupID     string   `parquet:"group_id"`
	TaskID      string   `parquet:"task_id"`
	TaskHash    string   `parquet:"task_hash"`
	Round       int32    `parquet:"round"`
	SampleIndex int32    `parquet:"sample_index"`
	GroupSize   int32    `parquet:"group_size"`
	DataSource  string   `parquet:"data_source"`
	Split       string   `parquet:"split"`
	Tools       *string  `parquet:"tools,optional"`
	Reward      *float64 `parquet:"reward,optional"`
	Status      *string  `parquet:"status,optional"`
	StopReason  *string  `parquet:"stop_reason,optional"`
	Flags       []string `parquet:"flags,optional,list"`
}

func (h *headColumns) row() *Row {
	return &Row{
		RunID: h.RunID, EpisodeID: h.EpisodeID, GroupID: h.GroupID, TaskID: h.TaskID, TaskHash: h.TaskHash, Round: h.Round, SampleIndex: h.SampleIndex,
		GroupSize: h.GroupSize, DataSource: h.DataSource, Split: h.Split, Tools: h.Tools, Reward: h.Reward, Status: h.Status,
		StopReason: h.StopReason, Flags: h.Flags,
	}
}

// Heads yields every row as Rows does, in the same order, with few columns: the ids, that of the run too, round, sample and group size, data source,
// split, tools, reward, status, stop reason and flags, which is all that a Filter looks at. The others are zero. It costs a small part of what Rows does.
func (r *Run) Heads() iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		w := walk[headColumns]{run: r, id: func(h *headColumns) string { return h.EpisodeID },
			failed: func(h *headColumns) bool { return bad(h.Status) },
			decode: decodeHead,
			yield:  func(h *headColumns) bool { return yield(h.row(), nil) }}
		if err := w.all(); err != nil && !errors.Is(err, errStop) {
			yield(nil, fmt.Errorf("read run %s: %w", r.dir, err))
		}
	}
}

func decodeHead(payload []byte) (*headColumns, error) {
	row, err := decodeRow(payload)
	if err != nil {
		return nil, err
	}
	return &headColumns{
		RunID: row.RunID, EpisodeID: row.EpisodeID, GroupID: row.GroupID, TaskID: row.TaskID, TaskHash: row.TaskHash, Round: row.Round, SampleIndex: row.SampleIndex,
		GroupSize: row.GroupSize, DataSource: row.DataSource, Split: row.Split, Tools: row.Tools, Reward: row.Reward, Status: row.Status,
		StopReason: row.StopReason, Flags: row.Flags,
	}, nil
}
