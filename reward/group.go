package reward

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"tranche/episode"
)

// GroupGrader judges all samples of one group at once, when the last of them has ended. It is called for many groups at once, and
// again for the same group after a crash: the same members must give the same judgements.
type GroupGrader interface {
	// ID is as that of a Grader.
	ID() string
	// GradeGroup gives one judgement for each member, in their order. An error means that there is no verdict on any of them.
	GradeGroup(ctx context.Context, members []Member) ([]Judged, error)
}

// Member is one sample of a group that ended well; failed and cut ones are no answers and are left out.
type Member struct {
	Input
	Score *float64 // the total of the components of graders that judge it alone; nil = no verdict
}

// Judged is the judgement on one member.
type Judged struct {
	Finding
	Err error // why there is no verdict on this one, as an error of Grade; nil = there is
}

// GroupSplit is the reason of there being no verdict where the siblings of a sample are not at hand: it is the second try of one that
// failed, and they were published before.
const GroupSplit = "group_split"

// JudgesGroups tells whether a grader of the run judges groups; kinds are those given to New.
func (c Config) JudgesGroups(kinds ...Kind) bool {
	return slices.ContainsFunc(append(groupKinds(), kinds...), func(k Kind) bool {
		return k.MakeGroup != nil && slices.ContainsFunc(c.Graders, func(s Spec) bool { return s.Kind == k.Name })
	})
}

// WaitsForGroups names the graders of groups without which there is no total: it is missing until the group is judged.
func (c Config) WaitsForGroups(kinds ...Kind) (names []string) {
	for _, s := range c.withDefaults().Graders {
		if one := (Config{Graders: []Spec{s}}); one.JudgesGroups(kinds...) && (*s.Weight > 0 || s.Threshold != nil) {
			names = append(names, s.Name)
		}
	}
	return names
}

// ScoreGroup completes the verdicts of a group: the samples that ended well, each with the verdict that Score gave it. whole says that
// no other sample is missing but failed and cut ones. It returns an error only when ctx or the scorer ended first.
func (s *Scorer) ScoreGroup(ctx context.Context, samples []*episode.Episode, whole bool) ([]episode.Verdict, error) {
	verdicts := make([]episode.Verdict, len(samples))
	var judged []*episode.Episode
	var at []int // where each stands among samples
	for i, e := range samples {
		if verdicts[i] = e.Verdict; !s.leavesOut(e) {
			judged, at = append(judged, e), append(at, i)
		}
	}
	if len(judged) == 0 {
		return verdicts, nil
	}
	sheets := make([]*sheet, len(s.desks)) // nil = not asked now
	for i, d := range s.desks {
		if d.group != nil && whole {
			sheets[i] = s.groupSheet(d, judged)
		}
	}
	if err := s.grade(ctx, asked(sheets)); err != nil {
		return nil, fmt.Errorf("scoring group %s: %w", samples[0].GroupID, err)
	}
	for i, e := range judged {
		var rs []episode.Reward
		for j, d := range s.desks {
			switch {
			case d.group == nil:
				rs = append(rs, d.own(e.Verdict.Rewards)...)
			case whole:
				rs = append(rs, sheets[j].components(i)...)
			default:
				rs = append(rs, d.unscored(GroupSplit, "its siblings were published before it"))
			}
		}
		verdicts[at[i]] = s.verdict(rs)
	}
	return verdicts, nil
}

func (s *Scorer) groupSheet(d *desk, samples []*episode.Episode) *sheet {
	members := make([]Member, len(samples))
	sh := &sheet{desk: d, turns: make([]int, len(samples)), costs: make([]Cost, len(samples))}
	for i, e := range samples {
		members[i] = Member{Input: input(e, d.From), Score: s.alone(e.Verdict.Rewards)}
		sh.turns[i] = len(e.Turns)
	}
	sh.work = func(ctx context.Context) ([]Judged, error) { return d.group.GradeGroup(ctx, members) }
	return sh
}

// alone is the total without the graders that judge groups.
func (s *Scorer) alone(rs []episode.Reward) *float64 {
	var own []episode.Reward
	for _, d := range s.desks {
		if d.group == nil {
			own = append(own, d.own(rs)...)
		}
	}
	return total(s.cfg.Total, own, s.thresholds)
}

// own picks a grader's component and its parts.
func (d *desk) own(rs []episode.Reward) (list []episode.Reward) {
	for _, r := range rs {
		if r.Name == d.Name || strings.HasPrefix(r.Name, d.Name+".") {
			list = append(list, r)
		}
	}
	return list
}

// open is the component of a grader that waits for the rest of the group.
func (d *desk) open() episode.Reward {
	r := d.blank()
	r.Outcome = episode.GroupOpen
	return r
}
