package mathgrade

import (
	"cmp"
	"math/big"
	"slices"
	"strings"
	"unicode"
)

// vocabulary tells which words may stand with a value and leave it the answer: units, a frame such as "so the answer is", the truth's own
// words, and those of the question that neither deny nor bound what is said.
type vocabulary struct{ truth, question []string }

// strange is the first word of a text that may not stand with a value, "" = none.
func (v vocabulary) strange(s string) string {
	for _, w := range spoken(s) {
		if !v.neutral(w) {
			return w
		}
	}
	return ""
}

func (v vocabulary) neutral(w string) bool {
	if len(w) == 1 || member(v.truth, w) {
		return true
	}
	if denies(w) || hedges(w) || multiplies(w) != nil {
		return false
	}
	return frames(w) || isUnit(w) || functions(w) != "" || member(v.question, w)
}

// strangeIn is the first such word that was read as a unit or as the name of a value.
func (v vocabulary) strangeIn(n *node) string {
	word := ""
	n.has(func(m *node) bool {
		switch name, label := strings.CutPrefix(m.name, "the "); {
		case m.op == opUnit:
			_, name = multiplier(m.name) // it counts in the value
			word = cmp.Or(v.noUnit(name), v.strange(name))
		case m.op == opSym && label:
			word = v.strange(name)
		}
		return word != ""
	})
	return word
}

// noUnit is the first word of what was read as a unit that is rather mathematics: a single letter that no unit is written with, and the truth neither, or the
// name of a function. 5 x is not 5.
func (v vocabulary) noUnit(name string) string {
	for _, w := range strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) }) {
		if (len(w) == 1 || functions(w) != "") && !isUnit(w) && !slices.Contains(v.truth, strings.ToLower(w)) {
			return w
		}
	}
	return ""
}

// spoken are the words of a text outside of its mathematics, in small letters.
func spoken(s string) []string {
	for {
		a, b, ok := mathSpan(s, 0)
		if !ok {
			break
		}
		s = s[:a] + " " + s[b:]
	}
	s = strings.NewReplacer("’", "'", `\text`, " ", `\left`, " ", `\right`, " ").Replace(strings.ToLower(unwrapped(s)))
	return strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' })
}

// member reports whether a word, or another form of it (boxes for box, began for begin), is among others.
func member(all []string, w string) bool {
	for _, o := range all {
		n := 0
		for n < min(len(o), len(w)) && o[n] == w[n] {
			n++
		}
		if o == w || n >= 3 && max(len(o), len(w)) <= n+3 {
			return true
		}
	}
	return false
}

// frames are words around an answer that change nothing of it.
func frames(w string) bool {
	return among(w, `the a an so thus therefore hence then answer final result value is are was were be equals equal it that this there they he
		she we has have had ha thi wa of in total altogether all left remaining each every per for my will must exactly just only about approximately approx
		roughly around correct right`)
}

// denies reports words that say what an answer is not, or that bound it.
func denies(w string) bool {
	return strings.HasSuffix(w, "n't") || among(w, `not no never none nor neither cannot wrong incorrect false untrue impossible invalid anything
		everything nothing without except excluding exclude excludes excluded than least most exceed exceeds exceeding`)
}

// hedges reports words that offer another value, or make of one another.
func hedges(w string) bool {
	return among(w, `or but to maybe perhaps possibly either alternatively might may could if unless until besides instead rather over under above below
		beyond between up plus minus times half halves third quarter double twice triple thrice`)
}

func among(w, list string) bool {
	for l := range strings.FieldsSeq(list) {
		if l == w {
			return true
		}
	}
	return false
}

// multiplies is what a number word makes of the number before it, nil for any other word.
func multiplies(w string) *big.Rat {
	zeros := int64(0)
	switch strings.TrimSuffix(w, "s") {
	case "dozen":
		return big.NewRat(12, 1)
	case "score":
		return big.NewRat(20, 1)
	case "gross", "gros":
		return big.NewRat(144, 1)
	case "couple", "pair":
		return big.NewRat(2, 1)
	case "hundred":
		zeros = 2
	case "thousand":
		zeros = 3
	case "lakh":
		zeros = 5
	case "million":
		zeros = 6
	case "crore":
		zeros = 7
	case "billion":
		zeros = 9
	case "trillion":
		zeros = 12
	case "quadrillion":
		zeros = 15
	default:
		return nil
	}
	return new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(zeros), nil))
}

// multiplier takes the number words off the front of a unit: 5 million dollars are 5,000,000 dollars.
func multiplier(unit string) (factor *big.Rat, rest string) {
	factor = big.NewRat(1, 1)
	for {
		first, behind, _ := strings.Cut(unit, " ")
		m := multiplies(first)
		if m == nil {
			return factor, unit
		}
		factor.Mul(factor, m)
		unit = strings.TrimPrefix(behind, "of ")
	}
}

// counted multiplies the number words of its unit into a value.
func (m measured) counted() measured {
	factor, rest := multiplier(m.unit)
	if rest == m.unit {
		return m
	}
	m.unit = rest
	if m.value.op == opNum {
		m.value = number(factor.Mul(factor, m.value.num))
	} else {
		m.value = branch(opMul, number(factor), m.value)
	}
	return m
}
