package textgrade

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"tranche/reward"
)

// LengthRampConfig are the options of kind length_ramp.
type LengthRampConfig struct {
	// Max is how many tokens an answer may have, thinking included. Required.
	Max int `json:"max"`
	// Buffer is over how many tokens before Max the score falls from 1 to 0. Required, at most Max.
	Buffer int `json:"buffer"`
	// Count says what is counted: total (the tokens that all turns generated) or longest (those of the longest turn). Default total.
	Count string `json:"count"`
}

// lengthRamp is the soft overlong punishment of DAPO (Yu et al. 2025, arXiv 2503.14476, equation 13), which goes from 0 to -1, plus 1.
type lengthRamp struct{ cfg LengthRampConfig }

func newLengthRamp(s reward.Spec) (reward.Grader, error) {
	cfg := LengthRampConfig{Count: "total"}
	if err := reward.ReadOptions(s, &cfg); err != nil {
		return nil, err
	}
	var errs []error
	if cfg.Max < 1 {
		errs = append(errs, fmt.Errorf("max: %d, expected the most tokens that an answer may have", cfg.Max))
	}
	if cfg.Buffer < 1 || cfg.Buffer > cfg.Max {
		errs = append(errs, fmt.Errorf("buffer: %d, expected from 1 to max: the tokens before max over which the score falls", cfg.Buffer))
	}
	if cfg.Count != "total" && cfg.Count != "longest" {
		errs = append(errs, fmt.Errorf("count: %q, expected total or longest", cfg.Count))
	}
	return lengthRamp{cfg}, errors.Join(errs...)
}

func (lengthRamp) ID() string { return "length_ramp/1" }

func (g lengthRamp) Grade(_ context.Context, in reward.Input) (reward.Finding, error) {
	if strings.TrimSpace(in.Text) == "" { // the shortest of all would be silence
		return reward.Finding{Evidence: "no final text"}, nil
	}
	tokens, longest, unknown := in.Generated()
	if unknown >= 0 {
		return reward.Finding{}, &reward.Unjudged{Reason: "unknown_length", Detail: fmt.Sprintf("turn %d: the server did not say how many tokens it generated", unknown)}
	}
	if g.cfg.Count == "longest" {
		tokens = longest
	}
	over := tokens - (g.cfg.Max - g.cfg.Buffer)
	score := 1 - float64(over)/float64(g.cfg.Buffer)
	raw := float64(tokens)
	return reward.Finding{
		Score: min(max(score, 0), 1), Raw: &raw,
		Evidence: fmt.Sprintf("%d tokens, falls from %d to %d", tokens, g.cfg.Max-g.cfg.Buffer, g.cfg.Max),
	}, nil
}
