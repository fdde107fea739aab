package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"tranche/reward"
)

// brokenGroups is a grader of groups that never has a verdict.
type brokenGroups struct{}

func (brokenGroups) ID() string { return "rank/1" }

func (brokenGroups) GradeGroup(_ context.Context, members []reward.Member) ([]reward.Judged, error) {
	return nil, &reward.Unjudged{Reason: "judge_unavailable"}
}

func brokenGroupKind() reward.Kind {
	return reward.Kind{Name: "rank", MakeGroup: func(s reward.Spec) (reward.GroupGrader, error) {
		return brokenGroups{}, reward.ReadOptions(s, &struct{}{})
	}}
}

// TestGroupGradersThatFailStopTheRun: what fails when a group is published is not paid for to the end either.
func TestGroupGradersThatFailStopTheRun(t *testing.T) {
	dir := newRunDir(t)
	s := newShell(t)
	s.app.graders = []reward.Kind{brokenGroupKind()}
	s.do(codeGaveUp, "run", taskFile(t, 4000, ""), "-n", "2", "--open-episodes", "4", "--endpoint", answering(t, 10*time.Millisecond).URL(), "--reward", "rank", "-o", dir, "-q")
	if !strings.Contains(s.err.String(), "graders failed on too large a share of the episodes: ") {
		t.Errorf("%s", s.err.String())
	}
	if n := len(rowsIn(t, dir)); n < 100 || n == 8000 {
		t.Errorf("%d rows", n)
	}
}

// TestDecisionsNeedRewardsInTime: a total that waits for the group is refused where results decide what comes next.
func TestDecisionsNeedRewardsInTime(t *testing.T) {
	const weighted = "reward: [auto, {kind: rank, weight: 1}]\n"
	for name, c := range map[string]struct {
		yaml    string
		refused bool
	}{
		"useful":              {weighted + "useful: 40", true},
		"band":                {weighted + "band: 0.2-0.8", true},
		"grow":                {weighted + "grow: 2", true},
		"mix progress":        {weighted + "mix: progress", true},
		"held out":            {weighted + "held-out: share=0.2,every=5", true},
		"as a gate":           {"reward-total: gate\nreward: [auto, {kind: rank, weight: 0, threshold: 0.5}]\nuseful: 40", true},
		"a built-in kind":     {"reward: [auto, {kind: majority, weight: 0.1}]\nuseful: 40", true},
		"only recorded":       {"reward: [auto, majority, {kind: rank, weight: 0}]\nuseful: 1", false},
		"nothing is decided":  {weighted, false},
		"mix by size decides": {weighted + "mix: size\ndraws: 2", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t)
			s.app.graders = []reward.Kind{brokenGroupKind()}
			args := []string{"run", taskFile(t, 4, `,"answer":"7"`), "-c", settingsFile(t, c.yaml), "-n", "4", "-o", newRunDir(t), "-q", "--dry-run"}
			if !c.refused {
				s.do(codeOK, args...)
				return
			}
			s.do(codeUsage, args...)
			if out := s.err.String(); !strings.Contains(out, "judges whole groups when they are published, and useful, grow, band, held-out and mix progress") {
				t.Errorf("%s", out)
			}
		})
	}
}
