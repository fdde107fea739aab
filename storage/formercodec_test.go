package storage

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// formerRow encodes a row as programs did whose text of a row was JSON.
func formerRow(t testing.TB, seq uint64, r *Row) []byte {
	t.Helper()
	light := *r
	light.TokenIDs, light.LossMask, light.Logprobs, light.Versions = nil, nil, nil, nil
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&light); err != nil {
		t.Fatal(err)
	}
	k := keyOf(r.EpisodeID)
	dst := append(binary.LittleEndian.AppendUint64(nil, seq), k[:]...)
	dst = append(binary.LittleEndian.AppendUint32(dst, uint32(text.Len())), text.Bytes()...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(r.TokenIDs)))
	for _, id := range r.TokenIDs {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(id))
	}
	for _, m := range r.LossMask {
		dst = append(dst, byte(m))
	}
	for _, lp := range r.Logprobs {
		if lp == nil {
			dst = append(dst, 0, 0, 0, 0, 0)
			continue
		}
		dst = binary.LittleEndian.AppendUint32(append(dst, 1), math.Float32bits(*lp))
	}
	for _, v := range r.Versions {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(v))
	}
	return dst
}

func formerFrame(t testing.TB, seq uint64, r *Row) []byte {
	t.Helper()
	frame, err := appendFrame(nil, frameRow, func(b []byte) ([]byte, error) { return append(b, formerRow(t, seq, r)...), nil })
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

func TestFormerRowsAreReadAsTheyWere(t *testing.T) {
	for task := range 8 {
		want := RowOf(made{run: "r", failing: func(task, _ int) bool { return task%4 == 2 }}.episode(task, 0))
		got, err := decodeRow(formerRow(t, 3, &want))
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("task %d: %v\n%+v\n%+v", task, err, got, want)
		}
	}
}

// A run that was begun by a program that wrote JSON, and was killed in the middle of a record, goes on: the same rows, in the same groups, as of a run
// that was written in one go; nothing is done twice.
func TestRunOfAFormerProgramGoesOn(t *testing.T) {
	const tasks, samples = 12, 2
	m := made{run: "r", group: samples, failing: killFailing}
	dir, whole := t.TempDir(), t.TempDir()
	mustClose(t, mustOpen(t, testConfig(dir))) // the manifest, with no row
	segment := []byte(segmentMagic)
	for task := range tasks - 1 {
		row := RowOf(m.episode(task, 0))
		segment = append(segment, formerFrame(t, uint64(task+1), &row)...)
	}
	torn := len(segment)
	cut := RowOf(m.episode(tasks-1, 0))
	frame := formerFrame(t, tasks, &cut)
	segment = append(segment, frame[:len(frame)/2]...)
	manifest, err := loadManifest(disk{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, journalDir, segmentName(manifest.FirstSegment)), segment, 0o644); err != nil {
		t.Fatal(err)
	}

	w := mustOpen(t, testConfig(dir))
	found := w.Recovery()
	if found.Journal != tasks-1 || len(found.Damage) != 1 || !found.Damage[0].Torn || found.Damage[0].Offset != int64(torn) {
		t.Fatalf("found %d rows and %v, want %d and what is torn at byte %d", found.Journal, found.Damage, tasks-1, torn)
	}
	other := mustOpen(t, testConfig(whole))
	for task := range tasks {
		for sample := range samples {
			e := m.episode(task, sample)
			if was := w.Done(e.ID); was != (sample == 0 && task < tasks-1) {
				t.Errorf("task %d, sample %d: done %t", task, sample, was)
			} else if !was {
				mustWrite(t, w, e)
			}
			mustWrite(t, other, m.episode(task, sample))
		}
	}
	mustClose(t, w)
	mustClose(t, other)
	compareRuns(t, whole, dir, tasks*samples)
}
