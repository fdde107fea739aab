package audit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tranche/episode"
)

// Probe is one answer to a task.
type Probe struct {
	Name   string             // what it is, such as echo
	Text   string             // the final text
	Silent bool               // the model said nothing at all
	Calls  []episode.ToolCall // of the answer; nil = none
}

// Kinds of graders by how they are tried.
const (
	text   = iota // every probe
	costly        // a program or a model judges: few
	code          // few, and programs
	truths        // likewise text, but the ground truth is no right answer
	calls         // the ground truth is a list of tool calls
	form          // it judges how an answer looks: nothing is wrong
)

func trial(kind string) int {
	switch kind {
	case "judge", "command", "http", "python", "math_verify":
		return costly
	case "code":
		return code
	case "regex", "json_schema", "ifeval":
		return truths
	case "tool_match":
		return calls
	case "format", "length_ramp", "repetition", "none":
		return form
	}
	return text
}

// Tries tells whether an audit has anything to say of a kind of graders: not of one that judges how an answer looks.
func Tries(kind string) bool { return trial(kind) != form }

// constants are answers that have nothing to do with a task.
func constants() []string { return []string{"0", "1", "yes", "A", "I don't know"} }

// columns may hold a right answer that is no ground truth.
func columns() []string {
	return []string{"gold", "canonical_solution", "solution", "code", "reference_solution", "patch"}
}

// gold lists forms of the task's right answer, the likeliest first; nil = nothing says what is right. column, where it is not "", holds
// it.
func gold(kind, column string, t *episode.Task) (list []Probe) {
	add := func(texts ...string) {
		for _, s := range texts {
			if strings.TrimSpace(s) != "" {
				list = append(list, Probe{Name: "gold", Text: s})
			}
		}
	}
	row := fields(t)
	way := trial(kind)
	if column != "" || way == code {
		s := columnText(row, column)
		if way == code && s != "" {
			add("```python\n"+s+"\n```", s)
		} else {
			add(s)
		}
		return list
	}
	if t.Answer == nil || way == truths {
		return nil
	}
	answer := *t.Answer
	if way == calls {
		return rightCalls(answer)
	}
	var several []string
	if json.Unmarshal([]byte(answer), &several) == nil && len(several) > 0 {
		add(several[0])
	}
	add(answer, "#### "+answer, `\boxed{`+answer+`}`)
	if n, err := strconv.Atoi(strings.TrimSpace(answer)); err == nil && kind == "choice" && n >= 0 && n < 26 {
		add(string(rune('A' + n)))
	}
	return list
}

func fields(t *episode.Task) map[string]json.RawMessage {
	row := map[string]json.RawMessage{}
	_ = json.Unmarshal(t.Extra, &row) // it is an object, or there is none
	return row
}

func columnText(row map[string]json.RawMessage, column string) string {
	names := columns()
	if column != "" {
		names = []string{column}
	}
	for _, n := range names {
		var s string
		if json.Unmarshal(row[n], &s) == nil && s != "" {
			return s
		}
	}
	return ""
}

// rightCalls is an answer that makes the calls of a ground truth, nil where it is in no form that is known here.
func rightCalls(truth string) []Probe {
	var list []map[string]json.RawMessage
	if json.Unmarshal([]byte(truth), &list) != nil {
		return nil
	}
	p := Probe{Name: "gold"}
	for _, one := range list {
		name, args, ok := rightCall(one)
		if !ok {
			return nil
		}
		text, err := json.Marshal(args)
		if err != nil {
			return nil
		}
		c := episode.ToolCall{ID: fmt.Sprintf("call_%d", len(p.Calls)), Type: "function"}
		c.Function.Name, c.Function.Arguments = name, string(text)
		p.Calls = append(p.Calls, c)
	}
	if len(p.Calls) == 0 {
		p.Text = "There is nothing to call."
	}
	return []Probe{p}
}

// rightCall reads {"name": …, "arguments": {…}} or BFCL's {"name": {"argument": [allowed, …]}}.
func rightCall(one map[string]json.RawMessage) (name string, args map[string]json.RawMessage, ok bool) {
	if raw, has := one["arguments"]; has {
		return name, args, json.Unmarshal(one["name"], &name) == nil && json.Unmarshal(raw, &args) == nil
	}
	for n, raw := range one {
		var allowed map[string][]json.RawMessage
		if len(one) != 1 || json.Unmarshal(raw, &allowed) != nil {
			return "", nil, false
		}
		args = map[string]json.RawMessage{}
		for arg, values := range allowed {
			if len(values) > 0 && string(values[0]) != `""` {
				args[arg] = plainValue(values[0])
			}
		}
		name = n
	}
	return name, args, name != ""
}

// plainValue takes the first of the allowed values inside of BFCL's objects too.
func plainValue(raw json.RawMessage) json.RawMessage {
	var inner map[string][]json.RawMessage
	if json.Unmarshal(raw, &inner) != nil {
		return raw
	}
	out := map[string]json.RawMessage{}
	for k, values := range inner {
		if len(values) > 0 && string(values[0]) != `""` {
			out[k] = plainValue(values[0])
		}
	}
	text, err := json.Marshal(out)
	if err != nil {
		return raw
	}
	return text
}

