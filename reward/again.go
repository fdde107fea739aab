package reward

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"tranche/episode"
)

// ScoreAgain judges a stored episode anew. What the same grader with the same settings has scored already is kept, with its cost, and
// listed by its name now; all asks every grader. Graders of groups leave their components open, as with Score.
func (s *Scorer) ScoreAgain(ctx context.Context, e *episode.Episode, all bool) (v episode.Verdict, kept []string, err error) {
	if reason, detail := s.notGradable(e); reason != "" {
		for _, d := range s.desks {
			v.Rewards = append(v.Rewards, d.unscored(reason, detail))
		}
		return v, nil, nil
	}
	have := make([][]episode.Reward, len(s.desks)) // kept
	sheets := make([]*sheet, len(s.desks))         // nil = not asked now
	for i, d := range s.desks {
		if d.group != nil {
			continue
		}
		if !all {
			have[i] = d.kept(e.Verdict.Rewards)
		}
		if have[i] == nil {
			sheets[i] = newSheet(d, input(e, d.From))
		} else {
			kept = append(kept, d.Name)
		}
	}
	if err := s.grade(ctx, asked(sheets)); err != nil {
		return v, nil, fmt.Errorf("scoring episode %s: %w", e.ID, err)
	}
	var rs []episode.Reward
	for i, d := range s.desks {
		switch {
		case d.group != nil:
			rs = append(rs, d.open())
		case have[i] != nil:
			rs = append(rs, have[i]...)
		default:
			rs = append(rs, sheets[i].components(0)...)
		}
	}
	return s.verdict(rs), kept, nil
}

// kept is the component, with its parts, that this grader with these settings gave, under the name and weight it has now; nil = there is
// none. The weight of a part is stored as a product with that of its component, so one of another weight is judged again.
func (d *desk) kept(rs []episode.Reward) (list []episode.Reward) {
	for _, main := range rs {
		if main.Config != d.config || main.Score == nil || main.Tries == 0 { // a part was never asked by itself
			continue
		}
		list = []episode.Reward{main}
		for _, r := range rs {
			if strings.HasPrefix(r.Name, main.Name+".") {
				list = append(list, r)
			}
		}
		if len(list) > 1 && main.Weight != *d.Weight {
			return nil
		}
		for i := range list {
			list[i].Name = d.Name + strings.TrimPrefix(list[i].Name, main.Name)
		}
		list[0].Weight = *d.Weight
		return list
	}
	return nil
}

// Digest identifies what decides the verdicts of a run: graders with their settings, names, weights and thresholds, and the rule of the
// total.
func (s *Scorer) Digest() string {
	type part struct {
		Name, Config string
		Weight       float64
		Threshold    *float64
	}
	var parts []part
	for _, d := range s.desks {
		parts = append(parts, part{d.Name, d.config, *d.Weight, d.Threshold})
	}
	text, err := json.Marshal(struct {
		Total    string
		Parts    []part
		Unscored []episode.Stop `json:",omitempty"`
	}{s.cfg.Total, parts, s.cfg.Unscored})
	if err != nil {
		panic("reward: " + err.Error()) // Validate has refused numbers that are not finite
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
