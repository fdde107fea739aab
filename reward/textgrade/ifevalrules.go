package textgrade

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"tranche/reward"
)

// rule makes the check of an instruction from its arguments. It reports wrong ones through k; its own error is a verdict that cannot be.
type rule func(k *kwargs) (func(text string) bool, error)

// rules are the 25 instructions of the paper's table 1 under their ids in the data set.
func rules(known func() (*languages, error)) map[string]rule {
	return map[string]rule{
		"keywords:existence":        plain(existence),
		"keywords:frequency":        plain(frequency),
		"keywords:forbidden_words":  plain(forbidden),
		"keywords:letter_frequency": plain(letters),

		"language:response_language": func(k *kwargs) (func(string) bool, error) { return inLanguage(k, known) },

		"length_constraints:number_sentences":         plain(counted("relation", "num_sentences", countSentences)),
		"length_constraints:number_paragraphs":        plain(paragraphs),
		"length_constraints:number_words":             plain(counted("relation", "num_words", countWords)),
		"length_constraints:nth_paragraph_first_word": plain(paragraphBegins),

		"detectable_content:number_placeholders": plain(least("num_placeholders", matches(placeholder))),
		"detectable_content:postscript":          plain(postscript),

		"detectable_format:number_bullet_lists":         plain(bullets),
		"detectable_format:constrained_response":        plain(fixed(constrained)),
		"detectable_format:number_highlighted_sections": plain(least("num_highlights", countHighlights)),
		"detectable_format:multiple_sections":           plain(sections),
		"detectable_format:json_format":                 plain(fixed(isJSON)),
		"detectable_format:title":                       plain(fixed(hasTitle)),

		"combination:two_responses": plain(fixed(twoResponses)),
		"combination:repeat_prompt": plain(repeatsPrompt),

		"startend:end_checker": plain(endsWith),
		"startend:quotation":   plain(fixed(quoted)),

		"change_case:capital_word_frequency": plain(counted("capital_relation", "capital_frequency", countCapitalWords)),
		"change_case:english_capital":        inEnglish(isUpper, known),
		"change_case:english_lowercase":      inEnglish(isLower, known),

		"punctuation:no_comma": plain(fixed(func(text string) bool { return !strings.Contains(text, ",") })),
	}
}

// plain is a rule that always comes to a verdict.
func plain(make func(k *kwargs) func(string) bool) rule {
	return func(k *kwargs) (func(string) bool, error) { return make(k), nil }
}

// fixed is a check without arguments.
func fixed(check func(string) bool) func(*kwargs) func(string) bool {
	return func(*kwargs) func(string) bool { return check }
}

// counted wants a count in a relation.
func counted(relation, number string, count func(string) int) func(*kwargs) func(string) bool {
	return func(k *kwargs) func(string) bool {
		within := k.bound(relation, number)
		return func(text string) bool { return within(count(text)) }
	}
}

// least wants a count of at least so many.
func least(number string, count func(string) int) func(*kwargs) func(string) bool {
	return func(k *kwargs) func(string) bool {
		n := k.count(number)
		return func(text string) bool { return count(text) >= n }
	}
}

func matches(re *regexp.Regexp) func(string) int {
	return func(text string) int { return len(re.FindAllStringIndex(text, -1)) }
}

func existence(k *kwargs) func(string) bool {
	words := k.texts("keywords")
	return func(text string) bool {
		text = strings.ToLower(text)
		for _, w := range words {
			if !strings.Contains(text, strings.ToLower(w)) {
				return false
			}
		}
		return true
	}
}

func frequency(k *kwargs) func(string) bool {
	word := strings.ToLower(k.text("keyword"))
	within := k.bound("relation", "frequency")
	return func(text string) bool { return within(strings.Count(strings.ToLower(text), word)) }
}

func forbidden(k *kwargs) func(string) bool {
	words := k.texts("forbidden_words")
	return func(text string) bool {
		text = strings.ToLower(text)
		for _, w := range words {
			if hasWord(text, strings.ToLower(w)) {
				return false
			}
		}
		return true
	}
}

func letters(k *kwargs) func(string) bool {
	letter := strings.ToLower(k.text("letter"))
	if utf8.RuneCountInString(letter) > 1 {
		k.errs = append(k.errs, fmt.Errorf("letter: %q, expected one sign", reward.Clip(letter, 20)))
	}
	within := k.bound("let_relation", "let_frequency")
	return func(text string) bool { return within(strings.Count(strings.ToLower(text), letter)) }
}

// inLanguage wants a text in one language. One without any letter is in none.
func inLanguage(k *kwargs, known func() (*languages, error)) (func(string) bool, error) {
	code := k.text("language")
	l, err := known()
	if err != nil {
		return nil, err
	}
	if !l.knows(code) {
		return nil, &reward.Unjudged{Reason: "unknown_language", Detail: fmt.Sprintf("%q cannot be told from others", reward.Clip(code, 20))}
	}
	return func(text string) bool { return sameLanguage(l.detect(text), code) }, nil
}

// fewLetters is a text too short to tell its language, letters.
const fewLetters = 20

// inEnglish wants letters of one case, in English. It takes a text for English that is too short to tell.
func inEnglish(oneCase func(string) bool, known func() (*languages, error)) rule {
	return func(*kwargs) (func(string) bool, error) {
		l, err := known()
		return func(text string) bool {
			if !oneCase(text) {
				return false
			}
			small := strings.ToLower(text) // words in capitals tell no language
			return countLetters(small, fewLetters) < fewLetters || l.detect(small) == "en"
		}, err
	}
}

