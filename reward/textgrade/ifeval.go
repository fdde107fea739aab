package textgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"tranche/episode"
	"tranche/reward"
)

// IFEvalConfig are the options of kind ifeval.
type IFEvalConfig struct {
	// Mode says what is checked: strict (the answer as it is) or loose (also without its first line, its last line, both, and its
	// asterisks; one that follows is enough). Default strict.
	Mode string `json:"mode"`
	// Score says what the score is: share (of the instructions that are followed) or all (1 when all are). Default share.
	Score string `json:"score"`
}

// ifEval checks verifiable instructions (Zhou et al. 2023, Instruction-Following Evaluation for Large Language Models, arXiv 2311.07911),
// each by the code published with the paper, with the differences that docs/rewards.md lists.
type ifEval struct {
	cfg   IFEvalConfig
	rules map[string]rule
}

func newIFEval(s reward.Spec) (reward.Grader, error) {
	cfg := IFEvalConfig{Mode: "strict", Score: "share"}
	if err := reward.ReadOptions(s, &cfg); err != nil {
		return nil, err
	}
	var errs []error
	if cfg.Mode != "strict" && cfg.Mode != "loose" {
		errs = append(errs, fmt.Errorf("mode: %q, expected strict or loose", cfg.Mode))
	}
	if cfg.Score != "share" && cfg.Score != "all" {
		errs = append(errs, fmt.Errorf("score: %q, expected share or all", cfg.Score))
	}
	known := sync.OnceValues(func() (*languages, error) { return readLanguages(languagesFile) }) // few tasks need it
	return ifEval{cfg, rules(known)}, errors.Join(errs...)
}

func (ifEval) ID() string { return "ifeval/1" }

func (g ifEval) Grade(_ context.Context, in reward.Input) (reward.Finding, error) {
	list, err := g.instructions(in.Task)
	if err != nil {
		return reward.Finding{}, err
	}
	text, _, blank, err := judged(in)
	if err != nil {
		return reward.Finding{}, err
	}
	strict, loose := followed(list, nil), followed(list, nil)
	if !blank {
		strict, loose = followed(list, []string{text}), followed(list, looseForms(text))
	}
	return g.finding(list, strict, loose), nil
}

// finding makes the verdict of which instructions were followed.
func (g ifEval) finding(list []instruction, strict, loose []bool) reward.Finding {
	yes := strict
	if g.cfg.Mode == "loose" {
		yes = loose
	}
	n := 0
	var broken []string
	parts := make([]reward.Part, len(list), len(list)+2)
	for i, ins := range list {
		if yes[i] {
			n++
		} else {
			broken = append(broken, ins.id)
		}
		parts[i] = recorded(partName(list, i), boolScore(yes[i]), nil)
	}
	f := reward.Finding{Score: float64(n) / float64(len(list)), Evidence: fmt.Sprintf("%d of %d followed", n, len(list))}
	if len(broken) > 0 {
		f.Evidence += "; not: " + strings.Join(broken, ", ")
	}
	if g.cfg.Score == "all" {
		f.Score = boolScore(n == len(list))
	}
	f.Parts = append(parts, recorded("strict", boolScore(!slices.Contains(strict, false)), nil), recorded("loose", boolScore(!slices.Contains(loose, false)), nil))
	return f
}

// partName is the instruction's id; where a task has it twice, the later one has its place behind it.
func partName(list []instruction, i int) string {
	for _, before := range list[:i] {
		if before.id == list[i].id {
			return fmt.Sprintf("%s#%d", list[i].id, i+1)
		}
	}
	return list[i].id
}

// followed says which instructions one of the texts follows; a blank one follows none.
func followed(list []instruction, texts []string) []bool {
	yes := make([]bool, len(list))
	for i, ins := range list {
		yes[i] = slices.ContainsFunc(texts, func(t string) bool { return strings.TrimSpace(t) != "" && ins.follows(t) })
	}
	return yes
}

// looseForms are the eight forms of an answer of which the loose criterion takes the best (paper, section 2.2).
func looseForms(text string) []string {
	lines := strings.Split(text, "\n")
	joined := func(from, to int) string { return strings.TrimSpace(strings.Join(lines[min(from, to):to], "\n")) }
	last := len(lines) - 1
	forms := []string{text, joined(1, len(lines)), joined(0, last), joined(min(1, last), last)}
	for _, f := range forms[:4] {
		if plain := strings.ReplaceAll(f, "*", ""); plain != f {
			forms = append(forms, plain)
		}
	}
	return slices.Compact(forms)
}

// instruction is one that a task states, ready to be checked.
type instruction struct {
	id      string
	follows func(text string) bool
}

