package textgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"tranche/reward"
)

// ChoiceConfig are the options of kind choice.
type ChoiceConfig struct {
	// Marker is what stands before the answer; the last one counts. Default "####".
	Marker string `json:"marker"`
	// Choices is the input column that lists the options, as strings or as {"label": […], "text": […]}. A task without it lists them in
	// its prompt: lines such as "(A) circle" or "- Yes". Default "choices".
	Choices string `json:"choices"`
}

// choice compares which option an answer names with the right one. What is taken as the answer: the line after the last marker, else the
// last \boxed{}, else what follows the last "answer is" or "answer:", else all of the text, else its last line (the forms of MMLU's and
// BIG-Bench Hard's published harnesses). It names an option by its letter or by its text; one that names two names none.
type choice struct{ cfg ChoiceConfig }

func newChoice(s reward.Spec) (reward.Grader, error) {
	cfg := ChoiceConfig{Marker: "####", Choices: "choices"}
	err := reward.ReadOptions(s, &cfg)
	return choice{cfg}, err
}

func (choice) ID() string { return "choice/1" }

func (g choice) Grade(_ context.Context, in reward.Input) (reward.Finding, error) {
	q, err := g.question(in)
	if err != nil {
		return reward.Finding{}, err
	}
	text, f, done, err := judged(in)
	if done {
		return f, err
	}
	named, where := q.answer(text, g.cfg.Marker)
	if named == "" {
		return reward.Finding{Evidence: fmt.Sprintf("names no option or several (%s), want %q", where, q.want), Parts: []reward.Part{recorded("parsed", 0, nil)}}, nil
	}
	return reward.Finding{
		Score: boolScore(named == q.want), Evidence: fmt.Sprintf("%q (%s), want %q", reward.Clip(named, 60), where, reward.Clip(q.want, 60)),
		Parts: []reward.Part{recorded("parsed", 1, nil)},
	}, nil
}

// option is one that may be chosen. Without a label it is named by its text alone.
type option struct{ label, text string }

// question is what may be chosen and what is right: a label, or a text in its plain form.
type question struct {
	options []option
	want    string
}

func (g choice) question(in reward.Input) (question, error) {
	t := in.Task
	if t.Answer == nil || strings.TrimSpace(*t.Answer) == "" {
		return question{}, &reward.Unjudged{Reason: reward.MissingTruth}
	}
	var q question
	listed, ok := column(t, g.cfg.Choices)
	if ok {
		list, err := listedOptions(listed)
		if err != nil {
			return question{}, badTruth("column %s: %v", g.cfg.Choices, err)
		}
		q.options = list
	} else {
		q.options = promptOptions(in.Asked())
	}
	q.want = q.right(*t.Answer, ok)
	if q.want == "" {
		return question{}, badTruth("nothing is left of %q", reward.Clip(*t.Answer, 80))
	}
	return q, nil
}

// right is the ground truth as answer returns it: a label, the text of an option, or (where the options are a column) its index from 0.
func (q question) right(truth string, columned bool) string {
	if l, rest := labelAt(truth, true); l != "" && rest == "" && q.offers(l) {
		return l
	}
	plain := plainText(truth)
	for _, o := range q.options {
		if plainText(o.text) == plain {
			return o.name()
		}
	}
	if i, err := strconv.Atoi(plain); columned && err == nil && i >= 0 && i < len(q.options) {
		return q.options[i].name()
	}
	return plain
}

func (o option) name() string {
	if o.label != "" {
		return o.label
	}
	return plainText(o.text)
}

// offers reports whether there is an option of that label; where no options are known every letter may be one.
func (q question) offers(label string) bool {
	for _, o := range q.options {
		if o.label == label {
			return true
		}
	}
	return len(q.options) == 0
}

