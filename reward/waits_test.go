package reward

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"
)

// patient waits for another grading of its kind, and says what decides its verdicts.
type patient struct {
	meet  chan struct{} // both sides of it
	text  string
	limit time.Duration
}

func (patient) ID() string               { return "patient/1" }
func (p patient) Decides() string        { return p.text }
func (p patient) Timeout() time.Duration { return p.limit }

func (p patient) Grade(ctx context.Context, _ Input) (Finding, error) {
	select {
	case p.meet <- struct{}{}:
	case <-p.meet:
	case <-ctx.Done():
		return Finding{}, ctx.Err()
	}
	return Finding{Score: 1}, nil
}

func patientScorer(t *testing.T, p patient, waits bool, with string) *Scorer {
	t.Helper()
	s, err := New(Config{Workers: 1, Graders: []Spec{{Name: "p", Kind: "patient", With: json.RawMessage(with)}}},
		Kind{Name: "patient", Waits: waits, Make: func(Spec) (Grader, error) { return p, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { requireClose(t, s) })
	return s
}

// Graders that only wait go on beside one another, however few workers there are; those that compute do not.
func TestKindsThatWaitHoldNoWorker(t *testing.T) {
	for waits, limit := range map[bool]time.Duration{true: time.Minute, false: 50 * time.Millisecond} {
		s := patientScorer(t, patient{meet: make(chan struct{}), limit: limit}, waits, `{}`)
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if r := score(t, s, said(answer("1"), "1")).Rewards[0]; (r.Score != nil) != waits {
					t.Errorf("waits %v: %s", waits, r.Outcome)
				}
			})
		}
		all.Wait()
	}
}

// What a grader says decides its verdicts is in the digest, and its options are not.
func TestDecidedStandsForOptions(t *testing.T) {
	config := func(text, with string) string {
		return patientScorer(t, patient{text: text}, true, with).desks[0].config
	}
	if config("a", `{"x":1}`) != config("a", `{"x":2}`) || config("a", `{}`) == config("b", `{}`) {
		t.Error("the digest is of the options")
	}
}