// countLetters counts up to a limit.
func countLetters(text string, limit int) int {
	n := 0
	for _, r := range text {
		if unicode.IsLetter(r) {
			if n++; n == limit {
				break
			}
		}
	}
	return n
}

func paragraphs(k *kwargs) func(string) bool {
	want := k.count("num_paragraphs")
	return func(text string) bool {
		list := strings.Split(text, "***")
		n := len(list)
		for i, p := range list {
			if strings.TrimSpace(p) != "" {
				continue
			}
			if i > 0 && i < len(list)-1 {
				return false
			}
			n--
		}
		return n == want
	}
}

func paragraphBegins(k *kwargs) func(string) bool {
	want, nth := k.count("num_paragraphs"), k.count("nth_paragraph")
	word := strings.ToLower(k.text("first_word"))
	if nth < 1 || nth > want {
		k.errs = append(k.errs, fmt.Errorf("nth_paragraph: %d, expected from 1 to num_paragraphs (%d)", nth, want))
	}
	return func(text string) bool {
		list := strings.Split(text, "\n\n")
		n := 0
		for _, p := range list {
			if strings.TrimSpace(p) != "" {
				n++
			}
		}
		return n == want && nth <= len(list) && firstWord(list[nth-1]) == word
	}
}

// firstWord is the first word of a paragraph in small letters, up to its first punctuation.
func firstWord(paragraph string) string {
	start, end := nextChunk(paragraph, 0)
	rest := paragraph[start:end]
	rest = strings.TrimLeft(strings.TrimLeft(rest, "'"), `"`)
	if i := strings.IndexAny(rest, `.,?!'"`); i >= 0 {
		rest = rest[:i]
	}
	return strings.ToLower(rest)
}

var (
	placeholder = regexp.MustCompile(`\[.*?\]`)
	stars       = regexp.MustCompile(`(?m)^\s*\*[^*].*$`)
	dashes      = regexp.MustCompile(`(?m)^\s*-.*$`)
	highlight   = regexp.MustCompile(`\*[^\n*]*\*`)
	strong      = regexp.MustCompile(`\*\*[^\n*]*\*\*`)
	title       = regexp.MustCompile(`<<[^\n]+>>`)
	ps          = regexp.MustCompile(`p\.\s?s\.`)
	pps         = regexp.MustCompile(`p\.\s?p\.\s?s`)
)

func postscript(k *kwargs) func(string) bool {
	marker := k.text("postscript_marker")
	switch marker {
	case "P.S.":
		return func(text string) bool { return ps.MatchString(strings.ToLower(text)) }
	case "P.P.S":
		return func(text string) bool { return pps.MatchString(strings.ToLower(text)) }
	}
	marker = strings.ToLower(marker)
	return func(text string) bool { return strings.Contains(strings.ToLower(text), marker) }
}

func bullets(k *kwargs) func(string) bool {
	want := k.count("num_bullets")
	count, dashed := matches(stars), matches(dashes)
	return func(text string) bool { return count(text)+dashed(text) == want }
}

func constrained(text string) bool {
	for _, answer := range []string{"My answer is yes.", "My answer is no.", "My answer is maybe."} {
		if strings.Contains(text, answer) {
			return true
		}
	}
	return false
}

func countHighlights(text string) int {
	n := 0
	for _, at := range highlight.FindAllStringIndex(text, -1) {
		n += int(boolScore(strings.TrimSpace(strings.Trim(text[at[0]:at[1]], "*")) != ""))
	}
	for _, at := range strong.FindAllStringIndex(text, -1) {
		n += int(boolScore(strings.TrimSpace(text[at[0]+2:at[1]-2]) != ""))
	}
	return n
}

func sections(k *kwargs) func(string) bool {
	splitter, n := k.text("section_spliter"), k.count("num_sections")
	re := regexp.MustCompile(`\s?` + regexp.QuoteMeta(splitter) + `\s?\d+\s?`)
	count := matches(re)
	return func(text string) bool { return count(text) >= n }
}

func isJSON(text string) bool {
	text = strings.TrimSpace(text)
	for _, open := range []string{"```json", "```Json", "```JSON", "```"} {
		text = strings.TrimPrefix(text, open)
	}
	return json.Valid([]byte(strings.TrimSpace(strings.TrimSuffix(text, "```"))))
}

func hasTitle(text string) bool {
	for _, at := range title.FindAllStringIndex(text, -1) {
		if strings.TrimSpace(strings.TrimRight(strings.TrimLeft(text[at[0]:at[1]], "<"), ">")) != "" {
			return true
		}
	}
	return false
}

func twoResponses(text string) bool {
	var said []string
	list := strings.Split(text, "******")
	for i, r := range list {
		if r = strings.TrimSpace(r); r != "" {
			said = append(said, r)
		} else if i > 0 && i < len(list)-1 {
			return false
		}
	}
	return len(said) == 2 && said[0] != said[1]
}

func repeatsPrompt(k *kwargs) func(string) bool {
	prompt := strings.ToLower(k.text("prompt_to_repeat"))
	return func(text string) bool { return strings.HasPrefix(strings.ToLower(strings.TrimSpace(text)), prompt) }
}

func endsWith(k *kwargs) func(string) bool {
	phrase := strings.ToLower(k.text("end_phrase"))
	return func(text string) bool {
		return strings.HasSuffix(strings.ToLower(strings.Trim(strings.TrimSpace(text), `"`)), phrase)
	}
}

func quoted(text string) bool {
	text = strings.TrimSpace(text)
	return len(text) > 1 && text[0] == '"' && text[len(text)-1] == '"'
}
