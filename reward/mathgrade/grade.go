package mathgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"tranche/episode"
	"tranche/reward"
)

// Name is the kind of the grader.
const Name = "math"

// Kinds are both kinds of this package.
func Kinds() []reward.Kind { return []reward.Kind{Kind(), ExternalKind()} }

// Kind offers the grader.
func Kind() reward.Kind {
	return reward.Kind{Name: Name, Make: func(s reward.Spec) (reward.Grader, error) {
		var opt Options
		if err := reward.ReadOptions(s, &opt); err != nil {
			return nil, err
		}
		return New(opt)
	}}
}

// Grader judges final answers against a ground truth as mathematics.
type Grader struct{ opt Options }

// New makes a grader.
func New(opt Options) (*Grader, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	return &Grader{opt.withDefaults()}, nil
}

// ID is the kind and its version.
func (*Grader) ID() string { return Name + "/1" }

// ambiguous begins the evidence, and names the part, of an answer that gives several answers.
const ambiguous = "ambiguous"

// Grade judges. A truth that is no mathematics is compared as words; one that cannot be worked out within the limits has no verdict.
func (g *Grader) Grade(ctx context.Context, in reward.Input) (reward.Finding, error) {
	truth, err := g.truth(in.Task)
	if err != nil {
		return reward.Finding{}, err
	}
	if strings.TrimSpace(in.Text) == "" {
		return reward.Finding{Evidence: "no final text"}, nil
	}
	text := in.Text
	if g.opt.Comma == "decimal" {
		text, truth = pointed(text), pointed(truth)
	}
	f := find(text, g.opt.Extract, g.opt.Markers)
	if f.text == "" {
		return reward.Finding{Evidence: "no answer found"}, nil
	}
	j := judgement{ctx: ctx, opt: g.opt, truth: truth, question: in.Asked()}
	j.words = vocabulary{spoken(truth), spoken(j.question)}
	if len(f.boxes) > 0 && g.opt.Boxes == "agree" {
		return j.boxes(f)
	}
	return j.one(f)
}

// truth is the task's ground truth, taken from where it stands when it is a worked solution.
func (g *Grader) truth(t *episode.Task) (string, error) {
	if t.Answer == nil || strings.TrimSpace(*t.Answer) == "" {
		return "", &reward.Unjudged{Reason: reward.MissingTruth}
	}
	s := strings.TrimSpace(*t.Answer)
	if f := boxed(s); len(f.boxes) > 0 {
		s = strings.Join(f.boxes, ", ") // the parts of one answer
	} else if f.text != "" {
		s = f.text
	} else if f := marked(s, g.opt.Markers); f.text != "" {
		s = f.text
	}
	if why := unreachable(s); why != "" {
		return "", &reward.Unjudged{Reason: reward.BadTruth, Detail: why}
	}
	if len(s) > maxAnswer {
		return "", &reward.Unjudged{Reason: reward.BadTruth, Detail: fmt.Sprintf("%d bytes, expected %d at most", len(s), maxAnswer)}
	}
	return s, nil
}