// answer is what the text names, "" = nothing or several, and where it stood.
func (q question) answer(text, marker string) (named, where string) {
	if marker != "" {
		if i := strings.LastIndex(text, marker); i >= 0 {
			return q.read(reward.FirstLine(text[i+len(marker):]), formal), fmt.Sprintf("after %q", marker)
		}
	}
	if inside, ok := reward.Boxed(text); ok {
		return q.read(inside, formal), `in \boxed{}`
	}
	if at := lastMatch(answerIs, text); at >= 0 {
		return q.read(reward.FirstLine(text[at:]), announced), `after "answer is"`
	}
	if named = q.read(text, unannounced); named != "" && (len(q.options) > 0 || named == q.want) {
		return named, "all of the text"
	}
	last := lastLine(text)
	if m := calledRight.FindStringSubmatch(strings.TrimSpace(last)); m != nil && q.offers(m[1]) {
		return m[1], "last line"
	}
	if named = q.read(last, unannounced); named != "" && q.endsList(strings.TrimSuffix(strings.TrimSpace(text), last), named) {
		return "", "the last of a list of options"
	}
	return named, "last line"
}

// endsList reports whether the line before is another option as it is: who says the options again has chosen none of them.
func (q question) endsList(before, named string) bool {
	other := q.read(lastLine(before), unannounced)
	return len(q.options) > 0 && other != "" && other != named
}

// answerIs is what announces an answer.
var answerIs = regexp.MustCompile(`(?i)\b(?:answer|choice|option)\s+is\b:?|\banswer\**:|\bi(?:'ll| will| would)?\s+(?:choose|pick|select|go with)\b:?|\b(?:it|this|that)\s+must\s+be\b:?`)

// calledRight is a line that calls an option right.
var calledRight = regexp.MustCompile(`^(?i:(?:so|thus|therefore|hence)\s*,?\s+)?(?i:(?:the\s+)?(?:correct\s+|right\s+)?(?:option|choice|answer)\s+)?\**\(?([A-Z])\)?\**\s+is\s+(?i:(?:the\s+)?(?:correct|right|best)(?:\s+(?:answer|choice|option|one))?)[.!]?\**$`)

// setting is how an answer stands in its text.
type setting uint8

const (
	unannounced setting = iota
	announced           // behind "answer is"
	formal              // behind the marker, in a box
)

// read is the option that a piece of text names. An answer may go on after it only as alone says ("B because …", "yes, since …").
func (q question) read(s string, at setting) string {
	s = bare(s)
	plain := plainText(s)
	if plain == q.want {
		return q.want
	}
	if name, rest, several := q.byText(plain, at); name != "" || several {
		if several || !q.alone(name, rest, "", at == formal) {
			return ""
		}
		return name
	}
	if label, rest := labelAt(s, at != unannounced); label != "" && q.offers(label) {
		if plain := plainText(rest); q.namesText(plain, label) || !q.alone(label, rest, q.text(label), at == formal) {
			return ""
		}
		return label
	}
	switch {
	case at != unannounced && len(q.options) == 0 && startsWith(plain, q.want) && q.alone(q.want, plain[len(q.want):], "", at == formal):
		return q.want
	case len(q.options) == 0:
		return plain
	}
	return ""
}

// text is the text of a label's option.
func (q question) text(label string) string {
	for _, o := range q.options {
		if o.label == label {
			return strings.Trim(o.text, " .")
		}
	}
	return ""
}

// byText finds the option whose text it is, or begins with where it is announced, and what follows that; several = two options have that
// text.
func (q question) byText(plain string, at setting) (name, rest string, several bool) {
	best := -1
	for _, o := range q.options {
		text := plainText(o.text)
		if text == "" || len(text) < best || !(plain == text || at != unannounced && startsWith(plain, text)) {
			continue
		}
		several = len(text) == best && name != o.name()
		best, name, rest = len(text), o.name(), plain[len(text):]
	}
	return name, rest, several
}

// labelAt reads the letter that s begins with: "(B)…", "B)…", "B.…", "B:…" or B alone; where it is announced also "B …".
func labelAt(s string, announced bool) (label, rest string) {
	s = strings.TrimSpace(s)
	inside, open := strings.CutPrefix(s, "(")
	if inside == "" || !isLetter(inside[0]) {
		return "", s
	}
	label, rest = strings.ToUpper(inside[:1]), inside[1:]
	capital := label == inside[:1]
	switch {
	case open && strings.HasPrefix(rest, ")"):
		return label, strings.TrimSpace(rest[1:])
	case open:
		return "", s
	case rest == "" || strings.Trim(rest, ".:)") == "":
		return label, ""
	case capital && strings.ContainsRune(".:)", rune(rest[0])) && (len(rest) < 2 || !isLetter(rest[1])): // not A.D.
		return label, strings.TrimSpace(rest[1:])
	case capital && announced && !startsWord(rest):
		return label, strings.TrimSpace(rest)
	}
	return "", s
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func startsWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return isWordRune(r) || r == '\'' || r == '-'
}

