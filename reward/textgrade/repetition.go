package textgrade

import (
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"tranche/reward"
)

// RepetitionConfig are the options of kind repetition.
type RepetitionConfig struct {
	// N is how many words make one piece, 1 to 20. Default 4.
	N int `json:"n"`
	// Free is the share of repeated pieces that costs nothing, 0 or more and below 1: long texts repeat some. Default 0.
	Free float64 `json:"free"`
}

const (
	maxPeriod = 32 // words of the longest loop that is looked for
	maxN      = 20
)

// repetition is the n-gram repetition penalty of open-r1 (get_repetition_penalty_reward, after Yeo et al. 2025, arXiv 2502.03373,
// appendix): 1 less the share of the n-grams that were there before. Its parts are recorded only: the longest loop of words, and how
// well zlib packs the text.
type repetition struct{ cfg RepetitionConfig }

func newRepetition(s reward.Spec) (reward.Grader, error) {
	cfg := RepetitionConfig{N: 4}
	if err := reward.ReadOptions(s, &cfg); err != nil {
		return nil, err
	}
	var errs []error
	if cfg.N < 1 || cfg.N > maxN {
		errs = append(errs, fmt.Errorf("n: %d, expected 1 to %d words", cfg.N, maxN))
	}
	if !(cfg.Free >= 0 && cfg.Free < 1) {
		errs = append(errs, fmt.Errorf("free: %v, expected 0 or more and below 1", cfg.Free))
	}
	return repetition{cfg}, errors.Join(errs...)
}

func (repetition) ID() string { return "repetition/1" }

func (g repetition) Grade(_ context.Context, in reward.Input) (reward.Finding, error) {
	text, f, done, err := judged(in)
	if done {
		return f, err
	}
	words := loopWords(text)
	share := repeatedShare(words, g.cfg.N)
	run, period := longestLoop(words)
	packed := zlibRatio(text)
	long := float64(run)
	return reward.Finding{
		Score: min(1, (1-share)/(1-g.cfg.Free)), Raw: &share,
		Evidence: fmt.Sprintf("%.3f of the %d-grams of %d words were there before; longest loop %d words (period %d)", share, g.cfg.N, len(words), run, period),
		Parts: []reward.Part{
			recorded("loop", 1-long/float64(max(len(words), 1)), &long),
			recorded("zlib", min(packed, 1), &packed),
		},
	}, nil
}

// loopWords splits at white space, lower case; signs of scripts without spaces are words of their own.
func loopWords(text string) []string {
	var words []string
	for _, field := range strings.Fields(strings.ToLower(text)) {
		from := 0
		for i, r := range field {
			if r >= 0x0e00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai) {
				if from < i {
					words = append(words, field[from:i])
				}
				from = i + len(string(r))
				words = append(words, field[i:from])
			}
		}
		if from < len(field) {
			words = append(words, field[from:])
		}
	}
	return words
}

// repeatedShare is the share of the n-grams that are not the first of their kind, 0 where there are none.
func repeatedShare(words []string, n int) float64 {
	total := len(words) - n + 1
	if total < 1 {
		return 0
	}
	ids := numbered(words)
	grams, kinds := ids, 0
	for length := 1; length <= n; length++ { // an n-gram is the (n-1)-gram before its last word, and that word
		pairs := make(map[[2]int32]int32)
		next := make([]int32, len(words)-length+1)
		for i := range next {
			pair := [2]int32{grams[i], ids[i+length-1]}
			id, ok := pairs[pair]
			if !ok {
				id = int32(len(pairs))
				pairs[pair] = id
			}
			next[i] = id
		}
		grams, kinds = next, len(pairs)
	}
	return 1 - float64(kinds)/float64(total)
}

// numbered gives each word a number, the same to the same.
func numbered(words []string) []int32 {
	numbers := make(map[string]int32)
	ids := make([]int32, len(words))
	for i, w := range words {
		id, ok := numbers[w]
		if !ok {
			id = int32(len(numbers))
			numbers[w] = id
		}
		ids[i] = id
	}
	return ids
}

// longestLoop is the longest stretch in which the words of a short piece come again and again, without its first time round.
func longestLoop(words []string) (run, period int) {
	ids := numbered(words)
	for p := 1; p <= maxPeriod && p < len(ids); p++ {
		now := 0
		for i := p; i < len(ids); i++ {
			if ids[i] != ids[i-p] {
				now = 0
				continue
			}
			if now++; now > run {
				run, period = now, p
			}
		}
	}
	if run < period { // not even once round: a word that came again by chance
		return 0, 0
	}
	return run, period
}

// zlibRatio is packed length by length.
func zlibRatio(text string) float64 {
	var n counter
	w := zlib.NewWriter(&n)
	_, err := io.WriteString(w, text)
	if err = errors.Join(err, w.Close()); err != nil {
		panic(err) // a counter takes everything
	}
	return float64(n) / float64(len(text))
}

type counter int

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}
