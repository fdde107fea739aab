package inference

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"tranche/episode"
)

// Wording is how one server says that a prompt is too long. A later refusal that says the same with other numbers is one too, whatever the words.
type Wording struct {
	Status  int    `json:"status"`
	Type    string `json:"type,omitempty"`
	Code    string `json:"code,omitempty"`
	Pattern string `json:"pattern"`             // the message in small letters, # for each number and * for each name that holds one
	Limit   int    `json:"limit-at,omitempty"`  // which # is the limit, from 1; 0 = it is not named
	Prompt  int    `json:"prompt-at,omitempty"` // which # is the length of the prompt, likewise
}

// mostWordings bounds what is kept of one server: messages that repeat part of the prompt are never the same twice.
const mostWordings = 8

// longName is how long a word with a digit in it is that is taken for a name, such as a request's, and not for a number with its unit.
const longName = 12

// pattern takes the numbers out of a message.
func pattern(message string) (worded string, numbers []int) {
	var b strings.Builder
	for i, word := range strings.Fields(strings.ToLower(message)) {
		if i > 0 {
			b.WriteByte(' ')
		}
		numbers = append(numbers, numbersOut(&b, word)...)
	}
	return b.String(), numbers
}

// numbersOut writes a word without its numbers, and returns these. 8,192 and 8_192 are one.
func numbersOut(b *strings.Builder, word string) (numbers []int) {
	for len(word) > 0 {
		end := strings.IndexFunc(word, func(r rune) bool { return !isNameRune(r) })
		switch {
		case end == 0:
			b.WriteByte(word[0])
			word = word[1:]
			continue
		case end < 0:
			end = len(word)
		}
		name := word[:end]
		word = word[end:]
		if len(name) >= longName && strings.ContainsAny(name, "0123456789") && strings.ContainsFunc(name, isLetter) {
			b.WriteByte('*')
			continue
		}
		numbers = append(numbers, digitsOut(b, name)...)
	}
	return numbers
}

func digitsOut(b *strings.Builder, name string) (numbers []int) {
	for len(name) > 0 {
		n := 0
		for n < len(name) && (isDigit(name[n]) || n > 0 && n+1 < len(name) && (name[n] == ',' || name[n] == '_') && isDigit(name[n+1])) {
			n++
		}
		if n == 0 {
			b.WriteByte(name[0])
			name = name[1:]
			continue
		}
		v, err := strconv.Atoi(strings.NewReplacer(",", "", "_", "").Replace(name[:n]))
		if err != nil {
			v = -1 // too long to be a number of tokens
		}
		b.WriteByte('#')
		numbers = append(numbers, v)
		name = name[n:]
	}
	return numbers
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isLetter(r rune) bool { return r >= 'a' && r <= 'z' }

func isNameRune(r rune) bool {
	return isLetter(r) || r >= '0' && r <= '9' || r == '_' || r == '-' || r == ','
}

// wordingOf is how a refusal is worded. Of the numbers in it, limit and prompt are looked for; 0 = not known.
func wordingOf(status int, said openai.APIError, limit, prompt int) Wording {
	w := Wording{Status: status, Type: said.Type, Code: codeText(said)}
	var numbers []int
	w.Pattern, numbers = pattern(said.Message)
	w.Limit, w.Prompt = placeOf(numbers, limit), placeOf(numbers, prompt)
	return w
}

// placeOf is where a number stands, from 1; 0 = it is not there, or stands in two places: the other one may mean anything, such as a max_tokens as large.
func placeOf(numbers []int, n int) int {
	at := slices.Index(numbers, n)
	if n <= 0 || at < 0 || slices.Contains(numbers[at+1:], n) {
		return 0
	}
	return at + 1
}

func codeText(said openai.APIError) string {
	switch c := said.Code.(type) {
	case string:
		return c
	case int:
		return strconv.Itoa(c)
	}
	return ""
}

// wordedAs reports whether a refusal says what one of these said, and the numbers it names.
func wordedAs(list []Wording, status int, said openai.APIError) (limit, prompt int, ok bool) {
	if len(list) == 0 {
		return 0, 0, false
	}
	is, numbers := pattern(said.Message)
	for _, w := range list {
		if w.Status == status && w.Pattern == is && w.Type == said.Type && w.Code == codeText(said) {
			return numberAt(numbers, w.Limit), numberAt(numbers, w.Prompt), true
		}
	}
	return 0, 0, false
}

// numberAt is the number in the place of a wording; 0 = there is none.
func numberAt(numbers []int, at int) int {
	if at < 1 || at > len(numbers) {
		return 0
	}
	return max(numbers[at-1], 0)
}

// lengthWords are what a message about a length speaks of.
var lengthWords = [...]string{"token", "context", "length", "prompt", "input", "sequence", "position", "window", "long", "large", "size"}

// excessWords are what messages say of what is too much. That it is an input, a prompt or tokens says any refusal of one.
var excessWords = [...]string{"long", "large", "exceed", "maximum", "too many", "too much"}

// ofLength reports whether a message speaks of a length.
func ofLength(message string) bool { return speaksOf(message, lengthWords[:]) }

// ofExcess reports whether a message says that something is too much.
func ofExcess(message string) bool { return speaksOf(message, excessWords[:]) }

func speaksOf(message string, words []string) bool {
	lower := strings.ToLower(message)
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(lower, w) })
}

