package textgrade

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tranche/episode"
	"tranche/reward"
)

// each makes one grader of every kind, with a task that it can judge.
func each(t testing.TB) map[string]struct {
	grader reward.Grader
	task   *episode.Task
} {
	type pair = struct {
		grader reward.Grader
		task   *episode.Task
	}
	all := `{"instruction_id_list": ["keywords:existence", "keywords:frequency", "keywords:forbidden_words", "keywords:letter_frequency", "language:response_language",
		"length_constraints:number_sentences", "length_constraints:number_paragraphs", "length_constraints:number_words", "length_constraints:nth_paragraph_first_word",
		"detectable_content:number_placeholders", "detectable_content:postscript", "detectable_format:number_bullet_lists", "detectable_format:constrained_response",
		"detectable_format:number_highlighted_sections", "detectable_format:multiple_sections", "detectable_format:json_format", "detectable_format:title",
		"combination:two_responses", "combination:repeat_prompt", "startend:end_checker", "startend:quotation", "change_case:capital_word_frequency",
		"change_case:english_capital", "change_case:english_lowercase", "punctuation:no_comma"],
		"kwargs": [{"keywords": ["a"]}, {"keyword": "a", "frequency": 2, "relation": "at least"}, {"forbidden_words": ["a a", "("]}, {"letter": "a", "let_frequency": 3, "let_relation": "less than"},
		{"language": "en"}, {"num_sentences": 2, "relation": "at least"}, {"num_paragraphs": 2}, {"num_words": 3, "relation": "at least"},
		{"num_paragraphs": 2, "nth_paragraph": 1, "first_word": "a"}, {"num_placeholders": 1}, {"postscript_marker": "P.S."}, {"num_bullets": 1}, {}, {"num_highlights": 1},
		{"section_spliter": "S", "num_sections": 1}, {}, {}, {}, {"prompt_to_repeat": "a"}, {"end_phrase": "a"}, {}, {"capital_frequency": 1, "capital_relation": "at least"}, {}, {}, {}]}`
	made := map[string]pair{
		"f1":          {grader(t, "f1", ""), asked("q", `["a b", "c"]`, "")},
		"choice":      {grader(t, "choice", ""), asked("Options:\n(A) a\n(B) b c", "(B)", "")},
		"json_schema": {grader(t, "json_schema", ""), asked("q", "", `{"schema": {"type": "array", "uniqueItems": true, "items": {"pattern": "^(a+)+$"}}}`)},
		"tool_match":  {grader(t, "tool_match", `{"from": "text", "partial": true}`), asked("q", `[{"a": {"b": [1, ""]}}]`, "")},
		"ifeval":      {grader(t, "ifeval", `{"mode": "loose"}`), asked("q", "", all)},
		"format":      {grader(t, "format", `{"tags": ["think", "answer"], "partial": true, "pattern": "(a|b)*c?"}`), asked("q", "", "")},
		"length_ramp": {grader(t, "length_ramp", `{"max": 10, "buffer": 5}`), asked("q", "", "")},
		"repetition":  {grader(t, "repetition", ""), asked("q", "", "")},
	}
	if len(made) != len(Kinds()) {
		t.Fatalf("%d kinds are tried, there are %d", len(made), len(Kinds()))
	}
	return made
}

// texts are what models write, and what breaks parsers.
func texts() *rapid.Generator[string] {
	piece := rapid.SampledFrom([]string{"a", "A", "b", " ", "\n", "\n\n", "*", "***", "******", "**", "(", ")", "(A)", "[", "]", "{", "}", "<", "<<", ">>", "<think>", "</think>",
		"<answer>", "</answer>", "\"", "'", "\\", "```", "```json", "\\boxed{", "the answer is ", "####", ".", "...", "!", "?", ",", ":", "-", "--", "1", "1.5", "P.S.", "S 1", "DON'T",
		"\xff", "\u0301", "今", "é", "\u2028", "=", "a(b=1)", "null", "e9", "http://a.b "})
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(piece, 0, 40).Draw(t, "pieces"), "")
	})
}

func checkText(t interface{ Errorf(string, ...any) }, name string, g reward.Grader, in reward.Input) {
	f, err := g.Grade(context.Background(), in)
	if err != nil {
		t.Errorf("%s: %q is no verdict: %v", name, reward.Clip(in.Text, 100), err)
		return
	}
	if !(f.Score >= 0 && f.Score <= 1) {
		t.Errorf("%s: %q scores %v", name, reward.Clip(in.Text, 100), f.Score)
	}
	names := map[string]bool{}
	for _, p := range f.Parts {
		if names[p.Name] || p.Name == "" || p.Score == nil || !(*p.Score >= 0 && *p.Score <= 1) {
			t.Errorf("%s: %q has the part %+v", name, reward.Clip(in.Text, 100), p)
		}
		names[p.Name] = true
	}
	if again, err := g.Grade(context.Background(), in); err != nil || !reflect.DeepEqual(f, again) {
		t.Errorf("%s: %q is judged %+v, then %+v (%v)", name, reward.Clip(in.Text, 100), f, again, err)
	}
}

// Any text has a verdict from 0 to 1, its parts too, and the same one twice.
func TestEveryTextHasAVerdict(t *testing.T) {
	graders := each(t)
	rapid.Check(t, func(t *rapid.T) {
		text := texts().Draw(t, "text")
		for name, p := range graders {
			checkText(t, name, p.grader, answered(p.task, text))
		}
	})
}

