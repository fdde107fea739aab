package main

import (
	"context"
	"fmt"
	"strings"

	"tranche/episode"
	"tranche/storage"
)

// openGroups makes the scorer of groups, where a grader of the run judges groups. It is one of its own, because storage publishes, and
// has groups judged, until after the pipeline is closed.
func (s *session) openGroups() error {
	if !s.rewardConfig().JudgesGroups(s.graderKinds()...) {
		return nil
	}
	scorer, err := s.newScorer()
	s.groups = scorer
	return withCode(codeUsage, err)
}

// judgeGroup completes the verdicts of a group that is about to be published.
func (s *session) judgeGroup(rows []*storage.Row, whole bool) {
	samples := make([]*episode.Episode, len(rows))
	for i, r := range rows {
		samples[i] = r.Episode()
	}
	verdicts, err := s.groups.ScoreGroup(context.Background(), samples, whole)
	if err != nil {
		return // only a closed scorer does this, and it is closed after the writer; the rows say that their group is open
	}
	for i, v := range verdicts {
		rows[i].SetVerdict(v)
		if whole && v.Failed {
			s.groupsFailed.Add(1)
		}
	}
	if whole {
		s.groupsGraded.Add(int64(len(rows)))
	}
}

// groupsUnscored counts the samples of groups that were judged, and those of them on which graders failed.
func (s *session) groupsUnscored() (failed, graded int64) {
	return s.groupsFailed.Load(), s.groupsGraded.Load()
}

// checkGroupGraders refuses what can never work: what decides by rewards as episodes end, with a reward that is there only when the group is
// published.
func (s *session) checkGroupGraders() error {
	waits := s.rewardConfig().WaitsForGroups(s.graderKinds()...)
	plan, err := s.set.plan()
	if err != nil || len(waits) == 0 || !plan.Decides() && !plan.Held.On() {
		return err
	}
	return fmt.Errorf("reward: %s: judges whole groups when they are published, and useful, grow, band, held-out and mix progress need the reward when an episode ends; "+
		"expected weight 0 and no threshold there, or none of these", strings.Join(waits, ", "))
}

func (s *session) closeGroups() {
	if s.groups == nil {
		return
	}
	if err := s.groups.Close(); err != nil {
		s.a.notice("warning: %v", err)
	}
}
