package textgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"tranche/episode"
)

func instructed(id, args string) *episode.Task {
	return asked("q", "", fmt.Sprintf(`{"instruction_id_list": [%q], "kwargs": [%s]}`, id, args))
}

const (
	swahili = "Habari za asubuhi rafiki yangu. Leo nitakuelezea kuhusu maisha ya watu wa pwani ya Kenya na jinsi wanavyofanya kazi zao kila siku."
	spanish = "buenos días amigo mío. hoy quiero contarte cómo viven las personas en la costa y qué hacen todos los días para ganarse la vida."
)

// Every instruction of the paper: answers that follow it, and answers that do not.
func TestInstructions(t *testing.T) {
	for _, c := range []struct {
		id, args       string
		follow, breaks []string
	}{
		{"keywords:existence", `{"keywords": ["Talented", "tianjin"]}`, []string{"A talented man from Tianjin.", "TIANJIN TALENTED"}, []string{"A talented man.", "Tianjin"}},
		{"keywords:frequency", `{"keyword": "story", "frequency": 2, "relation": "at least"}`, []string{"Story, story.", "history of a story"}, []string{"One story."}},
		{"keywords:frequency", `{"keyword": "story", "frequency": 2, "relation": "less than"}`, []string{"One story.", "None."}, []string{"Story upon story."}},
		{"keywords:forbidden_words", `{"forbidden_words": ["rock", "big deal"]}`, []string{"A rocky beach.", "bedrock", "rock_n"}, []string{"Rock!", "a ROCK-hard bed", "no big deal."}},
		{"keywords:letter_frequency", `{"letter": "Q", "let_frequency": 2, "let_relation": "at least"}`, []string{"Quiet queen"}, []string{"queen"}},
		{"keywords:letter_frequency", `{"letter": "#", "let_frequency": 3, "let_relation": "less than"}`, []string{"# one\n# two"}, []string{"### three"}},
		{"language:response_language", `{"language": "sw"}`, []string{swahili}, []string{"Good morning my friend, this is about the people of the coast.", "12345"}},
		{"language:response_language", `{"language": "ko"}`, []string{"안녕하세요. 오늘은 날씨가 정말 좋네요."}, []string{"こんにちは。今日はとても良い天気ですね。"}},
		{"length_constraints:number_sentences", `{"num_sentences": 3, "relation": "at least"}`, []string{"One. Two! Three?", "Hi. Mr. Smith came at 5 p.m. on Friday. He left."}, []string{"Dr. Who went to St. Louis. He left."}},
		{"length_constraints:number_sentences", `{"num_sentences": 2, "relation": "less than"}`, []string{"It costs 3.50 in total, e.g. at Smith & Co. of Boston."}, []string{"It is here. It is there."}},
		{"length_constraints:number_paragraphs", `{"num_paragraphs": 2}`, []string{"one\n***\ntwo", "***\none\n***\ntwo\n***"}, []string{"one", "one\n***\n***\ntwo", "one *** two *** three"}},
		{"length_constraints:number_words", `{"num_words": 4, "relation": "at least"}`, []string{"One two three four", "it's two-fold"}, []string{"One two three"}},
		{"length_constraints:number_words", `{"num_words": 4, "relation": "less than"}`, []string{"- one. two, three!"}, []string{"one two three four"}},
		{"length_constraints:nth_paragraph_first_word", `{"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Weekend"}`, []string{"One.\n\nWeekend, at last.", "One.\n\n\"weekend\" is it"}, []string{"One.\n\nThe weekend.", "Weekend", "a\n\nweekend\n\nc"}},
		{"detectable_content:number_placeholders", `{"num_placeholders": 2}`, []string{"[name] of [address]"}, []string{"[name]", "[a\nb] [c"}},
		{"detectable_content:postscript", `{"postscript_marker": "P.S."}`, []string{"Bye.\nP.S. one more", "p. s. also"}, []string{"Bye. PS one more"}},
		{"detectable_content:postscript", `{"postscript_marker": "P.P.S"}`, []string{"P.P.S one more", "p. p. s."}, []string{"P.S. one more"}},
		{"detectable_content:postscript", `{"postscript_marker": "Addendum:"}`, []string{"addendum: x"}, []string{"P.S. x"}},
		{"detectable_format:number_bullet_lists", `{"num_bullets": 2}`, []string{"* a\n* b", "intro\n  - a\n* b"}, []string{"* a", "* a\n* b\n- c", "**bold**\n* a"}},
		{"detectable_format:constrained_response", `{}`, []string{"My answer is no.", "Well. My answer is maybe."}, []string{"my answer is no.", "No."}},
		{"detectable_format:number_highlighted_sections", `{"num_highlights": 2}`, []string{"*a* and *b*", "**a** x **b**"}, []string{"*a*", "* a\n* b", "****"}},
		{"detectable_format:multiple_sections", `{"section_spliter": "SECTION", "num_sections": 2}`, []string{"SECTION 1\na\nSECTION 2\nb", "SECTION1 SECTION2"}, []string{"SECTION 1\na", "Section 1 Section 2", "SECTION A SECTION B"}},
		{"detectable_format:json_format", `{}`, []string{`{"a": [1]}`, "```json\n{\"a\": 1}\n```", "3"}, []string{`{"a": 1`, `Here: {"a": 1}`, "{'a': 1}"}},
		{"detectable_format:title", `{}`, []string{"<<poem of joy>>\nx"}, []string{"<poem>", "<<>>", "<<a\nb>>"}},
		{"combination:two_responses", `{}`, []string{"one\n******\ntwo", "******one******two"}, []string{"one", "same ****** same", "one ****** two ****** three"}},
		{"combination:repeat_prompt", `{"prompt_to_repeat": "Write a poem."}`, []string{"Write a poem. Roses are red.", " write a poem."}, []string{"Sure! Write a poem."}},
		{"startend:end_checker", `{"end_phrase": "Peace!"}`, []string{"So long. Peace!", "\"go in peace!\" "}, []string{"Peace! Bye.", "Peace"}},
		{"startend:quotation", `{}`, []string{`"all of it"`, " \"\" "}, []string{`"half" of it`, `"`, "“curly”"}},
		{"change_case:capital_word_frequency", `{"capital_frequency": 3, "capital_relation": "at least"}`, []string{"I CAN'T", "NASA, FBI and (CIA)"}, []string{"I Am THE", "BIG-DEAL and UN"}},
		{"change_case:capital_word_frequency", `{"capital_frequency": 2, "capital_relation": "less than"}`, []string{"The end of a STORY."}, []string{"I say NO"}},
		{"change_case:english_capital", `{}`, []string{"THIS IS A TEST OF THE CAPITAL LETTERS, 1 OF 2.", "OK"}, []string{"THIS IS a TEST", "123", strings.ToUpper(spanish)}},
		{"change_case:english_lowercase", `{}`, []string{"this is a test of the small letters, 1 of 2.", "ok"}, []string{"This is a test", "123", spanish}},
		{"punctuation:no_comma", `{}`, []string{"no such mark; none"}, []string{"well, no"}},
	} {
		g := grader(t, "ifeval", "")
		task := instructed(c.id, c.args)
		for _, text := range c.follow {
			if score(t, g, answered(task, text)) != 1 {
				t.Errorf("%s %s: %q follows it", c.id, c.args, text)
			}
		}
		for _, text := range append(c.breaks, "", " \n") {
			if score(t, g, answered(task, text)) != 0 {
				t.Errorf("%s %s: %q does not follow it", c.id, c.args, text)
			}
		}
	}
}

