package export

import (
	"encoding/json"

	"tranche/storage"
)

// chats makes one record of each row: the whole conversation. Read by TRL, trl/trainer/sft_trainer.py (_prepare_dataset: messages, and tools as a list or as
// JSON text), by prime-rl's SFT, and by slime/rollout/sft_rollout.py (--input-key messages).
//
// As verl-sft it is what verl/utils/dataset/multiturn_sft_dataset.py reads: messages, and tools as a list, not as text. verl trains every message of the
// assistant.
type chats struct{ cfg *Config }

type chatRecord struct {
	Messages []Message       `json:"messages" parquet:"messages,list"`
	Tools    json.RawMessage `json:"tools,omitempty"`
}

func newChats(cfg *Config) maker { return &chats{cfg} }

func (c *chats) make(rows []*storage.Row) ([]any, []string) {
	return each(rows, func(r *storage.Row) ([]any, string) {
		prompt, said, tools, why := c.cfg.conversation(r)
		if why != "" {
			return nil, why
		}
		return []any{chatRecord{append(prompt, said...), tools}}, ""
	})
}

// conversation is what was asked, what was said since, and the tools.
func (c *Config) conversation(r *storage.Row) (prompt, said []Message, tools json.RawMessage, why string) {
	asked, since := split(r)
	if len(since) == 0 {
		return nil, nil, nil, leftSilent
	}
	if tools, why = c.toolsOf(r); why != "" {
		return nil, nil, nil, why
	}
	prompt, fine := messagesOf(asked, c.Arguments)
	said, also := messagesOf(since, c.Arguments)
	if !fine || !also {
		return nil, nil, nil, leftArguments
	}
	return prompt, said, tools, ""
}

// each makes the records of rows one by one.
func each(rows []*storage.Row, make func(*storage.Row) ([]any, string)) (records []any, left []string) {
	for _, r := range rows {
		more, why := make(r)
		records, left = append(records, more...), append(left, why)
	}
	return records, left
}

// completions makes one record of each row: what was asked, and what was said since, observations of tools among it. Read by TRL,
// trl/trainer/sft_trainer.py (tokenize_fn: prompt and completion as lists of messages; the loss is on the completion alone, observations too).
type completions struct{ cfg *Config }

type completionRecord struct {
	Prompt     []Message       `json:"prompt" parquet:"prompt,list"`
	Completion []Message       `json:"completion" parquet:"completion,list"`
	Tools      json.RawMessage `json:"tools,omitempty"`
}

func newCompletions(cfg *Config) maker { return &completions{cfg} }

func (c *completions) make(rows []*storage.Row) ([]any, []string) {
	return each(rows, func(r *storage.Row) ([]any, string) {
		prompt, said, tools, why := c.cfg.conversation(r)
		if why != "" {
			return nil, why
		}
		return []any{completionRecord{prompt, said, tools}}, ""
	})
}
