package main

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"tranche/episode"
	"tranche/reward"
	"tranche/reward/mathgrade"
	"tranche/reward/textgrade"
)

// RewardSpec is one grader of the reward list; a flag names only a kind.
type RewardSpec struct {
	Name      string   `json:"name,omitempty"`
	Kind      string   `json:"kind"`
	Weight    *float64 `json:"weight,omitempty"` // default 1
	Marker    string   `json:"marker,omitempty"`
	Pattern   string   `json:"pattern,omitempty"`
	Normalize []string `json:"normalize,omitzero"` // nil = the default; an empty list = none
	Tolerance float64  `json:"tolerance,omitempty"`
	From      string   `json:"from,omitempty"`
	Threshold *float64 `json:"threshold,omitempty"`

	With Object `json:"-"` // options of the kinds that are not built in; written beside the keys above
}

// RewardSpecs is the reward list.
type RewardSpecs []RewardSpec

// commonRewardKeys are those that every kind takes; the others are options of the kind.
func commonRewardKeys() []string { return []string{"name", "kind", "weight", "threshold", "from"} }

// UnmarshalText takes the kind alone.
func (r *RewardSpec) UnmarshalText(text []byte) error {
	r.Kind = string(text)
	return nil
}

// MarshalJSON writes a spec as the settings file has it: the options of its kind beside the other keys.
func (r RewardSpec) MarshalJSON() ([]byte, error) {
	type keys RewardSpec // without this method
	text := encode(keys(r))
	if len(r.With) == 0 {
		return text, nil
	}
	return slices.Concat(bytes.TrimSuffix(text, []byte("}")), []byte(","), encode(r.With.canonical())[1:]), nil
}

// spec is the form the reward package takes.
func (r RewardSpec) spec() reward.Spec {
	return reward.Spec{
		Name: r.Name, Kind: r.Kind, Weight: r.Weight, Threshold: r.Threshold, Marker: r.Marker, Pattern: r.Pattern, Normalize: r.Normalize,
		Tolerance: r.Tolerance, From: r.From, With: r.With.text(),
	}
}

func (l *RewardSpecs) readYAML(y *yamlFile, name string, n ast.Node) {
	*l = nil
	for _, item := range y.items(n) {
		var r RewardSpec
		switch t := item.(type) {
		case *ast.StringNode:
			r.Kind = t.Value
		case *ast.MappingNode, *ast.MappingValueNode:
			r = y.rewardSpec(name, item)
		default:
			y.expected(item, name, "a kind or a map {kind, weight, …}")
		}
		*l = append(*l, r)
	}
}

// rewardSpec reads one map. What a kind that is not built in takes is that kind's business: it is kept as it stands.
func (y *yamlFile) rewardSpec(name string, n ast.Node) (r RewardSpec) {
	before := len(y.faults.list)
	pairs, ok := y.mapping(n, "a map with the keys of "+name)
	if !ok {
		return r
	}
	known := fieldsOf(&r)
	delete(known, "-")
	kind := y.kindOf(pairs)
	if kind != "" && !reward.BuiltIn(kind) {
		known = only(known, commonRewardKeys())
		var rest []*ast.MappingValueNode
		if pairs, rest = split(pairs, known); len(rest) > 0 {
			r.With = y.options(name, rest)
		}
	}
	y.pairs(name, pairs, known)
	if r.Kind == "" && len(y.faults.list) == before {
		y.fault(n, "%s: kind: is missing; expected one such as auto, exact, numeric, contains, regex or none", name)
	}
	return r
}

// kindOf is the kind that stands in a map, "" where none does or it is no text.
func (y *yamlFile) kindOf(pairs []*ast.MappingValueNode) string {
	for _, p := range pairs {
		if s, ok := y.resolve(p.Value).(*ast.StringNode); ok && keyName(p) == "kind" {
			return s.Value
		}
	}
	return ""
}

