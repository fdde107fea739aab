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