func TestLooseTakesWhatIsAroundAway(t *testing.T) {
	task := instructed("startend:quotation", "{}")
	for text, want := range map[string][2]float64{
		"\"so\"":                            {1, 1},
		"Sure, here it is:\n\"so\"":         {0, 1},
		"\"so\"\nHope that helps!":          {0, 1},
		"Sure:\n**\"so\"**\nAnything else?": {0, 1},
		"a\nb\n\"so\"":                      {0, 0},
	} {
		for i, mode := range []string{"strict", "loose"} {
			if got := score(t, grader(t, "ifeval", `{"mode": "`+mode+`"}`), answered(task, text)); got != want[i] {
				t.Errorf("%s %q: %v, want %v", mode, text, got, want[i])
			}
		}
	}
}

func TestShareAndAllOfTheInstructions(t *testing.T) {
	task := asked("q", "", `{"instruction_id_list": ["punctuation:no_comma", "detectable_format:title", "punctuation:no_comma"], "kwargs": [{}, {"num_words": null}, {}]}`)
	f, err := grader(t, "ifeval", "").Grade(context.Background(), answered(task, "no title here"))
	if err != nil || f.Score != 2.0/3 {
		t.Fatalf("%+v, %v; want two thirds", f, err)
	}
	if part(t, f, "punctuation:no_comma") != 1 || part(t, f, "detectable_format:title") != 0 || part(t, f, "punctuation:no_comma#3") != 1 || part(t, f, "strict") != 0 {
		t.Errorf("parts %+v", f.Parts)
	}
	if got := score(t, grader(t, "ifeval", `{"score": "all"}`), answered(task, "no title here")); got != 0 {
		t.Errorf("all: %v, want 0", got)
	}
	if got := score(t, grader(t, "ifeval", `{"score": "all"}`), answered(task, "<<one>> here")); got != 1 {
		t.Errorf("all followed: %v, want 1", got)
	}
}

