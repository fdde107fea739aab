package textgrade

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tranche/episode"
	"tranche/internal/jsonschema"
	"tranche/reward"
)

// ToolMatchConfig are the options of kind tool_match.
type ToolMatchConfig struct {
	// Order says whether the calls must come in the order of the ground truth: any or fixed. Default any.
	Order string `json:"order"`
	// Extra allows calls that the ground truth does not have. Default false: one more is wrong.
	Extra bool `json:"extra"`
	// Most is how many calls an episode may have with Extra; with more it scores 0, or trying everything would be right. Default three more
	// than three for each wanted call.
	Most int `json:"most"`
	// Partial gives the share of the calls that are right, in place of nothing, where not all are. Default false.
	Partial bool `json:"partial"`
	// Strings says how texts are compared: loose (BFCL's: case, spaces and ,./-_*^ do not count, ' is ") or exact. Default loose.
	Strings string `json:"strings"`
	// From says where the calls are: calls (the tool calls that the model made) or text (its final text is a list of calls, as Python or
	// as JSON). Default calls.
	From string `json:"from"`
}

const (
	maxMade   = 1000 // calls of an episode that are looked at; more are none
	maxWanted = 500
)

// toolMatch compares calls with those of the ground truth as BFCL's AST check does (Patil et al., gorilla, ast_checker.py), but assigns
// calls to right ones so that most fit, not the first that fits.
type toolMatch struct{ cfg ToolMatchConfig }

func newToolMatch(s reward.Spec) (reward.Grader, error) {
	cfg := ToolMatchConfig{Order: "any", Strings: "loose", From: "calls"}
	if err := reward.ReadOptions(s, &cfg); err != nil {
		return nil, err
	}
	var errs []error
	for _, o := range []struct{ name, value, one, other string }{
		{"order", cfg.Order, "any", "fixed"}, {"strings", cfg.Strings, "loose", "exact"}, {"from", cfg.From, "calls", "text"},
	} {
		if o.value != o.one && o.value != o.other {
			errs = append(errs, fmt.Errorf("%s: %q, expected %s or %s", o.name, o.value, o.one, o.other))
		}
	}
	if cfg.Most < 0 || cfg.Most > 0 && !cfg.Extra {
		errs = append(errs, fmt.Errorf("most: %d, expected the most calls that an episode may have, with extra; or 0 for the default", cfg.Most))
	}
	return toolMatch{cfg}, errors.Join(errs...)
}

func (toolMatch) ID() string { return "tool_match/1" }

func (g toolMatch) Grade(_ context.Context, in reward.Input) (reward.Finding, error) {
	tools := offered(in.Task)
	want, err := wantedCalls(in.Task, tools)
	if err != nil {
		return reward.Finding{}, err
	}
	if _, _, _, err := judged(in); err != nil {
		return reward.Finding{}, err
	}
	made, unread := g.made(in)
	if len(made) > maxMade {
		return reward.Finding{Evidence: fmt.Sprintf("%d calls, at most %d are looked at", len(made), maxMade)}, nil
	}
	if len(made) == 0 && (len(want) > 0 || strings.TrimSpace(in.Text) == "") {
		return reward.Finding{Evidence: "no call" + unread, Parts: []reward.Part{recorded("names", 0, nil), recorded("matched", 0, nil)}}, nil
	}
	if most := cmp.Or(g.cfg.Most, 3*len(want)+3); g.cfg.Extra && len(made) > most {
		return reward.Finding{Evidence: fmt.Sprintf("%d calls, at most %d may be made", len(made), most)}, nil
	}
	for i := range made {
		made[i] = byPosition(made[i], tools)
	}
	fit := func(w, m int) bool { return want[w].fits(made[m], tools, g.cfg.Strings == "exact") }
	pairs := paired(len(want), len(made), fit)
	if g.cfg.Order == "fixed" {
		pairs = inOrder(len(want), len(made), fit)
	}
	return g.finding(want, made, pairs, unread), nil
}

