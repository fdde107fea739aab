package verify

import (
	"fmt"
	"math"
	"strings"

	"tranche/episode"
	"tranche/storage"
)

// Total makes the reward of its components by the run's rule; nil = no reward.
type Total func(list []storage.Reward) *float64

func scored(r *row) (column, what string) {
	switch {
	case r.Scored == nil && (r.lacks("scored") || r.home == inJournal): // of before the column
	case r.Scored == nil:
		return "scored", "scored is null"
	case *r.Scored != (r.Reward != nil):
		return "scored", fmt.Sprintf("scored is %v, and reward is %s", *r.Scored, number(r.Reward))
	}
	return "", ""
}

func number(v *float64) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprintf("%g", *v)
}

func components(r *row) (column, what string) {
	for _, c := range r.Rewards {
		outcome := text(c.Outcome)
		switch {
		case !(c.Weight >= 0) || math.IsInf(c.Weight, 0):
			what = fmt.Sprintf("weight is %g", c.Weight)
		case c.Score != nil && !(*c.Score >= 0 && *c.Score <= 1):
			what = fmt.Sprintf("score is %g", *c.Score)
		case c.Score != nil && outcome != episode.Scored, c.Score == nil && !strings.HasPrefix(outcome, episode.NoVerdict):
			what = fmt.Sprintf("score is %s, outcome %q", number(c.Score), outcome)
		case c.Score == nil && outcome == episode.GroupOpen && r.home != inJournal:
			what = "its group was published and it is not settled"
		}
		if what != "" {
			return "rewards", fmt.Sprintf("component %s: %s", text(c.Name), what)
		}
	}
	return "", ""
}

// nearly is what two ways to add may differ by.
const nearly = 1e-9

func rewardFits(r *row) (column, what string) {
	if r.total == nil {
		return "", ""
	}
	want := r.total(r.Rewards)
	if (want == nil) == (r.Reward == nil) && (want == nil || math.Abs(*want-*r.Reward) <= nearly*max(1, math.Abs(*want))) {
		return "", ""
	}
	return "reward", fmt.Sprintf("reward is %s, its components give %s", number(r.Reward), number(want))
}

func creditFits(r *row) (column, what string) {
	if r.TurnCredit != nil && len(r.TurnCredit) != len(r.Turns) {
		return "turn_credit", fmt.Sprintf("turn_credit has %d entries, there are %d turns", len(r.TurnCredit), len(r.Turns))
	}
	for _, c := range r.Credits {
		if len(c.Credit) != len(r.Turns) {
			return "credits", fmt.Sprintf("credits of %s have %d entries, there are %d turns", text(c.Name), len(c.Credit), len(r.Turns))
		}
	}
	return "", ""
}
