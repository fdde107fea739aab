package episode

import "slices"

// Tokens is the token sequence of one branch: what the server saw and sampled, never re-encoded text. All slices have
// one length.
type Tokens struct {
	IDs      []int32
	Mask     []int8    // 1 = sampled by the policy
	Logprobs []Logprob // known only where sampled and given
	Versions []int32   // weight version per id; UnknownVersion where the server named none
	// PromptLen is the number of ids before the first sampled one; 0 when the server gave no prompt ids.
	PromptLen int
	// Break is the first index at which a turn's prompt did not extend the turn before it; nil = it always did.
	Break *int32
	// Breaks is what each break took out of the sequence, in order: with it every call's prompt and answer can be had back.
	Breaks []Broken
}

// Broken is the end of a sequence that the prompt of a later call did not go on from.
type Broken struct {
	Turn int // whose prompt broke it
	At   int // index in the sequence from which on the prompt was another
	Tokens
}

// UnknownVersion marks an id whose weight version the server did not name.
const UnknownVersion int32 = -1

// Len is the number of ids.
func (t *Tokens) Len() int { return len(t.IDs) }

// Sampled is the number of ids the policy sampled that are still in the sequence.
func (t *Tokens) Sampled() int {
	n := 0
	for _, m := range t.Mask {
		n += int(m)
	}
	return n
}

// Extend appends one model call: the prompt ids the server saw (nil = not given) and the ids it sampled.
//
// The prompt should begin with the whole sequence so far. Where it does not (a chat template that drops old thinking, text
// that tokenises another way), the sequence is cut to the common prefix and goes on as the server saw it, and the first
// such index is kept in Break: the sequence always is what the last call really saw, and the mask covers only ids sampled
// at that place. What is cut off is kept in Breaks.
func (t *Tokens) Extend(prompt, sampled []int32, logprobs []Logprob, version *int32) {
	if prompt != nil {
		k := commonPrefix(t.IDs, prompt)
		if k < len(t.IDs) {
			if t.Break == nil {
				t.Break = Ptr(int32(k))
			}
			t.Breaks = append(t.Breaks, Broken{At: k, Tokens: Tokens{
				IDs: slices.Clone(t.IDs[k:]), Mask: slices.Clone(t.Mask[k:]), Logprobs: slices.Clone(t.Logprobs[k:]), Versions: slices.Clone(t.Versions[k:]),
			}})
			t.cut(k)
		}
		for _, id := range prompt[k:] {
			t.append(id, 0, Logprob{}, UnknownVersion)
		}
	}
	if t.Sampled() == 0 {
		t.PromptLen = len(t.IDs)
	}
	v := UnknownVersion
	if version != nil {
		v = *version
	}
	for i, id := range sampled {
		var lp Logprob
		if i < len(logprobs) {
			lp = logprobs[i]
		}
		t.append(id, 1, lp, v)
	}
}

func (t *Tokens) append(id int32, mask int8, lp Logprob, version int32) {
	t.IDs = append(t.IDs, id)
	t.Mask = append(t.Mask, mask)
	t.Logprobs = append(t.Logprobs, lp)
	t.Versions = append(t.Versions, version)
}

func (t *Tokens) cut(n int) {
	t.IDs, t.Mask, t.Logprobs, t.Versions = t.IDs[:n], t.Mask[:n], t.Logprobs[:n], t.Versions[:n]
}

func commonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
