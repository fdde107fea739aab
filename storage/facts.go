package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"slices"

	"github.com/parquet-go/parquet-go"

	"tranche/episode"
)

// Facts are the columns of a row that statistics need: all but its texts and its tokens. Fields mean what those of Row mean.
type Facts struct {
	RunID       string `parquet:"run_id"`
	EpisodeID   string `parquet:"episode_id"`
	GroupID     string `parquet:"group_id"`
	TaskID      string `parquet:"task_id"`
	TaskHash    string `parquet:"task_hash"`
	Round       int32  `parquet:"round"`
	SampleIndex int32  `parquet:"sample_index"`
	GroupSize   int32  `parquet:"group_size"`
	DataSource  string `parquet:"data_source"`
	EnvClass    string `parquet:"env_class"`
	Split       string `parquet:"split"`

	PrefixBreak *int32       `parquet:"prefix_break,optional"`
	Turns       []TurnFacts  `parquet:"turns,optional,list"`
	Actions     []ActionFact `parquet:"actions,optional,list"`

	Reward  *float64     `parquet:"reward,optional"`
	Rewards []RewardFact `parquet:"rewards,optional,list"`

	Status     *string  `parquet:"status,optional"`
	StopReason *string  `parquet:"stop_reason,optional"`
	FaultStage *string  `parquet:"fault_stage,optional"`
	FaultClass *string  `parquet:"fault_class,optional"`
	Flags      []string `parquet:"flags,optional,list"`

	NumTurns        int32   `parquet:"num_turns"`
	NumInputTokens  *int32  `parquet:"num_input_tokens,optional"`
	NumOutputTokens *int32  `parquet:"num_output_tokens,optional"`
	Timing          Timing  `parquet:"timing"`
	Model           *string `parquet:"model,optional"`
	Seed            *int64  `parquet:"seed,optional"`
	Variant         *string `parquet:"variant,optional"`
}

// TurnFacts are those of a turn.
type TurnFacts struct {
	Endpoint     *string `parquet:"endpoint,optional"`
	Class        int16   `parquet:"class"`
	VersionStart *int32  `parquet:"version_start,optional"`
	VersionEnd   *int32  `parquet:"version_end,optional"`
}

// ActionFact is those of an action.
type ActionFact struct {
	Name   *string  `parquet:"name,optional"`
	Status *string  `parquet:"status,optional"`
	WallMS *float32 `parquet:"wall_ms,optional"`
}

// RewardFact is those of a component of a verdict.
type RewardFact struct {
	Name  *string  `parquet:"name,optional"`
	Score *float64 `parquet:"score,optional"`
}

// Head is the row with those columns that a Filter looks at, and the run's id; the others are zero.
func (f *Facts) Head() *Row {
	return &Row{RunID: f.RunID, TaskID: f.TaskID, DataSource: f.DataSource, Split: f.Split, Reward: f.Reward, Status: f.Status, StopReason: f.StopReason, Flags: f.Flags}
}

// Failed says that the row is in failures/: it failed, or was cut by a quorum.
func (f *Facts) Failed() bool { return bad(f.Status) }

// FactsOf is what a row says of them.
func FactsOf(r *Row) Facts {
	f := Facts{
		RunID: r.RunID, EpisodeID: r.EpisodeID, GroupID: r.GroupID, TaskID: r.TaskID, TaskHash: r.TaskHash, Round: r.Round, SampleIndex: r.SampleIndex, GroupSize: r.GroupSize,
		DataSource: r.DataSource, EnvClass: r.EnvClass, Split: r.Split, PrefixBreak: r.PrefixBreak, Reward: r.Reward, Status: r.Status, StopReason: r.StopReason,
		FaultStage: r.FaultStage, FaultClass: r.FaultClass, Flags: r.Flags, NumTurns: r.NumTurns, NumInputTokens: r.NumInputTokens, NumOutputTokens: r.NumOutputTokens,
		Timing: r.Timing, Model: r.Model, Seed: r.Seed, Variant: r.Variant,
	}
	f.Turns = mapped(r.Turns, func(t Turn) TurnFacts { return TurnFacts{t.Endpoint, t.Class, t.VersionStart, t.VersionEnd} })
	f.Actions = mapped(r.Actions, func(a Action) ActionFact { return ActionFact{a.Name, a.Status, a.WallMS} })
	f.Rewards = mapped(r.Rewards, func(c Reward) RewardFact { return RewardFact{c.Name, c.Score} })
	return f
}

// mapped leaves null null.
func mapped[A, B any](list []A, of func(A) B) []B {
	if list == nil {
		return nil
	}
	out := make([]B, len(list))
	for i, v := range list {
		out[i] = of(v)
	}
	return out
}

// Facts yields those of every row once, as Rows does, and reads only their columns of the parts. A yielded value is the caller's.
func (r *Run) Facts() iter.Seq2[*Facts, error] {
	return func(yield func(*Facts, error) bool) {
		w := walk[Facts]{run: r, id: func(f *Facts) string { return f.EpisodeID }, failed: (*Facts).Failed,
			decode: func(payload []byte) (*Facts, error) {
				row, err := decodeRow(payload)
				if err != nil {
					return nil, err
				}
				return episode.Ptr(FactsOf(row)), nil
			},
			yield: func(f *Facts) bool { own := *f; return yield(&own, nil) }}
		if err := w.all(); err != nil && !errors.Is(err, errStop) {
			yield(nil, fmt.Errorf("read run %s: %w", r.dir, err))
		}
	}
}

// Answer is what tells the last answers of a group apart.
type Answer struct {
	GroupID   string
	GroupSize int32
	Failed    bool
	Sum       uint64 // of its text and its tool calls; 0 = there is none
}

