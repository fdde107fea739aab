package export

import (
	"encoding/json"

	"tranche/storage"
)

// unlearned is the logprob of an id that is not learned: no probability has it.
const unlearned = 1.0

// atropos makes one record of each group: what an environment of Atropos posts to /scored_data (atroposlib/api/server.py, ScoredData) and what its process
// command writes a line at a time. masks hold the id where it is learned and -100 elsewhere, inference_logprobs 1.0 where it is not
// (atroposlib/api/README.md). A trajectory is one sequence there, so rows whose prefix was broken are left out.
type atropos struct{ cfg *Config }

type atroposRecord struct {
	Tokens            [][]int32       `json:"tokens"`
	Masks             [][]int32       `json:"masks"`
	Scores            []real          `json:"scores"`
	Messages          [][]Message     `json:"messages"`
	GenerationParams  json.RawMessage `json:"generation_params"`
	InferenceLogprobs [][]float32     `json:"inference_logprobs,omitempty"`

	all, trained int
}

func (r atroposRecord) tokens() (all, trained int) { return r.all, r.trained }

func newAtropos(cfg *Config) maker {
	c := *cfg
	c.DropBroken = true
	return &atropos{&c}
}

func (a *atropos) make(rows []*storage.Row) ([]any, []string) {
	var g atroposRecord
	left := make([]string, len(rows))
	for i, r := range rows {
		left[i] = a.add(&g, r)
	}
	if len(g.Scores) == 0 {
		return nil, left
	}
	return []any{g}, left
}

// add puts a row into the group, or says why not.
func (a *atropos) add(g *atroposRecord, r *storage.Row) string {
	if r.Reward == nil {
		return leftNoVerdict
	}
	all, why := a.cfg.sequences(r)
	if why != "" {
		return why
	}
	s := all[0]
	messages, ok := messagesOf(r.Messages, a.cfg.Arguments)
	if !ok {
		return leftArguments
	}
	if !a.cfg.NoLogprobs {
		lps, ok := s.known(unlearned)
		if !ok {
			return leftLogprobs
		}
		g.InferenceLogprobs = append(g.InferenceLogprobs, lps)
	}
	if r.Sampling != nil {
		g.GenerationParams = json.RawMessage(*r.Sampling)
	}
	g.Tokens, g.Masks, g.Scores = append(g.Tokens, s.ids), append(g.Masks, s.labels(ignored)), append(g.Scores, real(*r.Reward))
	g.Messages = append(g.Messages, messages)
	g.all, g.trained = g.all+len(s.ids), g.trained+s.trained()
	return ""
}
