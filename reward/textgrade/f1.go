package textgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"tranche/reward"
)

// F1Config are the options of kind f1.
type F1Config struct {
	// Marker is what stands before the answer; what follows the last one is judged. Default: all of the text.
	Marker string `json:"marker"`
}

// f1 is the token F1 of SQuAD (Rajpurkar et al. 2016, arXiv 1606.05250, evaluate-v1.1.py; empty answers as in its 2.0): of the right
// answers the one that gives most.
type f1 struct{ marker string }

func newF1(s reward.Spec) (reward.Grader, error) {
	var cfg F1Config
	if err := reward.ReadOptions(s, &cfg); err != nil {
		return nil, err
	}
	return f1{cfg.Marker}, nil
}

func (f1) ID() string { return "f1/1" }

func (g f1) Grade(_ context.Context, in reward.Input) (reward.Finding, error) {
	wants, err := truths(in.Task)
	if err != nil {
		return reward.Finding{}, err
	}
	if t := strings.TrimSpace(*in.Task.Answer); strings.ContainsAny(t[:1], "{[") && json.Valid([]byte(t)) {
		if t[0] == '{' || !slices.ContainsFunc(wants, func(w string) bool { return len(squadTokens(w)) > 0 }) {
			return reward.Finding{}, badTruth("%s: expected a text, or a list of texts with words in them", reward.Clip(t, 80))
		}
	}
	text, f, done, err := judged(in)
	if done {
		return f, err
	}
	got := squadTokens(afterMarker(text, g.marker))
	best, want, same := -1.0, "", false
	for _, w := range wants {
		tokens := squadTokens(w)
		same = same || strings.Join(tokens, " ") == strings.Join(got, " ")
		if score := overlapF1(got, tokens); score > best {
			best, want = score, w
		}
	}
	return reward.Finding{
		Score: best, Evidence: fmt.Sprintf("%d words, %.3f of %q", len(got), best, reward.Clip(want, 100)),
		Parts: []reward.Part{recorded("exact", boolScore(same), nil)},
	}, nil
}

// squadTokens lowers, takes out ASCII punctuation, then the articles, and splits at white space: SQuAD's normalize_answer.
func squadTokens(s string) []string {
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range strings.ToLower(s) {
		if !asciiPunct(r) {
			b.WriteRune(r)
		}
	}
	return strings.Fields(dropArticles(b.String()))
}

// dropArticles makes a space of each a, an and the that is a whole word; words end where Python's \b says.
func dropArticles(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for len(s) > 0 {
		end := strings.IndexFunc(s, func(r rune) bool { return !isWordRune(r) })
		if end < 0 {
			end = len(s)
		}
		switch s[:end] {
		case "a", "an", "the":
			b.WriteByte(' ')
		default:
			b.WriteString(s[:end])
		}
		s = s[end:]
		next := strings.IndexFunc(s, isWordRune)
		if next < 0 {
			next = len(s)
		}
		b.WriteString(s[:next])
		s = s[next:]
	}
	return b.String()
}

// isWordRune is \w of Python's regular expressions.
func isWordRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) }

func asciiPunct(r rune) bool { return r < 0x80 && (unicode.IsPunct(r) || unicode.IsSymbol(r)) }

// overlapF1 is the harmonic mean of precision and recall of the words as bags; two empty ones are equal.
func overlapF1(got, want []string) float64 {
	if len(got) == 0 || len(want) == 0 {
		return boolScore(len(got) == len(want))
	}
	left := make(map[string]int, len(want))
	for _, w := range want {
		left[w]++
	}
	common := 0
	for _, w := range got {
		if left[w] > 0 {
			left[w]--
			common++
		}
	}
	if common == 0 {
		return 0
	}
	return 2 * float64(common) / float64(len(got)+len(want))
}