// What a task states wrongly is no verdict, whatever the answer.
func TestWrongInstructionsAreNoVerdict(t *testing.T) {
	g := grader(t, "ifeval", "")
	for name, c := range map[string]struct {
		task *episode.Task
		want string
	}{
		"no instructions":    {asked("q", "", `{"other": 1}`), "missing_ground_truth"},
		"no columns":         {asked("q", "", ""), "missing_ground_truth"},
		"none listed":        {asked("q", "", `{"instruction_id_list": []}`), "bad_ground_truth"},
		"unknown":            {instructed("keywords:rhymes", "{}"), "bad_ground_truth"},
		"argument missing":   {instructed("keywords:existence", "{}"), "bad_ground_truth"},
		"argument null":      {instructed("keywords:existence", `{"keywords": null}`), "bad_ground_truth"},
		"argument too many":  {instructed("punctuation:no_comma", `{"mark": ","}`), "bad_ground_truth"},
		"no number":          {instructed("length_constraints:number_words", `{"relation": "at least", "num_words": "many"}`), "bad_ground_truth"},
		"unknown relation":   {instructed("length_constraints:number_words", `{"relation": "about", "num_words": 3}`), "bad_ground_truth"},
		"paragraph outside":  {instructed("length_constraints:nth_paragraph_first_word", `{"num_paragraphs": 2, "nth_paragraph": 3, "first_word": "a"}`), "bad_ground_truth"},
		"language not known": {instructed("language:response_language", `{"language": "tlh"}`), "unknown_language"},
		"unequal lists":      {asked("q", "", `{"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}, {}]}`), "bad_ground_truth"},
	} {
		for _, text := range []string{"yes", ""} {
			if got := reason(t, g, answered(c.task, text)); got != c.want {
				t.Errorf("%s, answer %q: %q, want %s", name, text, got, c.want)
			}
		}
	}
}

func TestInstructionsInTheGroundTruth(t *testing.T) {
	g := grader(t, "ifeval", "")
	for _, truth := range []string{
		`{"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}`,
		`[{"instruction_id": ["punctuation:no_comma"], "kwargs": [null]}]`,
	} {
		if got := score(t, g, answered(asked("q", truth, ""), "a, b")); got != 0 {
			t.Errorf("%s: %v, want 0", truth, got)
		}
		if got := score(t, g, answered(asked("q", truth, ""), "a b")); got != 1 {
			t.Errorf("%s: %v, want 1", truth, got)
		}
	}
}

type ifevalRow struct {
	Key    int
	Prompt string
	IDs    json.RawMessage `json:"instruction_id_list"`
	Kwargs json.RawMessage
}