// unreachable says why no answer could be equal to a truth: it is no answer but JSON, or LaTeX that was cut off.
func unreachable(truth string) string {
	var v any
	if strings.ContainsAny(truth, `"`) && strings.ContainsAny(truth[:1], "{[") && json.Unmarshal([]byte(truth), &v) == nil {
		return fmt.Sprintf("%q is JSON, expected an answer", short(truth))
	}
	if inside, _ := reward.Braced(truth + "}"); strings.Contains(truth, `\`) && inside != truth {
		return fmt.Sprintf("the braces of %q do not close", short(truth))
	}
	return ""
}

// judgement is the work on one answer.
type judgement struct {
	ctx      context.Context
	opt      Options
	truth    string
	question string
	words    vocabulary
}

func (j judgement) one(f found) (reward.Finding, error) {
	if w := j.words.strange(f.frame); w != "" {
		return reward.Finding{Evidence: fmt.Sprintf("%q %s: the word %q stands with it", short(f.text), f.where, short(w))}, nil
	}
	right, why, err := j.match(f.text)
	if err != nil {
		return reward.Finding{}, err
	}
	out := reward.Finding{Evidence: fmt.Sprintf("%q %s, want %q%s", short(f.text), f.where, short(j.truth), why)}
	if right {
		out.Score = 1
	}
	return out, nil
}

// boxes judges a text with several boxes: the parts of one answer, the same answer several times, or several answers.
func (j judgement) boxes(f found) (reward.Finding, error) {
	all := f.boxes
	if r := read(j.truth, true, false); r.err == nil && (r.root.op == opList || r.root.op == opSet || r.root.op == opTuple) && len(r.root.kids) == len(all) {
		if right, _, err := j.match(strings.Join(all, ", ")); right || err != nil {
			return reward.Finding{Score: 1, Evidence: fmt.Sprintf("%d boxes, want %q", len(all), short(j.truth))}, err
		}
	}
	last := judgement{ctx: j.ctx, opt: j.opt, truth: f.text, words: vocabulary{spoken(f.text), j.words.question}}
	last.opt.Simplify, last.opt.Echo = "any", "allow"
	for _, b := range all {
		same, _, err := last.match(b)
		if err != nil {
			return reward.Finding{}, err
		}
		if !same {
			one := 1.0
			evidence := fmt.Sprintf("%s: %q and %q in boxes, want %q", ambiguous, short(b), short(f.text), short(j.truth))
			return reward.Finding{Evidence: evidence, Parts: []reward.Part{{Name: ambiguous, Score: &one, Evidence: evidence}}}, nil
		}
	}
	return j.one(f)
}

// match compares an answer with the truth. why says more than that they differ. An error is no verdict.
func (j judgement) match(answer string) (right bool, why string, err error) {
	if len(answer) > maxAnswer {
		return false, ": " + errLong.Error(), nil
	}
	if letter := choice(j.truth); letter != "" && chosen(answer, letter) {
		return true, "", nil
	}
	truth := read(j.truth, true, false)
	if truth.err != nil || worded(j.truth) {
		same := squeezed(answer) == squeezed(j.truth) || prose(j.truth) && prose(answer) && words(answer) == words(j.truth)
		return same, " (compared as text)", nil
	}
	c := newAnswers(j.ctx, j.opt)
	c.vocabulary = j.words
	got, right := c.readings(truth, j.truth, answer)
	switch {
	case c.err != nil:
		return false, "", c.err
	case right && c.strangeIn(got.root) != "":
		return false, fmt.Sprintf(": the word %q stands with it", short(c.strangeIn(got.root))), nil
	case right && j.opt.Units != "ignore" && otherCurrency(j.truth, answer):
		return false, ": its currency is another", nil
	case right && j.echoes(truth, got, answer):
		return false, ": it stands in the task", nil
	case !right && c.work.ended != nil:
		return false, ": too much work to compare", j.heavy(truth.root)
	case !right && got.err != nil:
		return false, ": " + got.err.Error(), nil
	}
	return right, "", nil
}

func newAnswers(ctx context.Context, opt Options) *answers {
	return &answers{comparer: newComparer(&budget{ctx: ctx, left: maxWork}, opt)}
}

// readings tries the ways in which an answer can be read. got is the one that was right, or the first.
func (c *answers) readings(truth reading, truthText, answer string) (got reading, right bool) {
	got = read(answer, true, false)
	if got.err == nil && c.same(truth.root, got.root) {
		return got, true
	}
	if truth.grouped || got.grouped { // 1,234 may be two numbers
		t, a := read(truthText, false, false), read(answer, false, false)
		if t.err == nil && a.err == nil && c.same(t.root, a.root) {
			return a, true
		}
	}
	want := truth.root
	if t := read(truthText, true, true); t.err == nil && t.root.op == opUnit {
		if _, known := unitScale(t.root.name); known { // 5 m
			want = t.root
		}
	}
	if len(want.symbols()) > 0 {
		return got, false
	}
	if loose := read(answer, true, true); loose.err == nil && c.same(want, loose.root) {
		return loose, true
	}
	if got.err != nil && truth.root.isExpr() {
		if n, ok := c.leading(answer); ok && c.same(truth.root, n) {
			return reading{text: answer, root: n}, true
		}
	}
	return got, false
}

// leading is the number that begins an answer in words: 18 dollars, because …. Behind what it counts nothing stands but a reason, which
// offers and denies nothing.
func (c *answers) leading(answer string) (*node, bool) {
	v, start, end, ok := reward.FirstNumber(answer)
	if !ok || strings.Trim(answer[:start], " $*`") != "" {
		return nil, false
	}
	rest := strings.TrimLeft(answer[end:], " *$`%")
	if another(rest) {
		return nil, false
	}
	thing, reason := rest, ""
	if i := strings.IndexAny(rest, ".,;:("); i >= 0 {
		thing, reason = rest[:i], rest[i+1:]
	}
	for i, w := range spoken(thing) {
		if reasons(w) || w == "at" {
			thing, reason = strings.Join(spoken(thing)[:i], " "), strings.Join(spoken(rest)[i:], " ")
			break
		}
	}
	for i, w := range spoken(reason) {
		if i == 0 && !reasons(w) && w != "at" || denies(w) || among(w, "or to maybe perhaps possibly either alternatively") {
			return nil, false
		}
	}
	if strings.Trim(thing, " ") != "" && !isLetter(strings.Trim(thing, " ")[0]) {
		return nil, false
	}
	return number(v), c.strange(thing) == "" && c.noUnit(thing) == ""
}

