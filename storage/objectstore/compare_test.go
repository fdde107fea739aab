package objectstore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"tranche/storage"
)

// With Compare an object of other bytes is sent anew also where it has the right size; without, what the list tells is enough.
func TestPushComparesSums(t *testing.T) {
	for _, scheme := range []string{"s3", "gs", "az", "file"} {
		t.Run(scheme, func(t *testing.T) {
			_, url := useFake(t, scheme)
			s, dir := mustStore(t, quick(url)), filepath.Join(t.TempDir(), "x")
			session(t, dir, 0, 10, false)
			mustPush(t, dir, s)
			m, _, err := storage.LoadManifest(dir)
			if err != nil {
				t.Fatal(err)
			}
			part := m.Parts[0]
			mustPut(t, s, part.Path, noise(int(part.Bytes)))
			for _, c := range []struct {
				compare bool
				sent    int
			}{{false, 0}, {true, 1}, {true, 0}} {
				p, err := NewPusher(Push{Dir: dir, Store: s, Compare: c.compare})
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(p.Prepare(t.Context()), p.Pass(t.Context()), p.Close()); err != nil || p.Progress().Sent != c.sent {
					t.Errorf("compare %v: %d sent, want %d; %v", c.compare, p.Progress().Sent, c.sent, err)
				}
			}
			whole, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(part.Path)))
			if err != nil {
				t.Fatal(err)
			}
			mustHold(t, s, part.Path, whole)
		})
	}
}