// wrong lists answers that should score nothing. One that happens to be right is left out.
func wrong(kind string, t *episode.Task, right []Probe, tricks Tricks) (list []Probe) {
	known := stated(t, right)
	add := func(name, s string) {
		if !says(known, s) {
			list = append(list, Probe{Name: name, Text: s})
		}
	}
	way := trial(kind)
	list = append(list, Probe{Name: "silent", Silent: true}, Probe{Name: "empty"})
	switch way {
	case code:
		add("constant I don't know", "I don't know")
	default:
		for _, c := range constants() {
			add("constant "+c, c)
		}
	}
	asked := question(t)
	add("echo", asked)
	if len(right) > 0 {
		if cut := truncated(right[0].Text, way == code); cut != "" {
			add("truncated", cut)
		}
	}
	switch way {
	case code:
		list = append(append(list, programs(entry(t))...), tricks.of(t.Index, entry(t))...)
	case text, truths:
		add("all numbers", numbers("%d", " ", 1000))
		add("many boxes", numbers(`\boxed{%d}`, " ", 100))
		add("all letters", "A, B, C, D, E, F, G, H, I, J")
		add("all options", "(A) (B) (C) (D) (E) (F) (G) (H) (I) (J)")
		add("many boxed letters", `\boxed{A} \boxed{B} \boxed{C} \boxed{D} \boxed{E}`)
		add("many words", dump(asked))
		add("pattern", ".*")
	case calls:
		list = append(list, everyTool(t)...)
	}
	return list
}

// question is the last thing that the user said.
func question(t *episode.Task) string {
	for _, m := range slices.Backward(t.Messages) {
		if m.Role == episode.RoleUser && m.Content != nil {
			return *m.Content
		}
	}
	return ""
}

// truncated is the first half of an answer: of its lines where it is a program that has several, else of its letters.
func truncated(s string, program bool) string {
	if program {
		lines := strings.Split(strings.TrimSuffix(strings.TrimRight(s, "\n"), "```"), "\n")
		if len(lines) < 4 {
			return ""
		}
		return strings.Join(lines[:len(lines)/2], "\n")
	}
	r := []rune(strings.TrimSpace(s))
	return strings.TrimSpace(string(r[:len(r)/2]))
}

// numbers lists whole numbers from 0 up to most.
func numbers(format, between string, most int) string {
	list := make([]string, most+1)
	for i := range list {
		list[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(list, between)
}

// dump is many words: for a grader that looks for one anywhere.
func dump(asked string) string {
	words := "yes no true false valid invalid correct incorrect positive negative plausible implausible none unknown left right up down north south east west " +
		"red orange yellow green blue purple black white brown pink gold silver grey one two three four five six seven eight nine ten " +
		"monday tuesday wednesday thursday friday saturday sunday january february march april may june july august september october november december " +
		"(A) (B) (C) (D) (E) (F) (G) "
	return words + numbers("%d", " ", 1000) + " " + asked
}

// everyTool calls every tool that the task offers, with nothing.
func everyTool(t *episode.Task) []Probe {
	var defs []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(t.Tools, &defs) != nil || len(defs) == 0 {
		return nil
	}
	p := Probe{Name: "every tool"}
	for i, d := range defs {
		c := episode.ToolCall{ID: fmt.Sprintf("call_%d", i), Type: "function"}
		c.Function.Name, c.Function.Arguments = d.Function.Name, "{}"
		p.Calls = append(p.Calls, c)
	}
	return []Probe{p}
}

// stated lists what the task says is right.
func stated(t *episode.Task, right []Probe) (list []string) {
	if t.Answer != nil {
		list = append(list, core(*t.Answer))
		if letter := core(*t.Answer); len(letter) == 1 && letter >= "a" && letter <= "z" {
			list = append(list, option(question(t), letter))
		}
		var several []string
		if json.Unmarshal([]byte(*t.Answer), &several) == nil {
			for _, s := range several {
				list = append(list, core(s))
			}
		}
	}
	for _, p := range right {
		list = append(list, core(p.Text))
	}
	return list
}

// option is the text of the option that a letter names in a question, "" where there is none.
func option(asked, letter string) string {
	for line := range strings.Lines(asked) {
		line = strings.ToLower(strings.TrimSpace(line))
		for _, mark := range []string{"(" + letter + ")", letter + ".", letter + ")"} {
			if rest, ok := strings.CutPrefix(line, mark); ok {
				return core(rest)
			}
		}
	}
	return ""
}

// says tells whether an answer is one of those that are right, by the letters or as a number. Where an answer lists many, its last
// counts.
func says(right []string, answer string) bool {
	full := core(answer)
	words := strings.Fields(answer)
	last := full
	if len(words) > 0 {
		last = core(words[len(words)-1])
	}
	return slices.ContainsFunc(right, func(r string) bool { return r != "" && (r == full || r == last || number(r, full) || number(r, last)) })
}

func number(a, b string) bool {
	x, xerr := strconv.ParseFloat(a, 64)
	y, yerr := strconv.ParseFloat(b, 64)
	return xerr == nil && yerr == nil && x == y
}

// core is an answer without what may stand around it.
func core(s string) string {
	if i := strings.LastIndex(s, "####"); i >= 0 {
		s = s[i+4:]
	}
	if i := strings.LastIndex(s, `\boxed{`); i >= 0 {
		s = s[i+len(`\boxed{`):]
	}
	if i := strings.LastIndex(s, "="); i >= 0 {
		s = s[i+1:]
	}
	return strings.ToLower(strings.ReplaceAll(strings.Trim(s, " \t\r\n.,$%()[]{}*'\"`\\"), ",", ""))
}
