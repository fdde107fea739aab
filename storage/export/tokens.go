package export

import (
	"math"
	"slices"

	"tranche/episode"
	"tranche/storage"
)

// sequence is ids that one call saw and sampled, and which of them are to be learned.
type sequence struct {
	ids      []int32
	mask     []int8 // 1 = sampled by the policy, and in no other sequence
	logprobs []*float32
	versions []int32
}

// sequences are those of a row: one, or where prompts did not go on from what was there, several, in the order in which they came about. Each id that the
// policy sampled is masked 1 in exactly one of them; where a sequence only repeats it, it is context. A sequence with nothing to learn is left out. why is
// the reason to leave the row out.
func (c *Config) sequences(r *storage.Row) (all []sequence, why string) {
	switch {
	case len(r.TokenIDs) == 0:
		return nil, leftNoIDs
	case slices.Contains(r.Flags, episode.FlagTokenIDsMissing), slices.Contains(r.Flags, episode.FlagPromptIDsMissing):
		return nil, leftPartIDs
	case slices.Contains(r.Flags, episode.FlagPromptCut):
		return nil, leftCutPrompt
	case len(r.Breaks) > 0 && c.DropBroken:
		return nil, leftBroken
	}
	all, ok := history(r)
	if !ok {
		return nil, leftBroken
	}
	for i, b := range r.Breaks { // what stands before the break is in the next sequence too
		all[i].mask = slices.Concat(make([]int8, b.At), b.LossMask)
	}
	all = slices.DeleteFunc(all, func(s sequence) bool { return s.trained() == 0 })
	if len(all) == 0 {
		return nil, leftUnsampled
	}
	return all, ""
}

// history is the row's sequence before each break, and as it is at last. It puts the ends that breaks cut off back, from the last break to the first, and
// is false for breaks that do not fit the sequence.
func history(r *storage.Row) ([]sequence, bool) {
	now := sequence{r.TokenIDs, r.LossMask, r.Logprobs, r.Versions}
	all := []sequence{now}
	for _, b := range slices.Backward(r.Breaks) {
		at := int(b.At)
		if at < 0 || at > len(now.ids) {
			return nil, false
		}
		now = sequence{
			slices.Concat(now.ids[:at], b.TokenIDs), slices.Concat(now.mask[:at], b.LossMask),
			slices.Concat(now.logprobs[:at], b.Logprobs), slices.Concat(now.versions[:at], b.Versions),
		}
		all = append(all, now)
	}
	slices.Reverse(all)
	return all, true
}

func (s *sequence) trained() int {
	n := 0
	for _, m := range s.mask {
		n += int(m)
	}
	return n
}

// promptLen is the number of ids before the first that is learned.
func (s *sequence) promptLen() int {
	if i := slices.Index(s.mask, 1); i >= 0 {
		return i
	}
	return len(s.ids)
}

// labels are the ids that are learned, and ignored where they are not.
func (s *sequence) labels(ignored int32) []int32 {
	out := make([]int32, len(s.ids))
	for i, id := range s.ids {
		out[i] = ignored
		if s.mask[i] == 1 {
			out[i] = id
		}
	}
	return out
}

// known are the logprobs with fill where nothing is learned; false when one that is learned is missing or no finite number.
func (s *sequence) known(fill float32) ([]float32, bool) {
	out := make([]float32, len(s.ids))
	for i := range s.ids {
		if out[i] = fill; s.mask[i] != 1 {
			continue
		}
		lp := s.logprobs[i]
		if lp == nil || math.IsNaN(float64(*lp)) || math.IsInf(float64(*lp), 0) {
			return nil, false
		}
		out[i] = *lp
	}
	return out, true
}
