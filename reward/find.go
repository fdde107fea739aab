package reward

import "math/big"

// LastNumber finds the last number of a text, by the rules at the head of number.go: its value and where it stands, with its sign and
// currency.
func LastNumber(text string) (value *big.Rat, start, end int, ok bool) {
	f, ok := lastNumber(text)
	return worked(f, ok)
}

// FirstNumber finds the first number of a text, as LastNumber does the last.
func FirstNumber(text string) (value *big.Rat, start, end int, ok bool) {
	f, ok := nextNumber(text, 0)
	return worked(f, ok)
}

func worked(f found, ok bool) (*big.Rat, int, int, bool) {
	if !ok {
		return nil, 0, 0, false
	}
	v, ok := f.value()
	return v, f.start, f.end, ok
}
