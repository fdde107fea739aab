package storage

import (
	"testing"
	"time"

	"tranche/episode"
)

// What an action needed is in its columns; where it ran in no sandbox, and where the peak is not known, there is null and no zero.
func TestFootprintOfAnAction(t *testing.T) {
	var r Row
	r.setActions([]episode.ActionRecord{
		{Name: "bash", Footprint: &episode.Footprint{Queue: 2 * time.Millisecond, Setup: 3 * time.Millisecond, PeakMemory: 4, OOMKills: 5, RefusedForks: 6, LeftBehind: 7}},
		{Name: "read_file", Footprint: &episode.Footprint{}},
		{Name: "calculator"},
	}, &repairer{})
	a := r.Actions[0]
	if *a.QueueMS != 2 || *a.SetupMS != 3 || *a.PeakMemory != 4 || *a.OOMKills != 5 || *a.RefusedForks != 6 || *a.LeftBehind != 7 {
		t.Errorf("%+v", a)
	}
	if a := r.Actions[1]; *a.QueueMS != 0 || *a.SetupMS != 0 || a.PeakMemory != nil || *a.OOMKills != 0 || *a.LeftBehind != 0 {
		t.Errorf("%+v", a)
	}
	if a := r.Actions[2]; a.QueueMS != nil || a.SetupMS != nil || a.PeakMemory != nil || a.OOMKills != nil || a.RefusedForks != nil || a.LeftBehind != nil {
		t.Errorf("%+v", a)
	}
}
