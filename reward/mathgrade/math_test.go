package mathgrade

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"tranche/episode"
	"tranche/reward"
)

// judged is the verdict on a boxed answer.
func judged(t testing.TB, opt Options, answer, truth string) string {
	t.Helper()
	word, _ := verdict(t, grader(t, opt), input(`\boxed{`+answer+`}`, truth))
	return word
}

func TestOptions(t *testing.T) {
	zero, three := 0, 3
	cases := []struct {
		name          string
		opt           Options
		answer, truth string
		want          string
	}{
		{"tolerance", Options{Tolerance: 0.01}, "3.14", `\pi`, "yes"},
		{"tolerance, not that far", Options{Tolerance: 0.001}, "3.14", `\pi`, "no"},
		{"tolerance between decimals, at its edge", Options{Tolerance: 0.1}, "3.1", "3.2", "yes"},
		{"relative tolerance", Options{Relative: 0.01}, "101", "100", "yes"},
		{"relative tolerance, not that far", Options{Relative: 0.01}, "102", "100", "no"},
		{"three digits", Options{Digits: &three}, "3.14", `\pi`, "yes"},
		{"no rounding", Options{Digits: &zero}, "0.3333333333", `\frac13`, "no"},
		{"units must be stated", Options{Units: "strict"}, "5", "5 cm", "no"},
		{"units that are stated", Options{Units: "strict"}, "5 cm", "5 cm", "yes"},
		{"units nobody knows", Options{Units: "strict"}, "5 apples", "5 pears", "no"},
		{"units passed over", Options{Units: "ignore"}, "5 cm", "5 kg", "yes"},
		{"percent is a hundredth", Options{Percent: "strict"}, "50\\%", "50", "no"},
		{"percent is a hundredth indeed", Options{Percent: "strict"}, "50\\%", "0.5", "yes"},
		{"a decimal comma", Options{Comma: "decimal"}, "1000,99", "1000.99", "yes"},
		{"points between thousands", Options{Comma: "decimal"}, "1.234.567,5", "1234567,50", "yes"},
		{"a decimal point all the same", Options{Comma: "decimal"}, "0.125", "0,125", "yes"},
		{"a comma parts no numbers then", Options{Comma: "decimal"}, "1,2", `\{1;2\}`, "no"},
		{"a semicolon does", Options{Comma: "decimal"}, "1;2,5", `\{1;2,5\}`, "yes"},
		{"work left undone", Options{Simplify: "any"}, "2^{10}", "1024", "yes"},
		{"an equation left unsolved", Options{Simplify: "any"}, "2x = 6", "x = 3", "yes"},
		{"never an inequality", Options{Inequality: "never"}, "1 < x < 2", "(1,2)", "no"},
		{"any inequality", Options{Inequality: "any"}, "2 < 2x < 4", "(1,2)", "yes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := judged(t, c.opt, c.answer, c.truth); got != c.want {
				t.Errorf("%s for %s: %s, want %s", c.answer, c.truth, got, c.want)
			}
		})
	}
	text := `First \boxed{3}, then \boxed{5}.`
	if got, _ := verdict(t, grader(t, Options{Boxes: "last"}), input(text, "5")); got != "yes" {
		t.Errorf("the last box: %s", got)
	}
	if got, _ := verdict(t, grader(t, Options{Extract: []string{Boxed}}), input("The answer is 5.", "5")); got != "no" {
		t.Errorf("without a box: %s", got)
	}
	if got, _ := verdict(t, grader(t, Options{Markers: []string{"Antwort:"}}), input("Antwort: 5\nanswer: 6", "5")); got != "yes" {
		t.Errorf("a marker of one's own: %s", got)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	with := `{"extract": ["boxes"], "markers": [" "], "boxes": "first", "comma": "f", "tolerance": -1, "relative": -2, "digits": -3, "units": "a", "percent": "b",
		"simplify": "c", "inequality": "d", "echo": "e"}`
	_, err := Kind().Make(reward.Spec{With: []byte(with)})
	for _, want := range []string{"extract[0]", "markers[0]", "boxes:", "comma:", "tolerance: -1", "relative: -2", "digits: -3", "units:", "percent:", "simplify:", "inequality:", "echo:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	if _, err := Kind().Make(reward.Spec{With: []byte(`{"unit": "strict"}`)}); err == nil || !strings.Contains(err.Error(), "unit: unknown option") {
		t.Errorf("an unknown option: %v", err)
	}
	if g, err := Kind().Make(reward.Spec{}); err != nil || g.ID() != "math/1" {
		t.Errorf("no options: %v, %v", g, err)
	}
}

