package storage

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// way is how the same episodes are written: none of it may change what comes of them.
type way struct {
	rowGroup, part int64
	small          int
	sync           time.Duration
	age            time.Duration
	writers        int
	order          []int
	flush          map[int]bool // after so many episodes
	restart        map[int]bool
	compact        bool // by hand, between restarts
}

func drawWay(t *rapid.T, episodes int) way {
	all := make([]int, episodes)
	for i := range all {
		all[i] = i
	}
	points := func(name string, most int) map[int]bool {
		set := map[int]bool{}
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, episodes-1), 0, most).Draw(t, name) {
			set[i] = true
		}
		return set
	}
	return way{
		rowGroup: rapid.Int64Range(1, 16<<10).Draw(t, "row group"), part: rapid.Int64Range(1, 128<<10).Draw(t, "part"),
		small:   rapid.SampledFrom([]int{0, 2, 3, 5}).Draw(t, "small parts"),
		sync:    time.Duration(rapid.IntRange(1, 500).Draw(t, "sync")) * time.Microsecond,
		age:     rapid.SampledFrom([]time.Duration{time.Millisecond, 5 * time.Millisecond, time.Hour}).Draw(t, "age"),
		writers: rapid.IntRange(1, 8).Draw(t, "writers"), order: rapid.Permutation(all).Draw(t, "order"),
		flush: points("flush", 6), restart: points("restart", 3), compact: rapid.Bool().Draw(t, "compact"),
	}
}

// write carries a way out.
func (y way) write(t *rapid.T, dir string, m made) {
	cfg := Config{Dir: dir, SyncInterval: y.sync, RowGroupBytes: y.rowGroup, PartBytes: y.part, SmallParts: y.small, MinPartAge: y.age, MaxPartAge: y.age}
	open := func() *Writer {
		w, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := open()
	var writing sync.WaitGroup
	room := make(chan struct{}, y.writers)
	for n, i := range y.order {
		room <- struct{}{}
		writing.Go(func() {
			defer func() { <-room }()
			if err := w.Write(context.Background(), m.episode(i/m.group, i%m.group)); err != nil {
				t.Errorf("%v", err)
			}
		})
		if y.flush[n] {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if y.restart[n] {
			writing.Wait()
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if y.compact {
				if _, err := Compact(context.Background(), Compaction{Dir: dir, PartBytes: y.part, RowGroupBytes: y.rowGroup}); err != nil {
					t.Fatal(err)
				}
			}
			w = open()
		}
	}
	writing.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if left := w.Compacted().Left; len(left) > 0 {
		t.Fatalf("%v", left)
	}
}

// Law 7 where storage can break it: whatever the sizes, the number of writers, flushes, restarts and merges, the same rows come of the same episodes, each
// group in one row group, and the books are right.
func TestSameRowsWhateverTheWay(t *testing.T) {
	checks := "15"
	if raceEnabled || testing.Short() {
		checks = "3"
	}
	defer setFlag(t, "rapid.checks", checks)()
	m := made{run: "r", group: 3, failing: killFailing}
	const episodes = 36
	want := map[string]Row{}
	for i := range episodes {
		e := m.episode(i/m.group, i%m.group)
		want[e.ID] = RowOf(e)
	}
	base, n := fastDir(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dir := filepath.Join(base, fmt.Sprint(n))
		drawWay(rt, episodes).write(rt, dir, m)
		rows := rowsOf(t, dir)
		if len(rows) != len(want) {
			rt.Fatalf("%d rows, want %d", len(rows), len(want))
		}
		for id, r := range rows {
			if !reflect.DeepEqual(*r, want[id]) {
				rt.Fatalf("row differs\n got %+v\nwant %+v", *r, want[id])
			}
		}
		man := checkFolders(t, dir)
		if man.Rows+man.FailureRows != episodes {
			rt.Fatalf("%d and %d rows are published", man.Rows, man.FailureRows)
		}
		good, failed := published(t, dir)
		if len(good)+len(failed) != episodes {
			rt.Fatalf("%d and %d keys are published", len(good), len(failed))
		}
		groups := map[string]string{}
		for _, p := range man.Parts {
			for _, r := range partRows(t, filepath.Join(dir, p.Path)) {
				if at, ok := groups[r.GroupID]; ok && at != p.Path {
					rt.Fatalf("a group is in %s and in %s", at, p.Path)
				}
				groups[r.GroupID] = p.Path
			}
		}
		if t.Failed() {
			rt.FailNow()
		}
	})
}

// setFlag sets a flag of the test binary until the returned function is called: rapid takes its number of checks from no other place.
func setFlag(t *testing.T, name, value string) (back func()) {
	t.Helper()
	f := flag.Lookup(name)
	if f == nil {
		t.Fatalf("no flag %s", name)
	}
	was := f.Value.String()
	if err := flag.Set(name, value); err != nil {
		t.Fatal(err)
	}
	return func() { _ = flag.Set(name, was) }
}
