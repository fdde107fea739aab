package inference

import "slices"

// llamaKnobs is what llama-server says it generated with.
type llamaKnobs struct {
	Probs int `json:"n_probs"`
}

// untold adds the tokens of which llama-server tells no logprobs: those of a stop string, and of a character that several tokens make up all but the last. Where
// it is not certain which token each logprob belongs to, nothing is changed, and lists of unequal length are nobody's.
func untold(probs []wireLogprob, tokens []int32) []wireLogprob {
	told := make([]int32, len(probs))
	for i, p := range probs {
		if p.ID == nil {
			return probs
		}
		told[i] = *p.ID
	}
	at := earliest(told, tokens)
	if at == nil || !begins(at) && !slices.Equal(at, latest(told, tokens)) {
		return probs
	}
	all := make([]wireLogprob, len(tokens))
	for i := range all {
		all[i].ID = &tokens[i]
	}
	for i, p := range probs {
		all[at[i]] = p
	}
	return all
}

// begins reports whether positions are those of the beginning without a hole. A character that is told of only at its end begins with another token than it
// ends with, so what fits the beginning is the beginning.
func begins(at []int) bool { return len(at) == 0 || at[len(at)-1] == len(at)-1 }

// earliest is where each id stands in a list that holds them in this order among others, each as early as it can be; nil = it does not hold them.
func earliest(ids, in []int32) []int {
	at := make([]int, 0, len(ids))
	for i, id := range in {
		if len(at) < len(ids) && id == ids[len(at)] {
			at = append(at, i)
		}
	}
	if len(at) < len(ids) {
		return nil
	}
	return at
}

// latest is earliest from the end.
func latest(ids, in []int32) []int {
	at := make([]int, len(ids))
	next := len(ids) - 1
	for i := len(in) - 1; i >= 0 && next >= 0; i-- {
		if in[i] == ids[next] {
			at[next] = i
			next--
		}
	}
	return at
}
