package export

import (
	"tranche/storage"
)

// tasks makes one record of each task, with what its rows came to: a set of prompts to train or to filter by difficulty.
//
// As verl-rl: verl/utils/dataset/rl_dataset.py (RLHFDataset: prompt, extra_info.index) and examples/data_preprocess (data_source, prompt, ability,
// reward_model, extra_info). As skyrl: skyrl/train/dataset/dataset.py (PromptDataset: prompt, env_class, all other columns go to the environment,
// reward_spec and extra_info among them).
type tasks struct {
	cfg   *Config
	skyrl bool
	index int64
	stand standing
}

type promptMessage struct {
	Role    string `json:"role" parquet:"role"`
	Content string `json:"content" parquet:"content"`
}

type verlRecord struct {
	DataSource  string          `json:"data_source" parquet:"data_source"`
	Prompt      []promptMessage `json:"prompt" parquet:"prompt,list"`
	Ability     string          `json:"ability" parquet:"ability"`
	RewardModel gradedBy        `json:"reward_model" parquet:"reward_model"`
	ExtraInfo   taskInfo        `json:"extra_info" parquet:"extra_info"`
}

type gradedBy struct {
	Style       string  `json:"style" parquet:"style"`
	GroundTruth *string `json:"ground_truth" parquet:"ground_truth,optional"`
}

type skyrlRecord struct {
	DataSource string          `json:"data_source" parquet:"data_source"`
	Prompt     []promptMessage `json:"prompt" parquet:"prompt,list"`
	EnvClass   string          `json:"env_class" parquet:"env_class"`
	RewardSpec rewardSpec      `json:"reward_spec" parquet:"reward_spec"`
	ExtraInfo  taskInfo        `json:"extra_info" parquet:"extra_info"`
}

type rewardSpec struct {
	Method      string  `json:"method" parquet:"method"`
	GroundTruth *string `json:"ground_truth" parquet:"ground_truth,optional"`
}

// taskInfo is what is known of a task. Task holds the other columns of the task file, as JSON text.
type taskInfo struct {
	Index      int64   `json:"index" parquet:"index"` // of the record
	Split      string  `json:"split" parquet:"split"`
	TaskID     string  `json:"task_id" parquet:"task_id"`
	Samples    int32   `json:"samples" parquet:"samples"`                  // rows
	Scored     int32   `json:"scored" parquet:"scored"`                    // of them with a verdict
	PassRate   *real   `json:"pass_rate" parquet:"pass_rate,optional"`     // share of the scored with a reward of 1 or more; null = none is scored
	MeanReward *real   `json:"mean_reward" parquet:"mean_reward,optional"` // of the scored
	Task       *string `json:"task" parquet:"task,optional"`
}

func newVerlRL(cfg *Config) maker { return &tasks{cfg: cfg} }

func newSkyRL(cfg *Config) maker { return &tasks{cfg: cfg, skyrl: true} }

func (t *tasks) know(s standing) { t.stand = s }

func (t *tasks) make(rows []*storage.Row) ([]any, []string) {
	return each(rows, func(r *storage.Row) ([]any, string) {
		prompt, ok := plainPrompt(r)
		if !ok {
			return nil, leftPromptCall
		}
		info := t.info(r)
		t.index++
		if t.skyrl {
			return []any{skyrlRecord{r.DataSource, prompt, r.EnvClass, rewardSpec{style(r), r.RewardModel.GroundTruth}, info}}, ""
		}
		ability := r.EnvClass
		if ability == "" {
			ability = r.DataSource
		}
		return []any{verlRecord{r.DataSource, prompt, ability, gradedBy{style(r), r.RewardModel.GroundTruth}, info}}, ""
	})
}

// style is how the answer is judged; both trainers call it rule unless a model does.
func style(r *storage.Row) string {
	if s := value(r.RewardModel.Style); s != "" {
		return s
	}
	return "rule"
}

func (t *tasks) info(r *storage.Row) taskInfo {
	i := taskInfo{Index: t.index, Split: r.Split, TaskID: r.TaskID, Samples: t.stand.samples, Scored: t.stand.scored, Task: r.ExtraInfo}
	if n := float64(t.stand.scored); n > 0 {
		rate, mean := float64(t.stand.passed)/n, t.stand.sum/n
		i.PassRate, i.MeanReward = realOf(&rate), realOf(&mean)
	}
	return i
}

// plainPrompt is the prompt where roles and contents are all it has.
func plainPrompt(r *storage.Row) ([]promptMessage, bool) {
	asked, _ := split(r)
	out := make([]promptMessage, len(asked))
	for i, m := range asked {
		if m.Content == nil || len(m.ToolCalls) > 0 || m.ToolCallID != nil || m.Name != nil || m.ReasoningContent != nil {
			return nil, false
		}
		out[i] = promptMessage{value(m.Role), *m.Content}
	}
	return out, len(out) > 0
}
