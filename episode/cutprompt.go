package episode

import (
	"slices"
	"strings"
	"unicode"
)

// Some servers cut a prompt that is too long and say nothing (Ollama drops old messages, SGLang the end of the prompt where told to): the answer is one to
// another question. It shows only in the server's own count, which is then clearly less than what was sent.

// Slack of a count against another of the same prompt: a template may differ by some tokens from what was counted with it.
const (
	countSlack = 16 // tokens
	slackShare = 16 // and one in so many
)

// promptCut reports whether the server saw clearly less of the call's prompt than was sent. It looks at what is certain: the prompt's ids, or the server's
// own count of them before the call; else an earlier turn's count, for a prompt only grows; else the words of what was said, for tokens do not span words.
// The reply is not among the episode's messages yet.
func (e *Episode) promptCut(r *Reply, t Turn) bool {
	if slices.Contains(r.Flags, FlagPromptCut) {
		return true
	}
	saw, known := sawTokens(r, t)
	if !known {
		return false
	}
	sent := max(len(r.PromptIDs), t.Counted, e.grownFrom(t.Endpoint))
	return saw+sent/slackShare+countSlack < sent || saw < e.leastTokens()
}

// sawTokens is how much of the prompt the server says it saw.
func sawTokens(r *Reply, t Turn) (n int, known bool) {
	switch {
	case t.PromptTokens != nil:
		n = int(*t.PromptTokens)
		if t.CachedTokens != nil && int(*t.CachedTokens) > n { // it leaves the cached ones out
			n += int(*t.CachedTokens)
		}
		if n == 0 {
			return 0, false // a count that was not made
		}
	case r.PromptIDs != nil:
		return len(r.PromptIDs), true
	default:
		return 0, false
	}
	return n, true
}

// grownFrom is the length of an earlier turn's prompt at the same endpoint that the present one begins with, tokens. Templates drop old thinking: only a prompt
// in which there was none is one.
func (e *Episode) grownFrom(endpoint string) int {
	n, turn := 0, 0
	for _, m := range e.Messages[min(e.NumPrompt, len(e.Messages)):] {
		if m.Role != RoleAssistant {
			continue
		}
		if turn < len(e.Turns) && e.Turns[turn].PromptTokens != nil && e.Turns[turn].Endpoint == endpoint {
			n = max(n, int(*e.Turns[turn].PromptTokens))
		}
		turn++
		if m.ReasoningContent != nil || m.Tagged != nil {
			break
		}
	}
	return n
}

// leastTokens is a number of tokens that the prompt has for certain: three for every four words that were said to the model.
func (e *Episode) leastTokens() int {
	words := 0
	for _, m := range e.Messages {
		if m.Role != RoleAssistant && m.Content != nil {
			words += wordsIn(*m.Content)
		}
	}
	return words * 3 / 4
}

// wordsIn counts what stands between spaces.
func wordsIn(s string) int {
	n := 0
	for {
		s = strings.TrimLeftFunc(s, unicode.IsSpace)
		if s == "" {
			return n
		}
		n++
		at := strings.IndexFunc(s, unicode.IsSpace)
		if at < 0 {
			return n
		}
		s = s[at:]
	}
}

// sawIDs are the ids of a cut prompt: the server's own, where there are so many as it says that it saw; else none.
func sawIDs(r *Reply) []int32 {
	if n := r.Usage.Prompt; r.PromptIDs != nil && (n == nil || int(*n) == len(r.PromptIDs)) {
		return r.PromptIDs
	}
	return []int32{}
}
