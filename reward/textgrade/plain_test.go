package textgrade

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"tranche/episode"
	"tranche/reward"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestTokenF1(t *testing.T) {
	for name, c := range map[string]struct {
		truth, text, options string
		want, exact          float64
	}{
		"same":                  {"Denver Broncos", "The Denver Broncos!", "", 1, 1},
		"half of it":            {"Denver Broncos", "Denver", "", 2.0 / 3, 0},
		"more than it":          {"Denver Broncos", "the Denver Broncos of Colorado", "", 2 * 2.0 / 6, 0},
		"words as often":        {"a b b c", "b c c", "", 2 * 2.0 / 6, 0},
		"nothing of it":         {"Denver", "Boston", "", 0, 0},
		"best of several":       {`["Denver Broncos", "Broncos"]`, "broncos", "", 1, 1},
		"punctuation in words":  {"U.S.", "US", "", 1, 1},
		"articles within words": {"then", "the n", "", 0, 0},
		"after the marker":      {"Denver", "Not Boston. Answer: Denver", `{"marker": "Answer:"}`, 1, 1},
		"only an article":       {"the", "a", "", 1, 1},
		"nothing at all":        {"the", "x", "", 0, 0},
	} {
		f, err := grader(t, "f1", c.options).Grade(context.Background(), answered(asked("q", c.truth, ""), c.text))
		if err != nil || !near(f.Score, c.want) || part(t, f, "exact") != c.exact {
			t.Errorf("%s: %v exact %v (%v), want %v and %v", name, f.Score, f.Parts, err, c.want, c.exact)
		}
	}
	for _, truth := range []string{`[]`, `{"a": 1}`, `[""]`, `["the", "."]`} {
		if got := reason(t, grader(t, "f1", ""), answered(asked("q", truth, ""), "x")); got != "bad_ground_truth" {
			t.Errorf("%s: %q, want bad_ground_truth", truth, got)
		}
	}
	if got := reason(t, grader(t, "f1", ""), answered(asked("q", "", ""), "x")); got != "missing_ground_truth" {
		t.Errorf("no truth: %q", got)
	}
}

func TestJSONOfASchema(t *testing.T) {
	const schema = `{"schema": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}, "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["n"], "additionalProperties": false}}`
	for text, want := range map[string]float64{
		`{"n": 1}`:                        1,
		" {\"n\": 2, \"tags\": []}\n":     1,
		"```json\n{\"n\": 1}\n```":        1,
		"```\n{\"n\": 1}\n```":            1,
		`{"n": 0}`:                        0,
		`{"n": "1"}`:                      0,
		`{}`:                              0,
		`{"n": 1, "m": 2}`:                0,
		`{"n": 1} and more`:               0,
		`{"n": 1}{"n": 1}`:                0,
		"Here:\n```json\n{\"n\": 1}\n```": 0,
		`{"n": 1e99999999}`:               0,
		"":                                0,
	} {
		if got := score(t, grader(t, "json_schema", schema), answered(asked("q", "", ""), text)); got != want {
			t.Errorf("fixed, %q: %v, want %v", text, got, want)
		}
		if got := score(t, grader(t, "json_schema", ""), answered(asked("q", "", schema), text)); got != want {
			t.Errorf("the task's, %q: %v, want %v", text, got, want)
		}
	}
	twice := `{"a": "x", "a": 1}`
	if got := score(t, grader(t, "json_schema", `{"schema": {"type": "object"}}`), answered(asked("q", "", ""), twice)); got != 0 {
		t.Errorf("%s: %v, want 0: a name stands twice", twice, got)
	}
	for _, schema := range []string{`{"$ref": "#"}`, `{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}`} {
		if got := reason(t, grader(t, "json_schema", `{"schema": `+schema+`}`), answered(asked("q", "", ""), "{}")); got != "bad_ground_truth" {
			t.Errorf("%s: %q, want bad_ground_truth", schema, got)
		}
	}
	if got := score(t, grader(t, "json_schema", `{"fence": false, "column": "s"}`), answered(asked("q", "", `{"s": "{\"type\": \"integer\"}"}`), "```\n1\n```")); got != 0 {
		t.Errorf("a fence that is not allowed: %v", got)
	}
	for extra, want := range map[string]string{"": "missing_ground_truth", `{"schema": {"type": "nothing"}}`: "bad_ground_truth", `{"schema": {"$ref": "file:///etc/passwd"}}`: "bad_ground_truth"} {
		if got := reason(t, grader(t, "json_schema", ""), answered(asked("q", "", extra), "{}")); got != want {
			t.Errorf("%s: %q, want %s", extra, got, want)
		}
	}
}