func FuzzGraders(f *testing.F) {
	for _, s := range []string{"", "a", "(B)", "[\"aaa\"]", "a(b=1)", "<think>a</think><answer>b</answer>", "One. Two! \xff", "* a\n*", "\\boxed{", "'''", "DON'T,", "#### ("} {
		f.Add(s)
	}
	graders := each(f)
	f.Fuzz(func(t *testing.T, text string) {
		for name, p := range graders {
			checkText(t, name, p.grader, answered(p.task, text))
		}
	})
}

// Whatever a task says in place of instructions there is a verdict or a reason.
func FuzzInstructions(f *testing.F) {
	f.Add("keywords:frequency", `{"keyword": "a", "frequency": 2, "relation": "at least"}`, "a a")
	f.Add("detectable_format:multiple_sections", `{"section_spliter": "(", "num_sections": 1}`, "( 1")
	f.Add("keywords:letter_frequency", `{"letter": "", "let_frequency": -1, "let_relation": 3}`, "a")
	g := grader(f, "ifeval", `{"mode": "loose"}`)
	f.Fuzz(func(t *testing.T, id, args, text string) {
		list, _ := json.Marshal([]string{id})
		task := asked("q", "", `{"instruction_id_list": `+string(list)+`, "kwargs": [`+args+`]}`)
		if found, err := g.Grade(context.Background(), answered(task, text)); err == nil && !(found.Score >= 0 && found.Score <= 1) {
			t.Errorf("score %v", found.Score)
		} else if err != nil && reason(t, g, answered(task, text)) == "" {
			t.Error("a failure without a reason")
		}
	})
}

// A scorer with one worker and one with many write the same verdicts.
func TestVerdictsDoNotDependOnWorkers(t *testing.T) {
	var specs []reward.Spec
	for name, options := range map[string]string{"f1": "", "choice": "", "ifeval": "", "repetition": "", "format": `{"tags": ["answer"]}`} {
		specs = append(specs, reward.Spec{Kind: name, With: json.RawMessage(options)})
	}
	task := asked("Options:\n(A) a\n(B) b", "(B)", `{"instruction_id_list": ["language:response_language", "punctuation:no_comma"], "kwargs": [{"language": "sw"}, {}]}`)
	var seen []string
	for _, workers := range []int{1, 16} {
		s, err := reward.New(reward.Config{Graders: specs, Workers: workers}, Kinds()...)
		if err != nil {
			t.Fatal(err)
		}
		verdicts := make([]string, 40)
		var all sync.WaitGroup
		for i := range verdicts {
			all.Go(func() { verdicts[i] = verdictOf(t, s, task, strings.Repeat("habari za leo, ", i)) })
		}
		all.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		seen = append(seen, strings.Join(verdicts, "\n"))
	}
	if seen[0] != seen[1] || !strings.Contains(seen[0], "response_language") {
		t.Errorf("one worker says\n%s\nsixteen say\n%s", reward.Clip(seen[0], 2000), reward.Clip(seen[1], 2000))
	}
}

func verdictOf(t *testing.T, s *reward.Scorer, task *episode.Task, text string) string {
	e := episode.New("r", episode.Draw{Task: task, Samples: 1}, 0, episode.Sampling{}, episode.Budget{}, time.Time{})
	n := int32(5)
	e.AddReply(&episode.Reply{Message: episode.Message{Role: episode.RoleAssistant, Content: &text}, Finish: episode.FinishStop}, episode.Turn{PromptTokens: &n, CompletionTokens: &n})
	v, err := s.Score(context.Background(), e)
	if err != nil {
		t.Error(err)
	}
	for i := range v.Rewards {
		v.Rewards[i].Cost = episode.Cost{} // it is a time
	}
	raw, err := json.Marshal(v)
	if err != nil {
		t.Error(err)
	}
	return string(raw)
}

// Texts that make a backtracking parser quadratic or worse, by name.
func hard(size int) map[string]string {
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	return map[string]string{
		"prose": fill("The quick brown fox jumps over the lazy dog, twice. "), "a": fill("a"), "spaces": fill(" ") + "x", "lines": fill("\n") + "x", "stars": fill("*"),
		"brackets": fill("["), "braces": fill("{\"a\":"), "angles": fill("<<"), "quotes": fill("'"), "dots": fill("."), "boxes": fill("\\boxed{"), "tags": fill("<think>"),
		"answers": fill("answer is "), "markers": fill("#### "), "capitals": fill("DON'T, "), "calls": fill("a(b=1),"), "bullets": fill("* \n"), "letters": fill("(A) "), "a a": fill("a "),
		"dashes": fill("- a\n"), "backticks": fill("```"), "contractions": fill("N'T"), "backslashes": fill("\\"), "numbers": "[" + fill("1,") + "1]", "addresses": fill("a@"), "japanese": fill("今"),
	}
}

// What a megabyte takes, by kind and text.
func BenchmarkMegabyte(b *testing.B) {
	graders := each(b)
	for what, text := range hard(1 << 20) {
		for name, p := range graders {
			b.Run(name+"/"+what, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					if _, err := p.grader.Grade(context.Background(), answered(p.task, text)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
