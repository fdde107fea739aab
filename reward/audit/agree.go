package audit

// Agreement sums up how far a grader says the same of the same answer.
type Agreement struct {
	Answers int64 // that were judged more than once
	Equal   int64 // of them: always in the same way

	pairs  float64 // sum over the answers of the share of pairs of verdicts that agree
	counts map[string]int64
	total  int64
}

// Add counts the verdicts on one answer.
func (a *Agreement) Add(verdicts []string) {
	n := len(verdicts)
	if n < 2 {
		return
	}
	if a.counts == nil {
		a.counts = map[string]int64{}
	}
	same := map[string]int{}
	for _, v := range verdicts {
		same[v]++
		a.counts[v]++
	}
	agree := 0
	for _, k := range same {
		agree += k * (k - 1)
	}
	a.Answers++
	a.total += int64(n)
	a.pairs += float64(agree) / float64(n*(n-1))
	if len(same) == 1 {
		a.Equal++
	}
}

// Share of the answers that were always judged in the same way; false where none was judged twice.
func (a *Agreement) Share() (float64, bool) {
	return float64(a.Equal) / float64(max(a.Answers, 1)), a.Answers > 0
}

// Kappa is Fleiss' kappa with verdicts as categories: the agreement beyond what their frequencies alone would give. It is not defined where
// every verdict is the same one.
func (a *Agreement) Kappa() (float64, bool) {
	if a.Answers == 0 {
		return 0, false
	}
	chance := 0.0
	for _, n := range a.counts {
		p := float64(n) / float64(a.total)
		chance += p * p
	}
	if chance >= 1 {
		return 0, false
	}
	return (a.pairs/float64(a.Answers) - chance) / (1 - chance), true
}
