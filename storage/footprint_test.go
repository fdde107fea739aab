package storage

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

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

// earlierAction is an action as files of before the columns have it.
type earlierAction struct {
	Turn      int16   `parquet:"turn"`
	Name      *string `parquet:"name,optional"`
	OutBytes  int64   `parquet:"out_bytes"`
	Truncated bool    `parquet:"truncated"`
	Rootfs    *string `parquet:"rootfs,optional"`
}

// Files of before the columns are read: what they did not have is null, what they had is as it was.
func TestActionsOfBeforeTheFootprint(t *testing.T) {
	type earlierRow struct {
		EpisodeID string          `parquet:"episode_id"`
		Actions   []earlierAction `parquet:"actions,optional,list"`
	}
	path := filepath.Join(t.TempDir(), "old.parquet")
	if err := parquet.WriteFile(path, []earlierRow{{"a", []earlierAction{{1, episode.Ptr("bash"), 9, true, episode.Ptr("abc")}}}, {"b", nil}}); err != nil {
		t.Fatal(err)
	}
	rows := partRows(t, path)
	if len(rows) != 2 || len(rows[0].Actions) != 1 {
		t.Fatalf("%+v", rows)
	}
	a := rows[0].Actions[0]
	if *a.Name != "bash" || a.OutBytes != 9 || !a.Truncated || *a.Rootfs != "abc" || a.QueueMS != nil || a.PeakMemory != nil || a.LeftBehind != nil {
		t.Errorf("%+v", a)
	}
}
