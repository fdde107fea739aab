package mathgrade

import (
	"errors"
	"math/big"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tranche/reward"
)

// Limits on what is read as mathematics. An answer beyond them is not read at all; the work on what is read is bounded in eval.go.
const (
	maxAnswer = 2000 // bytes
	maxTokens = 1000
	maxDepth  = 64
	maxDigits = 1000 // of one number
)

var errLong = errors.New("too long to be read as mathematics")

type kind uint8

const (
	tEnd    kind = iota
	tNum         // num, places, digits; text as written without marks between thousands
	tLetter      // a variable
	tConst       // pi, e, i, inf, R, empty, …
	tFn          // sin, log, …
	tCmd         // frac, sqrt, binom, choose, begin, end: what takes arguments of its own
	tOp          // operators, brackets and relations
	tSep         // and, or
	tWord        // a word, or what stood in \text{…}
)

type token struct {
	kind   kind
	text   string
	num    *big.Rat
	places int
	gap    bool // white space stands before it
	set    bool // a word that was set as text
}

// lexer cuts an answer into tokens.
type lexer struct {
	s       string
	i       int
	toks    []token
	gap     bool
	groups  bool // 1,000 is one number
	loose   bool // letters behind a number and a space are a unit
	grouped bool // a comma was taken for a mark between thousands
	err     error
}

// lex cuts s. grouped says that a comma was taken for a mark between thousands.
func lex(s string, groups, loose bool) (toks []token, grouped bool, err error) {
	if len(s) > maxAnswer {
		return nil, false, errLong
	}
	l := &lexer{s: reward.Halfwidth(s), groups: groups, loose: loose}
	for l.err == nil && l.i < len(l.s) {
		l.next()
		if len(l.toks) > maxTokens {
			return nil, false, errLong
		}
	}
	return l.toks, l.grouped, l.err
}

func (l *lexer) fail(what string) { l.err = errors.New(what) }

func (l *lexer) put(k kind, text string) {
	l.toks = append(l.toks, token{kind: k, text: text, places: -1, gap: l.gap})
	l.gap = false
}