func (r ifevalRow) task() *episode.Task {
	return asked(r.Prompt, "", fmt.Sprintf(`{"instruction_id_list": %s, "kwargs": %s}`, r.IDs, r.Kwargs))
}

// Every instruction of the public rows is known and its arguments are read; every kind occurs.
func TestEveryPublicInstructionIsKnown(t *testing.T) {
	g := grader(t, "ifeval", "").(ifEval)
	kinds := map[string]int{}
	list := rows[ifevalRow](t, "tasks-ifeval/ifeval.first271.jsonl")
	for _, r := range list {
		ins, err := g.instructions(r.task())
		if err != nil {
			t.Errorf("row %d: %v", r.Key, err)
		}
		for _, i := range ins {
			kinds[i.id]++
		}
	}
	if len(list) != 271 || len(kinds) != 25 || len(g.rules) != 25 {
		t.Errorf("%d rows, %d kinds of %d known; want 271, 25 and 25", len(list), len(kinds), len(g.rules))
	}
}

func TestLanguages(t *testing.T) {
	l, err := readLanguages(languagesFile)
	if err != nil {
		t.Fatal(err)
	}
	for code, text := range map[string]string{
		"en":    "The quick brown fox jumps over the lazy dog while the others watch.",
		"de":    "Der schnelle braune Fuchs springt über den faulen Hund, während die anderen zusehen.",
		"fr":    "Le renard brun saute par-dessus le chien paresseux pendant que les autres regardent.",
		"es":    spanish,
		"pt":    "A raposa marrom rápida pula sobre o cão preguiçoso enquanto os outros não fazem nada.",
		"it":    "La volpe marrone salta sopra il cane pigro mentre gli altri stanno a guardare.",
		"vi":    "Con cáo nâu nhanh nhẹn nhảy qua con chó lười trong khi những con khác đứng nhìn.",
		"sw":    swahili,
		"ru":    "Быстрая коричневая лиса прыгает через ленивую собаку, пока другие смотрят.",
		"uk":    "Швидка коричнева лисиця стрибає через ледачого пса, поки інші дивляться.",
		"hi":    "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर से कूदती है जबकि बाकी लोग देखते हैं।",
		"mr":    "आज आपण आपल्या गावातील शाळेबद्दल आणि तिथल्या मुलांबद्दल बोलणार आहोत.",
		"ne":    "आज हामी हाम्रो गाउँको विद्यालय र त्यहाँका बालबालिकाहरूको बारेमा कुरा गर्नेछौं।",
		"pa":    "ਅੱਜ ਅਸੀਂ ਆਪਣੇ ਪਿੰਡ ਦੇ ਸਕੂਲ ਬਾਰੇ ਗੱਲ ਕਰਾਂਗੇ।",
		"kn":    "ಇಂದು ನಾವು ನಮ್ಮ ಹಳ್ಳಿಯ ಶಾಲೆಯ ಬಗ್ಗೆ ಮಾತನಾಡೋಣ.",
		"fa":    "امروز می\u200cخواهیم درباره مدرسه روستای خود صحبت کنیم و بگوییم که چگونه است.",
		"ar":    "اليوم نريد أن نتحدث عن مدرسة قريتنا وكيف يعيش الناس هناك في هذه الأيام.",
		"ur":    "آج ہم اپنے گاؤں کے اسکول کے بارے میں بات کریں گے اور بتائیں گے کہ وہ کیسا ہے۔",
		"ko":    "오늘은 우리 마을의 학교에 대해 이야기하겠습니다.",
		"ja":    "今日は私たちの村の学校について話しましょう。",
		"zh-cn": "今天我们来谈谈我们村里的学校以及那里的孩子们。",
		"th":    "วันนี้เราจะพูดถึงโรงเรียนในหมู่บ้านของเรา",
		"":      "123 + 456 = 579!",
	} {
		if got := l.detect(text); got != code {
			t.Errorf("%q is %s, found %s", text, code, got)
		}
	}
	for _, code := range strings.Fields("en es pt ar hi fr ru de ja it bn uk th ur ta te bg ko pl he fa vi ne sw kn mr gu pa ml fi zh") {
		if !l.knows(code) {
			t.Errorf("language %s, which the data set may ask for, is not known", code)
		}
	}
}

