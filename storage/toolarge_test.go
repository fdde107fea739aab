package storage

import (
	"strings"
	"testing"

	"tranche/episode"
)

// An episode whose row no record of the journal holds fails by itself: its row says so, the others are as they were, and its group is complete.
func TestARowThatIsTooLargeHurtsItselfAlone(t *testing.T) {
	dir := fastDir(t)
	w := mustOpen(t, testConfig(dir))
	w.most = 20_000
	m := made{run: "r", group: 2}
	large, lost := made{run: "r", group: 2, text: 50_000}.episode(1, 0), made{run: "r", group: 1, text: 50_000}.episode(2, 0)
	lost.Status, lost.Stop = episode.StatusOpen, ""
	lost.Fail(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassTimeout, Partial: strings.Repeat("x", 50_000)})
	mustWrite(t, w, m.episode(0, 0), m.episode(0, 1), large, m.episode(1, 1), lost)
	if large.Status != episode.StatusFailed || !w.Done(large.ID) {
		t.Errorf("%s, done %v", large.Status, w.Done(large.ID))
	}
	mustClose(t, w)
	rows := rowsOf(t, dir)
	r := rows[large.ID]
	if len(rows) != 5 || r == nil || *r.Status != "failed" || *r.FaultStage != "storage" || !strings.Contains(*r.FaultDetail, "20000") || len(r.TokenIDs)+len(r.Turns) > 0 || len(r.Messages) != 1 || r.Reward != nil {
		t.Fatalf("%d rows, %+v", len(rows), r)
	}
	if r := rows[lost.ID]; *r.FaultStage != "model" || *r.FaultClass != "timeout" || r.Partial != nil {
		t.Errorf("%+v", r)
	}
	if m := checkFolders(t, dir); m.Rows != 3 || m.FailureRows != 2 {
		t.Errorf("%d rows and %d failures are published", m.Rows, m.FailureRows)
	}
}