// reasons reports words that begin the reason of an answer.
func reasons(w string) bool { return among(w, "because since as so given") }

// another reports whether a second number is offered behind the first: right behind its punctuation, or as a clause of its own.
func another(rest string) bool {
	const around = " $*`"
	clauses := strings.Split(strings.NewReplacer(", ", "\n", ". ", "\n", "; ", "\n", ": ", "\n", "(", "\n", ")", "\n", "?", "\n").Replace(rest), "\n")
	for i, c := range append(clauses, strings.TrimLeft(rest, ".,;:(?")) {
		c = strings.Trim(c, around)
		_, start, end, ok := reward.FirstNumber(c)
		behind := i == len(clauses) && len(c) < len(strings.Trim(rest, around))
		if ok && start == 0 && (behind || strings.Trim(c[end:], ".,;:!%"+around) == "") {
			return true
		}
	}
	return false
}

// finished reports whether an answer is values alone: numbers, letters, and bunches of such.
func finished(n *node) bool {
	switch {
	case n.plain(), n.op == opSym, n.op == opConst:
		return true
	case n.op == opRel:
		_, named := assigned(n)
		return named && finished(n.kids[len(n.kids)-1])
	case n.isExpr():
		return false
	}
	return !slices.ContainsFunc(n.kids, func(k *node) bool { return !finished(k) })
}

// heavy is the error of a truth that is itself too much work; nil when it was the answer that is.
func (j judgement) heavy(truth *node) error {
	c := newAnswers(j.ctx, j.opt)
	c.same(truth, branch(opAdd, truth, number(new(big.Rat)))) // the same value in another form
	if errors.Is(c.work.ended, errWork) {
		return &reward.Unjudged{Reason: reward.BadTruth, Detail: "it is too much work to be compared with"}
	}
	return c.err
}

// short cuts a text for evidence.
func short(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= 60 {
		return s
	}
	end := 57
	for end > 0 && s[end]&0xC0 == 0x80 {
		end--
	}
	return s[:end] + "…"
}
