package usergrade

import (
	"bytes"
	"encoding/json"
	"fmt"

	"tranche/episode"
	"tranche/reward"
)

// Case is what a grader of a user's is told of one episode. Fields may be added; none is taken away.
type Case struct {
	ID        int64             `json:"id,omitempty"` // to be said again in the answer of a worker
	Episode   string            `json:"episode"`
	Component string            `json:"component"` // name of the grader in the settings
	Text      string            `json:"text"`      // what is judged
	Said      bool              `json:"said"`      // false = the model said nothing at all
	Stop      string            `json:"stop"`
	Task      Task              `json:"task"`
	Messages  []episode.Message `json:"messages"`
	NumPrompt int               `json:"num_prompt"` // how many of the messages are the prompt
	Turns     []Turn            `json:"turns"`      // model calls
	Actions   []Action          `json:"actions"`    // tool calls
	Options   json.RawMessage   `json:"options,omitempty"`
}

// Task is the row of the task file.
type Task struct {
	ID         string          `json:"id"`
	Answer     *string         `json:"answer"`
	DataSource string          `json:"data_source,omitempty"`
	EnvClass   string          `json:"env_class,omitempty"`
	Split      string          `json:"split,omitempty"`
	Extra      json.RawMessage `json:"extra,omitempty"` // all other columns
}

// Turn is one model call.
type Turn struct {
	PromptTokens     *int32 `json:"prompt_tokens"`
	CompletionTokens *int32 `json:"completion_tokens"`
	Finish           string `json:"finish"`
}

// Action is one tool call.
type Action struct {
	Turn   int    `json:"turn"`
	CallID string `json:"call_id"`
	Name   string `json:"name"`
	Status string `json:"status"`
}

// newCase is a case as one line of JSON.
func newCase(component string, options json.RawMessage, in reward.Input, id int64) ([]byte, error) {
	c := Case{
		ID: id, Episode: in.Episode, Component: component, Text: in.Text, Said: in.Said, Stop: string(in.Stop), Messages: in.Messages, NumPrompt: in.NumPrompt,
		Task:  Task{in.Task.ID, in.Task.Answer, in.Task.DataSource, in.Task.EnvClass, in.Task.Split, in.Task.Extra},
		Turns: []Turn{}, Actions: []Action{}, Options: options,
	}
	for _, t := range in.Turns {
		c.Turns = append(c.Turns, Turn{t.PromptTokens, t.CompletionTokens, t.Finish})
	}
	for _, a := range in.Actions {
		c.Actions = append(c.Actions, Action{int(a.Turn), a.CallID, a.Name, a.Status})
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(c); err != nil {
		return nil, fmt.Errorf("write the case: %w", err)
	}
	return b.Bytes(), nil
}
