package storage

import "time"

// SchemaVersion is the version of Row, kept in every row, part and manifest. It changes when a column changes its meaning
// or type; a new nullable column does not change it.
const SchemaVersion = 1

// Row is one trainable branch of one episode as it is stored: the Parquet schema of every part and failure file is this
// struct. Pointers and nil slices are null; an empty string or list is not null. Columns are described in docs/format.md.
type Row struct {
	SchemaVersion int32  `parquet:"schema_version" json:"schema_version"`
	RunID         string `parquet:"run_id" json:"run_id"`
	EpisodeID     string `parquet:"episode_id" json:"episode_id"`
	GroupID       string `parquet:"group_id" json:"group_id"`
	TaskID        string `parquet:"task_id" json:"task_id"`
	TaskHash      string `parquet:"task_hash" json:"task_hash"`
	Round         int32  `parquet:"round" json:"round"`
	SampleIndex   int32  `parquet:"sample_index" json:"sample_index"`
	GroupSize     int32  `parquet:"group_size" json:"group_size"`
	BranchIndex   int32  `parquet:"branch_index" json:"branch_index"`
	NumBranches   int32  `parquet:"num_branches" json:"num_branches"`
	Attempt       int32  `parquet:"attempt" json:"attempt"`

	DataSource string `parquet:"data_source" json:"data_source"`
	EnvClass   string `parquet:"env_class" json:"env_class"`
	Split      string `parquet:"split" json:"split"`

	Messages          []Message `parquet:"messages,optional,list" json:"messages"`
	Tools             *string   `parquet:"tools,optional" json:"tools"`
	NumPromptMessages int32     `parquet:"num_prompt_messages" json:"num_prompt_messages"`
	Forms             []Form    `parquet:"forms,optional,list" json:"forms"`

	TokenIDs    []int32    `parquet:"token_ids,optional,list" parquet-element:",plain" json:"token_ids"`
	PromptLen   int32      `parquet:"prompt_len" json:"prompt_len"`
	LossMask    []int8     `parquet:"loss_mask,optional,list" parquet-element:",plain" json:"loss_mask"`
	Logprobs    []*float32 `parquet:"logprobs,optional,list" parquet-element:",split" json:"logprobs"`
	Versions    []int32    `parquet:"versions,optional,list" parquet-element:",plain" json:"versions"`
	PrefixBreak *int32     `parquet:"prefix_break,optional" json:"prefix_break"`
	Breaks      []Broken   `parquet:"breaks,optional,list" json:"breaks"`

	Turns   []Turn   `parquet:"turns,optional,list" json:"turns"`
	Actions []Action `parquet:"actions,optional,list" json:"actions"`

	Reward     *float64   `parquet:"reward,optional" json:"reward"`
	Scored     *bool      `parquet:"scored,optional" json:"scored"`
	Rewards    []Reward   `parquet:"rewards,optional,list" json:"rewards"`
	TurnCredit []*float64 `parquet:"turn_credit,optional,list" json:"turn_credit"`
	Credits    []Credit   `parquet:"credits,optional,list" json:"credits"`
	Advantage  *float64   `parquet:"advantage,optional" json:"advantage"`

	Status        *string   `parquet:"status,optional" json:"status"`
	StopReason    *string   `parquet:"stop_reason,optional" json:"stop_reason"`
	FaultStage    *string   `parquet:"fault_stage,optional" json:"fault_stage"`
	FaultClass    *string   `parquet:"fault_class,optional" json:"fault_class"`
	FaultDetail   *string   `parquet:"fault_detail,optional" json:"fault_detail"`
	FaultAttempts []Attempt `parquet:"fault_attempts,optional,list" json:"fault_attempts"`
	Partial       *string   `parquet:"partial,optional" json:"partial"`
	Submitted     *string   `parquet:"submitted,optional" json:"submitted"`
	Flags         []string  `parquet:"flags,optional,list" json:"flags"`

	NumTurns        int32    `parquet:"num_turns" json:"num_turns"`
	NumInputTokens  *int32   `parquet:"num_input_tokens,optional" json:"num_input_tokens"`
	NumOutputTokens *int32   `parquet:"num_output_tokens,optional" json:"num_output_tokens"`
	Timing          Timing   `parquet:"timing" json:"timing"`
	CostUSD         *float64 `parquet:"cost_usd,optional" json:"cost_usd"`

	Model         *string     `parquet:"model,optional" json:"model"`
	Sampling      *string     `parquet:"sampling,optional" json:"sampling"`
	TokenizerHash *string     `parquet:"tokenizer_hash,optional" json:"tokenizer_hash"`
	TemplateHash  *string     `parquet:"template_hash,optional" json:"template_hash"`
	Seed          *int64      `parquet:"seed,optional" json:"seed"`
	Variant       *string     `parquet:"variant,optional" json:"variant"`
	RewardModel   RewardModel `parquet:"reward_model" json:"reward_model"`
	ExtraInfo     *string     `parquet:"extra_info,optional" json:"extra_info"`
	CreatedAt     time.Time   `parquet:"created_at,timestamp(microsecond)" json:"created_at"`

	Raw []RawAnswer `parquet:"raw,optional,list" json:"raw"`
}

