package textgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"tranche/internal/jsonschema"
	"tranche/reward"
)

// JSONSchemaConfig are the options of kind json_schema.
type JSONSchemaConfig struct {
	// Schema is the JSON schema that the answer must fit. Default: the one that the task brings.
	Schema json.RawMessage `json:"schema"`
	// Column is the input column that holds the task's schema, as an object or as its text. Default "schema".
	Column string `json:"column"`
	// Fence allows one Markdown fence around the JSON (```json … ```). Default true.
	Fence *bool `json:"fence"`
}

// fits: the whole answer is one JSON value that the schema accepts (JSON Schema 2020-12, or the draft that its $schema names).
type fits struct {
	fixed  *jsonschema.Schema // nil = the task brings it
	column string
	fence  bool
}

func newJSONSchema(s reward.Spec) (reward.Grader, error) {
	cfg := JSONSchemaConfig{Column: "schema"}
	if err := reward.ReadOptions(s, &cfg); err != nil {
		return nil, err
	}
	g := fits{column: cfg.Column, fence: cfg.Fence == nil || *cfg.Fence}
	if len(cfg.Schema) > 0 {
		schema, err := jsonschema.Compile(cfg.Schema, "schema")
		if err != nil {
			return nil, err
		}
		g.fixed = schema
	}
	return g, nil
}

func (fits) ID() string { return "json_schema/1" }

func (g fits) Grade(_ context.Context, in reward.Input) (reward.Finding, error) {
	schema, err := g.schema(in)
	if err != nil {
		return reward.Finding{}, err
	}
	text, f, done, err := judged(in)
	if done {
		return f, err
	}
	if g.fence {
		text = unfenced(text)
	}
	doc, err := jsonschema.Decode(text)
	if err != nil {
		return reward.Finding{Evidence: "no JSON value: " + err.Error(), Parts: []reward.Part{recorded("json", 0, nil)}}, nil
	}
	f = reward.Finding{Score: 1, Evidence: "fits the schema", Parts: []reward.Part{recorded("json", 1, nil)}}
	if faults := schema.Faults(doc); faults != "" {
		if schema.Endless(doc) {
			return reward.Finding{}, badTruth("the schema's $ref lead back to themselves: no value fits")
		}
		f.Score, f.Evidence = 0, faults
	} else if name, twice := jsonschema.Twice(text); twice {
		f.Score, f.Evidence = 0, fmt.Sprintf("%q stands twice in one object", reward.Clip(name, 60))
	}
	return f, nil
}

func (g fits) schema(in reward.Input) (*jsonschema.Schema, error) {
	if g.fixed != nil {
		return g.fixed, nil
	}
	raw, ok := column(in.Task, g.column)
	if !ok {
		return nil, &reward.Unjudged{Reason: reward.MissingTruth, Detail: fmt.Sprintf("the task has no column %q with a schema", g.column)}
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		raw = json.RawMessage(text)
	}
	schema, err := jsonschema.Compile(raw, "column "+g.column)
	if err != nil {
		return nil, badTruth("%v", err)
	}
	return schema, nil
}

// unfenced takes off one Markdown fence that stands around all of the text.
func unfenced(text string) string {
	text = strings.TrimSpace(text)
	inside, ok := strings.CutPrefix(text, "```")
	if !ok {
		return text
	}
	language, inside, ok := strings.Cut(inside, "\n")
	inside, shut := strings.CutSuffix(inside, "```")
	if !ok || !shut || strings.ContainsAny(language, "{[\"`") {
		return text
	}
	return inside
}