// instructions reads the task's columns instruction_id_list and kwargs, or the same names in its ground truth (a JSON object, or a list of
// one).
func (g ifEval) instructions(t *episode.Task) ([]instruction, error) {
	ids, args, err := statedInstructions(t)
	if err != nil {
		return nil, err
	}
	if len(args) != len(ids) {
		return nil, badTruth("%d instructions, but kwargs of %d", len(ids), len(args))
	}
	list := make([]instruction, len(ids))
	for i, id := range ids {
		r, ok := g.rules[id]
		if !ok {
			return nil, badTruth("unknown instruction %q; known are %s", id, strings.Join(slices.Sorted(maps.Keys(g.rules)), ", "))
		}
		a := &kwargs{given: args[i]}
		follows, err := r(a)
		if err != nil {
			return nil, err
		}
		if err := a.fault(); err != nil {
			return nil, badTruth("%s: %v", id, err)
		}
		list[i] = instruction{id, follows}
	}
	return list, nil
}

func statedInstructions(t *episode.Task) (ids []string, args []map[string]json.RawMessage, err error) {
	idList, ok := column(t, "instruction_id_list")
	argList, _ := column(t, "kwargs")
	if !ok && t.Answer != nil {
		idList, argList, ok = instructionsOf(*t.Answer)
	}
	if !ok {
		return nil, nil, &reward.Unjudged{Reason: reward.MissingTruth, Detail: "the task has no column instruction_id_list"}
	}
	if err := json.Unmarshal(idList, &ids); err != nil || len(ids) == 0 {
		return nil, nil, badTruth("instruction_id_list: expected a list of names, found %s", reward.Clip(string(idList), 60))
	}
	if len(argList) == 0 || string(argList) == "null" {
		return ids, make([]map[string]json.RawMessage, len(ids)), nil
	}
	if err := json.Unmarshal(argList, &args); err != nil {
		return nil, nil, badTruth("kwargs: expected a list of objects, found %s", reward.Clip(string(argList), 60))
	}
	return ids, args, nil
}

// instructionsOf reads a ground truth that holds them, under the names of the data set or open-instruct's instruction_id.
func instructionsOf(answer string) (ids, args json.RawMessage, ok bool) {
	type stated struct {
		List   json.RawMessage `json:"instruction_id_list"`
		Single json.RawMessage `json:"instruction_id"`
		Kwargs json.RawMessage `json:"kwargs"`
	}
	var s stated
	var several []stated
	if json.Unmarshal([]byte(answer), &several) == nil && len(several) == 1 {
		s = several[0]
	} else if json.Unmarshal([]byte(answer), &s) != nil {
		return nil, nil, false
	}
	if s.List == nil {
		s.List = s.Single
	}
	return s.List, s.Kwargs, s.List != nil
}

// kwargs are the arguments of one instruction. It remembers which were asked for and what was wrong with them.
type kwargs struct {
	given map[string]json.RawMessage
	asked []string
	errs  []error
}

func (k *kwargs) take(name string, into any, what string) {
	k.asked = append(k.asked, name)
	raw, ok := k.given[name]
	if !ok || string(raw) == "null" {
		k.errs = append(k.errs, fmt.Errorf("%s is missing", name))
		return
	}
	if json.Unmarshal(raw, into) != nil {
		k.errs = append(k.errs, fmt.Errorf("%s: expected %s, found %s", name, what, reward.Clip(string(raw), 40)))
	}
}

// count is a whole number, 0 or more.
func (k *kwargs) count(name string) int {
	var n float64
	k.take(name, &n, "a whole number")
	if n < 0 || n != float64(int(n)) {
		k.errs = append(k.errs, fmt.Errorf("%s: expected a whole number, found %v", name, n))
	}
	return int(n)
}

// text is a text that says something, without the spaces around it.
func (k *kwargs) text(name string) string {
	var s string
	before := len(k.errs)
	k.take(name, &s, "a text")
	if s = strings.TrimSpace(s); s == "" && len(k.errs) == before {
		k.errs = append(k.errs, fmt.Errorf("%s is empty", name))
	}
	return s
}

// texts is a list of such.
func (k *kwargs) texts(name string) []string {
	var list []string
	before := len(k.errs)
	k.take(name, &list, "a list of texts")
	if len(k.errs) == before && (len(list) == 0 || slices.ContainsFunc(list, func(s string) bool { return strings.TrimSpace(s) == "" })) {
		k.errs = append(k.errs, fmt.Errorf("%s: expected texts that are not empty", name))
	}
	return list
}

// bound is a number with its relation: how many there must be.
func (k *kwargs) bound(relation, count string) func(n int) bool {
	var r string
	k.take(relation, &r, "a text")
	least := k.count(count)
	switch r {
	case "at least":
		return func(n int) bool { return n >= least }
	case "less than":
		return func(n int) bool { return n < least }
	}
	k.errs = append(k.errs, fmt.Errorf("%s: %q, expected \"at least\" or \"less than\"", relation, reward.Clip(r, 40)))
	return nil
}

// fault is what is wrong with the arguments as a whole.
func (k *kwargs) fault() error {
	for _, name := range slices.Sorted(maps.Keys(k.given)) {
		if !slices.Contains(k.asked, name) && string(k.given[name]) != "null" {
			k.errs = append(k.errs, fmt.Errorf("unknown argument %s", name))
		}
	}
	return errors.Join(k.errs...)
}
