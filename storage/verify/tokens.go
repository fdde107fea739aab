package verify

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"tranche/episode"
	"tranche/storage"
)

func tokenLengths(r *row) (column, what string) {
	n := len(r.TokenIDs)
	if len(r.LossMask) != n || len(r.Logprobs) != n || len(r.Versions) != n {
		return "token_ids", fmt.Sprintf("%d token_ids, %d loss_mask, %d logprobs, %d versions", n, len(r.LossMask), len(r.Logprobs), len(r.Versions))
	}
	for i, b := range r.Breaks {
		if n := len(b.TokenIDs); len(b.LossMask) != n || len(b.Logprobs) != n || len(b.Versions) != n {
			return "breaks", fmt.Sprintf("breaks[%d]: %d token_ids, %d loss_mask, %d logprobs, %d versions", i, n, len(b.LossMask), len(b.Logprobs), len(b.Versions))
		}
	}
	return "", ""
}

// even says that the four columns are equally long; else the checks that go through them side by side leave the row to token-lengths.
func (r *row) even() bool { column, _ := tokenLengths(r); return column == "" }

func tokenIDs(r *row) (column, what string) {
	below := func(id int32) bool { return id < 0 }
	if i := slices.IndexFunc(r.TokenIDs, below); i >= 0 {
		return "token_ids", fmt.Sprintf("token_ids[%d] is %d", i, r.TokenIDs[i])
	}
	for k, b := range r.Breaks {
		if i := slices.IndexFunc(b.TokenIDs, below); i >= 0 {
			return "breaks", fmt.Sprintf("breaks[%d].token_ids[%d] is %d", k, i, b.TokenIDs[i])
		}
	}
	return "", ""
}

func lossMask(r *row) (column, what string) {
	odd := func(m int8) bool { return m != 0 && m != 1 }
	if i := slices.IndexFunc(r.LossMask, odd); i >= 0 {
		return "loss_mask", fmt.Sprintf("loss_mask[%d] is %d", i, r.LossMask[i])
	}
	for k, b := range r.Breaks {
		if i := slices.IndexFunc(b.LossMask, odd); i >= 0 {
			return "breaks", fmt.Sprintf("breaks[%d].loss_mask[%d] is %d", k, i, b.LossMask[i])
		}
	}
	return "", ""
}

func logprobMask(r *row) (column, what string) {
	if !r.even() {
		return "", ""
	}
	if i := strayLogprob(r.LossMask, r.Logprobs); i >= 0 {
		return "logprobs", fmt.Sprintf("logprobs[%d] is %g where loss_mask is %d", i, *r.Logprobs[i], r.LossMask[i])
	}
	for k, b := range r.Breaks {
		if i := strayLogprob(b.LossMask, b.Logprobs); i >= 0 {
			return "breaks", fmt.Sprintf("breaks[%d].logprobs[%d] is %g where loss_mask is %d", k, i, *b.Logprobs[i], b.LossMask[i])
		}
	}
	return "", ""
}

// strayLogprob is the first one on a token that was not sampled; -1 = there is none.
func strayLogprob(mask []int8, logprobs []*float32) int {
	for i, lp := range logprobs {
		if lp != nil && mask[i] == 0 {
			return i
		}
	}
	return -1
}

// logprobNull holds the rows that have logprobs, or whose server was asked for them. What a break took out may lack those that were no finite numbers.
func logprobNull(r *row) (column, what string) {
	if !r.even() || r.flagged(episode.FlagLogprobNull, episode.FlagLogprobsMissing) {
		return "", ""
	}
	if !r.askedLogprobs() && !slices.ContainsFunc(r.Logprobs, func(lp *float32) bool { return lp != nil }) {
		return "", ""
	}
	for i, lp := range r.Logprobs {
		if lp == nil && r.LossMask[i] == 1 {
			return "logprobs", fmt.Sprintf("logprobs[%d] is null, and the flags name neither %s nor %s", i, episode.FlagLogprobNull, episode.FlagLogprobsMissing)
		}
	}
	return "", ""
}

func (r *row) askedLogprobs() bool {
	var sent struct{ Logprobs bool }
	return r.Sampling != nil && json.Unmarshal([]byte(*r.Sampling), &sent) == nil && sent.Logprobs
}

// aboveZero is what a server's rounding may put a logprob above 0.
const aboveZero = 1e-3

// logprobRange lets NaN and -inf be: they are stored as the server gave them.
func logprobRange(r *row) (column, what string) {
	above := func(lp *float32) bool { return lp != nil && *lp > aboveZero }
	if i := slices.IndexFunc(r.Logprobs, above); i >= 0 {
		return "logprobs", fmt.Sprintf("logprobs[%d] is %g", i, *r.Logprobs[i])
	}
	for k, b := range r.Breaks {
		if i := slices.IndexFunc(b.Logprobs, above); i >= 0 {
			return "breaks", fmt.Sprintf("breaks[%d].logprobs[%d] is %g", k, i, *b.Logprobs[i])
		}
	}
	return "", ""
}

