package main

import (
	"encoding/json"
	"reflect"
	"slices"

	"tranche/reward"
	"tranche/storage"
	"tranche/storage/verify"
)

// rewardRule is how rewards are made of their components, as a set of rescored rewards keeps it.
type rewardRule struct {
	Total  string          `json:"total"`
	Graded []thresholdRule `json:"thresholds,omitempty"`
}

// thresholdRule is a grader with a threshold.
type thresholdRule struct {
	Name      string  `json:"name,omitempty"`
	Kind      string  `json:"kind,omitempty"`
	Threshold float64 `json:"threshold"`
}

func ruleOf(set Settings) *rewardRule {
	cfg := (&session{set: set}).rewardConfig()
	rule := &rewardRule{Total: cfg.Total}
	for _, g := range cfg.Graders {
		if g.Threshold != nil {
			rule.Graded = append(rule.Graded, thresholdRule{g.Name, g.Kind, *g.Threshold})
		}
	}
	return rule
}

// readRule reads what a set keeps; nil = it keeps none that this program knows.
func readRule(text json.RawMessage) *rewardRule {
	rule := &rewardRule{}
	if len(text) == 0 || json.Unmarshal(text, rule) != nil || rule.Total != "" && !slices.Contains(reward.Rules(), rule.Total) {
		return nil
	}
	return rule
}

// total is nil where the rule is not known.
func (r *rewardRule) total() verify.Total {
	if r == nil {
		return nil
	}
	cfg := reward.Config{Total: r.Total}
	for _, g := range r.Graded {
		cfg.Graders = append(cfg.Graders, reward.Spec{Name: g.Name, Kind: g.Kind, Threshold: &g.Threshold})
	}
	return func(list []storage.Reward) *float64 {
		return cfg.Combine((&storage.Row{Rewards: list}).Verdict().Rewards)
	}
}

// same says whether two rules are known and are one.
func (r *rewardRule) same(o *rewardRule) bool { return r != nil && o != nil && reflect.DeepEqual(r, o) }