// startsWith reports whether s begins with a word (or words) that ends there. Only of words: 8 is no beginning of 8.5.
func startsWith(s, beginning string) bool {
	rest, ok := strings.CutPrefix(s, beginning)
	r, _ := utf8.DecodeLastRuneInString(beginning)
	return ok && unicode.IsLetter(r) && !startsWord(rest)
}

// bare takes off what wraps an answer: markup, quotes, LaTeX, words such as "option".
func bare(s string) string {
	s = strings.TrimSpace(s)
	if inside, ok := reward.Boxed(s); ok {
		s = inside
	}
	for _, wrap := range []string{`\text{`, `\textbf{`, `\mathrm{`, `\mathbf{`} {
		if inside, ok := strings.CutPrefix(strings.TrimLeft(s, "$ "), wrap); ok {
			s = strings.Replace(inside, "}", "", 1)
		}
	}
	s = strings.TrimSpace(strings.Trim(s, " \t\r\n*_`$\"':“”‘’"))
	if inside, ok := strings.CutPrefix(s, `\(`); ok {
		s = strings.Replace(inside, `\)`, "", 1)
	}
	for _, word := range []string{"option ", "choice ", "letter "} {
		if len(s) > len(word) && strings.EqualFold(s[:len(word)], word) {
			s = strings.TrimSpace(strings.Trim(s[len(word):], "*_`$\"'"))
		}
	}
	return s
}

// plainText is a text as it is compared: lower case, single spaces, no markup and no full stop around it.
func plainText(s string) string {
	return strings.Join(strings.Fields(strings.ToLower(strings.Trim(s, " \t\r\n*_`$\"'.!“”‘’"))), " ")
}

// listedOptions reads a column: a list of texts, or ARC's form of labels and texts.
func listedOptions(raw json.RawMessage) ([]option, error) {
	var texts []string
	if json.Unmarshal(raw, &texts) == nil {
		list := make([]option, len(texts))
		for i, t := range texts {
			list[i] = option{text: t}
			if i < 26 {
				list[i].label = string(rune('A' + i))
			}
		}
		return list, nil
	}
	var both struct{ Label, Text []string }
	if json.Unmarshal(raw, &both) != nil || len(both.Label) != len(both.Text) || len(both.Text) == 0 {
		return nil, fmt.Errorf(`expected a list of strings, or {"label": […], "text": […]} of equal length`)
	}
	list := make([]option, len(both.Text))
	for i := range list {
		list[i] = option{strings.ToUpper(both.Label[i]), both.Text[i]}
	}
	return list, nil
}

// promptOptions finds the last list of options in a prompt: lines (A), (B), … (or A) or A.), or the lines "- …" behind "Options:".
func promptOptions(prompt string) []option {
	var list []option
	dashes := false
	for line := range strings.Lines(prompt) {
		line = strings.TrimSpace(line)
		if strings.EqualFold(strings.TrimRight(line, ":"), "options") {
			list, dashes = nil, true
			continue
		}
		if text, ok := strings.CutPrefix(line, "- "); ok && dashes {
			list = append(list, option{text: strings.TrimSpace(text)})
			continue
		}
		label, text := labelAt(line, false)
		switch {
		case label == "A":
			list, dashes = []option{{label, text}}, false
		case label != "" && len(list) > 0 && list[len(list)-1].label != "" && label[0] == list[len(list)-1].label[0]+1:
			list = append(list, option{label, text})
		}
	}
	return list
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// lastMatch is where the last match ends, -1 = there is none.
func lastMatch(re *regexp.Regexp, text string) int {
	all := re.FindAllStringIndex(text, -1)
	if len(all) == 0 {
		return -1
	}
	return all[len(all)-1][1]
}
