package export

import (
	"encoding/json"
	"slices"

	"tranche/storage"
)

// atifVersion is the newest that readers of 1.7 and of 1.6 both take.
const atifVersion = "ATIF-v1.6"

// atif makes one trajectory of each row, in the Agent Trajectory Interchange Format of Harbor: docs/rfcs/0001-trajectory-format.md, and what
// src/harbor/models/trajectories checks (no other keys; step ids from 1; what is an agent's in agent steps alone; a source_call_id names a call of its
// step). Answers of tools are the observation of the step that called them. The arguments of a call must be an object there: where the model wrote none,
// they are empty and the text is in extra. completion_token_ids and logprobs are the server's, where it is known which turn they are of; prompt ids are left
// out: each step's hold those of the step before.
type atif struct{ cfg *Config }

type atifRecord struct {
	SchemaVersion string       `json:"schema_version"`
	SessionID     string       `json:"session_id"`
	Agent         atifAgent    `json:"agent"`
	Steps         []atifStep   `json:"steps"`
	FinalMetrics  *atifTotals  `json:"final_metrics,omitempty"`
	Extra         atifRunExtra `json:"extra"`
}

type atifAgent struct {
	Name            string          `json:"name"`
	Version         string          `json:"version"`
	ModelName       *string         `json:"model_name,omitempty"`
	ToolDefinitions json.RawMessage `json:"tool_definitions,omitempty"`
}

type atifStep struct {
	StepID           int              `json:"step_id"`
	Source           string           `json:"source"` // system, user or agent
	Message          string           `json:"message"`
	ReasoningContent *string          `json:"reasoning_content,omitempty"`
	ToolCalls        []atifCall       `json:"tool_calls,omitempty"`
	Observation      *atifObservation `json:"observation,omitempty"`
	Metrics          *atifMetrics     `json:"metrics,omitempty"`
	Extra            *atifStepExtra   `json:"extra,omitempty"`
}

type atifCall struct {
	ToolCallID   string          `json:"tool_call_id"`
	FunctionName string          `json:"function_name"`
	Arguments    json.RawMessage `json:"arguments"`
}

type atifObservation struct {
	Results []atifResult `json:"results"`
}

type atifResult struct {
	SourceCallID *string `json:"source_call_id,omitempty"`
	Content      *string `json:"content"`
}

type atifMetrics struct {
	PromptTokens       *int32    `json:"prompt_tokens,omitempty"`
	CompletionTokens   *int32    `json:"completion_tokens,omitempty"`
	CachedTokens       *int32    `json:"cached_tokens,omitempty"`
	CompletionTokenIDs []int32   `json:"completion_token_ids,omitempty"`
	Logprobs           []float32 `json:"logprobs,omitempty"`
}

// atifStepExtra is what a step's own fields cannot hold.
type atifStepExtra struct {
	NullContent  bool              `json:"null_content,omitempty"` // the message was null, not ""
	RawArguments map[string]string `json:"raw_arguments,omitempty"`
	Role         string            `json:"role,omitempty"` // where the source does not say it
	FinishReason *string           `json:"finish_reason,omitempty"`
}

type atifTotals struct {
	PromptTokens     *int32   `json:"total_prompt_tokens,omitempty"`
	CompletionTokens *int32   `json:"total_completion_tokens,omitempty"`
	CachedTokens     *int32   `json:"total_cached_tokens,omitempty"`
	CostUSD          *float64 `json:"total_cost_usd,omitempty"`
	Steps            int      `json:"total_steps"`
}

type atifRunExtra struct {
	RunID       string          `json:"run_id"`
	TaskID      string          `json:"task_id"`
	GroupID     string          `json:"group_id"`
	SampleIndex int32           `json:"sample_index"`
	DataSource  string          `json:"data_source"`
	Status      *string         `json:"status"`
	StopReason  *string         `json:"stop_reason"`
	Reward      *real           `json:"reward"` // null = no verdict
	Rewards     map[string]real `json:"rewards,omitempty"`
	FaultClass  *string         `json:"fault_class,omitempty"`
}

func newATIF(cfg *Config) maker { return &atif{cfg} }

func (a *atif) make(rows []*storage.Row) ([]any, []string) {
	return each(rows, func(r *storage.Row) ([]any, string) {
		tools, why := a.cfg.toolsOf(r)
		if why != "" {
			return nil, why
		}
		if len(r.Messages) == 0 {
			return nil, leftSilent
		}
		if string(tools) == "null" {
			tools = nil
		}
		t := atifRecord{SchemaVersion: atifVersion, SessionID: r.EpisodeID, Steps: atifSteps(r), Extra: atifExtra(r),
			Agent: atifAgent{a.cfg.Program, a.cfg.Version, r.Model, tools}}
		t.FinalMetrics = &atifTotals{r.NumInputTokens, r.NumOutputTokens, cachedTokens(r), r.CostUSD, len(t.Steps)}
		return []any{t}, ""
	})
}

