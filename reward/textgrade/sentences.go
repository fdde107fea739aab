package textgrade

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// countSentences counts as Punkt does (Kiss & Strunk 2006, Unsupervised Multilingual Sentence Boundary Detection), which IFEval's published
// checks use: ? and ! end a sentence, a full stop does unless it ends an abbreviation, an initial or a number in front of a small letter.
// Punkt learned its abbreviations and the words that begin sentences from newspapers; here are short lists of both.
func countSentences(text string) int {
	text = strings.TrimRightFunc(text, unicode.IsSpace)
	count, from := 0, 0
	for i := 0; i < len(text); {
		start, end := nextChunk(text, i)
		i = end
		cut := lastStop(text[start:end], end == len(text))
		if cut < 0 || !endsSentence(text[start:start+cut], text[start+cut:end], nextWord(text, end)) {
			continue
		}
		count++
		from = behindClosers(text, start+cut)
	}
	if strings.TrimSpace(text[min(from, len(text)):]) != "" {
		count++
	}
	return count
}

// nextChunk is the run of characters without white space at or behind i.
func nextChunk(text string, i int) (start, end int) {
	start = i + strings.IndexFunc(text[i:], func(r rune) bool { return !unicode.IsSpace(r) })
	if start < i {
		return len(text), len(text)
	}
	end = start + strings.IndexFunc(text[start:], unicode.IsSpace)
	if end < start {
		end = len(text)
	}
	return start, end
}

func nextWord(text string, i int) string {
	start, end := nextChunk(text, i)
	return text[start:min(end, start+100)]
}

// lastStop is behind the last mark of a chunk that can end a sentence: one that no letter, figure or comma follows. -1 = there is none.
func lastStop(chunk string, lastOfText bool) int {
	for i := len(chunk) - 1; i >= 0; i-- {
		if c := chunk[i]; c != '.' && c != '?' && c != '!' {
			continue
		}
		if i+1 == len(chunk) {
			if lastOfText {
				return -1 // what ends with the text is the last sentence anyway
			}
			return i + 1
		}
		if strings.IndexByte(`)";}]*:@'({[!?`, chunk[i+1]) >= 0 {
			return i + 1
		}
	}
	return -1
}

// endsSentence decides on the mark that a piece ends with; rest is what follows it in its chunk, next the word after that.
func endsSentence(piece, rest, next string) bool {
	if piece[len(piece)-1] != '.' {
		return true
	}
	if rest != "" {
		next = rest
	}
	word := piece
	if i := strings.LastIndexAny(piece[:len(piece)-1], `(["'*{}:;`); i >= 0 {
		word = piece[i+1:]
	}
	body := strings.ToLower(strings.TrimRight(word, "."))
	first, _ := utf8.DecodeRuneInString(next)
	switch {
	case len(body)+1 < len(word): // … as dots
		return isStarter(next)
	case body == "":
		return true
	case isNumeral(body):
		return !unicode.IsLower(first)
	case strings.Contains(titles, " "+body+" "):
		return false
	case isAbbreviation(body):
		return isStarter(next)
	}
	return true
}

// behindClosers is behind the quotes and brackets at i that close the sentence before.
func behindClosers(text string, i int) int {
	for {
		rest := strings.TrimLeftFunc(text[i:], unicode.IsSpace)
		at := len(text) - len(rest)
		end := at
		for end < len(text) && strings.IndexByte(`"')]}`, text[end]) >= 0 {
			end++
		}
		r, _ := utf8.DecodeRuneInString(text[end:])
		if end == at || end < len(text) && !unicode.IsSpace(r) {
			return at
		}
		i = end
	}
}

func isNumeral(s string) bool {
	return strings.Trim(s, "0123456789,.-") == "" && strings.ContainsAny(s, "0123456789")
}

// isAbbreviation reports whether a word (small letters, without its last full stop) is one, or an initial.
func isAbbreviation(body string) bool {
	if i := strings.LastIndexByte(body, '-'); i >= 0 {
		body = body[i+1:]
	}
	if r, n := utf8.DecodeRuneInString(body); n == len(body) && unicode.IsLetter(r) {
		return true
	}
	return strings.Contains(abbreviations, " "+body+" ")
}

// titles stand before a name.
const titles = " mr mrs ms dr prof st rev gen col lt capt sgt maj adm gov sen rep reps hon messrs "

const abbreviations = " sr jr inc ltd co cos corp bros " +
	"jan feb mar apr aug sep sept oct nov dec mon tue wed thu fri sat ave blvd ft vs vol va pa ga fla ill ind mich minn wis calif " +
	"colo conn ariz ala ark tenn tex mass okla ore wash ky md mo " +
	"ph.d a.m p.m a.d b.c d.c e.g i.e l.a n.j n.y u.k u.n u.s "

// isStarter reports whether a word with a capital is one that begins many sentences, and so none that goes on with a name.
func isStarter(word string) bool {
	end := strings.IndexFunc(word, func(r rune) bool { return !unicode.IsLetter(r) })
	if end >= 0 {
		word = word[:end]
	}
	r, n := utf8.DecodeRuneInString(word)
	return unicode.IsUpper(r) && !strings.ContainsFunc(word[n:], unicode.IsUpper) && strings.Contains(starters, " "+strings.ToLower(word)+" ")
}

const starters = " the it he she they we you this that these those there here in on at by for from with but and so or if when while as after " +
	"before although though because since however then thus also a an his her its their our my your one some many most all each every no not " +
	"what who why how where which let can will would could should may do does did is are was were have has first second third next finally " +
	"now today please remember "
