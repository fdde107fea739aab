package enginesim

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strings"
)

// policy is what stands in for a language model. What it says depends on the rendered prompt and the draw (a hash of the
// engine's seed, the prompt and the sample key) alone: not on the route, the time, the batch or what else is running.
type policy struct {
	tokens      *Tokenizer
	words       []string // what free text is made of
	solve       float64  // share of solvable questions answered right
	mean, sigma float64  // log-normal length of free text
	answer      func(string) (string, bool)
	odd         bool // tokens are not cut as the tokenizer would
	calls       WrittenCalls
}

// want is what the request says about tools.
type want struct {
	none  bool   // tools must not be called
	must  bool   // some tool must be called
	named string // this tool must be called
}

// question is what a user asked, as far as the policy understands it.
type question struct {
	formula string   // what to give a calculator; "" when the question is not about numbers
	truth   string   // the right answer; "" when unknown
	value   *big.Rat // of truth, nil when that is no number
}

// say returns the answer to a prompt, tool calls in the template's form.
func (p *policy) say(prompt []int32, draw uint64, w want) string {
	c := p.tokens.read(prompt)
	heard, written := p.calls.hear(c)
	s := speech{policy: p, dice: newDice(draw), scene: survey(heard), written: written}
	if written {
		w = want{}
	} else if w.none {
		s.tools = nil
	}
	if verdict, ok := judged(s.asked); ok {
		return verdict
	}
	s.question = p.understand(s.asked, s.dice)
	if forced := s.forced(w); forced != nil {
		return s.call(forced)
	}
	said := s.decide(w)
	if written {
		return s.overrun(said)
	}
	return said
}

// calculators are how the names of tools begin that work out an expression.
var calculators = []string{"calc", "python"}

// decide picks what is said.
func (s *speech) decide(w want) string {
	s.calc, s.submit = toolNamed(s.tools, calculators...), toolNamed(s.tools, "submit", "final_answer")
	switch {
	case s.calc != nil && s.formula != "":
		return s.calculate(w)
	case s.submit != nil && s.truth != "":
		return s.hand(s.guess(s.solve))
	case len(s.tools) > 0 && (w.must || s.results == 0 && s.chance(0.6)):
		return s.call(&s.tools[s.IntN(len(s.tools))])
	case s.truth != "":
		return s.explain(s.guess(s.solve))
	}
	return s.ramble()
}

// scene is the state of a conversation: what was asked last and what tools have answered since.
type scene struct {
	tools   []toolDef
	asked   string
	marker  bool   // the prompt wants "#### answer" at the end
	results int    // tool answers since the question
	last    string // the last of them
}

func survey(c conversation) scene {
	s := scene{tools: c.tools}
	for _, l := range c.lines {
		switch l.role {
		case "user":
			s.asked, s.results, s.last = l.text, 0, ""
		case "tool", "function":
			s.results++
			s.last = l.text
		}
		if l.role != "assistant" && strings.Contains(l.text, "####") {
			s.marker = true
		}
	}
	return s
}

// speech is one answer in the making.
type speech struct {
	*policy
	dice
	scene
	question
	calc, submit *toolDef
	written      bool // tools and calls are texts
}

// understand finds out what is asked: from the table of answers when it knows this question, else from an arithmetic
// expression in it, else from its numbers alone (the right answer is then unknown).
func (p *policy) understand(asked string, d dice) question {
	f, found := findFormula(asked)
	if p.answer != nil {
		if truth, ok := p.answer(asked); ok {
			return known(truth, f, found, d)
		}
	}
	if found {
		return question{formula: f.text, truth: decimal(f.value), value: f.value}
	}
	a, b, ok := twoNumbers(asked)
	if !ok {
		return question{}
	}
	return question{formula: a + oneOf(d, " + ", " * ", " - ") + b}
}

func known(truth string, f formula, found bool, d dice) question {
	q := question{truth: truth}
	v, ok := new(big.Rat).SetString(strings.ReplaceAll(truth, ",", ""))
	if !ok || len(truth) > maxDigits {
		return q
	}
	q.value = v
	if found && f.value.Cmp(v) == 0 {
		q.formula = f.text
		return q
	}
	part := new(big.Rat).SetInt64(int64(d.IntN(40) + 1))
	q.formula = fmt.Sprintf("%s + %s", decimal(new(big.Rat).Sub(v, part)), decimal(part))
	return q
}

func twoNumbers(s string) (a, b string, ok bool) {
	var found []string
	for i := 0; i < len(s) && len(found) < 2; i++ {
		if digit(s[i]) {
			n := numberLen(s[i:])
			if n <= maxDigits {
				found = append(found, strings.ReplaceAll(s[i:i+n], ",", ""))
			}
			i += n
		}
	}
	if len(found) < 2 {
		return "", "", false
	}
	return found[0], found[1], true
}

