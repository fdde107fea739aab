package storage

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// narrowDisk has so much free.
type narrowDisk struct {
	fileSystem
	free int64
}

func (d narrowDisk) Free(string) (int64, bool) { return d.free, true }

// Where less is free than is to be written for certain, nothing is begun, and everything is as it was.
func TestFullDisksAreSeenBefore(t *testing.T) {
	dir := fastDir(t)
	manyParts(t, testConfig(dir), 4, 2)
	before, _ := loadManifest(disk{}, dir)
	for i := range before.Parts { // as if they were large
		before.Parts[i].Bytes += 1 << 20
	}
	if err := saveManifest(disk{}, dir, before); err != nil {
		t.Fatal(err)
	}
	names := func(dir string) (list []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			list = append(list, e.Name())
		}
		return list
	}
	were := names(filepath.Join(dir, partsDir))
	full := narrowDisk{disk{}, 3 << 20}
	if done, err := compactOn(t.Context(), full, Compaction{Dir: dir}); !errors.Is(err, ErrNoRoom) || done.Into != 0 {
		t.Errorf("compact: %+v, %v", done, err)
	}
	base := fastDir(t)
	if _, err := copyOn(t.Context(), full, Copying{From: []string{dir}, Into: filepath.Join(base, "into"), How: "merge"}); !errors.Is(err, ErrNoRoom) {
		t.Errorf("merge: %v", err)
	}
	if after, _ := loadManifest(disk{}, dir); !reflect.DeepEqual(after, before) || !reflect.DeepEqual(names(filepath.Join(dir, partsDir)), were) || len(names(base)) > 0 {
		t.Errorf("changed: %v, %v", names(filepath.Join(dir, partsDir)), names(base))
	}
	if done, err := compactOn(t.Context(), narrowDisk{disk{}, 5 << 20}, Compaction{Dir: dir}); err != nil || done.Into != 2 {
		t.Errorf("with room: %+v, %v", done, err)
	}
}
