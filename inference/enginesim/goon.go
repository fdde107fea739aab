package enginesim

import (
	"net/http"
	"slices"
)

// A model that is given the beginning of its own answer goes on as it would have. The policy knows whole answers only, so it is asked for
// the answer to the prompt without that beginning; where that answer begins so, the rest of it is what comes. That takes the draw of the first
// time: it is remembered with what was said, and found again without that by temperature 0, a seed, or a session.

// begun is an answer that was cut: its draw, and how many tokens of it there are.
type begun struct {
	draw uint64
	said int
}

// mostBegun is how many answers that were cut are remembered; then all are forgotten.
const mostBegun = 1 << 16

// remember keeps how an answer that was cut may be gone on with.
func (e *Engine) remember(a *answer) {
	if a.finish != "length" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.begun == nil || len(e.begun) >= mostBegun {
		e.begun = map[uint64]begun{}
	}
	e.begun[hashTokens(0, slices.Concat(a.prompt, a.ids))] = begun{a.draw, a.past + len(a.ids)}
}

// recall is the rest of an answer that was cut, if the prompt ends with one; else nil.
func (e *Engine) recall(prompt []int32, choice want, l limits) *answer {
	e.mu.Lock()
	b, ok := e.begun[hashTokens(0, prompt)]
	e.mu.Unlock()
	if !ok {
		return nil
	}
	return e.rest(prompt, b.said, b.draw, choice, l)
}

// rest is what comes after the last `said` tokens of a prompt, if they are the beginning of the answer to what is before them; else nil.
func (e *Engine) rest(prompt []int32, said int, draw uint64, choice want, l limits) *answer {
	asked, whole := prompt[:len(prompt)-said], l
	whole.max += said
	return e.policy.compose(asked, draw, choice, whole).after(prompt[len(asked):], l)
}

// completion is the answer to a raw prompt.
func (e *Engine) completion(prompt []int32, k *knobs, r *http.Request, i int, l limits) *answer {
	return e.fromIDs(prompt, k, r, i, want{}, l)
}

// fromIDs is the answer to a prompt of ids.
func (e *Engine) fromIDs(prompt []int32, k *knobs, r *http.Request, i int, choice want, l limits) *answer {
	a := e.recall(prompt, choice, l)
	if said := e.tokens.begun(prompt); a == nil && said > 0 && k.repeats(session(r)) {
		a = e.rest(prompt, said, e.draw(prompt[:len(prompt)-said], k, session(r), i), choice, l)
	}
	if a == nil {
		a = e.policy.compose(prompt, e.draw(prompt, k, session(r), i), choice, l)
	}
	e.remember(a)
	return a
}

// repeats says whether the same request gets the same answer.
func (k *knobs) repeats(session string) bool {
	return k.Seed != nil || session != "" || k.Temperature != nil && *k.Temperature == 0
}

// begun is how many tokens at the end of a prompt are the beginning of an answer in the chat template; 0 = none are.
func (t *Tokenizer) begun(prompt []int32) int {
	for at := len(prompt) - 1; at >= 0; at-- {
		switch prompt[at] {
		case imEnd:
			return 0
		case imStart:
			header := t.appendPlain(nil, "assistant\n")
			if said := prompt[at+1:]; len(said) > len(header) && slices.Equal(said[:len(header)], header) {
				return len(said) - len(header)
			}
			return 0
		}
	}
	return 0
}

// after is the rest of an answer that begins with these ids, as an answer of its own; nil when it does not begin so, or holds no more.
func (a *answer) after(said []int32, l limits) *answer {
	if len(a.ids) <= len(said) || !slices.Equal(a.ids[:len(said)], said) {
		return nil
	}
	rest := &answer{
		prompt: slices.Concat(a.prompt, said), ids: a.ids[len(said):], finish: a.finish, stop: a.stop, draw: a.draw, past: a.past + len(said), tokens: a.tokens,
	}
	visible := -1
	if _, text := a.stop.(string); text && !l.keepStop {
		visible = max(len(a.text)-len(a.tokens.Decode(said)), 0)
	}
	rest.show(visible)
	return rest
}