// calculate plays the calculator game: compute, read the result, hand it in. The chances are such that a share of exactly
// solve of all episodes ends with the right number: a wrong expression loses half of what may be lost, the rest is lost at
// the end.
func (s *speech) calculate(w want) string {
	wrong := (1 - s.solve) / 2
	seen, value, readable := lastNumber(s.last)
	failed := s.results > 0 && (!readable || strings.Contains(strings.ToLower(s.last), "error"))
	switch {
	case s.results == 0 && s.submit != nil && s.chance(0.08):
		return s.hand(s.guess(s.solve))
	case s.results == 0:
		return s.firstCall(wrong)
	case failed && s.results < 3:
		return s.with("That did not work, let me try again.", s.toolText(s.calc, s.formula))
	case failed:
		return s.finish(s.guess(s.solve), w)
	case s.value != nil && !near(value, s.value):
		return s.finish(seen, w) // from the wrong expression: it does not notice
	case s.truth == "":
		return s.finish(seen, w)
	case s.chance(s.solve / (1 - wrong)):
		return s.finish(seen, w)
	}
	return s.finish(s.miss(), w)
}

func (s *speech) firstCall(wrong float64) string {
	formula := s.formula
	if s.value != nil && s.chance(wrong) {
		formula = s.slip(formula)
	}
	call := s.toolText(s.calc, formula)
	if part := firstPart(formula); part != "" && !s.written && s.chance(0.15) {
		call = s.toolText(s.calc, part) + "\n" + call // two at once; the whole one last, as its result counts
	}
	if s.chance(0.35) {
		return s.with(oneOf(s.dice, "I will compute this with the calculator.", "Let me work this out step by step.", "First I need the value of "+formula+"."), call)
	}
	return call
}

// slip makes an expression wrong in a way that changes its value.
func (s *speech) slip(formula string) string {
	return formula + oneOf(s.dice, " + ", " - ") + fmt.Sprint(s.IntN(9)+1)
}

// firstPart is the first operation of an expression without brackets, "" where there is only one.
func firstPart(formula string) string {
	words := strings.Fields(formula)
	if len(words) < 5 || strings.ContainsAny(formula, "()") {
		return ""
	}
	return strings.Join(words[:3], " ")
}

// finish gives the final answer: through the submit tool where there is one, else in words.
func (s *speech) finish(answer string, w want) string {
	switch {
	case s.submit != nil:
		return s.hand(answer)
	case w.must:
		return s.toolText(s.calc, s.formula)
	}
	return s.explain(answer)
}

func (s *speech) hand(answer string) string {
	if s.chance(0.25) {
		return s.with(oneOf(s.dice, "The answer is "+answer+".", "So I submit "+answer+"."), s.toolText(s.submit, answer))
	}
	return s.toolText(s.submit, answer)
}

func (s *speech) with(text, call string) string { return text + "\n" + call }

// guess is the right answer with the given chance, else a near miss.
func (s *speech) guess(right float64) string {
	if s.truth != "" && s.chance(right) {
		return s.truth
	}
	return s.miss()
}

// miss is an answer that is wrong but plausible.
func (s *speech) miss() string {
	if s.value == nil {
		return missText(s.truth, s.dice)
	}
	off := big.NewRat(int64(s.IntN(9)+1), 1)
	if s.chance(0.5) {
		off.Neg(off)
	}
	return decimal(off.Add(off, s.value))
}

func missText(truth string, d dice) string {
	for _, pair := range [...][2]string{{"yes", "no"}, {"true", "false"}, {"valid", "invalid"}} {
		for i, word := range pair {
			if strings.EqualFold(truth, word) {
				return pair[1-i]
			}
		}
	}
	if letters := strings.Trim(truth, "()"); len(letters) == 1 && letter(letters[0]) {
		other := string("ABCDE"[(strings.IndexByte("ABCDE", letters[0])+1+d.IntN(3))%5])
		if other == letters {
			other = "F"
		}
		return strings.Replace(truth, letters, other, 1)
	}
	return "not known"
}

// explain answers in words, with the number behind the marker that math datasets use.
func (s *speech) explain(answer string) string {
	opening := oneOf(s.dice, "Let me work this out step by step.", "We compute it in one go.", "I need to find the total.", "This is simple.")
	if s.formula != "" {
		opening += " " + s.formula + " = " + answer + "."
	} else {
		opening += " The answer is " + answer + "."
	}
	return opening + "\n#### " + answer
}

func (s *speech) ramble() string {
	text := s.prose(s.dice, logNormal(s.dice, s.mean, s.sigma))
	if s.marker {
		text += fmt.Sprintf("\n#### %d", s.IntN(1000))
	}
	return text
}

// forced is the tool that must be called whatever the conversation says: the named one.
func (s *speech) forced(w want) *toolDef {
	if w.named == "" {
		return nil
	}
	for i := range s.tools {
		if s.tools[i].name == w.named {
			return &s.tools[i]
		}
	}
	return nil
}

