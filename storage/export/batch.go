package export

import (
	"fmt"
	"net/http"

	"tranche/storage"
)

// batch makes the line of each row that OpenAI's batch API would have written to its output file, or for a failed row (with Failures) to its error file:
// https://platform.openai.com/docs/api-reference/batch/request-output. The body is a chat completion of the last answer, usage that of its turn.
// custom_id is the task's id, where the task was drawn once and sampled once, else task/round/sample. It must be unique: that of a row of another run than
// the first one's begins with its run's id.
type batch struct {
	cfg *Config
	run string // of the first row
}

type batchRecord struct {
	ID       string         `json:"id"`
	CustomID string         `json:"custom_id"`
	Response *batchResponse `json:"response"`
	Error    *batchError    `json:"error"`
}

type batchResponse struct {
	StatusCode int            `json:"status_code"`
	RequestID  string         `json:"request_id"`
	Body       chatCompletion `json:"body"`
}

type batchError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type chatCompletion struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"` // seconds since 1970
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *chatUsage   `json:"usage,omitempty"`
}

type chatChoice struct {
	Index        int     `json:"index"`
	Message      Message `json:"message"`
	Logprobs     *string `json:"logprobs"` // always null: the row has no token texts
	FinishReason string  `json:"finish_reason"`
}

type chatUsage struct {
	PromptTokens     int32 `json:"prompt_tokens"`
	CompletionTokens int32 `json:"completion_tokens"`
	TotalTokens      int32 `json:"total_tokens"`
}

func newBatch(cfg *Config) maker { return &batch{cfg: cfg} }

func (b *batch) make(rows []*storage.Row) ([]any, []string) {
	return each(rows, func(r *storage.Row) ([]any, string) {
		rec := batchRecord{ID: "batch_req_" + r.EpisodeID, CustomID: b.customID(r)}
		if r.FaultClass != nil {
			rec.Error = &batchError{*r.FaultClass, value(r.FaultDetail)}
			return []any{rec}, ""
		}
		_, since := split(r)
		said, ok := messagesOf(since, b.cfg.Arguments)
		if !ok {
			return nil, leftArguments
		}
		for i := len(said) - 1; i >= 0; i-- {
			if said[i].Role == "assistant" {
				rec.Response = &batchResponse{http.StatusOK, r.EpisodeID, completionOf(r, said[i])}
				return []any{rec}, ""
			}
		}
		return nil, leftSilent
	})
}

func (b *batch) customID(r *storage.Row) string {
	if b.run == "" {
		b.run = r.RunID
	}
	id := r.TaskID
	if r.Round > 0 || r.GroupSize > 1 {
		id = fmt.Sprintf("%s/%d/%d", r.TaskID, r.Round, r.SampleIndex)
	}
	if r.RunID != b.run {
		id = r.RunID + "/" + id
	}
	return id
}

func completionOf(r *storage.Row, answer Message) chatCompletion {
	c := chatCompletion{ID: "chatcmpl-" + r.EpisodeID, Object: "chat.completion", Created: r.CreatedAt.Unix(), Model: value(r.Model),
		Choices: []chatChoice{{Message: answer}}}
	if len(r.Turns) == 0 {
		return c
	}
	t := r.Turns[len(r.Turns)-1]
	c.Choices[0].FinishReason = value(t.FinishReason)
	if t.PromptTokens != nil && t.CompletionTokens != nil {
		c.Usage = &chatUsage{*t.PromptTokens, *t.CompletionTokens, *t.PromptTokens + *t.CompletionTokens}
	}
	return c
}
