package sampler

import (
	"testing"

	"tranche/episode"
)

// TestAGroupWithoutAVerdictTeachesNothing: graders that were down must not make a task look unknown.
func TestAGroupWithoutAVerdictTeachesNothing(t *testing.T) {
	e := &entry{open: true, belief: Belief{Pass: 3, Fail: 1}, domain: &domain{}}
	p := &pool{cfg: PlanConfig{Band: Band{Low: 0.2, High: 0.8, Keep: 0.8}}, byID: map[string]*entry{"t": e}}
	p.learn("t", []*float64{nil, nil})
	if e.open || e.belief != (Belief{Pass: 3, Fail: 1}) || e.trials != 0 {
		t.Errorf("%+v", e)
	}
	p.learn("t", []*float64{nil, episode.Ptr(1.0)})
	if want := (Belief{Pass: 3}).After(nil, 0.8).Pass + 1; e.belief.Pass != want || e.belief.Fail != 0.8 || e.trials != 1 {
		t.Errorf("%+v, want %v passes", e, want)
	}
}