// notFinite says that a logprob is NaN or infinite, which is no fault, and which a trainer has to know.
func notFinite(r *row) bool {
	return slices.ContainsFunc(r.Logprobs, func(lp *float32) bool {
		return lp != nil && (math.IsNaN(float64(*lp)) || math.IsInf(float64(*lp), -1))
	})
}

func promptLen(r *row) (column, what string) {
	first := slices.IndexFunc(r.LossMask, func(m int8) bool { return m != 0 })
	if first < 0 {
		first = len(r.LossMask)
	}
	if int(r.PromptLen) != first {
		return "prompt_len", fmt.Sprintf("prompt_len is %d, the first sampled token is number %d", r.PromptLen, first)
	}
	return "", ""
}

// span is what a turn saw and sampled, as it can be told from the stored sequence.
type span struct {
	prompt   int     // ids
	answer   int     // ids
	versions []int32 // of the answer
}

// sequence is a token sequence on its way back through the turns.
type sequence struct {
	ids, versions []int32
	mask          []int8
}

func (s sequence) cut(n int) sequence { return sequence{s.ids[:n], s.versions[:n], s.mask[:n]} }

// restored is the sequence of before a break.
func (s sequence) restored(b storage.Broken) sequence {
	at := int(b.At)
	return sequence{slices.Concat(s.ids[:at], b.TokenIDs), slices.Concat(s.versions[:at], b.Versions), slices.Concat(s.mask[:at], b.LossMask)}
}

// trailing is how many ids at the end have that mask.
func (s sequence) trailing(mask int8) int {
	n := 0
	for n < len(s.mask) && s.mask[len(s.mask)-1-n] == mask {
		n++
	}
	return n
}

// spans are those of the turns, from the last one that can be told on: nil where the row does not hold the ids of every turn. It goes back from the
// end: what was sampled last is the answer of the last turn, what is before it that turn's prompt, which is the turn before with its observations,
// or, at a break, what the break says.
func (r *row) spans() []span {
	if !r.walked {
		r.walked = true
		if r.whole() {
			r.turnsAt, r.trouble = walkBack(r.Row)
		}
	}
	return r.turnsAt
}

// whole says that each turn came with the ids of its prompt and its answer.
func (r *row) whole() bool {
	if !r.even() || len(r.TokenIDs) == 0 || len(r.Turns) == 0 || r.lacks("breaks") && r.PrefixBreak != nil ||
		r.flagged(episode.FlagTokenIDsMissing, episode.FlagPromptIDsMissing, episode.FlagPromptCut) {
		return false
	}
	for _, t := range r.Turns {
		if x := episode.Exchange(text(t.Exchange)); x != episode.ExchangeIDs && x != episode.ExchangeChat {
			return false
		}
	}
	masked, _ := lossMask(r)
	return masked == "" && breaksInOrder(r.Row) == ""
}

func walkBack(r *storage.Row) (list []span, trouble string) {
	list = make([]span, len(r.Turns))
	s, breaks := sequence{r.TokenIDs, r.Versions, r.LossMask}, r.Breaks
	for t := len(r.Turns) - 1; t >= 0; t-- {
		answer := s.trailing(1)
		prompt := len(s.ids) - answer
		list[t] = span{prompt, answer, s.versions[prompt:]}
		if s = s.cut(prompt); t == 0 {
			break
		}
		if n := len(breaks); n > 0 && int(breaks[n-1].Turn) == t {
			b := breaks[n-1]
			if trouble = misplaced(s, b, t); trouble != "" {
				return nil, trouble
			}
			s, breaks = s.restored(b), breaks[:n-1]
		} else {
			s = s.cut(prompt - s.trailing(0))
		}
		if s.trailing(1) == 0 { // the turn before sampled nothing: where its prompt ended cannot be told
			return list[t:], ""
		}
	}
	if i := slices.Index(s.mask, 1); i >= 0 {
		return nil, fmt.Sprintf("the prompt of the first turn has a sampled token, number %d: there are more answers than turns", i)
	}
	return list, ""
}

// misplaced says what is wrong with a break of turn t, whose prompt is s.
func misplaced(s sequence, b storage.Broken, t int) string {
	at := int(b.At)
	switch {
	case at > len(s.ids):
		return fmt.Sprintf("the break of turn %d is at %d, its prompt has %d ids", t+1, at, len(s.ids))
	case at < len(s.ids) && len(b.TokenIDs) > 0 && s.ids[at] == b.TokenIDs[0]:
		return fmt.Sprintf("the break of turn %d is at %d, where its prompt goes on as the turn before", t+1, at)
	}
	return ""
}