// call writes a call of any tool, with the best arguments known.
func (s *speech) call(d *toolDef) string {
	switch {
	case s.formula != "" && toolNamed([]toolDef{*d}, calculators...) != nil:
		return s.toolText(d, s.formula)
	case s.truth != "" && toolNamed([]toolDef{*d}, "submit", "final_answer") != nil:
		return s.toolText(d, s.guess(s.solve))
	}
	return s.toolText(d, "")
}

// toolText writes one tool call. text goes into the tool's first text argument; the others are made up to fit the schema.
func (s *speech) toolText(d *toolDef, text string) string {
	main := mainProperty(d.schema)
	var b strings.Builder
	b.WriteByte('{')
	for i, name := range wanted(d.schema, main, text) {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quote(name) + ": ")
		if name == main && text != "" {
			b.WriteString(asType(d.schema.Properties[name], text))
		} else {
			b.WriteString(s.invent(d.schema.Properties[name], 0))
		}
	}
	b.WriteByte('}')
	if s.written {
		return s.calls.write(d, b.String())
	}
	return callText(d.name, b.String())
}

// wanted lists the arguments to write: the required ones in their order, and the one that carries the text.
func wanted(sc schema, main, text string) []string {
	names := append([]string(nil), sc.Required...)
	for _, n := range names {
		if n == main {
			return names
		}
	}
	if text != "" {
		names = append(names, main)
	}
	return names
}

// mainProperty is the argument a tool is about, by its usual name, else the first required one.
func mainProperty(sc schema) string {
	for _, name := range []string{"expression", "expr", "formula", "answer", "input", "query", "value", "result", "text"} {
		if _, ok := sc.Properties[name]; ok {
			return name
		}
	}
	if len(sc.Required) > 0 {
		return sc.Required[0]
	}
	return "input"
}

// asType writes text as the schema's type where it can be one.
func asType(sc schema, text string) string {
	if kind := typeOf(sc); kind == "number" || kind == "integer" {
		if json.Valid([]byte(text)) {
			return text
		}
	}
	return quote(text)
}

func typeOf(sc schema) string {
	switch t := sc.Type.(type) {
	case string:
		return t
	case []any:
		if len(t) > 0 {
			first, _ := t[0].(string)
			return first
		}
	}
	return "string"
}

// invent makes up a value that fits a schema.
func (s *speech) invent(sc schema, depth int) string {
	if len(sc.Enum) > 0 {
		return string(sc.Enum[s.IntN(len(sc.Enum))])
	}
	switch typeOf(sc) {
	case "integer":
		return fmt.Sprint(s.IntN(100))
	case "number":
		return fmt.Sprintf("%.1f", s.Float64()*100)
	case "boolean":
		return fmt.Sprint(s.chance(0.5))
	case "array":
		if sc.Items == nil || depth > 4 {
			return "[]"
		}
		return "[" + s.invent(*sc.Items, depth+1) + "]"
	case "object":
		return s.inventObject(sc, depth)
	case "null":
		return "null"
	}
	return quote(s.someWords(s.dice, 1+s.IntN(3)))
}

func (s *speech) inventObject(sc schema, depth int) string {
	if depth > 4 {
		return "{}"
	}
	parts := make([]string, len(sc.Required))
	for i, name := range sc.Required {
		parts[i] = quote(name) + ": " + s.invent(sc.Properties[name], depth+1)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// toolNamed returns the first tool whose name begins with one of the given names.
func toolNamed(tools []toolDef, names ...string) *toolDef {
	for i := range tools {
		for _, n := range names {
			if strings.HasPrefix(strings.ToLower(tools[i].name), strings.ToLower(n)) {
				return &tools[i]
			}
		}
	}
	return nil
}

// near says that a calculator's number, which may be rounded, is the right one. Too kind a test does no harm: the calculator's own
// number is what gets handed in.
func near(a, b *big.Rat) bool {
	x, _ := a.Float64()
	y, _ := b.Float64()
	return math.Abs(x-y) <= 1e-4*max(1, math.Abs(y))
}

// logNormal draws a length with the given mean and spread, at least 1.
func logNormal(d dice, mean, sigma float64) int {
	x := math.Exp(math.Log(mean) - sigma*sigma/2 + sigma*d.NormFloat64())
	return int(max(1, min(x, 1e6)))
}

// prose writes about n tokens of English-looking sentences.
func (p *policy) prose(d dice, n int) string {
	var b strings.Builder
	for n > 0 {
		words := min(n, 5+d.IntN(12))
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		sentence := p.someWords(d, max(1, words-1)) + "."
		b.WriteString(strings.ToUpper(sentence[:1]) + sentence[1:])
		n -= words
	}
	return b.String()
}

func (p *policy) someWords(d dice, n int) string {
	picked := make([]string, n)
	for i := range picked {
		picked[i] = p.words[d.IntN(len(p.words))]
	}
	return strings.Join(picked, " ")
}
