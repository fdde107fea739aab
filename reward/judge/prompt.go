package judge

import (
	"fmt"
	"regexp"
	"strings"
	"text/template"
)

// slots are what a template may name. Each text is escaped.
type slots struct {
	Question  string // what the user asked last
	Reference string // the task's ground truth; "" = it states none
	Answer    string // what is judged
	A, B      string // reference and answer, in the order of this call; for equal and prefer
	Items     []Item
	Scale     int
}

// prompt makes the judge's prompts.
type prompt struct {
	text *template.Template
	ends *regexp.Regexp // what would end a tag of the template, or begin one
}

// markup is what servers take for the ends of messages when it stands in a text.
var markup = regexp.MustCompile(`<[|｜]|[|｜]>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>`)

var tag = regexp.MustCompile(`</?([a-zA-Z][a-zA-Z0-9_-]*)>`)

// newPrompt reads a template and tries it.
func newPrompt(text string, o Options) (*prompt, error) {
	t, err := template.New("judge").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("template: %w", err)
	}
	names := []string{"question", "reference", "answer", "answer_a", "answer_b"}
	for _, m := range tag.FindAllStringSubmatch(text, -1) {
		names = append(names, regexp.QuoteMeta(m[1]))
	}
	p := &prompt{text: t, ends: regexp.MustCompile(`(?i)<(\s*/?\s*(?:` + strings.Join(names, "|") + `)\b)`)}
	const probe = "judge-template-probe"
	tried, err := p.make(slots{Question: "q", Reference: "r", Answer: probe, A: "r", B: probe, Items: o.Items, Scale: o.Scale})
	if err == nil && !strings.Contains(tried, probe) {
		err = fmt.Errorf("template: shows no answer; expected %s", map[bool]string{true: "{{.A}} and {{.B}}", false: "{{.Answer}}"}[o.compares()])
	}
	return p, err
}

// make fills the template in.
func (p *prompt) make(s slots) (string, error) {
	for _, text := range []*string{&s.Question, &s.Reference, &s.Answer, &s.A, &s.B} {
		*text = p.escape(*text)
	}
	var b strings.Builder
	if err := p.text.Execute(&b, s); err != nil {
		return "", fmt.Errorf("template: %w", err)
	}
	return strings.TrimSpace(b.String()), nil
}

// escape makes a text unable to leave its place: it holds no tag of the template, and nothing that a chat template gives a meaning to.
func (p *prompt) escape(text string) string {
	text = p.ends.ReplaceAllString(text, "&lt;$1")
	return markup.ReplaceAllStringFunc(text, func(m string) string { return m[:1] + " " + m[1:] })
}

// thought is what a model thought, where it stands in its text.
var thought = regexp.MustCompile(`(?is)<think>.*?(?:</think>|$)`)

// said is a text without what was thought in it: also where the chat template had written the first <think>.
func said(text string) string {
	text = thought.ReplaceAllString(text, "")
	if i := strings.LastIndex(strings.ToLower(text), "</think>"); i >= 0 {
		text = text[i+len("</think>"):]
	}
	return strings.TrimSpace(text)
}
