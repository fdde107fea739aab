package textgrade

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"math"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"tranche/reward"
)

// languages.gz is made by languages_generate.go, which says what is in it, of langdetect's profiles (NOTICE).
//
//go:embed languages.gz
var languagesFile []byte

// languages tells languages apart as langdetect does (Nakatani Shuyo's language-detection), which IFEval's published checks use: naive
// Bayes over n-grams of one to three characters. It weighs every n-gram of the text once where langdetect draws some by lot, so that the
// same text is always the same language.
type languages struct {
	codes []string
	grams map[string][]often
}

// often is how much likelier an n-gram is in one language than in one that does not have it, as a logarithm.
type often struct {
	language uint8
	gain     float32
}

const (
	detectRunes = 10000       // of a text that are looked at
	unseen      = 0.5 / 10000 // what an n-gram weighs in a language that does not have it
	leastOften  = 1e-4        // see languages_generate.go
	quantum     = 8
)

// readLanguages unpacks the file of profiles.
func readLanguages(packed []byte) (*languages, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("reading the profiles of languages: %w", err)
	}
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	l := &languages{grams: make(map[string][]often, 1<<16)}
	for lines.Scan() {
		if l.codes == nil {
			l.codes = strings.Fields(lines.Text())
			continue
		}
		gram, marks, ok := strings.Cut(lines.Text(), "\t")
		if !ok || len(marks)%2 != 0 {
			return nil, fmt.Errorf("reading the profiles of languages: a line that is none: %q", reward.Clip(lines.Text(), 40))
		}
		list := make([]often, len(marks)/2)
		for i := range list {
			p := leastOften * math.Exp2(float64(marks[2*i+1]-'!')/quantum)
			list[i] = often{marks[2*i] - 'A', float32(math.Log((unseen + p) / unseen))}
		}
		l.grams[strings.ReplaceAll(gram, "_", " ")] = list
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the profiles of languages: %w", err)
	}
	return l, nil
}

// knows reports whether there is a profile of that language.
func (l *languages) knows(code string) bool {
	for _, c := range l.codes {
		if sameLanguage(c, code) {
			return true
		}
	}
	return false
}

// sameLanguage compares a profile's code with one that was asked for: zh stands for both of its profiles.
func sameLanguage(profile, code string) bool {
	return profile == strings.ToLower(code) || code == "zh" && strings.HasPrefix(profile, "zh-")
}

// detect returns the code of the likeliest language, "" where nothing of the text tells one.
func (l *languages) detect(text string) string {
	score := make([]float64, len(l.codes))
	found := false
	eachGram(plainScript(text), func(gram string) {
		for _, o := range l.grams[gram] {
			score[o.language] += float64(o.gain)
			found = true
		}
	})
	best := ""
	top := 0.0
	for i, s := range score {
		if s > top {
			best, top = l.codes[i], s
		}
	}
	if !found {
		return ""
	}
	return best
}

var addresses = regexp.MustCompile(`https?://[-_.?&~;+=/#0-9A-Za-z]+|[-_.0-9A-Za-z]+@[-_0-9A-Za-z]+[-_.0-9A-Za-z]+`)

// plainScript is the part of a text that is looked at: no addresses, and no Latin letters where most of it is in another script.
func plainScript(text string) string {
	text = addresses.ReplaceAllString(firstRunes(text, 2*detectRunes), " ")
	text = firstRunes(text, detectRunes)
	latin, other := 0, 0
	for _, r := range text {
		switch {
		case 'A' <= r && r <= 'z':
			latin++
		case r >= 0x300 && (r < 0x1e00 || r > 0x1eff):
			other++
		}
	}
	if 2*latin >= other {
		return text
	}
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'z' {
			return -1
		}
		return r
	}, text)
}

func firstRunes(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}

// eachGram calls for every n-gram of one to three characters, words with the space before and behind them; words in capitals are left out.
func eachGram(text string, call func(gram string)) {
	var last [3]rune // the oldest first
	n := 1
	last[0] = ' '
	capitals := false
	for _, r := range text {
		r = plainRune(r)
		before := last[n-1]
		if before == ' ' {
			last[0], n, capitals = ' ', 1, false
			if r == ' ' {
				continue
			}
		} else if n == 3 {
			last[0], last[1], n = last[1], last[2], 2
		}
		last[n], n = r, n+1
		capitals = unicode.IsUpper(r) && (capitals || unicode.IsUpper(before))
		for from := n - 1; from >= 0 && !capitals; from-- {
			if gram := string(last[from:n]); gram != " " {
				call(gram)
			}
		}
	}
}

// plainRune makes one of characters that tell no language from another, as the profiles do.
func plainRune(r rune) rune {
	switch {
	case r < utf8.RuneSelf:
		if !isLetter(byte(r)) {
			return ' '
		}
	case r == 0xa0, r == 0xab, r == 0xb0, r == 0xbb, 0x2000 <= r && r <= 0x206f:
		return ' '
	case r == '\u0219':
		return '\u015f'
	case r == '\u021b':
		return '\u0163'
	case r == '\u06cc':
		return '\u064a'
	case 0x1ea0 <= r && r <= 0x1eff:
		return '\u1ec3'
	case 0x3040 <= r && r <= 0x309f:
		return '\u3042'
	case 0x30a0 <= r && r <= 0x30ff:
		return '\u30a2'
	case 0xac00 <= r && r <= 0xd7a3:
		return '\uac00'
	}
	return r
}