// What stands in the task and leaves work to do is no answer, but a value from it may be.
func TestEchoes(t *testing.T) {
	cases := []struct {
		name, question, answer, truth string
		opt                           Options
		want                          string
	}{
		{"an expression", `Expand $(x+1)^2$.`, `(x+1)^2`, `x^2+2x+1`, Options{}, "no"},
		{"spaces and size do not hide it", `Expand $\left(x + 1\right)^2$.`, `( x+1 )^2`, `x^2+2x+1`, Options{}, "no"},
		{"worked out", `Expand $(x+1)^2$.`, `1+2x+x^2`, `x^2+2x+1`, Options{}, "yes"},
		{"allowed", `Expand $(x+1)^2$.`, `(x+1)^2`, `x^2+2x+1`, Options{Echo: "allow"}, "yes"},
		{"a root", `Simplify $\sqrt{12}$.`, `\sqrt{12}`, `2\sqrt{3}`, Options{}, "no"},
		{"a solved inequality", `Write $1<x<2$ as an interval.`, `1<x<2`, `(1,2)`, Options{}, "no"},
		{"an equation", `Bring $2x+4y=3$ into normal form.`, `2x+4y=3`, `2x+4y-3=0`, Options{}, "no"},
		{"a value", `Is 12 or 15 the larger?`, `15`, `15`, Options{}, "yes"},
		{"a fraction", `Which of 3/4 and 2/3 is larger?`, `3/4`, `\frac34`, Options{}, "yes"},
		{"what the truth says too", `Which is larger, $2^{10}$ or $10^3$?`, `2^{10}`, `2^{10}`, Options{}, "yes"},
		{"commuted inside", `Expand $(x+1)^2$.`, `(1+x)^2`, `x^2+2x+1`, Options{}, "no"},
		{"the power written out", `Expand $(x+1)^2$.`, `(x+1)(x+1)`, `x^2+2x+1`, Options{}, "no"},
		{"times 1", `Expand $(x+1)^2$.`, `1\cdot (x+1)^2`, `x^2+2x+1`, Options{}, "no"},
		{"over 1", `Expand $(x+1)^2$.`, `\frac{(x+1)^2}{1}`, `x^2+2x+1`, Options{}, "no"},
		{"plus 0", `Expand $(x+1)^2$.`, `(x+1)^2+0`, `x^2+2x+1`, Options{}, "no"},
		{"two signs", `Expand $(x+1)^2$.`, `-(-(x+1)^2)`, `x^2+2x+1`, Options{}, "no"},
		{"a commuted sum without dollar signs", `Factor x²+x-2.`, `-2+x+x^2`, `(x-1)(x+2)`, Options{}, "no"},
		{"a part of what stands there", `Let $y = (a+b)^2 + 1$; expand the square.`, `(b+a)^2`, `a^2+2ab+b^2`, Options{}, "no"},
		{"an equation turned", `Bring $2x+4y=3$ into normal form.`, `3=4y+2x`, `2x+4y-3=0`, Options{}, "no"},
		{"factored indeed", `Factor x²+x-2.`, `(2+x)(x-1)`, `(x-1)(x+2)`, Options{}, "yes"},
		{"named", `Simplify $\sqrt{12}$.`, `x = \sqrt{12}`, `2\sqrt{3}`, Options{}, "no"},
		{"as a set", `Simplify $\sqrt{12}$.`, `\{\sqrt{12}\}`, `2\sqrt{3}`, Options{}, "no"},
		{"said twice", `Simplify $\sqrt{12}$.`, `\sqrt{12} = \sqrt{12}`, `2\sqrt{3}`, Options{}, "no"},
		{"with a unit", `Simplify $\sqrt{12}$.`, `\sqrt{12}\text{ units}`, `2\sqrt{3}`, Options{}, "no"},
		{"named by a letter", `Expand $(x+1)^2$.`, `y=(x+1)^2`, `x^2+2x+1`, Options{}, "no"},
		{"named by a word", `Expand $(x+1)^2$.`, `\text{Answer} = (x+1)^2`, `x^2+2x+1`, Options{}, "no"},
		{"a difference of squares, named", `Factor $x^2-y^2$.`, `f = x^2-y^2`, `(x-y)(x+y)`, Options{}, "no"},
		{"a function, named", `Evaluate $\arcsin(1/2)$.`, `y = \arcsin(1/2)`, `\frac{\pi}{6}`, Options{}, "no"},
		{"worked out behind it", `Simplify $\sqrt{12}$.`, `\sqrt{12} = 2\sqrt{3}`, `2\sqrt{3}`, Options{}, "yes"},
		{"worked out behind it, named", `Simplify $\sqrt{12}$.`, `x = \sqrt{12} = 2\sqrt{3}`, `2\sqrt{3}`, Options{}, "yes"},
		{"what the truth says too, named", `Let $f(x) = 2x+1$. What is $f(x)$?`, `y = 2x+1`, `2x+1`, Options{}, "yes"},
		{"what the truth says too, commuted", `Simplify $x+1+0$.`, `1+x`, `x+1`, Options{}, "yes"},
		{"a variable", `Solve for x: $x=y$`, `y`, `y`, Options{}, "yes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in := input(`\boxed{`+c.answer+`}`, c.truth)
			in.Messages = []episode.Message{{Role: episode.RoleUser, Content: &c.question}, {Role: episode.RoleAssistant, Content: &in.Text}}
			in.NumPrompt = 1
			got, why := verdict(t, grader(t, c.opt), in)
			if got != c.want {
				t.Errorf("%s, want %s: %s", got, c.want, why)
			}
			if c.want == "no" && !strings.Contains(why, "stands in the task") {
				t.Errorf("the evidence does not say why: %s", why)
			}
		})
	}
}

