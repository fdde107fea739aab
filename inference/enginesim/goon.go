package enginesim

import (
	"net/http"
	"slices"
)

// A model that is given the beginning of its own answer goes on as it would have. The policy knows whole answers only, so it is asked for
// the answer to the prompt without that beginning; where that answer begins so, the rest of it is what comes. That takes a draw which is the same both
// times: by temperature 0, a seed, or a session.

// completion is the answer to a raw prompt.
func (e *Engine) completion(prompt []int32, k *knobs, r *http.Request, i int, l limits) *answer {
	if said := e.tokens.begun(prompt); said > 0 && k.repeats(session(r)) {
		asked := prompt[:len(prompt)-said]
		whole := l
		whole.max += said
		if rest := e.policy.compose(asked, e.draw(asked, k, session(r), i), want{}, whole).after(prompt[len(asked):], l); rest != nil {
			return rest
		}
	}
	return e.policy.compose(prompt, e.draw(prompt, k, session(r), i), want{}, l)
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
