package episode

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Whatever the prompts are, nothing of any turn is lost: going back through the breaks gives the sequence as each turn saw and sampled it.
func TestBreaksKeepEveryTurn(t *testing.T) {
	for seed := range uint64(200) {
		dice := rand.New(rand.NewPCG(seed, 1))
		ids := func(n int) []int32 {
			list := make([]int32, n)
			for i := range list {
				list[i] = int32(dice.IntN(3))
			}
			return list
		}
		e := &Episode{}
		var seen [][]int32 // prompt and answer of each turn
		for range 6 {
			prompt := slices.Concat(e.Tokens.IDs, ids(2))
			if dice.IntN(3) == 0 && len(prompt) > 4 { // rewritten somewhere
				prompt = slices.Concat(prompt[:dice.IntN(len(prompt))], ids(3))
			}
			r := &Reply{PromptIDs: prompt, SampledIDs: ids(3), Logprobs: make([]Logprob, 3)}
			e.AddReply(r, Turn{})
			seen = append(seen, slices.Concat(prompt, r.SampledIDs))
		}
		tokens, last := e.Tokens.IDs, len(seen)
		for _, b := range slices.Backward(e.Tokens.Breaks) {
			if len(b.Mask) != len(b.IDs) || len(b.Logprobs) != len(b.IDs) || len(b.Versions) != len(b.IDs) {
				t.Fatalf("seed %d: unequal lengths %+v", seed, b)
			}
			for turn := b.Turn; turn < last; turn++ {
				checkBegins(t, seed, turn, tokens, seen[turn])
			}
			tokens, last = slices.Concat(tokens[:b.At], b.IDs), b.Turn
		}
		for turn := range last {
			checkBegins(t, seed, turn, tokens, seen[turn])
		}
		if (e.Tokens.Break == nil) != (len(e.Tokens.Breaks) == 0) || e.Tokens.Break != nil && int(*e.Tokens.Break) != e.Tokens.Breaks[0].At {
			t.Fatalf("seed %d: break %v, breaks %+v", seed, e.Tokens.Break, e.Tokens.Breaks)
		}
	}
}

func checkBegins(t *testing.T, seed uint64, turn int, sequence, seen []int32) {
	t.Helper()
	if len(seen) > len(sequence) || !slices.Equal(sequence[:len(seen)], seen) {
		t.Fatalf("seed %d: turn %d saw and sampled %v, the record gives %v", seed, turn, seen, sequence)
	}
}