// numbersTell reports whether a message that nobody knows names the context limit and a greater number, and speaks of a length, of a request that can be
// over the limit: a token takes a byte at least, so a short one is refused for something else, such as a token id beyond a vocabulary that is as large.
func numbersTell(message string, limit int, sent []byte) bool {
	if limit <= 0 || !ofLength(message) || len(sent)+tokensWanted(sent) < limit {
		return false
	}
	_, numbers := pattern(message)
	return slices.Contains(numbers, limit) && slices.ContainsFunc(numbers, func(n int) bool { return n > limit })
}

// tokensWanted is how many tokens a request wants at most, on whatever route; 0 = it does not say.
func tokensWanted(body []byte) int {
	type names struct {
		Chat       int `json:"max_tokens"`
		Completion int `json:"max_completion_tokens"`
		SGLang     int `json:"max_new_tokens"`
		Llama      int `json:"n_predict"`
	}
	var o struct {
		names
		Params names `json:"sampling_params"`
	}
	_ = json.Unmarshal(body, &o) // what is no number says nothing
	return max(o.Chat, o.Completion, o.Llama, o.Params.Chat, o.Params.SGLang)
}

// judged is the fault of a failure at this endpoint. A refusal for the length of its prompt teaches how this server words that.
func (e *Endpoint) judged(f failure) *episode.Fault {
	if w := e.wordings.Load(); w != nil {
		f.wordings = *w
	}
	f.limit = e.facts.capacity.ContextTokens
	out := classify(f, time.Now())
	if out.Class == episode.ClassOverflow && out.Limit > 0 && f.status != 200 {
		e.learnWording(wordingOf(f.status, readRefusal(f.body), out.Limit, out.Prompt))
	}
	return e.fault(out)
}

// learnWording keeps one more, unless it is known or there are many.
func (e *Endpoint) learnWording(w Wording) {
	known := func(list *[]Wording) bool {
		return list != nil && (len(*list) >= mostWordings || slices.ContainsFunc(*list, func(k Wording) bool {
			return k.Status == w.Status && k.Pattern == w.Pattern && k.Type == w.Type && k.Code == w.Code
		}))
	}
	if known(e.wordings.Load()) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.wordings.Load()
	if known(list) {
		return
	}
	next := []Wording{w}
	if list != nil {
		next = append(slices.Clone(*list), w)
	}
	e.wordings.Store(&next)
}

// worded is what is known of prompts over the limit with what calls have taught since.
func (e *Endpoint) worded(f Fact[Overflow]) Fact[Overflow] {
	list := e.wordings.Load()
	if list == nil || f.Proof == Set {
		return f
	}
	f.Value.Wordings = *list
	f.Value.Recognised = f.Value.Recognised || canBeOverflow(f.Value.Status) // by these, if not by what the probe was told
	if !f.Sure() {
		last := (*list)[len(*list)-1]
		f.prove(Overflow{Status: last.Status, Recognised: true, Says: clip(last.Pattern, 200), Wordings: *list}, "what a call was refused with")
	}
	return f
}