func only(known map[string]reflect.Value, names []string) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	for _, n := range names {
		out[n] = known[n]
	}
	return out
}

// split parts the pairs whose key is known from the others.
func split(pairs []*ast.MappingValueNode, known map[string]reflect.Value) (ours, rest []*ast.MappingValueNode) {
	for _, p := range pairs {
		if _, ok := known[keyName(p)]; ok {
			ours = append(ours, p)
		} else {
			rest = append(rest, p)
		}
	}
	return ours, rest
}

// options keeps values as JSON under their keys; max-tokens and max_tokens are one key.
func (y *yamlFile) options(name string, pairs []*ast.MappingValueNode) Object {
	o := Object{}
	for _, p := range pairs {
		key := keyName(p)
		switch _, twice := o[key]; {
		case key == "api-key":
			y.fault(p.Key, "%s: api-key: a key must not stand in a file; name an environment variable with api-key-env", name)
		case twice:
			y.fault(p.Key, "%s: %s is given twice (- and _ are the same)", name, key)
		default:
			o[key] = y.json(name+": "+key, p.Value)
		}
	}
	return o
}

// identifyRewards leaves out what a run of before there was such a key did not have.
func identifyRewards(s *Settings, id map[string]string) {
	if s.RewardTotal == reward.WeightedSum {
		delete(id, "reward-total")
	}
	if len(s.Unscored) == 0 {
		delete(id, "unscored")
	}
	identifyGraders(s, id)
}

// scorerNotes names the graders that did not stop when they were told to.
func (s *session) scorerNotes() (notes []string) {
	if s.scorer == nil {
		return nil
	}
	for _, t := range s.scorer.Troubles() {
		notes = append(notes, fmt.Sprintf("grader %s: %d gradings did not stop when told to and were abandoned%s%s", t.Component, t.Abandoned,
			some(t.Going, "; %d of them had not ended by then"), some(t.Refused, "; for %d more it was not asked: too many were going on")))
	}
	return notes
}

// graderKinds are the kinds of graders beside the built-in ones. Each package of graders is entered here.
func (s *session) graderKinds() []reward.Kind {
	return slices.Concat(mathgrade.Kinds(), textgrade.Kinds(), []reward.Kind{s.codeKind(), s.judgeKind()}, s.userKinds(), s.a.graders)
}

// wantsAnswers reports whether a grader compares with the tasks' ground truth for certain: of those that are not built in some do, and say
// so in their outcome.
func (s *session) wantsAnswers() bool {
	return slices.ContainsFunc(s.set.Reward, func(r RewardSpec) bool {
		kind := cmp.Or(r.Kind, reward.KindAuto)
		return reward.BuiltIn(kind) && kind != reward.KindNone && (kind != reward.KindRegex || r.Pattern == "")
	})
}

// cutStops are the stop reasons of episodes that ended otherwise than the model meant.
var cutStops = []episode.Stop{episode.StopLength, episode.StopContextFull, episode.StopMaxTurns, episode.StopBudget, episode.StopUnknown, episode.StopOther}

func (s *Settings) checkUnscored(f *faults) {
	for i, stop := range s.Unscored {
		if !slices.Contains(cutStops, episode.Stop(stop)) {
			f.add("unscored[%d]: expected one of %s, found %q", i, fmt.Sprint(cutStops), stop)
		}
	}
}

func (s *session) rewardConfig() reward.Config {
	cfg := reward.Config{Timeout: s.set.ScoreTimeout, Workers: s.set.ScoreWorkers, Retries: s.set.ScoreRetries, Total: s.set.RewardTotal}
	if cfg.Retries == 0 {
		cfg.Retries = -1 // none; 0 is the default there
	}
	for _, stop := range s.set.Unscored {
		cfg.Unscored = append(cfg.Unscored, episode.Stop(stop))
	}
	for _, r := range s.set.Reward {
		cfg.Graders = append(cfg.Graders, r.spec())
	}
	return cfg
}