// finding makes the verdict of how many calls fit.
func (g toolMatch) finding(want []wanted, made []call, pairs int, unread string) reward.Finding {
	of := max(len(want), len(made))
	if g.cfg.Extra {
		of = len(want)
	}
	share := 1.0
	if of > 0 {
		share = float64(pairs) / float64(of)
	}
	f := reward.Finding{
		Score: boolScore(share == 1), Evidence: fmt.Sprintf("%d of %d calls fit, %d were made%s", pairs, len(want), len(made), unread),
		Parts: []reward.Part{recorded("names", sameNames(want, made, of), nil), recorded("matched", share, nil)},
	}
	if g.cfg.Partial {
		f.Score = share
	}
	return f
}

// sameNames is the share of calls whose names alone are right, in any order.
func sameNames(want []wanted, made []call, of int) float64 {
	if of == 0 {
		return 1
	}
	n := paired(len(want), len(made), func(w, m int) bool { return sameName(want[w].name, made[m].name) })
	return float64(n) / float64(of)
}

// made are the calls of the episode, or those that its text lists; unread says why a text could not be read.
func (g toolMatch) made(in reward.Input) (calls []call, unread string) {
	if g.cfg.From == "text" {
		calls, err := textCalls(in.Text)
		if err != nil && strings.TrimSpace(in.Text) != "" {
			return nil, ": " + err.Error()
		}
		return calls, ""
	}
	for _, m := range in.Messages[min(in.NumPrompt, len(in.Messages)):] {
		if m.Role != episode.RoleAssistant {
			continue
		}
		for _, c := range m.ToolCalls {
			calls = append(calls, madeCall(c))
		}
		if w := m.Written; w != nil && len(m.ToolCalls) == 0 {
			calls = append(calls, madeCall(w.Call))
		}
	}
	return calls, ""
}

// madeCall reads a tool call. One whose arguments are no object has none: it fits nothing that has arguments, and counts.
func madeCall(c episode.ToolCall) call {
	made := call{name: c.Function.Name}
	text := c.Function.Arguments
	if strings.TrimSpace(text) == "" {
		text = "{}"
	}
	if _, twice := jsonschema.Twice(text); twice {
		return made // which value is meant cannot be told
	}
	if v, err := jsonschema.Decode(text); err == nil {
		made.args, _ = v.(map[string]any)
	}
	return made
}

// textCalls reads a text that is a list of calls: as JSON, [{"name": …, "arguments": {…}}], or as Python.
func textCalls(text string) ([]call, error) {
	text = unfenced(text)
	v, err := jsonschema.Decode(text)
	if err != nil {
		return pyCalls(text)
	}
	if name, twice := jsonschema.Twice(text); twice {
		return nil, fmt.Errorf("%q stands twice in one object", reward.Clip(name, 60))
	}
	if one, ok := v.(map[string]any); ok {
		v = []any{one}
	}
	list, ok := v.([]any)
	if !ok {
		return nil, errors.New("no list of calls")
	}
	calls := make([]call, len(list))
	for i, item := range list {
		if calls[i], ok = namedCall(item); !ok {
			return nil, fmt.Errorf("call %d is no {name, arguments}", i)
		}
	}
	return calls, nil
}

// namedCall reads {"name": …, "arguments": {…}}, also with OpenAI's frame around it.
func namedCall(item any) (call, bool) {
	m, _ := item.(map[string]any)
	if inner, framed := m["function"].(map[string]any); framed {
		m = inner
	}
	name, ok := m["name"].(string)
	if !ok {
		return call{}, false
	}
	switch args := m["arguments"].(type) {
	case map[string]any:
		return call{name: name, args: args}, true
	case string:
		return madeCall(episode.ToolCall{Function: episode.Function{Name: name, Arguments: args}}), true
	case nil:
		return call{name: name, args: map[string]any{}}, len(m) == 1
	}
	return call{}, false
}