// RawAnswer is the body of the last answer to one model call, as it came: any bytes.
type RawAnswer struct {
	Turn   int16   `parquet:"turn" json:"turn"`
	Status int16   `parquet:"status" json:"status"`
	Class  *string `parquet:"class,optional" json:"class"`
	Bytes  int64   `parquet:"bytes" json:"bytes"`
	Body   []byte  `parquet:"body,optional" json:"body"`
}

// Broken is the end of a token sequence that the prompt of a later turn did not go on from.
type Broken struct {
	Turn     int16      `parquet:"turn" json:"turn"`
	At       int32      `parquet:"at" json:"at"`
	TokenIDs []int32    `parquet:"token_ids,optional,list" json:"token_ids"`
	LossMask []int8     `parquet:"loss_mask,optional,list" json:"loss_mask"`
	Logprobs []*float32 `parquet:"logprobs,optional,list" json:"logprobs"`
	Versions []int32    `parquet:"versions,optional,list" json:"versions"`
}

// Message is one chat message. Arguments of a tool call stay the raw text the model wrote.
type Message struct {
	Role             *string    `parquet:"role,optional" json:"role"`
	Content          *string    `parquet:"content,optional" json:"content"`
	ReasoningContent *string    `parquet:"reasoning_content,optional" json:"reasoning_content"`
	Name             *string    `parquet:"name,optional" json:"name"`
	ToolCallID       *string    `parquet:"tool_call_id,optional" json:"tool_call_id"`
	ToolCalls        []ToolCall `parquet:"tool_calls,optional,list" json:"tool_calls"`
}

// Form is what a text held besides what its message has: the tags around its reasoning, the call that was read out of it. Most messages
// have none.
type Form struct {
	Message       int32   `parquet:"message" json:"message"` // index in Row.Messages
	ThinkOpen     *string `parquet:"think_open,optional" json:"think_open"`
	ThinkClosed   *bool   `parquet:"think_closed,optional" json:"think_closed"`
	CallID        *string `parquet:"call_id,optional" json:"call_id"`
	CallType      *string `parquet:"call_type,optional" json:"call_type"`
	CallName      *string `parquet:"call_name,optional" json:"call_name"`
	CallArguments *string `parquet:"call_arguments,optional" json:"call_arguments"`
	CallUnread    *string `parquet:"call_unread,optional" json:"call_unread"`
}

// ToolCall is one call of a message, in OpenAI's shape.
type ToolCall struct {
	ID       string   `parquet:"id" json:"id"`
	Type     string   `parquet:"type" json:"type"`
	Function Function `parquet:"function" json:"function"`
}

// Function names the tool and carries its raw argument text.
type Function struct {
	Name      string `parquet:"name" json:"name"`
	Arguments string `parquet:"arguments" json:"arguments"`
}

// Turn is one model call that succeeded. Durations are milliseconds.
type Turn struct {
	PromptTokens     *int32   `parquet:"prompt_tokens,optional" json:"prompt_tokens"`
	CompletionTokens *int32   `parquet:"completion_tokens,optional" json:"completion_tokens"`
	CachedTokens     *int32   `parquet:"cached_tokens,optional" json:"cached_tokens"`
	FinishReason     *string  `parquet:"finish_reason,optional" json:"finish_reason"`
	StopReason       *string  `parquet:"stop_reason,optional" json:"stop_reason"`
	Endpoint         *string  `parquet:"endpoint,optional" json:"endpoint"`
	QueueMS          *float32 `parquet:"queue_ms,optional" json:"queue_ms"`
	TTFTMS           *float32 `parquet:"ttft_ms,optional" json:"ttft_ms"`
	ServiceMS        *float32 `parquet:"service_ms,optional" json:"service_ms"`
	Retries          int16    `parquet:"retries" json:"retries"`
	Class            int16    `parquet:"class" json:"class"`
	VersionStart     *int32   `parquet:"version_start,optional" json:"version_start"`
	VersionEnd       *int32   `parquet:"version_end,optional" json:"version_end"`
	Hedged           bool     `parquet:"hedged" json:"hedged"`
	Exchange         *string  `parquet:"exchange,optional" json:"exchange"`
	LogprobsOf       *string  `parquet:"logprobs_of,optional" json:"logprobs_of"`
}