func TestNoVerdict(t *testing.T) {
	g := grader(t, Options{})
	var nothing *reward.Unjudged
	_, err := g.Grade(t.Context(), reward.Input{Task: &episode.Task{}, Text: "5", Said: true})
	if !errors.As(err, &nothing) || nothing.Reason != reward.MissingTruth {
		t.Errorf("no truth: %v", err)
	}
	_, err = g.Grade(t.Context(), input("5", strings.Repeat("1+", 2000)))
	if !errors.As(err, &nothing) || nothing.Reason != reward.BadTruth {
		t.Errorf("a truth that is too long: %v", err)
	}
	for _, truth := range []string{`{"a":1}`, `["a", "b"]`, `\frac{`, `\frac{1}{2`} {
		if f, err := g.Grade(t.Context(), input("5", truth)); !errors.As(err, &nothing) || nothing.Reason != reward.BadTruth {
			t.Errorf("%s, which no answer can be: %+v, %v", truth, f, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	heavy := strings.Repeat(`\sin x+`, 200) + "1"
	if f, err := g.Grade(ctx, input(`\boxed{`+heavy+`+x}`, heavy)); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has gone: %+v, %v", f, err)
	}
	if f, err := g.Grade(t.Context(), input(" \n", "5")); err != nil || f.Score != 0 {
		t.Errorf("silence: %+v, %v", f, err)
	}
}

// A truth that is itself too much work has no verdict; an answer that is scores 0.
func TestTooMuchWork(t *testing.T) {
	heavy := strings.Repeat("3000!+", 300) + "1"
	if got, why := verdict(t, grader(t, Options{}), input(`\boxed{`+heavy+`}`, "x+1")); got != "no" {
		t.Errorf("a heavy answer: %s (%s)", got, why)
	}
	if got, why := verdict(t, grader(t, Options{}), input(`\boxed{5}`, heavy)); got != "none" || !strings.Contains(why, reward.BadTruth) {
		t.Errorf("a heavy truth: %s (%s)", got, why)
	}
}

// Whatever the text, the work is bounded: by the budget, and by what is read at all.
func TestHostileAnswersAreBounded(t *testing.T) {
	hostile := map[string]string{
		"brackets":         strings.Repeat("(", 900),
		"braces":           strings.Repeat("{", 900),
		"fractions":        strings.Repeat(`\frac{1}{`, 200),
		"roots":            strings.Repeat(`\sqrt{`, 200) + "2" + strings.Repeat("}", 200),
		"minus":            strings.Repeat("-", 900) + "1",
		"powers":           strings.Repeat("9^", 400) + "9",
		"a tower":          `9^{9^{9^{9^{9^{9}}}}}`,
		"factorials":       "3" + strings.Repeat("!", 500),
		"a factorial":      "3000!^{3000!}",
		"binomials":        `\binom{3000}{1500}^{100}`,
		"digits":           strings.Repeat("9", 1900),
		"many numbers":     strings.Repeat("1,", 900) + "1",
		"a set of many":    `\{` + strings.Repeat("1,", 450) + `3\}`,
		"signs":            strings.Repeat(`\pm 1`, 300),
		"unions":           strings.Repeat(`(1,2)\cup`, 150) + "(3,4)",
		"bars":             strings.Repeat("|", 900),
		"chains":           strings.Repeat("1=", 600) + "1",
		"logarithms":       strings.Repeat(`\log_{`, 100) + "2",
		"expressions":      strings.Repeat(`(x+1)^{99}`, 150),
		"many boxes":       "",
		"matrices":         strings.Repeat(`\begin{pmatrix}`, 100),
		"exponents":        "1e999999999",
		"a large exponent": "10^{999999999999999999999}",
		"sines":            strings.Repeat(`\sin `, 500) + "x",
		"zero to nothing":  "0^{0^{0}}",
		"infinite":         `\infty-\infty`,
		"i":                strings.Repeat("i^", 300) + "i",
	}
	for name, answer := range hostile {
		for _, truth := range []string{"5", "x^2", "(1,2)", `\{1,2\}`, "x<3", answer} {
			if len(truth) > maxAnswer {
				continue
			}
			text := `\boxed{` + answer + `}`
			if name == "many boxes" {
				text = strings.Repeat(`\boxed{7+x}\boxed{`, 500)
			}
			got, why := verdict(t, grader(t, Options{}), input(text, truth))
			if got == "yes" && truth != answer {
				t.Errorf("%s for %s: %s", name, short(truth), why)
			}
		}
	}
}

// What is far out of proportion takes no memory in proportion.
func TestHugeNumbersStaySmall(t *testing.T) {
	for _, c := range [][2]string{
		{"9^{9^{9}}", "7x"}, {"{NNN}", `9^{9^{9}}1\frac3t{2}`}, {"9^{9^{9}+1}", "nfp90"}, {"9^{9^{9}}", `\sqrt2`}, {"9^{-9^{9}}", `\sqrt2`}, {`\pi`, "9^{9^{9}}"},
		{"(1,9^{9^{9}})", "(1,2)"}, {"x<9^{9^{9}}", "x<\\pi"}, {`\sin 9^{9^{9}}`, "x"}, {`x+9^{9^{9}}i`, "x"}, {`x = 9^{9^{9}} = 3`, "3"}, {"e^{10^9}x", `\sqrt x`},
		{`\{9^{9^{9}},1\}`, `(-\infty,9^{-9^{9}})`}, {`9^{9^9}x=y`, "x=y+2"}, {"9^{9^{9}}", "1.234567"}, {"3000!^{2000}", `\pi`},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, why := verdict(t, grader(t, Options{Tolerance: 0.1, Relative: 0.1}), input(`\boxed{`+c[0]+`}`, c[1]))
		runtime.ReadMemStats(&after)
		if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 60 || got == "yes" {
			t.Errorf("%s for %s: %s after %d MiB: %s", c[0], c[1], got, mib, why)
		}
	}
}

// A long text takes time in proportion to its length, whatever it is made of: were it not so, this test would not end.
func TestLongTextsAreReadInLinearTime(t *testing.T) {
	g := grader(t, Options{})
	for _, piece := range []string{`\boxed{1}`, `\boxed{`, `\boxed{\boxed{1}`, "answer:", "the answer is ", "$", "$1$ ", `\(`, `\(1\)`, `\`, "{", "1 ", "<think>", "####", "is "} {
		text := strings.Repeat(piece, (1<<21)/len(piece))
		if _, why := verdict(t, g, input(text, "2")); why == "" {
			t.Errorf("%q: no evidence", piece)
		}
	}
}

// The same question has the same verdict to the byte, whoever asks and how many at once.
func TestVerdictsRepeat(t *testing.T) {
	g := grader(t, Options{})
	all := cases(t)
	want := make([]string, len(all))
	for i, c := range all {
		f, err := g.Grade(t.Context(), input(c.text(), c.truth))
		want[i] = fmt.Sprintf("%+v %v", f.Score, f.Evidence) + fmt.Sprint(err)
	}
	var group sync.WaitGroup
	for w := range 16 {
		group.Go(func() {
			for _, i := range rand.Perm(len(all)) {
				if i%8 != w%8 { // each case twice
					continue
				}
				f, err := g.Grade(t.Context(), input(all[i].text(), all[i].truth))
				if got := fmt.Sprintf("%+v %v", f.Score, f.Evidence) + fmt.Sprint(err); got != want[i] {
					t.Errorf("%s: %s, then %s", all[i].answer, want[i], got)
				}
			}
		})
	}
	group.Wait()
}

// A box that hedges is recorded as what it is.
func TestAmbiguousAnswersAreAPart(t *testing.T) {
	f, err := grader(t, Options{}).Grade(t.Context(), input(`\boxed{3} or \boxed{5}`, "5"))
	if err != nil || f.Score != 0 || len(f.Parts) != 1 || f.Parts[0].Name != "ambiguous" || *f.Parts[0].Score != 1 || f.Parts[0].Weight != 0 ||
		!strings.HasPrefix(f.Evidence, "ambiguous: ") {
		t.Errorf("%+v, %v", f, err)
	}
}

// Law: what is written as a fraction, a decimal, a mixed number or a sum of a number is that number, and its neighbour is not.
func TestWrittenNumbersAreRead(t *testing.T) {
	g := grader(t, Options{})
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(-1_000_000, 1_000_000).Draw(t, "n")
		d := rapid.SampledFrom([]int64{1, 2, 4, 5, 8, 10, 25, 3, 7, 9, 11, 1000}).Draw(t, "d")
		v := big.NewRat(n, d)
		forms := []string{fmt.Sprintf(`\frac{%d}{%d}`, n, d), fmt.Sprintf("%d/%d", n, d), fmt.Sprintf("$%d/%d$ cm", n, d)}
		if digits, exact := v.FloatPrec(); exact {
			forms = append(forms, v.FloatString(digits), v.FloatString(digits+2)+" dollars", "$"+v.FloatString(digits)+"$")
		}
		if whole, rest := new(big.Int).QuoRem(v.Num(), v.Denom(), new(big.Int)); whole.Sign() > 0 && rest.Sign() > 0 {
			forms = append(forms, fmt.Sprintf(`%s\frac{%s}{%s}`, whole, rest, v.Denom()))
		}
		form := rapid.SampledFrom(forms).Draw(t, "form")
		truth := rapid.SampledFrom(forms[:2]).Draw(t, "truth")
		if f, err := g.Grade(context.Background(), input(`\boxed{`+form+`}`, truth)); err != nil || f.Score != 1 {
			t.Fatalf("%s for %s: %+v, %v", form, truth, f, err)
		}
		next := fmt.Sprintf("%d/%d", n+1, d)
		if f, err := g.Grade(context.Background(), input(`\boxed{`+form+`}`, next)); err != nil || f.Score != 0 {
			t.Fatalf("%s for %s: %+v, %v", form, next, f, err)
		}
	})
}

// Law: a polynomial multiplied out is its product, and with one coefficient changed it is not.
func TestPolynomials(t *testing.T) {
	g := grader(t, Options{})
	rapid.Check(t, func(t *rapid.T) {
		roots := rapid.SliceOfN(rapid.Int64Range(-9, 9), 1, 6).Draw(t, "roots")
		product := ""
		coef := []*big.Int{big.NewInt(1)}
		for _, r := range roots {
			product += fmt.Sprintf("(x-(%d))", r)
			next := make([]*big.Int, len(coef)+1)
			for i := range next {
				next[i] = new(big.Int)
			}
			for i, c := range coef {
				next[i+1].Add(next[i+1], c)
				next[i].Sub(next[i], new(big.Int).Mul(c, big.NewInt(r)))
			}
			coef = next
		}
		sum := func() string {
			var b strings.Builder
			for i, c := range coef {
				fmt.Fprintf(&b, "+(%s)x^{%d}", c, i)
			}
			return b.String()
		}
		if f, err := g.Grade(context.Background(), input(`\boxed{`+product+`}`, sum())); err != nil || f.Score != 1 {
			t.Fatalf("%s = %s: %+v, %v", product, sum(), f, err)
		}
		i := rapid.IntRange(0, len(coef)-1).Draw(t, "coefficient")
		coef[i].Add(coef[i], big.NewInt(1))
		if f, err := g.Grade(context.Background(), input(`\boxed{`+product+`}`, sum())); err != nil || f.Score != 0 {
			t.Fatalf("%s = %s: %+v, %v", product, sum(), f, err)
		}
	})
}

// Law: the functions agree with the machine's to its precision, and with one another to theirs.
func TestFunctionsOfRealNumbers(t *testing.T) {
	r := &reals{prec: 300}
	near := func(a *big.Float, b float64) bool {
		f, _ := a.Float64()
		return math.Abs(f-b) <= 1e-13*math.Max(1, math.Abs(b))
	}
	tiny := func(a *big.Float) bool { return a.Sign() == 0 || a.MantExp(nil) < -280 }
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.Float64Range(-50, 50).Draw(t, "x")
		x := r.zero().SetFloat64(f)
		e, err := r.exp(x)
		if err != nil || !near(e, math.Exp(f)) {
			t.Fatalf("exp %v = %v, %v", f, e, err)
		}
		l, err := r.ln(e)
		if err != nil || !tiny(r.sub(l, x)) {
			t.Fatalf("ln exp %v = %v, %v", f, l, err)
		}
		s, c, err := r.sincos(x)
		if err != nil || !near(s, math.Sin(f)) || !near(c, math.Cos(f)) {
			t.Fatalf("sin %v = %v, cos = %v, %v", f, s, c, err)
		}
		if one := r.add(r.mul(s, s), r.mul(c, c)); !tiny(r.sub(one, r.whole(1))) {
			t.Fatalf("sin² + cos² of %v = %v", f, one)
		}
		a := r.atan(x)
		if !near(a, math.Atan(f)) {
			t.Fatalf("atan %v = %v", f, a)
		}
		if s, c, err = r.sincos(a); err != nil || !tiny(r.quo(r.sub(r.quo(s, c), x), r.add(r.whole(1), r.mul(x, x)))) {
			t.Fatalf("tan atan %v = %v / %v, %v", f, s, c, err)
		}
	})
	const pi = "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899"
	const ln2 = "0.693147180559945309417232121458176568075500134360255254120680009493393621969694"
	for text, v := range map[string]*big.Float{pi: r.piValue(), ln2: r.ln2Value()} {
		want, _ := new(big.Rat).SetString(text)
		if d := r.sub(v, r.from(want)); d.Sign() != 0 && d.MantExp(nil) > -250 {
			t.Errorf("%s: off by %v", text, d)
		}
	}
}

// Through the Scorer, as a run has it.
func TestKindThroughTheScorer(t *testing.T) {
	s, err := reward.New(reward.Config{Graders: []reward.Spec{{Kind: Name, With: []byte(`{"units": "strict"}`)}}}, Kind(), ExternalKind())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	truth, said := "5 cm", `\boxed{5\text{ cm}}`
	e := &episode.Episode{ID: "e", Task: &episode.Task{ID: "t", Answer: &truth}, Messages: []episode.Message{{Role: episode.RoleAssistant, Content: &said}}}
	v, err := s.Score(t.Context(), e)
	if err != nil || v.Total == nil || *v.Total != 1 || v.Rewards[0].Grader != "math/1" {
		t.Errorf("%+v, %v", v, err)
	}
}

func FuzzGrade(f *testing.F) {
	for _, c := range cases(f) {
		f.Add(c.text(), c.truth)
	}
	g := grader(f, Options{})
	f.Fuzz(func(t *testing.T, answer, truth string) {
		if len(answer) > 4000 || len(truth) > 4000 {
			return
		}
		first, err := g.Grade(t.Context(), input(answer, truth))
		if err == nil && first.Score != 0 && first.Score != 1 {
			t.Fatalf("%q for %q: score %v", answer, truth, first.Score)
		}
		again, err2 := g.Grade(t.Context(), input(answer, truth))
		if (err == nil) != (err2 == nil) || first.Score != again.Score || first.Evidence != again.Evidence {
			t.Fatalf("%q for %q: %+v, then %+v", answer, truth, first, again)
		}
	})
}

func FuzzRead(f *testing.F) {
	for _, c := range cases(f) {
		f.Add(c.answer)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, loose := range []bool{false, true} {
			r := read(s, loose, loose)
			if (r.root == nil) == (r.err == nil) {
				t.Fatalf("%q: %v, %v", s, r.root, r.err)
			}
			if r.err == nil && r.root.text() == "" {
				t.Fatalf("%q: no text", s)
			}
		}
	})
}

func BenchmarkGrade(b *testing.B) {
	g := grader(b, Options{})
	for _, c := range []struct{ name, answer, truth string }{
		{"number", `So we get \boxed{42}.`, "42"},
		{"marked", "She has 3 + 4 = 7 eggs.\n#### 7", "7"},
		{"root", `\boxed{\frac{\sqrt{2}}{2}}`, `\frac{1}{\sqrt{2}}`},
		{"polynomial", `\boxed{x^3-6x^2+11x-6}`, `(x-1)(x-2)(x-3)`},
		{"identity", `\boxed{\tan^2 x+1}`, `\sec^2 x`},
		{"interval", `\boxed{(-\infty,2)\cup(3,\infty)}`, `(3,\infty)\cup(-\infty,2)`},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if f, err := g.Grade(b.Context(), input(c.answer, c.truth)); err != nil || f.Score != 1 {
					b.Fatalf("%+v, %v", f, err)
				}
			}
		})
	}
	b.Run("cases", func(b *testing.B) {
		all := cases(b)
		for i := 0; b.Loop(); i++ {
			if _, err := g.Grade(b.Context(), input(all[i%len(all)].text(), all[i%len(all)].truth)); err != nil {
				var u *reward.Unjudged
				if !errors.As(err, &u) {
					b.Fatal(err)
				}
			}
		}
	})
}

// pieces of what models write, each with its braces closed.
func pieces() []string {
	return strings.Fields(`0 1 2 7 10 1,000 0.5 .5 3. 1e5 x y n e i \pi \infty \frac{1}{2} \frac12 \frac{x} \sqrt{2} \sqrt[3]{x} \sqrt 2^{10} ^2 ^ _ _5 _{n} + - * / = < > \le \ge \ne
		\approx \pm \mp ( ) [ ] | , ; : ! % ' \% \{ \} \{1,2\} (1,2) [0,1) \cup \cap \setminus \in \mathbb{R} \emptyset \sin \cos^2 \log_2 \ln \tan^{-1} \text{cm} \text{and}
		\text{or} cm kg apples and or ^\circ \degree \binom{5}{2} \left( \right) \begin{pmatrix}1&2\\3&4\end{pmatrix} \\ & f(x) \overline{AB} 0.\overline{3} $ \$ \cdot \times
		\lfloor x\rfloor ½ √ π ≤ ∞ ² − \ \, \quad sinx xy Paris \unknown \text{ {} {x} \mid \langle \rangle 9^{9^{9}} 100! x! \gcd(4,6) \max`)
}

// Law: whatever is written, it is judged without a panic, the same every time, and an answer that is the truth to the letter is right.
func TestAnythingIsItself(t *testing.T) {
	g := grader(t, Options{})
	all := pieces()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom(all), 1, 8).Draw(t, name), rapid.SampledFrom([]string{"", " "}).Draw(t, "between"))
		}
		answer, truth := draw("answer"), draw("truth")
		first, err := g.Grade(context.Background(), input(`\boxed{`+answer+`}`, truth))
		again, err2 := g.Grade(context.Background(), input(`\boxed{`+answer+`}`, truth))
		if first.Score != again.Score || first.Evidence != again.Evidence || (err == nil) != (err2 == nil) {
			t.Fatalf("%s for %s: %+v %v, then %+v %v", answer, truth, first, err, again, err2)
		}
		if inside, end := reward.Braced(truth + "}"); inside != truth || end != len(truth)+1 || strings.HasSuffix(truth, `\`) {
			return // no box can hold it
		}
		self, err := g.Grade(context.Background(), input(`\boxed{`+truth+`}`, `\boxed{`+truth+`}`))
		var nothing *reward.Unjudged
		if self.Score != 1 && !errors.As(err, &nothing) {
			t.Fatalf("%s is not itself: %+v, %v", truth, self, err)
		}
	})
}

// Law: of values that are all different, each is right for itself and for no other, whichever of them is the truth. One pair in ten is tried;
// TRANCHE_COMPARE=1 tries all, which takes a minute.
func TestDifferentValuesDiffer(t *testing.T) {
	values := strings.Fields(`0 1 -1 2 1/2 1/3 0.3333 \sqrt{2} -\sqrt{2} \sqrt{3} \sqrt[3]{2} \pi 2\pi \frac{\pi}{2} e e^2 e^{\pi} \pi^{e} \ln{2} \ln{3} \log_{2}{3} 5! 100! \frac{1}{100!}
		9^{9^{9}} 9^{9^{9}-1} 9^{9^{9}}+1 9^{-9^{9}} -9^{9^{9}} 2^{10000} 2^{10001} 10^{100} 10^{-100} i -i 1+i e^{i} \sqrt{-2} 9^{9^{9}}i x x^2 x^3 |x| -x \sqrt{x^2+1} \sin{x} \cos{x}
		\tan{x} \sin^2{x} x+y xy \frac{x}{y} n! 2^n (-1)^n \binom{n}{2} \ln{x} e^x e^{-x} \sin{x}+10^{-30} x+10^{-300} x+9^{9^{9}} 9^{9^{9}}x e^{9^{9}x} x^{9^{9}} f(x) f(y) (1,2)
		[1,2] [1,2) \{1,2\} \{1,2,3\} (2,1) (1,2)\cup(3,4) x<1 x\le1 x>1 x^2<1 x^2=2 y=2x y=3x (-\infty,7] \mathbb{R} \emptyset \infty -\infty 1:2 2:1 204_5 \begin{pmatrix}1&2\\3&4\end{pmatrix}
		50\text{cm} 50\text{kg} Tom HTT C \pm3 \floor{x} \max(x,y) \arctan{x} \sinh{x} 2^{2^{x}} x^{x}`)
	loose := Options{Simplify: "any", Inequality: "any"}
	g := grader(t, loose)
	for i, truth := range values {
		for k, answer := range values {
			if i != k && (3*i+k)%10 != 0 && os.Getenv("TRANCHE_COMPARE") == "" {
				continue
			}
			if got, why := verdict(t, g, input(`\boxed{`+answer+`}`, truth)); (got == "yes") != (i == k) {
				t.Errorf("%s for %s: %s: %s", answer, truth, got, why)
			}
		}
	}
}

// TestOneAnswerIsOneGuess: an answer that could stand for two truths is right for one of them at most.
func TestOneAnswerIsOneGuess(t *testing.T) {
	g := grader(t, Options{})
	for _, c := range []struct{ answer, truth, want string }{
		{`100 \approx 101`, "100", "yes"}, // the exact member
		{`100 \approx 101`, "101", "no"},
		{`x = 100 \approx 101`, "101", "no"},
		{`x = 100 \approx 101`, "x = 101", "no"},
		{`100 \approx 101.0`, "101", "no"},
		{`100 \approx 100.6`, "100.6", "no"},
		{`\frac23 \approx 0.67`, "0.67", "yes"},
		{`\frac23 \approx 0.68`, "0.68", "no"},
		{`-\frac23 \approx -0.67`, "-0.67", "yes"},
		{`\frac23 \approx 66.7\%`, `66.7\%`, "yes"},
		{`\frac23 \text{ m} \approx 0.67 \text{ m}`, `0.67 \text{ m}`, "yes"},
		{`\frac{200000}{3} \approx 6.67 \times 10^4`, `6.67 \times 10^4`, "yes"},
		{`\pi \approx 3.14`, `\pi`, "yes"},
		{`3, 5?`, "3", "no"},
		{`3. 5?`, "3", "no"},
		{`3, $5?`, "3", "no"},
		{`3 (5)`, "3", "no"},
		{`3 eggs, 5?`, "3", "no"},
		{`3? 5?`, "3", "no"},
		{`18 dollars, because 9 at 2 each`, "18", "yes"},
		{`18 dollars at 4.5 each`, "18", "yes"},
	} {
		if got, why := verdict(t, g, input(`\boxed{`+c.answer+`}`, c.truth)); got != c.want {
			t.Errorf("%s for %s: %s, want %s: %s", c.answer, c.truth, got, c.want, why)
		}
	}
}
