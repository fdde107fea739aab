package export

import (
	"encoding/json"
	"strconv"

	"tranche/storage"
)

// areal makes one record of each sequence: the tensors that a rollout workflow of AReaL returns, without the batch dimension. See
// areal/workflow/rlvr.py (arun_episode): input_ids, loss_mask, versions int32, logprobs float32, attention_mask bool, rewards float32; logprobs 0 and
// versions -1 where nothing was sampled; -1 also stands for a version that the server did not name. A row whose prefix was broken gives several records,
// with its reward in each.
type areal struct{ cfg *Config }

type arealRecord struct {
	InputIDs      []int32   `json:"input_ids" parquet:"input_ids,list" parquet-element:",plain"`
	LossMask      []int32   `json:"loss_mask" parquet:"loss_mask,list" parquet-element:",plain"`
	Logprobs      []float32 `json:"logprobs,omitempty" parquet:"logprobs,optional,list" parquet-element:",split"`
	Versions      []int32   `json:"versions" parquet:"versions,list" parquet-element:",plain"`
	AttentionMask []bool    `json:"attention_mask" parquet:"attention_mask,list"`
	Rewards       real      `json:"rewards" parquet:"rewards"`
	TaskID        string    `json:"task_id" parquet:"task_id"`
	SampleIdx     int32     `json:"sample_idx" parquet:"sample_idx"`

	trained int
}

func (r arealRecord) tokens() (all, trained int) { return len(r.InputIDs), r.trained }

func newAReaL(cfg *Config) maker { return &areal{cfg} }

func (a *areal) make(rows []*storage.Row) ([]any, []string) {
	return each(rows, func(r *storage.Row) (records []any, why string) {
		all, why := a.cfg.scored(r)
		for _, s := range all {
			records = append(records, arealRecord{
				InputIDs: s.ids, LossMask: wide(s.mask), Logprobs: s.filled, Versions: sampledVersions(&s.sequence), AttentionMask: ones(len(s.ids)),
				Rewards: real(*r.Reward), TaskID: r.TaskID, SampleIdx: r.SampleIndex, trained: s.trained(),
			})
		}
		return records, why
	})
}

// scored are the sequences of a row with a verdict, with their logprobs, 0 where nothing is learned.
func (c *Config) scored(r *storage.Row) (all []filled, why string) {
	if r.Reward == nil {
		return nil, leftNoVerdict
	}
	plain, why := c.sequences(r)
	for _, s := range plain {
		f := filled{sequence: s}
		if !c.NoLogprobs {
			var ok bool
			if f.filled, ok = s.known(0); !ok {
				return nil, leftLogprobs
			}
		}
		all = append(all, f)
	}
	return all, why
}

// filled is a sequence with logprobs that are all numbers; nil where they are not wanted.
type filled struct {
	sequence
	filled []float32
}

func sampledVersions(s *sequence) []int32 {
	out := make([]int32, len(s.ids))
	for i := range out {
		if out[i] = -1; s.mask[i] == 1 {
			out[i] = s.versions[i]
		}
	}
	return out
}

func ones(n int) []bool {
	out := make([]bool, n)
	for i := range out {
		out[i] = true
	}
	return out
}

// slime makes one record of each sequence: a Sample as slime/utils/types.py has it (Sample.from_dict), which slime/ray/rollout.py reads from a file of
// torch.save (--load-debug-rollout-data; docs/export.md has the lines that make one). loss_mask and rollout_log_probs are of the response alone, which
// begins with the first id that is learned; response is the text of the last answer. Samples of a row whose prefix was broken share their rollout_id.
//
// slime norms rewards by n_samples_per_prompt: WholeGroups keeps groups of that size.
type slime struct {
	cfg          *Config
	group, index int64
	rollout      int64
}

type slimeRecord struct {
	GroupIndex      int64         `json:"group_index"`
	Index           int64         `json:"index"`
	RolloutID       int64         `json:"rollout_id"`
	Prompt          []Message     `json:"prompt"`
	Tokens          []int32       `json:"tokens"`
	Response        string        `json:"response"`
	ResponseLength  int           `json:"response_length"`
	Label           *string       `json:"label"`
	Reward          real          `json:"reward"`
	LossMask        []int32       `json:"loss_mask"`
	WeightVersions  []string      `json:"weight_versions"`
	RolloutLogProbs []float32     `json:"rollout_log_probs"`
	Status          string        `json:"status"`
	Metadata        slimeMetadata `json:"metadata"`

	trained int
}

type slimeMetadata struct {
	SourceName string          `json:"source_name"`
	TaskID     string          `json:"task_id"`
	EpisodeID  string          `json:"episode_id"`
	Tools      json.RawMessage `json:"tools,omitempty"`
}

func (r slimeRecord) tokens() (all, trained int) { return len(r.Tokens), r.trained }

func newSlime(cfg *Config) maker { return &slime{cfg: cfg} }

func (s *slime) make(rows []*storage.Row) ([]any, []string) {
	records, left := each(rows, s.samples)
	if len(records) > 0 {
		s.group++
	}
	return records, left
}

func (s *slime) samples(r *storage.Row) (records []any, why string) {
	all, why := s.cfg.scored(r)
	if why != "" {
		return nil, why
	}
	prompt, said, tools, why := s.cfg.conversation(r)
	if why != "" {
		return nil, why
	}
	for _, q := range all {
		at := q.promptLen()
		rec := slimeRecord{
			GroupIndex: s.group, Index: s.index, RolloutID: s.rollout, Prompt: prompt, Tokens: q.ids, Response: lastAnswer(said), ResponseLength: len(q.ids) - at,
			Label: r.RewardModel.GroundTruth, Reward: real(*r.Reward), LossMask: wide(q.mask[at:]), WeightVersions: weightVersions(r),
			Status: value(r.Status), Metadata: slimeMetadata{r.DataSource, r.TaskID, r.EpisodeID, tools}, trained: q.trained(),
		}
		if q.filled != nil {
			rec.RolloutLogProbs = q.filled[at:]
		}
		records = append(records, rec)
		s.index++
	}
	s.rollout++
	return records, ""
}

func lastAnswer(said []Message) string {
	for i := len(said) - 1; i >= 0; i-- {
		if said[i].Role == "assistant" {
			return value(said[i].Content)
		}
	}
	return ""
}

// weightVersions are those of the turns that name one, in order, each once.
func weightVersions(r *storage.Row) []string {
	out := []string{}
	for _, t := range r.Turns {
		for _, v := range []*int32{t.VersionStart, t.VersionEnd} {
			if v == nil {
				continue
			}
			if text := strconv.Itoa(int(*v)); len(out) == 0 || out[len(out)-1] != text {
				out = append(out, text)
			}
		}
	}
	return out
}
