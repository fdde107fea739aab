package storage

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// While files are made into others under a reader, sizes of columns are read anew, and who walks the published rows is told that the run moved on.
func TestReadersOfFilesAloneTellMovedFromLost(t *testing.T) {
	for _, read := range []string{"columns", "published"} {
		t.Run(read, func(t *testing.T) {
			dir := fastDir(t)
			manyParts(t, testConfig(dir), 4, 2)
			if _, err := Compact(t.Context(), Compaction{Dir: dir}); err != nil { // movingDisk makes one file more of it
				t.Fatal(err)
			}
			moving := &Run{dir: dir, fs: &movingDisk{fileSystem: disk{}, dir: dir, t: t}}
			if read == "published" {
				var last error
				for _, last = range moving.Published(t.Context()) {
				}
				if !errors.Is(last, ErrMoved) {
					t.Errorf("walk: %v", last)
				}
				return
			}
			got, err := moving.Columns()
			want, werr := must(OpenRun(dir)).Columns()
			if err != nil || werr != nil || len(got) == 0 || !slices.Equal(got, want) {
				t.Errorf("%v, %v: %d columns, want %d", err, werr, len(got), len(want))
			}
		})
	}
	dir := fastDir(t)
	manyParts(t, testConfig(dir), 2, 1)
	m, _ := loadManifest(disk{}, dir)
	if err := (disk{}).Remove(filepath.Join(dir, m.Parts[1].Path)); err != nil {
		t.Fatal(err)
	}
	if _, err := must(OpenRun(dir)).Columns(); !errors.Is(err, ErrDamaged) {
		t.Errorf("a file that is missing: %v", err)
	}
}

// sealingDisk publishes what the journal holds when a segment of it is first opened.
type sealingDisk struct {
	fileSystem
	seal func()
}

func (d *sealingDisk) Open(path string) (file, error) {
	if seal := d.seal; seal != nil && strings.Contains(path, journalDir+string(filepath.Separator)+"segment-") {
		d.seal = nil
		seal()
	}
	return d.fileSystem.Open(path)
}

// A run that publishes its journal just when a copy of it is begun is copied as it is then.
func TestCopiesOfARunThatSealsMeanwhile(t *testing.T) {
	m := made{run: "r", group: 3}
	begin := func(t *testing.T) (dir, into string, fsys fileSystem) {
		dir = playedRun(t) // one sample of task 10 waits for the other two
		return dir, filepath.Join(fastDir(t), "into"), &sealingDisk{disk{}, func() {
			w := mustOpen(t, testConfig(dir))
			mustWrite(t, w, m.episode(10, 1), m.episode(10, 2))
			mustClose(t, w)
		}}
	}
	t.Run("merge", func(t *testing.T) {
		dir, into, fsys := begin(t)
		got, err := copyOn(t.Context(), fsys, Copying{From: []string{dir}, Into: into, How: "merge"})
		if err != nil || got.Manifest.Rows != 32 || got.Manifest.Made.Sources[0].Unfinished != 0 {
			t.Errorf("%d rows, %v", got.Manifest.Rows, err)
		}
	})
	t.Run("rescore", func(t *testing.T) {
		dir, into, fsys := begin(t)
		cfg := toRescore(dir)
		cfg.Into = into
		got, err := rescoreOn(t.Context(), fsys, cfg)
		if err != nil || got.Rows != 32 || got.Journal != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