func TestSentences(t *testing.T) {
	for text, want := range map[string]int{
		"":                                  0,
		"  \n":                              0,
		"No stop":                           1,
		"One. Two.":                         2,
		"one. two":                          2,
		"What?! Yes!!! No...":               3,
		"He said \"Stop.\" She went.":       2,
		"(It was so.) Then it ended.":       2,
		"Mr. and Mrs. Smith met Dr. Jones.": 1,
		"At 5 p.m. The show began.":         2,
		"It was 3.14. Or 2.71":              2,
		"1. Cut it\n2. Cook it":             3,
		"See example.com or a.b.c now.":     1,
		"J. R. R. Tolkien wrote it.":        1,
		"Wait... The end.":                  2,
		"Wait... and see.":                  1,
		"Use salt, e.g. sea salt.":          1,
		"Bye.\n\nP.S. I love you.":          3,
		"AT 5 P.M. WE LEFT.":                1,
	} {
		if got := countSentences(text); got != want {
			t.Errorf("%q: %d sentences, want %d", text, got, want)
		}
	}
}

// The published checks' verdicts on answers made by rule, where scripts/ifeval-reference.py has written them ($TRANCHE_IFEVAL_REFERENCE names
// the file). They differ where docs/rewards.md says so, and nowhere else.
func TestAgreesWithThePublishedChecks(t *testing.T) {
	path := os.Getenv("TRANCHE_IFEVAL_REFERENCE")
	if path == "" {
		t.Skip("TRANCHE_IFEVAL_REFERENCE names no file of scripts/ifeval-reference.py")
	}
	known := map[string]float64{"keywords:letter_frequency": 0.15, "language:response_language": 0.1, "change_case:english_lowercase": 0.05,
		"change_case:english_capital": 0.05, "length_constraints:number_sentences": 0.02}
	g := grader(t, "ifeval", "").(ifEval)
	total, differ := map[string]int{}, map[string]int{}
	sentences, capitals, list := 0, 0, rows[publishedRow](t, path)
	for _, r := range list {
		small := strings.ToLower(r.Response)
		latin := strings.Count(small, "e.g.") + strings.Count(small, "i.e.") // they end a sentence there
		sentences += int(boolScore(countSentences(r.Response)+latin != r.Sentences))
		capitals += int(boolScore(countCapitalWords(r.Response) != r.Capitals))
		for id, same := range r.agrees(t, g) {
			total[id]++
			differ[id] += int(boolScore(!same))
		}
	}
	for id, n := range total {
		t.Logf("%-50s %d of %d differ", id, differ[id], n)
		if share := float64(differ[id]) / float64(n); share > known[id] {
			t.Errorf("%s: %d of %d verdicts differ from the published ones, at most %v may", id, differ[id], n, known[id])
		}
	}
	t.Logf("of %d answers the number of sentences differs in %d, of words in capitals in %d", len(list), sentences, capitals)
	if 8*sentences > len(list) || capitals > 0 {
		t.Error("too many")
	}
}

type publishedRow struct {
	ifevalRow
	Response            string
	Strict, Loose       []bool
	Sentences, Capitals int
}

// agrees says of each instruction whether both verdicts are the published ones.
func (r publishedRow) agrees(t *testing.T, g ifEval) map[string]bool {
	t.Helper()
	list, err := g.instructions(r.task())
	if err != nil {
		t.Fatal(err)
	}
	strict, loose := followed(list, []string{r.Response}), followed(list, looseForms(r.Response))
	same := map[string]bool{}
	for i, ins := range list {
		same[ins.id] = strict[i] == r.Strict[i] && loose[i] == r.Loose[i]
		if !same[ins.id] {
			t.Logf("%s %s: strict %v, published %v; loose %v, published %v: %q", ins.id, r.Kwargs, strict[i], r.Strict[i], loose[i], r.Loose[i], r.Response)
		}
	}
	return same
}
