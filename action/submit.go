package action

import (
	"context"
	"encoding/json"
	"fmt"
)

// Submit is the tool that hands in an answer and ends the episode.
type Submit struct{}

// Name is "submit".
func (Submit) Name() string { return "submit" }

// Definition takes one argument, answer: a string or a number.
func (Submit) Definition() json.RawMessage {
	return json.RawMessage(`{"type":"function","function":{"name":"submit",` +
		`"description":"Hand in the final answer. This ends the task, so call it once, when you are done.",` +
		`"parameters":{"type":"object","properties":{` +
		`"answer":{"type":["string","number"],"description":"The final answer and nothing else."}},` +
		`"required":["answer"],"additionalProperties":false}}}`)
}

// Keeps is false: what is handed in is the episode's own.
func (Submit) Keeps(string) bool { return false }

// Run ends the episode. A string is submitted as it is, a number as the model wrote it.
func (Submit) Run(_ context.Context, args json.RawMessage, _ Env) (Result, error) {
	var in struct{ Answer json.RawMessage }
	if err := json.Unmarshal(args, &in); err != nil {
		return Result{}, fmt.Errorf("reading the arguments of submit: %w", err)
	}
	answer := string(in.Answer)
	if answer[0] == '"' {
		if err := json.Unmarshal(in.Answer, &answer); err != nil {
			return Result{}, fmt.Errorf("reading the answer given to submit: %w", err)
		}
	}
	return Result{Text: "submitted", Done: true, Submitted: &answer}, nil
}