// answered is the columns it is made of, and those of Head. They are no part of Facts: messages are most of a row's text. (Nor does
// this embed Facts: parquet-go reads nulls in an embedded struct as zeros.)
type answered struct {
	RunID      string   `parquet:"run_id"`
	EpisodeID  string   `parquet:"episode_id"`
	GroupID    string   `parquet:"group_id"`
	GroupSize  int32    `parquet:"group_size"`
	TaskID     string   `parquet:"task_id"`
	DataSource string   `parquet:"data_source"`
	Split      string   `parquet:"split"`
	Reward     *float64 `parquet:"reward,optional"`
	Status     *string  `parquet:"status,optional"`
	StopReason *string  `parquet:"stop_reason,optional"`
	Flags      []string `parquet:"flags,optional,list"`
	Messages   []said   `parquet:"messages,optional,list"`
}

type said struct {
	Role      *string    `parquet:"role,optional"`
	Content   *string    `parquet:"content,optional"`
	ToolCalls []ToolCall `parquet:"tool_calls,optional,list"`
}

func (a *answered) head() *Row {
	return &Row{RunID: a.RunID, TaskID: a.TaskID, DataSource: a.DataSource, Split: a.Split, Reward: a.Reward, Status: a.Status, StopReason: a.StopReason, Flags: a.Flags}
}

func (a *answered) answer() Answer {
	return Answer{GroupID: a.GroupID, GroupSize: a.GroupSize, Failed: bad(a.Status), Sum: answerOf(a.Messages)}
}

func answeredOf(r *Row) *answered {
	a := &answered{RunID: r.RunID, EpisodeID: r.EpisodeID, GroupID: r.GroupID, GroupSize: r.GroupSize, TaskID: r.TaskID, DataSource: r.DataSource, Split: r.Split,
		Reward: r.Reward, Status: r.Status, StopReason: r.StopReason, Flags: r.Flags, Messages: make([]said, len(r.Messages))}
	for i, m := range r.Messages {
		a.Messages[i] = said{m.Role, m.Content, m.ToolCalls}
	}
	return a
}

func answerOf(messages []said) uint64 {
	for _, m := range slices.Backward(messages) {
		if text(m.Role) != episode.RoleAssistant {
			continue
		}
		sum := fnv.New64a()
		fmt.Fprintf(sum, "%q", text(m.Content))
		for _, c := range m.ToolCalls { // ids of calls are made up by servers
			fmt.Fprintf(sum, "%q%q", c.Function.Name, c.Function.Arguments)
		}
		return max(sum.Sum64(), 1)
	}
	return 0
}

// Answers yields that of every row that take takes, once, as Rows does; it reads the messages and little more. take sees what Facts.Head has; nil takes
// every row.
func (r *Run) Answers(take func(head *Row) bool) iter.Seq2[Answer, error] {
	return func(yield func(Answer, error) bool) {
		w := walk[answered]{run: r, id: func(a *answered) string { return a.EpisodeID }, failed: func(a *answered) bool { return bad(a.Status) },
			decode: func(payload []byte) (*answered, error) {
				row, err := decodeRow(payload)
				if err != nil {
					return nil, err
				}
				return answeredOf(row), nil
			},
			yield: func(a *answered) bool { return take != nil && !take(a.head()) || yield(a.answer(), nil) }}
		if err := w.all(); err != nil && !errors.Is(err, errStop) {
			yield(Answer{}, fmt.Errorf("read run %s: %w", r.dir, err))
		}
	}
}

// ColumnSize is what a column takes in the parts and failure files of a dataset, with all that is nested in it.
type ColumnSize struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`         // on disk, compressed
	Raw    int64  `json:"encoded_bytes"` // before compression, as encoded
	Values int64  `json:"values"`        // in all its leaves, nulls included
}

// Columns reads the sizes of the columns from the footers of the files, the largest first. What is in the journal is not in them.
func (r *Run) Columns() ([]ColumnSize, error) {
	var sizes map[string]ColumnSize
	err := steady(r.fs, r.dir, func(m Manifest) error {
		sizes = map[string]ColumnSize{}
		for _, p := range m.read() {
			if err := openPart(r.fs, r.dir, p, func(pf *parquet.File) error { addSizes(sizes, pf); return nil }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(sizes), func(a, b ColumnSize) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	}), nil
}

// addSizes adds what the columns of a file take.
func addSizes(sizes map[string]ColumnSize, pf *parquet.File) {
	for _, g := range pf.Metadata().RowGroups {
		for _, c := range g.Columns {
			s := sizes[c.MetaData.PathInSchema[0]]
			s.Name = c.MetaData.PathInSchema[0]
			s.Bytes += c.MetaData.TotalCompressedSize
			s.Raw += c.MetaData.TotalUncompressedSize
			s.Values += c.MetaData.NumValues
			sizes[s.Name] = s
		}
	}
}

// Published yields the facts of every row that is in a part or a failure file at this moment, and of none that is in the journal only. A
// yielded value is the caller's. ErrMoved: files that were to be read have gone into others since.
func (r *Run) Published(ctx context.Context) iter.Seq2[*Facts, error] {
	return func(yield func(*Facts, error) bool) {
		m, err := r.Manifest()
		for _, p := range m.read() {
			err = eachIn(ctx, r.fs, r.dir, p, func(f *Facts) error {
				own := *f
				if !yield(&own, nil) {
					return errStop
				}
				return nil
			}, nothing)
			if err != nil {
				break
			}
		}
		if err != nil && !errors.Is(err, errStop) {
			yield(nil, fmt.Errorf("read run %s: %w", r.dir, moved(r.fs, r.dir, m, err)))
		}
	}
}