// Action is one tool call that was carried out. Durations are milliseconds.
type Action struct {
	Turn      int16    `parquet:"turn" json:"turn"`
	CallID    *string  `parquet:"call_id,optional" json:"call_id"`
	Name      *string  `parquet:"name,optional" json:"name"`
	Status    *string  `parquet:"status,optional" json:"status"`
	ExitCode  *int32   `parquet:"exit_code,optional" json:"exit_code"`
	WallMS    *float32 `parquet:"wall_ms,optional" json:"wall_ms"`
	CPUMS     *float32 `parquet:"cpu_ms,optional" json:"cpu_ms"`
	OutBytes  int64    `parquet:"out_bytes" json:"out_bytes"`
	Truncated bool     `parquet:"truncated" json:"truncated"`
	Tier      *string  `parquet:"tier,optional" json:"tier"`
	Rootfs    *string  `parquet:"rootfs,optional" json:"rootfs"`

	QueueMS      *float32 `parquet:"queue_ms,optional" json:"queue_ms"`
	SetupMS      *float32 `parquet:"setup_ms,optional" json:"setup_ms"`
	PeakMemory   *int64   `parquet:"peak_memory,optional" json:"peak_memory"`
	OOMKills     *int32   `parquet:"oom_kills,optional" json:"oom_kills"`
	RefusedForks *int32   `parquet:"refused_forks,optional" json:"refused_forks"`
	LeftBehind   *int32   `parquet:"left_behind,optional" json:"left_behind"`
}

// Reward is one component of a verdict. A nil score is "no verdict", never zero.
type Reward struct {
	Name     *string  `parquet:"name,optional" json:"name"`
	Score    *float64 `parquet:"score,optional" json:"score"`
	Weight   float64  `parquet:"weight" json:"weight"`
	Outcome  *string  `parquet:"outcome,optional" json:"outcome"`
	Grader   *string  `parquet:"grader,optional" json:"grader"`
	Evidence *string  `parquet:"evidence,optional" json:"evidence"`

	Raw              *float64 `parquet:"raw,optional" json:"raw"`
	Config           *string  `parquet:"config,optional" json:"config"`
	Tier             *string  `parquet:"tier,optional" json:"tier"`
	Tries            *int16   `parquet:"tries,optional" json:"tries"`
	PromptTokens     *int32   `parquet:"prompt_tokens,optional" json:"prompt_tokens"`
	CompletionTokens *int32   `parquet:"completion_tokens,optional" json:"completion_tokens"`
	WallMS           *float32 `parquet:"wall_ms,optional" json:"wall_ms"`
	CPUMS            *float32 `parquet:"cpu_ms,optional" json:"cpu_ms"`
}

// Credit is what one process grader says of each turn. It is no part of Reward, because a list inside a list that files of before do not
// have is read as empty instead of null.
type Credit struct {
	Name   *string    `parquet:"name,optional" json:"name"`
	Credit []*float64 `parquet:"credit,optional,list" json:"credit"`
}

// Attempt is one failed try of the call that failed the episode.
type Attempt struct {
	Endpoint *string    `parquet:"endpoint,optional" json:"endpoint"`
	Class    *string    `parquet:"class,optional" json:"class"`
	Began    *time.Time `parquet:"began,optional,timestamp(microsecond)" json:"began"`
	Ended    *time.Time `parquet:"ended,optional,timestamp(microsecond)" json:"ended"`
	Cause    *string    `parquet:"cause,optional" json:"cause"`
}

// Timing is where an episode's time went, seconds.
type Timing struct {
	Queue  float64 `parquet:"queue" json:"queue"`
	Model  float64 `parquet:"model" json:"model"`
	Action float64 `parquet:"action" json:"action"`
	Score  float64 `parquet:"score" json:"score"`
	Total  float64 `parquet:"total" json:"total"`
}

// RewardModel is what the task asked to be graded by, under the names verl and SkyRL read.
type RewardModel struct {
	Style       *string `parquet:"style,optional" json:"style"`
	GroundTruth *string `parquet:"ground_truth,optional" json:"ground_truth"`
}