func (l *lexer) last() token {
	if len(l.toks) == 0 {
		return token{}
	}
	return l.toks[len(l.toks)-1]
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func (l *lexer) next() {
	c := l.s[l.i]
	switch {
	case isDigit(c) || c == '.' && l.i+1 < len(l.s) && isDigit(l.s[l.i+1]):
		l.number()
	case isLetter(c):
		l.letters()
	case c == '\\':
		l.command()
	case c < utf8.RuneSelf:
		l.i++
		l.ascii(c)
	default:
		r, size := utf8.DecodeRuneInString(l.s[l.i:])
		l.i += size
		l.symbol(r)
	}
}

func (l *lexer) ascii(c byte) {
	if op := pair(c, at(l.s, l.i)); op != "" {
		l.i++
		l.put(tOp, op)
		return
	}
	switch c {
	case ' ', '\t', '\n', '\r', '~':
		l.gap = true
	case '$', '`', '"':
		// marks around mathematics, and the dollar before an amount
	case '+', '-', '*', '/', '^', '_', '(', ')', '[', ']', '{', '}', '|', ',', ';', ':', '!', '%', '\'', '=', '<', '>', '&':
		l.put(tOp, string(c))
	case '.':
		if strings.TrimSpace(l.s[l.i:]) != "" {
			l.fail("a point that is in no number")
		}
	default:
		l.fail("the sign " + string(c))
	}
}

// pair is the operator that two signs make, "" for none.
func pair(a, b byte) string {
	switch string([]byte{a, b}) {
	case "<=", "=<":
		return "<="
	case ">=", "=>":
		return ">="
	case "!=":
		return "!="
	case "==":
		return "="
	case "**":
		return "^"
	}
	return ""
}

// symbol reads a sign outside ASCII.
func (l *lexer) symbol(r rune) {
	if raised(r) >= 0 {
		l.superscript(r)
		return
	}
	if f, ok := vulgar(r); ok {
		l.vulgar(f)
		return
	}
	if cmd := unicodeCommand(r); cmd != "" {
		l.named(cmd)
		return
	}
	switch {
	case unicode.IsSpace(r) || strings.ContainsRune("\u2009\u202f\u200b\ufeff", r):
		l.gap = true
	case strings.ContainsRune("€£¥₹“”’‘", r):
	case unicode.IsLetter(r):
		l.put(tLetter, string(r))
	default:
		l.fail("the sign " + string(r))
	}
}

// superscript reads raised digits as a power.
func (l *lexer) superscript(r rune) {
	digits := ""
	for raised(r) >= 0 {
		digits += string(rune('0' + raised(r)))
		var size int
		if r, size = utf8.DecodeRuneInString(l.s[l.i:]); raised(r) >= 0 {
			l.i += size
		}
	}
	l.put(tOp, "^")
	l.literal(digits, "")
}

// raised is the digit that r is, raised; -1 for none.
func raised(r rune) int { return slices.Index([]rune("⁰¹²³⁴⁵⁶⁷⁸⁹"), r) }

func vulgar(r rune) (f [2]int64, ok bool) {
	f, ok = map[rune][2]int64{
		'½': {1, 2}, '⅓': {1, 3}, '⅔': {2, 3}, '¼': {1, 4}, '¾': {3, 4}, '⅕': {1, 5}, '⅖': {2, 5}, '⅗': {3, 5}, '⅘': {4, 5},
		'⅙': {1, 6}, '⅚': {5, 6}, '⅛': {1, 8}, '⅜': {3, 8}, '⅝': {5, 8}, '⅞': {7, 8},
	}[r]
	return f, ok
}

// vulgar adds a fraction of one sign to the whole number before it, if there is one.
func (l *lexer) vulgar(f [2]int64) {
	v := big.NewRat(f[0], f[1])
	if n := len(l.toks); n > 0 && l.toks[n-1].kind == tNum && l.toks[n-1].num.IsInt() && l.toks[n-1].places < 0 {
		l.toks[n-1].num = v.Add(v, l.toks[n-1].num)
		l.toks[n-1].text += "+"
		return
	}
	l.toks = append(l.toks, token{kind: tNum, num: v, text: "+", places: -1, gap: l.gap})
	l.gap = false
}

func unicodeCommand(r rune) string {
	switch r {
	case '−', '–', '—':
		return "-"
	case '×', '·', '⋅', '∙', '•', '∗':
		return "times"
	case '÷', '∕', '⁄':
		return "div"
	case '≤', '⩽':
		return "le"
	case '≥', '⩾':
		return "ge"
	case '≠':
		return "ne"
	case '≈', '≃':
		return "approx"
	case '±':
		return "pm"
	case '∓':
		return "mp"
	case '∪':
		return "cup"
	case '∩':
		return "cap"
	case '∖':
		return "setminus"
	case '∈':
		return "in"
	case '∞':
		return "infty"
	case 'π':
		return "pi"
	case '√':
		return "sqrt"
	case '∛':
		return "cbrt"
	case '°', 'º':
		return "degree"
	case '∅':
		return "emptyset"
	case 'ℝ':
		return "R"
	case 'ℤ':
		return "Z"
	case 'ℕ':
		return "N"
	case 'ℚ':
		return "Q"
	case 'ℂ':
		return "C"
	case '⌊':
		return "lfloor"
	case '⌋':
		return "rfloor"
	case '⌈':
		return "lceil"
	case '⌉':
		return "rceil"
	case '⟨':
		return "langle"
	case '⟩':
		return "rangle"
	case '∣':
		return "mid"
	}
	return greekName(r)
}

// greek reports whether a name is that of a letter.
func greek(name string) bool {
	switch name {
	case "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu",
		"nu", "xi", "rho", "sigma", "tau", "phi", "varphi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda",
		"Sigma", "Phi", "Psi", "Omega", "ell":
		return true
	}
	return false
}

// greekName is the name of a Greek letter, "" for any other sign.
func greekName(r rune) string {
	switch r {
	case 'α':
		return "alpha"
	case 'β':
		return "beta"
	case 'γ':
		return "gamma"
	case 'δ':
		return "delta"
	case 'ε':
		return "epsilon"
	case 'ϵ':
		return "varepsilon"
	case 'ζ':
		return "zeta"
	case 'η':
		return "eta"
	case 'θ':
		return "theta"
	case 'ι':
		return "iota"
	case 'κ':
		return "kappa"
	case 'λ':
		return "lambda"
	case 'μ':
		return "mu"
	case 'ν':
		return "nu"
	case 'ξ':
		return "xi"
	case 'ρ':
		return "rho"
	case 'σ':
		return "sigma"
	case 'τ':
		return "tau"
	case 'φ':
		return "phi"
	case 'ϕ':
		return "varphi"
	case 'χ':
		return "chi"
	case 'ψ':
		return "psi"
	case 'ω':
		return "omega"
	case 'Γ':
		return "Gamma"
	case 'Δ':
		return "Delta"
	case 'Θ':
		return "Theta"
	case 'Λ':
		return "Lambda"
	case 'Σ':
		return "Sigma"
	case 'Φ':
		return "Phi"
	case 'Ψ':
		return "Psi"
	case 'Ω':
		return "Omega"
	case 'ℓ':
		return "ell"
	}
	return ""
}

// number reads digits, groups of thousands, a decimal part, an exponent, a repeated part.
func (l *lexer) number() {
	from := l.i
	whole := l.digits()
	if n := len(whole); n >= 1 && n <= 3 && whole[0] != '0' {
		whole = l.thousands(whole)
	}
	part := ""
	if l.i+1 < len(l.s) && l.s[l.i] == '.' && isDigit(l.s[l.i+1]) {
		l.i++
		part = l.digits()
		if l.i+1 < len(l.s) && l.s[l.i] == '.' && isDigit(l.s[l.i+1]) {
			l.fail("a number with two points")
			return
		}
	} else if whole == "" {
		l.i = from + 1
		l.fail("a point that is in no number")
		return
	}
	if len(whole)+len(part) > maxDigits {
		l.fail("a number of too many digits")
		return
	}
	l.literal(whole, part)
	l.repeated(part)
	l.exponent()
}

func (l *lexer) digits() string {
	from := l.i
	for l.i < len(l.s) && isDigit(l.s[l.i]) {
		l.i++
	}
	return l.s[from:l.i]
}

// thousands takes in the groups of three behind the first digits. Spaces and LaTeX's own marks always stand between thousands; a comma
// may also stand between two numbers, so it is read both ways where that matters.
func (l *lexer) thousands(whole string) string {
	for {
		mark, comma := l.mark()
		if mark == 0 || comma && !l.groups {
			return whole
		}
		j := l.i + mark
		k := j
		for k < len(l.s) && isDigit(l.s[k]) {
			k++
		}
		if k-j != 3 || k < len(l.s) && l.s[k] == '/' || len(whole) > maxDigits {
			return whole
		}
		l.grouped = l.grouped || comma
		whole += l.s[j:k]
		l.i = k
	}
}

// mark is the length of the mark between thousands here, 0 for none; comma says that it could stand between numbers too.
func (l *lexer) mark() (n int, comma bool) {
	rest := l.s[l.i:]
	for _, m := range []string{"{,}", "{, }", " {, }", `,\!`, `{,}\!`, `\,`, `\ `, "\u00a0", "\u2009", "\u202f", " "} {
		if strings.HasPrefix(rest, m) && len(rest) > len(m) && isDigit(rest[len(m)]) {
			return len(m), false
		}
	}
	if strings.HasPrefix(rest, `,\! `) {
		return len(`,\! `), false
	}
	if strings.HasPrefix(rest, ",") && len(rest) > 1 && isDigit(rest[1]) {
		return 1, true
	}
	return 0, false
}

// literal adds a number.
func (l *lexer) literal(whole, part string) {
	text := whole
	places := -1
	if part != "" {
		text, places = whole+"."+part, len(part)
	}
	if strings.HasPrefix(text, ".") {
		text = "0" + text
	}
	v, ok := new(big.Rat).SetString(text)
	if !ok {
		l.fail("the number " + text)
		return
	}
	l.toks = append(l.toks, token{kind: tNum, text: text, num: v, places: places, gap: l.gap})
	l.gap = false
}

// repeated reads the repeated part of 0.1\overline{6}.
func (l *lexer) repeated(part string) {
	const bar = `\overline{`
	if !strings.HasPrefix(l.s[l.i:], bar) && !strings.HasPrefix(l.s[l.i:], "."+bar) {
		return
	}
	at := l.i
	l.i += strings.Index(l.s[l.i:], bar) + len(bar)
	period := l.digits()
	if period == "" || len(period) > 50 || l.i >= len(l.s) || l.s[l.i] != '}' {
		l.i = at
		return
	}
	l.i++
	v, _ := new(big.Rat).SetString(period)
	nines, _ := new(big.Int).SetString(strings.Repeat("9", len(period))+strings.Repeat("0", len(part)), 10)
	v.Quo(v, new(big.Rat).SetInt(nines))
	t := &l.toks[len(l.toks)-1]
	t.num, t.places, t.text = v.Add(v, t.num), -1, t.text+"~"+period
}

// exponent reads e-3 behind a number.
func (l *lexer) exponent() {
	j := l.i
	if j >= len(l.s) || l.s[j]|0x20 != 'e' {
		return
	}
	j++
	if j < len(l.s) && (l.s[j] == '-' || l.s[j] == '+') {
		j++
	}
	k := j
	for k < len(l.s) && isDigit(l.s[k]) {
		k++
	}
	if k == j || k-j > 3 || k < len(l.s) && isLetter(l.s[k]) {
		return
	}
	t := &l.toks[len(l.toks)-1]
	v, ok := new(big.Rat).SetString("1" + l.s[l.i:k])
	if !ok {
		return
	}
	t.num = v.Mul(v, t.num)
	t.text += l.s[l.i:k]
	l.i = k
}

// letters reads a run of letters: names of functions, variables side by side, a word.
func (l *lexer) letters() {
	from := l.i
	for l.i < len(l.s) && isLetter(l.s[l.i]) {
		l.i++
	}
	run := l.s[from:l.i]
	prev := l.last()
	behind := prev.kind == tNum || prev.kind == tOp && strings.Contains(")}]%", prev.text)
	if behind && run == "min" && at(l.s, l.i) != '(' && at(l.s, l.i) != '_' { // minutes, not the least
		l.word(run, false)
		return
	}
	if l.known(run) {
		return
	}
	if l.loose && behind && l.gap && !among(run, "k K M B") || len(run) > 1 && isUnit(run) && len(l.toks) > 0 {
		l.word(run, false)
		return
	}
	if a, b, c, ok := around(run); ok {
		l.each(a)
		l.known(b)
		l.each(c)
		return
	}
	if len(run) > 3 {
		l.word(run, false)
		return
	}
	l.each(run)
}

func (l *lexer) word(w string, set bool) {
	l.toks = append(l.toks, token{kind: tWord, text: w, places: -1, gap: l.gap, set: set})
	l.gap = false
}

// each reads letters as variables, except for e and i.
func (l *lexer) each(run string) {
	for _, c := range run {
		if c == 'e' || c == 'i' {
			l.put(tConst, string(c))
			continue
		}
		l.put(tLetter, string(c))
	}
}

// around splits a run such as sinx or xln at the name of a function that stands in it.
func around(run string) (before, name, after string, ok bool) {
	for n := min(len(run), 7); n >= 2; n-- {
		for i := 0; i <= 1 && i+n <= len(run); i++ {
			if w := run[i : i+n]; (functions(w) != "" || w == "pi" || w == "sqrt") && len(run)-i-n <= 1 {
				return run[:i], w, run[i+n:], true
			}
		}
	}
	return "", "", "", false
}

// known reads a run of letters that means something as a whole.
func (l *lexer) known(run string) bool {
	switch low := strings.ToLower(run); low {
	case "and", "or":
		l.put(tSep, low)
		return true
	case "inf", "infinity", "infty":
		l.put(tConst, "inf")
		return true
	}
	switch run {
	case "oo":
		l.put(tConst, "inf")
	case "pi":
		l.put(tConst, "pi")
	case "sqrt", "cbrt":
		l.named(run)
	case "in":
		l.put(tOp, "in")
	case "percent", "pct", "percentage":
		l.put(tOp, "%")
	case "degrees", "degree", "deg":
		l.put(tOp, "deg")
	case "U":
		if l.last().text != ")" && l.last().text != "]" && l.last().text != `\}` {
			return false
		}
		l.put(tOp, "cup")
	default:
		if len(run) > 1 && functions(run) != "" {
			l.put(tFn, functions(run))
			return true
		}
		if greek(run) {
			l.put(tLetter, run)
			return true
		}
		return false
	}
	return true
}

// functions is the one name of a function that has several.
func functions(w string) string {
	switch w {
	case "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "log", "ln", "exp", "min", "max", "gcd",
		"lcm", "abs", "floor", "ceil", "arccot", "lg":
		return w
	case "asin":
		return "arcsin"
	case "acos":
		return "arccos"
	case "atan":
		return "arctan"
	case "tg":
		return "tan"
	case "cosec":
		return "csc"
	}
	return ""
}

// command reads what a backslash begins.
func (l *lexer) command() {
	l.i++
	if l.i >= len(l.s) {
		return
	}
	if c := l.s[l.i]; !isLetter(c) {
		l.i++
		l.escaped(c)
		return
	}
	from := l.i
	for l.i < len(l.s) && isLetter(l.s[l.i]) {
		l.i++
	}
	l.named(l.s[from:l.i])
}

func (l *lexer) escaped(c byte) {
	switch c {
	case ',', ';', ':', '!', ' ', '(', ')', '[', ']', '$', '\n':
		l.gap = l.gap || c != '!'
	case '{', '}':
		l.put(tOp, `\`+string(c))
	case '%':
		l.put(tOp, "%")
	case '|':
		l.put(tOp, "|")
	case '\\':
		l.put(tOp, `\\`)
	case '#', '&', '_':
		l.fail("the sign " + string(c))
	default:
		l.fail("the command \\" + string(c))
	}
}

// named reads a command by its name.
func (l *lexer) named(name string) {
	if op := operator(name); op != "" {
		l.put(tOp, op)
		return
	}
	if functions(name) != "" {
		l.put(tFn, functions(name))
		return
	}
	switch name {
	case "left", "right":
		l.skipPoint()
	case "big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "biggl", "biggr", "displaystyle", "textstyle", "limits", "quad", "qquad", "angle",
		"boxed", "fbox", "underline", "thinspace", "phantom", "rm", "bf", "it", "thickspace", "enspace":
		l.gap = true
	case "frac", "dfrac", "tfrac", "cfrac":
		l.put(tCmd, "frac")
	case "binom", "dbinom", "tbinom":
		l.put(tCmd, "binom")
	case "sqrt", "cbrt", "choose", "over":
		l.put(tCmd, name)
	case "begin", "end":
		l.put(tCmd, name)
		l.word(strings.TrimRight(l.braced(), "*"), true)
		if l.last().text == "array" && name == "begin" && strings.HasPrefix(l.s[l.i:], "{") {
			l.braced() // its columns
		}
	case "text", "textbf", "textrm", "textit", "mbox", "textnormal", "textsf", "texttt", "mathrm", "mathbf", "mathit", "mathsf", "operatorname", "bold",
		"boldsymbol", "bm", "mathcal":
		l.set(l.braced())
	case "color", "textcolor":
		l.braced() // the colour
		l.gap = true
	case "mathbb", "Bbb":
		l.put(tConst, strings.TrimSpace(l.braced()))
	case "R", "Z", "N", "Q", "C":
		l.put(tConst, name)
	case "overline", "vec", "hat", "bar", "tilde", "overrightarrow", "widehat", "overset":
		l.put(tLetter, strings.ReplaceAll(l.braced(), " ", ""))
	case "emptyset", "varnothing":
		l.put(tConst, "empty")
	case "infty":
		l.put(tConst, "inf")
	case "pi":
		l.put(tConst, "pi")
	case "imath", "jmath":
		l.put(tConst, "i")
	case "land":
		l.put(tSep, "and")
	case "lor", "vee":
		l.put(tSep, "or")
	case "degrees":
		l.put(tOp, "deg")
	case "percent":
		l.put(tOp, "%")
	default:
		if rest, ok := strings.CutPrefix(name, "quad"); ok { // \quadx
			l.i -= len(rest)
			l.gap = true
			return
		}
		if !greek(name) {
			l.fail("the command \\" + name)
			return
		}
		l.put(tLetter, name)
	}
}

// skipPoint passes over the point of \left. and \right.
func (l *lexer) skipPoint() {
	if l.i < len(l.s) && l.s[l.i] == '.' {
		l.i++
	}
}

func operator(name string) string {
	switch name {
	case "-", "pm", "mp":
		return name
	case "times", "cdot", "ast":
		return "*"
	case "div":
		return "/"
	case "le", "leq", "leqslant":
		return "<="
	case "ge", "geq", "geqslant":
		return ">="
	case "lt":
		return "<"
	case "gt":
		return ">"
	case "ne", "neq":
		return "!="
	case "approx", "simeq", "sim", "thickapprox":
		return "~"
	case "cup", "cap", "in":
		return name
	case "bigcup":
		return "cup"
	case "setminus", "backslash", "smallsetminus":
		return "setminus"
	case "degree", "circ":
		return "deg"
	case "lvert", "rvert", "vert", "mid":
		return "|"
	case "lfloor", "rfloor", "lceil", "rceil", "langle", "rangle":
		return name
	case "lbrace":
		return `\{`
	case "rbrace":
		return `\}`
	case "colon":
		return ":"
	case "prime":
		return "'"
	}
	return ""
}

// braced reads {…} or one letter, and gives what is inside.
func (l *lexer) braced() string {
	for l.i < len(l.s) && l.s[l.i] == ' ' {
		l.i++
	}
	if l.i >= len(l.s) {
		return ""
	}
	if l.s[l.i] != '{' {
		_, size := utf8.DecodeRuneInString(l.s[l.i:])
		l.i += size
		return l.s[l.i-size : l.i]
	}
	inside, end := reward.Braced(l.s[l.i+1:])
	l.i += 1 + end
	return inside
}

// set reads what stands in \text{…} and the like: a word between values, the name of a function, a variable, a number, or a word.
func (l *lexer) set(inside string) {
	w := strings.TrimSpace(inside)
	bare := strings.Trim(w, " .,:;~")
	switch low := strings.ToLower(bare); {
	case low == "and" || low == "or":
		l.put(tSep, low)
	case bare == "":
		l.gap = true
	case strings.Trim(bare, "0123456789.,") == "" && isDigit(bare[0]), len(bare) == 1 && isLetter(bare[0]) && bare != "m" && bare != "s":
		l.inner(bare)
	case len(bare) > 1 && isLetter(bare[0]) && l.known(bare):
	default:
		l.word(w, true)
	}
}

// inner reads a text of its own into the same tokens.
func (l *lexer) inner(s string) {
	toks, grouped, err := lex(s, l.groups, false)
	if err != nil {
		l.err = err
		return
	}
	l.grouped = l.grouped || grouped
	for i := range toks {
		toks[i].gap = toks[i].gap || i == 0 && l.gap
	}
	l.toks = append(l.toks, toks...)
	l.gap = false
}