// breaksInOrder says what is wrong with the list of breaks by itself.
func breaksInOrder(r *storage.Row) string {
	last := 0
	for i, b := range r.Breaks {
		switch {
		case b.At < 0 || len(b.TokenIDs) == 0:
			return fmt.Sprintf("breaks[%d] is at %d and took %d ids out", i, b.At, len(b.TokenIDs))
		case int(b.Turn) <= last || int(b.Turn) >= len(r.Turns):
			return fmt.Sprintf("breaks[%d] is of turn %d: expected one after turn %d, of %d", i, b.Turn+1, last+1, len(r.Turns))
		}
		last = int(b.Turn)
	}
	return ""
}

func prefix(r *row) (column, what string) {
	if what := breaksInOrder(r.Row); what != "" {
		return "breaks", what
	}
	switch {
	case r.lacks("breaks"):
	case r.PrefixBreak == nil && len(r.Breaks) > 0:
		return "prefix_break", fmt.Sprintf("prefix_break is null, and there are %d breaks", len(r.Breaks))
	case r.PrefixBreak != nil && len(r.Breaks) == 0:
		return "prefix_break", fmt.Sprintf("prefix_break is %d, and there are no breaks", *r.PrefixBreak)
	case r.PrefixBreak != nil && *r.PrefixBreak != r.Breaks[0].At:
		return "prefix_break", fmt.Sprintf("prefix_break is %d, the first of breaks is at %d", *r.PrefixBreak, r.Breaks[0].At)
	}
	if r.spans(); r.trouble != "" {
		return "token_ids", r.trouble
	}
	return "", ""
}

func turnTokens(r *row) (column, what string) {
	list := r.spans()
	from := len(r.Turns) - len(list)
	for i, s := range list {
		t := r.Turns[from+i]
		if saw, known := sawTokens(t); known && saw != s.prompt {
			return "turns", fmt.Sprintf("turn %d: the server counted %d tokens of the prompt, there are %d ids", from+i+1, saw, s.prompt)
		}
		if r.flagged(episode.FlagTokenCountDiffers) {
			continue
		}
		if t.CompletionTokens != nil && int(*t.CompletionTokens) != s.answer && !(s.answer < int(*t.CompletionTokens) && r.askedStops()) {
			return "turns", fmt.Sprintf("turn %d: the server counted %d tokens of the answer, there are %d ids", from+i+1, *t.CompletionTokens, s.answer)
		}
	}
	return "", ""
}

// askedStops says that stop strings were sent: some servers count the tokens of one and leave their ids out (llama-server).
func (r *row) askedStops() bool {
	var sent struct{ Stop []string }
	return r.Sampling != nil && json.Unmarshal([]byte(*r.Sampling), &sent) == nil && len(sent.Stop) > 0
}

// sawTokens is the server's count of a prompt; one that leaves the cached tokens out shows by having more of those.
func sawTokens(t storage.Turn) (n int, known bool) {
	if t.PromptTokens == nil {
		return 0, false
	}
	n = int(*t.PromptTokens)
	if t.CachedTokens != nil && int(*t.CachedTokens) > n {
		n += int(*t.CachedTokens)
	}
	return n, n > 0
}

func versions(r *row) (column, what string) {
	if !r.even() {
		return "", ""
	}
	for i, v := range r.Versions {
		if r.LossMask[i] == 0 && v != episode.UnknownVersion || v < episode.UnknownVersion {
			return "versions", fmt.Sprintf("versions[%d] is %d where loss_mask is %d", i, v, r.LossMask[i])
		}
	}
	for i, t := range r.Turns {
		if t.VersionStart != nil && t.VersionEnd != nil && *t.VersionStart > *t.VersionEnd {
			return "turns", fmt.Sprintf("turn %d: version_start is %d, version_end %d", i+1, *t.VersionStart, *t.VersionEnd)
		}
	}
	list := r.spans()
	from := len(r.Turns) - len(list)
	for i, s := range list {
		if what := s.unsteady(r.Turns[from+i]); what != "" {
			return "versions", fmt.Sprintf("turn %d: %s", from+i+1, what)
		}
	}
	return "", ""
}

// unsteady says what is wrong with the versions of an answer.
func (s span) unsteady(t storage.Turn) string {
	last := episode.UnknownVersion
	for i, v := range s.versions {
		switch {
		case v == episode.UnknownVersion:
			continue
		case v < last:
			return fmt.Sprintf("version %d follows on %d", v, last)
		case t.VersionStart != nil && v < *t.VersionStart, t.VersionEnd != nil && v > *t.VersionEnd:
			return fmt.Sprintf("the version of its token %d is %d, outside of version_start and version_end", i, v)
		}
		last = v
	}
	return ""
}