func TestTagsInOrder(t *testing.T) {
	for text, want := range map[string]float64{
		"<think>a</think><answer>b</answer>":                   1,
		" <think>\na\n</think>\n\n<answer>b</answer>\n":        1,
		"<think></think><answer></answer>":                     1,
		"<answer>b</answer><think>a</think>":                   0,
		"<think>a</think>":                                     0,
		"<think>a<answer>b</answer></think>":                   0,
		"<think>a</think><answer>b</answer><answer>c</answer>": 0,
		"<think>a</think> so <answer>b</answer>":               0,
		"Well <think>a</think><answer>b</answer>":              0,
		"<think>a</think><answer>b</answer> done":              0,
		"<think>a</think><answer>b":                            0,
		"</think>a<think><answer>b</answer>":                   0,
		"":                                                     0,
	} {
		if got := score(t, grader(t, "format", `{"tags": ["think", "answer"]}`), answered(asked("q", "", ""), text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if got := score(t, grader(t, "format", `{"tags": ["answer"], "around": true}`), answered(asked("q", "", ""), "So <answer>b</answer>.")); got != 1 {
		t.Errorf("text around: %v", got)
	}
	f, err := grader(t, "format", `{"tags": ["think", "answer"], "partial": true}`).Grade(context.Background(), answered(asked("q", "", ""), "<think>a</think><answer>b"))
	if err != nil || f.Score != 3.0/8 || part(t, f, "tags") != 3.0/4 {
		t.Errorf("three of four tags: %+v, %v", f, err)
	}
}

func TestPatternOfAllTheText(t *testing.T) {
	g := grader(t, "format", `{"pattern": "Yes|No"}`)
	for text, want := range map[string]float64{"Yes": 1, "No": 1, "Yes.": 0, "Yes\n": 0, "No|Yes": 0} {
		if got := score(t, g, answered(asked("q", "", ""), text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// Thinking is judged where it stood, however it came.
func TestThinkingIsPartOfTheFormat(t *testing.T) {
	thought := "hm"
	for name, c := range map[string]struct {
		tagged *episode.Tagged
		want   float64
	}{
		"parsed by the server":        {nil, 1},
		"taken out of the text":       {&episode.Tagged{Open: "<think>", Closed: true}, 1},
		"opened by the chat template": {&episode.Tagged{Closed: true}, 1},
		"never closed":                {&episode.Tagged{Open: "<think>"}, 0},
	} {
		in := answered(asked("q", "", ""), "<answer>b</answer>")
		in.Messages[1].ReasoningContent, in.Messages[1].Tagged = &thought, c.tagged
		if got := score(t, grader(t, "format", `{"tags": ["think", "answer"]}`), in); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func turnsOf(tokens ...int32) []episode.Turn {
	list := make([]episode.Turn, len(tokens))
	for i := range tokens {
		list[i].CompletionTokens = &tokens[i]
	}
	return list
}

// DAPO's equation 13, plus 1.
func TestLengthRamp(t *testing.T) {
	for name, c := range map[string]struct {
		options string
		turns   []episode.Turn
		want    float64
	}{
		"short":        {`{"max": 100, "buffer": 20}`, turnsOf(10), 1},
		"at the edge":  {`{"max": 100, "buffer": 20}`, turnsOf(80), 1},
		"half way":     {`{"max": 100, "buffer": 20}`, turnsOf(90), 0.5},
		"at the end":   {`{"max": 100, "buffer": 20}`, turnsOf(100), 0},
		"beyond":       {`{"max": 100, "buffer": 20}`, turnsOf(5000), 0},
		"all turns":    {`{"max": 100, "buffer": 20}`, turnsOf(45, 0, 45), 0.5},
		"longest turn": {`{"max": 100, "buffer": 20, "count": "longest"}`, turnsOf(45, 85, 45), 0.75},
		"no turn":      {`{"max": 100, "buffer": 20}`, nil, 1},
	} {
		if got := score(t, grader(t, "length_ramp", c.options), reward.Input{Turns: c.turns, Text: "18", Said: true}); !near(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := reason(t, grader(t, "length_ramp", `{"max": 100, "buffer": 20}`), reward.Input{Turns: append(turnsOf(1), episode.Turn{}), Text: "18", Said: true}); got != "unknown_length" {
		t.Errorf("a turn of unknown length: %q", got)
	}
	for _, silent := range []reward.Input{{}, {Turns: turnsOf(10)}, {Turns: turnsOf(10), Text: " \n", Said: true}} {
		if got := score(t, grader(t, "length_ramp", `{"max": 100, "buffer": 20}`), silent); got != 0 {
			t.Errorf("silence of %d turns: %v, want 0", len(silent.Turns), got)
		}
	}
}

func TestRepetition(t *testing.T) {
	for name, c := range map[string]struct {
		options, text string
		want          float64
	}{
		"none":            {`{"n": 2}`, "one two three four", 1},
		"short":           {`{"n": 4}`, "one two", 1},
		"one of three":    {`{"n": 2}`, "one two one two", 2.0 / 3},
		"case":            {`{"n": 1}`, "Ha ha HA", 1.0 / 3},
		"a loop":          {`{"n": 2}`, strings.Repeat("on and ", 50), 2.0 / 99},
		"some is free":    {`{"n": 2, "free": 0.5}`, "one two one two", 1},
		"no spaces":       {`{"n": 1}`, "今天今天", 0.5},
		"mixed":           {`{"n": 1}`, "a今a", 2.0 / 3},
		"all of the same": {`{"n": 1}`, strings.Repeat("a ", 100), 0.01},
	} {
		if got := score(t, grader(t, "repetition", c.options), answered(asked("q", "", ""), c.text)); !near(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	for text, want := range map[string][2]int{
		"one two three":                          {0, 0},
		"so so so so":                            {3, 1},
		"x " + strings.Repeat("a b c ", 4) + "y": {9, 3},
		"a b c d b":                              {0, 0},
	} {
		if run, period := longestLoop(loopWords(text)); run != want[0] || period != want[1] {
			t.Errorf("%q: loop of %d words, period %d; want %v", text, run, period, want)
		}
	}
	if few, many := zlibRatio(strings.Repeat("again ", 500)), zlibRatio("The quick brown fox jumps."); few > 0.1 || many < 0.9 {
		t.Errorf("zlib makes %v of a loop and %v of a sentence", few, many)
	}
}

// Wrong options are refused by name before anything is graded.
func TestWrongOptionsAreNamed(t *testing.T) {
	for _, c := range []struct{ kind, options, want string }{
		{"f1", `{"markr": "x"}`, "markr"}, {"choice", `{"choices": 3}`, "choices"}, {"json_schema", `{"schema": {"type": 3}}`, "schema"},
		{"tool_match", `{"order": "random"}`, "order"}, {"tool_match", `{"strings": "fuzzy"}`, "strings"}, {"tool_match", `{"from": "x"}`, "from"}, {"tool_match", `{"most": 3}`, "most"},
		{"ifeval", `{"mode": "lax"}`, "mode"}, {"ifeval", `{"score": "sum"}`, "score"},
		{"format", "", "tags"}, {"format", `{"tags": ["a b"]}`, "tags[0]"}, {"format", `{"tags": ["a", "a"]}`, "tags[1]"}, {"format", `{"pattern": "("}`, "pattern"},
		{"length_ramp", "", "max"}, {"length_ramp", `{"max": 10, "buffer": 11}`, "buffer"}, {"length_ramp", `{"max": 10, "buffer": 1, "count": "x"}`, "count"},
		{"repetition", `{"n": 0}`, "n:"}, {"repetition", `{"free": 1}`, "free"},
	} {
		for _, k := range Kinds() {
			if k.Name != c.kind {
				continue
			}
			if _, err := k.Make(reward.Spec{Kind: c.kind, With: json.RawMessage(c.options)}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %s: %v, want an error that names %s", c.kind, c.options, err, c.want)
			}
		}
	}
}
