package episode

import "time"

// Deadlines are stated for ordinary calls. One that may generate more than usualAnswer tokens gets proportionally more time, and so does
// one with a very long prompt, of which a token takes a promptShare of the time that one generated does.
const (
	usualAnswer = 8192
	promptShare = 1.0 / 32
)

// Stretch lengthens a deadline for a call with so many tokens in its prompt and at most so many in its answer; 0 = not known.
func Stretch(d time.Duration, prompt, answer int) time.Duration {
	return time.Duration(float64(d) * max(1, (float64(answer)+promptShare*float64(prompt))/usualAnswer))
}
