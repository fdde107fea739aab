package scheduler

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestWaitsGrowSpreadAndStop(t *testing.T) {
	const base, most = 500 * time.Millisecond, 30 * time.Second
	var least, greatest [12]time.Duration
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		before := time.Duration(0)
		for n := range least {
			d := jittered(n+1, base, most, rnd)
			if d > most || d < before && before < most/2 {
				t.Fatalf("wait %d is %v after one of %v", n+1, d, before)
			}
			if seed == 0 || d < least[n] {
				least[n] = d
			}
			before, greatest[n] = d, max(greatest[n], d)
		}
	}
	if least[0] > base/50 || greatest[0] < base*49/50 {
		t.Errorf("the first wait lies within %v and %v, want anywhere up to %v", least[0], greatest[0], base)
	}
	for n := 1; n < len(least); n++ {
		if top := min(base<<n, most); least[n] > top*52/100 || greatest[n] < top*98/100 {
			t.Errorf("wait %d lies within %v and %v, want the upper half up to %v", n+1, least[n], greatest[n], top)
		}
	}
}