func atifExtra(r *storage.Row) atifRunExtra {
	x := atifRunExtra{RunID: r.RunID, TaskID: r.TaskID, GroupID: r.GroupID, SampleIndex: r.SampleIndex, DataSource: r.DataSource,
		Status: r.Status, StopReason: r.StopReason, Reward: realOf(r.Reward), FaultClass: r.FaultClass}
	for _, c := range r.Rewards {
		if c.Score == nil {
			continue
		}
		if x.Rewards == nil {
			x.Rewards = map[string]real{}
		}
		x.Rewards[value(c.Name)] = real(*c.Score)
	}
	return x
}

// cachedTokens is the sum over turns, nil where one is unknown.
func cachedTokens(r *storage.Row) *int32 {
	var n int32
	for _, t := range r.Turns {
		if t.CachedTokens == nil {
			return nil
		}
		n += *t.CachedTokens
	}
	return &n
}

// atifSteps makes a step of each message that is no answer of a tool to the step before.
func atifSteps(r *storage.Row) []atifStep {
	var steps []atifStep
	answers, turn := turnAnswers(r), 0
	for i, m := range r.Messages {
		if last := len(steps) - 1; value(m.Role) == "tool" && last >= 0 && steps[last].observe(m) {
			continue
		}
		s := atifStepOf(m)
		s.StepID = len(steps) + 1
		if s.Source == "agent" && i >= int(r.NumPromptMessages) && turn < len(r.Turns) {
			s.measure(&r.Turns[turn], answers, turn)
			turn++
		}
		steps = append(steps, s)
	}
	return steps
}

// observe takes the answer of a tool that the step called; false where it called none of that id.
func (s *atifStep) observe(m storage.Message) bool {
	if m.ToolCallID == nil || !slices.ContainsFunc(s.ToolCalls, func(c atifCall) bool { return c.ToolCallID == *m.ToolCallID }) {
		return false
	}
	if s.Observation == nil {
		s.Observation = &atifObservation{}
	}
	s.Observation.Results = append(s.Observation.Results, atifResult{m.ToolCallID, m.Content})
	return true
}

func atifStepOf(m storage.Message) atifStep {
	s := atifStep{Message: value(m.Content)}
	extra := atifStepExtra{NullContent: m.Content == nil}
	switch role := value(m.Role); role {
	case "assistant":
		s.Source, s.ReasoningContent = "agent", m.ReasoningContent
		for _, c := range m.ToolCalls {
			call := atifCall{c.ID, c.Function.Name, json.RawMessage(c.Function.Arguments)}
			if !isObject(c.Function.Arguments) {
				if extra.RawArguments == nil {
					extra.RawArguments = map[string]string{}
				}
				call.Arguments, extra.RawArguments[c.ID] = json.RawMessage("{}"), c.Function.Arguments
			}
			s.ToolCalls = append(s.ToolCalls, call)
		}
	case "system", "user":
		s.Source = role
	default: // developer, or a tool that nobody called
		s.Source, extra.Role = "user", role
	}
	if extra.NullContent || extra.RawArguments != nil || extra.Role != "" {
		s.Extra = &extra
	}
	return s
}

// measure adds what is known of the model call that the step is.
func (s *atifStep) measure(t *storage.Turn, answers []sequence, turn int) {
	m := atifMetrics{PromptTokens: t.PromptTokens, CompletionTokens: t.CompletionTokens, CachedTokens: t.CachedTokens}
	if turn < len(answers) {
		a := answers[turn]
		m.CompletionTokenIDs = a.ids
		m.Logprobs, _ = a.known(0)
	}
	s.Metrics = &m
	if t.FinishReason != nil {
		if s.Extra == nil {
			s.Extra = &atifStepExtra{}
		}
		s.Extra.FinishReason = t.FinishReason
	}
}

// turnAnswers are the ids that each turn sampled, in order; nil where they cannot be told apart: fewer answers than turns, or of other lengths than
// the server counted.
func turnAnswers(r *storage.Row) []sequence {
	past, ok := history(r)
	if !ok || len(r.TokenIDs) == 0 {
		return nil
	}
	var answers []sequence
	for i, s := range past {
		from := 0
		if i > 0 { // what stands before was in the sequence before, too
			from = int(r.Breaks[i-1].At)
		}
		answers = append(answers, s.answers(from)...)
	}
	if len(answers) != len(r.Turns) {
		return nil
	}
	for i, a := range answers {
		if n := r.Turns[i].CompletionTokens; n != nil && int(*n) != len(a.ids) {
			return nil
		}
	}
	return answers
}

// answers are the runs of sampled ids from an index on.
func (s *sequence) answers(from int) (runs []sequence) {
	for i := from; i < len(s.ids); {
		if s.mask[i] != 1 {
			i++
			continue
		}
		end := i
		for end < len(s.ids) && s.mask[end] == 1 {
			end++
		}
		runs = append(runs, sequence{s.ids[i:end], s.mask[i:end], s.logprobs[i:end], s.versions[i:end]})
		i = end
	}
	return runs
}
