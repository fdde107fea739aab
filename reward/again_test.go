package reward

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"tranche/episode"
)

// counted is a grader that says how often it was asked, with a part of its own.
func counted(asked *int, fails *bool) own {
	return own{"mine/1", func(context.Context, Input) (Finding, error) {
		*asked++
		if *fails {
			return Finding{}, errors.New("broke")
		}
		half := 0.5
		return Finding{Score: 1, Parts: []Part{{Name: "part", Score: &half, Weight: 1}}, Cost: Cost{PromptTokens: 3}}, nil
	}}
}

func again(t *testing.T, s *Scorer, e *episode.Episode, all bool) (episode.Verdict, []string) {
	t.Helper()
	v, kept, err := s.ScoreAgain(t.Context(), e, all)
	if err != nil {
		t.Fatal(err)
	}
	return v, kept
}

// What the same grader with the same settings has scored is kept, whatever it is called and weighs now; everything else is asked.
func TestScoreAgainKeepsWhatIsTheSame(t *testing.T) {
	p := episode.Ptr[float64]
	for _, c := range []struct {
		name     string
		was, is  []Spec
		failed   bool // the first time
		all      bool
		asked    int // the second time
		kept     []string
		sameAsIs bool // the verdict is the first one
	}{
		{"the same", []Spec{{Kind: "mine"}}, []Spec{{Kind: "mine"}}, false, false, 0, []string{"mine"}, true},
		{"all are asked", []Spec{{Kind: "mine"}}, []Spec{{Kind: "mine"}}, false, true, 1, nil, true},
		{"it had failed", []Spec{{Kind: "mine"}}, []Spec{{Kind: "mine"}}, true, false, 1, nil, false},
		{"another name", []Spec{{Kind: "mine"}}, []Spec{{Kind: "mine", Name: "own"}}, false, false, 0, []string{"own"}, false},
		{"another weight, and a part", []Spec{{Kind: "mine"}}, []Spec{{Kind: "mine", Weight: p(2)}}, false, false, 1, nil, false},
		{"another text is judged", []Spec{{Kind: "mine"}}, []Spec{{Kind: "mine", From: FromContent}}, false, false, 1, nil, false},
		{"one more", []Spec{{Kind: "exact"}}, []Spec{{Kind: "exact"}, {Kind: "mine"}}, false, false, 1, []string{"exact"}, false},
		{"another weight alone", []Spec{{Kind: "exact"}}, []Spec{{Kind: "exact", Weight: p(2)}}, false, false, 0, []string{"exact"}, false},
		{"other options", []Spec{{Kind: "numeric"}}, []Spec{{Kind: "numeric", Tolerance: 1}, {Kind: "mine"}}, false, false, 1, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked, fails := 0, c.failed
			first := newScorer(t, Config{Graders: c.was}, counted(&asked, &fails))
			defer requireClose(t, first)
			e := said(answer("7"), "7")
			e.Verdict = score(t, first, e)
			asked, fails = 0, false
			second := newScorer(t, Config{Graders: c.is}, counted(&asked, &fails))
			defer requireClose(t, second)
			v, kept := again(t, second, e, c.all)
			if asked != c.asked || !reflect.DeepEqual(kept, c.kept) {
				t.Errorf("asked %d times, kept %v", asked, kept)
			}
			fresh := score(t, second, e)
			if !reflect.DeepEqual(timeless(v), timeless(fresh)) {
				t.Errorf("\n got %+v\nwant %+v", timeless(v), timeless(fresh))
			}
			if c.sameAsIs != reflect.DeepEqual(timeless(v), timeless(e.Verdict)) {
				t.Errorf("the first verdict was %+v, now %+v", e.Verdict, v)
			}
		})
	}
}

// timeless is a verdict without how long it took.
func timeless(v episode.Verdict) episode.Verdict {
	list := append([]episode.Reward(nil), v.Rewards...)
	for i := range list {
		list[i].Cost.Wall = 0
	}
	v.Rewards = list
	return v
}

// The digest is of what decides verdicts, and of nothing else.
func TestScorerDigest(t *testing.T) {
	p := episode.Ptr[float64]
	of := func(c Config) string {
		s := newScorer(t, c)
		defer requireClose(t, s)
		return s.Digest()
	}
	base := of(Config{Graders: []Spec{{Kind: "exact"}}})
	for name, c := range map[string]struct {
		cfg  Config
		same bool
	}{
		"defaults written out": {Config{Graders: []Spec{{Kind: "exact", Name: "exact", Weight: p(1), Marker: "####"}}, Total: WeightedSum}, true},
		"other workers":        {Config{Graders: []Spec{{Kind: "exact"}}, Workers: 3}, true},
		"another name":         {Config{Graders: []Spec{{Kind: "exact", Name: "x"}}}, false},
		"another weight":       {Config{Graders: []Spec{{Kind: "exact", Weight: p(2)}}}, false},
		"another marker":       {Config{Graders: []Spec{{Kind: "exact", Marker: "="}}}, false},
		"another kind":         {Config{Graders: []Spec{{Kind: "contains", Name: "exact"}}}, false},
		"another rule":         {Config{Graders: []Spec{{Kind: "exact"}}, Total: Minimum}, false},
		"a threshold":          {Config{Graders: []Spec{{Kind: "exact", Threshold: p(0.5)}}, Total: Gate}, false},
	} {
		if got := of(c.cfg); (got == base) != c.same {
			t.Errorf("%s: %s beside %s", name, got, base)
		}
	}
}
