package enginesim

import "math/rand/v2"

// hashText hashes text onto a seed.
func hashText(seed uint64, s string) uint64 {
	h := mix(seed)
	for len(s) >= 8 {
		w := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		h, s = mix(h^w), s[8:]
	}
	var last uint64
	for i := range len(s) {
		last |= uint64(s[i]) << (8 * i)
	}
	return mix(h ^ last ^ uint64(len(s))<<56)
}

// hashTokens hashes ids onto a seed.
func hashTokens(seed uint64, ids []int32) uint64 {
	return mix(chain(mix(seed), ids) ^ uint64(len(ids)))
}

// unit turns a hash into a number within [0, 1).
func unit(h uint64) float64 { return float64(h>>11) / (1 << 53) }

// dice is a seeded source of choices.
type dice struct{ *rand.Rand }

func newDice(seed uint64) dice { return dice{rand.New(rand.NewPCG(seed, mix(seed)))} }

// chance is true with probability p.
func (d dice) chance(p float64) bool { return d.Float64() < p }

func oneOf[T any](d dice, list ...T) T { return list[d.IntN(len(list))] }