// paired is the greatest number of pairs that fit, each call in one pair at most (Kuhn's augmenting paths).
func paired(want, made int, fit func(w, m int) bool) int {
	fits := make([][]int, want)
	for w := range fits {
		for m := range made {
			if fit(w, m) {
				fits[w] = append(fits[w], m)
			}
		}
	}
	taken := slices.Repeat([]int{-1}, made)
	var seen []bool
	var give func(w int) bool
	give = func(w int) bool {
		for _, m := range fits[w] {
			if seen[m] {
				continue
			}
			seen[m] = true
			if taken[m] < 0 || give(taken[m]) {
				taken[m] = w
				return true
			}
		}
		return false
	}
	n := 0
	for w := range want {
		seen = make([]bool, made)
		if give(w) {
			n++
		}
	}
	return n
}

// inOrder is the length of the longest run of pairs that fit in the order of both (a longest common subsequence).
func inOrder(want, made int, fit func(w, m int) bool) int {
	before, now := make([]int, made+1), make([]int, made+1)
	for w := range want {
		for m := range made {
			now[m+1] = max(before[m+1], now[m])
			if fit(w, m) {
				now[m+1] = max(now[m+1], before[m]+1)
			}
		}
		before, now = now, before
	}
	return before[made]
}

// offered are the parameters of the task's tools by name: its tool definitions, or BFCL's column "function".
func offered(t *episode.Task) map[string]parameters {
	tools := map[string]parameters{}
	var defs []json.RawMessage
	raw, ok := column(t, "function")
	if !ok {
		raw = t.Tools
	}
	if json.Unmarshal(raw, &defs) != nil {
		return tools
	}
	for _, def := range defs {
		var d struct {
			Name       string
			Parameters parameters
			Function   *struct {
				Name       string
				Parameters parameters
			}
		}
		if json.Unmarshal(def, &d) != nil { // the name of a built-in tool
			continue
		}
		if d.Function != nil {
			d.Name, d.Parameters = d.Function.Name, d.Function.Parameters
		}
		tools[plainName(d.Name)] = d.Parameters
	}
	return tools
}

// parameters are the arguments of a tool in the order of its definition.
type parameters struct {
	names    []string
	props    map[string]property
	required []string
}

// property is what a definition says of one argument; "" = nothing.
type property struct {
	declared string // type
	items    string // type of the items of a list
}

// UnmarshalJSON reads a schema. One that is none tells nothing.
func (p *parameters) UnmarshalJSON(raw []byte) error {
	var schema struct {
		Properties json.RawMessage
		Required   []string
	}
	var props map[string]struct {
		Type  any
		Items struct{ Type any }
	}
	if json.Unmarshal(raw, &schema) != nil || json.Unmarshal(schema.Properties, &props) != nil {
		return nil
	}
	p.props = make(map[string]property, len(props))
	for name, prop := range props {
		declared, _ := prop.Type.(string)
		items, _ := prop.Items.Type.(string)
		p.props[name] = property{declared, items}
	}
	p.names, p.required = keysInOrder(schema.Properties), schema.Required
	return nil
}

// keysInOrder are the names of an object's members as they stand.
func keysInOrder(object json.RawMessage) (names []string) {
	d := json.NewDecoder(strings.NewReader(string(object)))
	if _, err := d.Token(); err != nil {
		return nil
	}
	for d.More() {
		key, err := d.Token()
		name, ok := key.(string)
		var skipped json.RawMessage
		if err != nil || !ok || d.Decode(&skipped) != nil {
			return names
		}
		names = append(names, name)
	}
	return names
}

// plainName is a tool's name as it is compared: servers take no dots in it, and data sets have them.
func plainName(name string) string { return strings.ReplaceAll(name, ".", "_") }

func sameName(a, b string) bool { return plainName(a) == plainName(b) }
