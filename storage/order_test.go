package storage

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tranche/episode"
)

// mergeParts puts neighbouring parts into one, as compaction does; shuffled brings their groups into another order.
func mergeParts(t *testing.T, dir string, from, to int, shuffled *rand.Rand) {
	t.Helper()
	m, err := loadManifest(disk{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	removed := map[string]bool{}
	var groups [][]*Row
	for _, p := range m.Parts[from:to] {
		removed[p.Path] = true
		for _, r := range partRows(t, filepath.Join(dir, p.Path)) {
			if n := len(groups); n > 0 && groups[n-1][0].GroupID == r.GroupID {
				groups[n-1] = append(groups[n-1], r)
				continue
			}
			groups = append(groups, []*Row{r})
		}
	}
	if shuffled != nil {
		shuffled.Shuffle(len(groups), func(i, k int) { groups[i], groups[k] = groups[k], groups[i] })
	}
	w, err := newPartWriter(disk{}, dir, partName(partsDir, m.NextPart), partOptions())
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		for _, r := range g {
			if err := w.add(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	part, err := w.publish()
	if err != nil {
		t.Fatal(err)
	}
	if err := saveManifest(disk{}, dir, m.with([]Part{part}, nil, removed, m.FirstSegment)); err != nil {
		t.Fatal(err)
	}
	for path := range removed {
		if err := os.Remove(filepath.Join(dir, path)); err != nil {
			t.Fatal(err)
		}
	}
}

func mustOrder(t *testing.T, dir string) *Order {
	t.Helper()
	o, err := OpenOrder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Update(); err != nil {
		t.Fatal(err)
	}
	return o
}

// reader is somebody who reads a part of the order at a time, up to the end of a group.
type orderReader struct {
	cursor   string
	failures bool
	seen     map[string]int // key and status
	broken   []string       // groups that did not come in one piece
	last     string
	closed   map[string]bool
}

func newOrderReader(failures bool) *orderReader {
	return &orderReader{failures: failures, seen: map[string]int{}, closed: map[string]bool{}}
}

func (r *orderReader) read(t *testing.T, o *Order, groups int) {
	t.Helper()
	from := int64(0)
	if r.cursor != "" {
		var err error
		if from, err = o.Index(r.cursor); err != nil {
			t.Fatal(err)
		}
	}
	reach := o.Reach()
	next, last := from, ""
	for p, err := range o.Rows(from, reach, r.failures) {
		if err != nil {
			t.Fatal(err)
		}
		if p.Row.GroupID != last {
			if groups--; groups < 0 {
				r.cursor = o.Cursor(next)
				return
			}
			last = p.Row.GroupID
		}
		r.note(p.Row)
		next = p.Index + 1
	}
	r.cursor = o.Cursor(reach)
}

func (r *orderReader) note(row *Row) {
	r.seen[row.EpisodeID+" "+text(row.Status)]++
	if row.failed() || row.Attempt > 0 {
		return // failures, and what was retried, may come apart from their group
	}
	if row.GroupID != r.last {
		if r.closed[row.GroupID] {
			r.broken = append(r.broken, row.GroupID)
		}
		r.closed[r.last], r.last = true, row.GroupID
	}
}

var orderSeeds = flag.Uint64("order-seeds", 2, "how many random histories of a run TestOrderGivesEveryRowOnce reads")

// Whatever becomes of the files, and whoever is stopped in between, a reader gets every row once, and whole groups.
func TestOrderGivesEveryRowOnce(t *testing.T) {
	for seed := range *orderSeeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 8))
			dir := t.TempDir()
			mustClose(t, mustOpen(t, testConfig(dir)))
			readers := []*orderReader{newOrderReader(false), newOrderReader(false), newOrderReader(true)}
			o := mustOrder(t, dir)
			task, retry := 0, map[string][2]int{}
			for range 14 {
				switch rng.IntN(6) {
				case 0, 1:
					w := mustOpen(t, testConfig(dir))
					for range 1 + rng.IntN(5) {
						for sample := range 3 {
							bad := rng.IntN(5) == 0
							e := made{run: "r", group: 3, failing: func(int, int) bool { return bad }}.episode(task, sample)
							if bad {
								retry[e.ID] = [2]int{task, sample}
							}
							mustWrite(t, w, e)
						}
						task++
					}
					mustClose(t, w)
				case 2:
					cfg := testConfig(dir)
					cfg.RetryFailed = true
					w := mustOpen(t, cfg)
					for id, at := range retry {
						if rng.IntN(2) == 0 {
							e := made{run: "r", group: 3}.episode(at[0], at[1])
							e.Attempt = 1
							mustWrite(t, w, e)
							delete(retry, id)
						}
					}
					mustClose(t, w)
				case 3:
					m, err := loadManifest(disk{}, dir)
					if err != nil {
						t.Fatal(err)
					}
					if n := len(m.Parts); n > 1 {
						from := rng.IntN(n - 1)
						shuffled := rng
						if rng.IntN(2) == 0 {
							shuffled = nil
						}
						mergeParts(t, dir, from, from+2+rng.IntN(n-1-from), shuffled)
					}
				case 4:
					if err := o.Close(); err != nil {
						t.Fatal(err)
					}
					o = mustOrder(t, dir)
				case 5:
					if err := o.Update(); err != nil {
						t.Fatal(err)
					}
					readers[rng.IntN(3)].read(t, o, 1+rng.IntN(6))
				}
			}
			if err := o.Update(); err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			want := rowsOf(t, dir)
			for i, r := range readers {
				r.read(t, o, 1<<30)
				for id, row := range want {
					if row.failed() && !r.failures {
						continue
					}
					if n := r.seen[id+" "+text(row.Status)]; n != 1 {
						t.Errorf("reader %d: episode %s, %s, came %d times", i, id, text(row.Status), n)
					}
				}
				for k, n := range r.seen {
					if id, status, _ := strings.Cut(k, " "); n != 1 || want[id] == nil || !r.failures && status == "failed" {
						t.Errorf("reader %d: %s came %d times", i, k, n)
					}
				}
				if len(r.broken) > 0 {
					t.Errorf("reader %d: groups in pieces: %v", i, r.broken)
				}
			}
		})
	}
}

// aRun publishes parts of two groups of two rows each.
func aRun(t *testing.T, parts int) string {
	t.Helper()
	dir := t.TempDir()
	w := mustOpen(t, testConfig(dir))
	for i := range parts * 4 {
		mustWrite(t, w, made{run: "r", group: 2}.episode(i/2, i%2))
		if i%4 == 3 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustClose(t, w)
	return dir
}

func idsFrom(t *testing.T, o *Order, from int64) (ids []string) {
	t.Helper()
	for p, err := range o.Rows(from, o.Reach(), false) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, p.Row.EpisodeID)
	}
	return ids
}

// A file that is replaced while it is being read, or just before, changes nothing for the reader.
func TestOrderIsReadWhileFilesAreReplaced(t *testing.T) {
	dir := aRun(t, 5)
	o := mustOrder(t, dir)
	defer o.Close()
	want := idsFrom(t, o, 0)
	var got []string
	for p, err := range o.Rows(0, o.Reach(), false) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, p.Row.EpisodeID); len(got) == 6 || len(got) == 13 {
			mergeParts(t, dir, 0, 3, nil)
		}
	}
	if len(want) != 20 || !slices.Equal(got, want) {
		t.Errorf("%d rows, then %d:\n%v\n%v", len(want), len(got), want, got)
	}
}

// What a crash left of the last line was told to nobody; anything else that is broken is damage.
func TestOrderLogIsCutAnywhere(t *testing.T) {
	dir := aRun(t, 3)
	o := mustOrder(t, dir)
	all := idsFrom(t, o, 0)
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, feedDir, orderName(0))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at <= len(whole); at += 23 {
		if err := os.WriteFile(path, whole[:at], 0o644); err != nil {
			t.Fatal(err)
		}
		o, err := OpenOrder(dir)
		if err != nil {
			t.Fatalf("cut at byte %d: %v", at, err)
		}
		known := max(0, bytes.Count(whole[:at], []byte("\n"))-1) * 4
		if n := o.Len(); n != int64(known) {
			t.Errorf("cut at byte %d: %d rows known, want %d", at, n, known)
		}
		if err := o.Update(); err != nil {
			t.Fatal(err)
		}
		if got := idsFrom(t, o, 0); !slices.Equal(got[:known], all[:known]) || len(got) != len(all) {
			t.Errorf("cut at byte %d: rows %v, before %v", at, got, all)
		}
		if err := errors.Join(o.Close(), os.RemoveAll(filepath.Join(dir, feedDir, orderName(1)))); err != nil {
			t.Fatal(err)
		}
	}
	bent := slices.Clone(whole)
	bent[len(bent)/2] ^= 1
	if err := os.WriteFile(path, bent, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenOrder(dir); !errors.Is(err, ErrDamaged) {
		t.Errorf("a flipped bit in the middle: %v", err)
	}
}

// A damaged part stops the order before its rows, and nowhere else.
func TestOrderStopsAtDamage(t *testing.T) {
	dir := aRun(t, 2)
	o := mustOrder(t, dir)
	defer o.Close()
	w := mustOpen(t, testConfig(dir))
	mustWrite(t, w, made{run: "r"}.episode(100, 0))
	mustClose(t, w)
	m, err := loadManifest(disk{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	last := filepath.Join(dir, m.Parts[len(m.Parts)-1].Path)
	if err := os.Rename(last, last+".away"); err != nil {
		t.Fatal(err)
	}
	if err := o.Update(); !errors.Is(err, ErrDamaged) {
		t.Errorf("a part that is away: %v", err)
	}
	if got := idsFrom(t, o, 0); len(got) != 8 {
		t.Errorf("%d rows before it, want 8", len(got))
	}
	if err := os.Rename(last+".away", last); err != nil {
		t.Fatal(err)
	}
	if err := o.Update(); err != nil || len(idsFrom(t, o, 8)) != 1 {
		t.Errorf("after it came back: %v, rows %v", err, idsFrom(t, o, 8))
	}

	first := filepath.Join(dir, m.Parts[0].Path)
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, err = range o.Rows(0, o.Reach(), false) {
		if err == nil {
			rows++
		}
	}
	if rows > 0 || !errors.Is(err, ErrDamaged) {
		t.Errorf("a part that is gone for good: %d rows, %v", rows, err)
	}
}

// Compacted parts that cannot be read hold rows which were told of: nobody may go past them.
func TestOrderDoesNotSkipWhatItCannotFind(t *testing.T) {
	dir := aRun(t, 3)
	o := mustOrder(t, dir)
	defer o.Close()
	mergeParts(t, dir, 1, 3, nil)
	m, err := loadManifest(disk{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, m.Parts[len(m.Parts)-1].Path)
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	if err := o.Update(); !errors.Is(err, ErrDamaged) || o.Reach() != 4 || o.Len() != 12 {
		t.Errorf("%v, %d of %d rows in reach, want 4 of 12", err, o.Reach(), o.Len())
	}
	for _, err = range o.Rows(4, 12, false) {
	}
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("rows that are out of reach: %v", err)
	}
}

// logReads counts how often logs of the order are opened.
type logReads struct {
	fileSystem
	n int
}

func (c *logReads) Open(path string) (file, error) {
	if strings.HasPrefix(filepath.Base(path), "order-") {
		c.n++
	}
	return c.fileSystem.Open(path)
}

// The keys of rows that moved are read when they move, not again with every part that is published.
func TestOrderReadsKeysOnlyOfWhatMoved(t *testing.T) {
	dir := aRun(t, 5)
	disk := &logReads{fileSystem: disk{}}
	o, err := openOrderOn(disk, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	task := 100
	for step, c := range []struct {
		change func()
		want   int // lines
	}{
		{func() {}, 0},
		{func() { mergeParts(t, dir, 0, 3, nil) }, 3},
		{func() {}, 0},
		{func() {}, 0},
		{func() { mergeParts(t, dir, 0, 2, nil) }, 2}, // of parts that never moved before
		{func() { mergeParts(t, dir, len(mustManifest(t, dir).Parts)-3, len(mustManifest(t, dir).Parts), nil) }, 1 + 2},
	} {
		w := mustOpen(t, testConfig(dir))
		mustWrite(t, w, made{run: "r"}.episode(task, 0))
		mustClose(t, w)
		task++
		c.change()
		disk.n = 0
		if err := o.Update(); err != nil {
			t.Fatal(err)
		}
		if disk.n != c.want {
			t.Errorf("step %d: %d lines read, want %d", step, disk.n, c.want)
		}
	}
	if got := len(idsFrom(t, o, 0)); got != 26 {
		t.Errorf("%d rows", got)
	}
}

func mustManifest(t *testing.T, dir string) Manifest {
	t.Helper()
	m, err := loadManifest(disk{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Rows of compacted parts do not wait for a damaged part that holds none of them.
func TestOrderReachesPastWhatMovedElsewhere(t *testing.T) {
	dir := aRun(t, 3)
	o := mustOrder(t, dir)
	defer o.Close()
	mergeParts(t, dir, 0, 3, nil)
	w := mustOpen(t, testConfig(dir))
	mustWrite(t, w, made{run: "r"}.episode(100, 0))
	mustClose(t, w)
	m := mustManifest(t, dir)
	if err := os.Truncate(filepath.Join(dir, m.Parts[len(m.Parts)-1].Path), 100); err != nil {
		t.Fatal(err)
	}
	if err := o.Update(); !errors.Is(err, ErrDamaged) || o.Reach() != 12 {
		t.Errorf("%v, reach %d, want 12", err, o.Reach())
	}
}

// openHook is a disk on which something happens when a part is opened.
type openHook struct {
	fileSystem
	hook func(path string)
}

func (h *openHook) Open(path string) (file, error) {
	if strings.HasSuffix(path, ".parquet") && h.hook != nil {
		h.hook(path)
	}
	return h.fileSystem.Open(path)
}

// A part that is replaced between the manifest and its opening is no damage, not even for a moment.
func TestOrderTellsNoDamageOfWhatIsReplaced(t *testing.T) {
	dir := aRun(t, 3)
	d := &openHook{fileSystem: disk{}}
	o, err := openOrderOn(d, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := o.Update(); err != nil {
		t.Fatal(err)
	}
	mergeParts(t, dir, 0, 2, nil)
	opened := 0
	d.hook = func(string) {
		if opened++; opened == 1 {
			mergeParts(t, dir, 0, 2, nil)
		}
		if o.Reach() != 12 || o.damage != nil {
			t.Errorf("opening %d: reach %d, %v", opened, o.Reach(), o.damage)
		}
	}
	if err := o.Update(); err != nil || opened != 2 {
		t.Errorf("%v, %d files opened", err, opened)
	}
}

// Rows come with the rewards that readers see.
func TestOrderReadsTheCurrentRewards(t *testing.T) {
	dir := aRun(t, 2)
	o := mustOrder(t, dir)
	defer o.Close()
	_, err := Rescore(context.Background(), Rescoring{Dir: dir, Set: "new", Digest: "d", Judge: func(_ context.Context, rows []*Row, _ bool) error {
		for _, r := range rows {
			r.SetVerdict(episode.Verdict{Total: episode.Ptr(42.0)})
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Update(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for p, err := range o.Rows(0, o.Reach(), false) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; p.Row.Reward == nil || *p.Row.Reward != 42 {
			t.Errorf("reward %v", p.Row.Reward)
		}
	}
	if n != 8 {
		t.Errorf("%d rows", n)
	}
}

func TestCursorsAndAcknowledgements(t *testing.T) {
	dir := aRun(t, 2)
	o := mustOrder(t, dir)
	if _, err := OpenOrder(dir); !errors.Is(err, ErrLocked) {
		t.Errorf("a second feed: %v", err)
	}
	for name, c := range map[string]struct {
		cursor string
		want   error
	}{
		"the end":               {o.Cursor(8), nil},
		"the beginning":         {o.Cursor(0), nil},
		"behind the end":        {o.Cursor(9), ErrCursorGone},
		"of another writer":     {o.log.id + "-8-00000000", ErrCursorGone},
		"of no writer":          {o.log.id + "-8", ErrCursorGone},
		"of another order":      {"0123456789ab-3", ErrCursorGone},
		"below the beginning":   {o.Cursor(-1), ErrCursor},
		"no number":             {o.Cursor(0) + "x", ErrCursor},
		"no id":                 {"-3", ErrCursor},
		"nothing":               {"", ErrCursor},
		"something else":        {"parts/part-00000.parquet", ErrCursor},
		"more than 64 bits":     {o.log.id + "-99999999999999999999", ErrCursor},
		"an id of other length": {"01-3", ErrCursor},
	} {
		if _, err := o.Index(c.cursor); !errors.Is(err, c.want) {
			t.Errorf("%s, %q: %v", name, c.cursor, err)
		}
	}
	for i, c := range []struct {
		consumer   string
		index      int64
		want, fail int64
	}{{"a", 4, 4, 0}, {"a", 2, 4, 0}, {"b", 1, 1, 0}, {"a", 8, 8, 0}, {"a", 9, 0, 1}, {"../a", 1, 0, 1}, {"", 1, 0, 1}, {".tmp-a", 1, 0, 1}} {
		got, err := o.Ack(c.consumer, c.index)
		if got != c.want || (err != nil) != (c.fail == 1) {
			t.Errorf("ack %d: %d, %v", i, got, err)
		}
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	o = mustOrder(t, dir)
	a, _ := o.Acked("a")
	b, _ := o.Acked("b")
	if _, ok := o.Acked("c"); a != 8 || b != 1 || ok || len(o.Consumers()) != 2 {
		t.Errorf("after a restart: %v", o.Consumers())
	}
	if err := errors.Join(o.Close(), os.Remove(filepath.Join(dir, feedDir, orderName(0)))); err != nil {
		t.Fatal(err)
	}
	o = mustOrder(t, dir)
	defer o.Close()
	if len(o.Consumers()) != 0 {
		t.Errorf("of an order that is gone: %v", o.Consumers())
	}
}

// Of a copy of feed/ that is put back, cursors from after it was made are gone though there are as many rows again; those from before it stand.
func TestCursorsOfAnOrderThatWasPutBack(t *testing.T) {
	dir := aRun(t, 1)
	feed, copied := filepath.Join(dir, feedDir), filepath.Join(t.TempDir(), "copy")
	o := mustOrder(t, dir)
	before, begin := o.Cursor(o.Len()), o.Cursor(0)
	if err := os.CopyFS(copied, os.DirFS(feed)); err != nil {
		t.Fatal(err)
	}
	add := func(task int) {
		w := mustOpen(t, testConfig(dir))
		mustWrite(t, w, made{run: "r"}.episode(task, 0), made{run: "r"}.episode(task+1, 0))
		mustClose(t, w)
		if err := o.Update(); err != nil {
			t.Fatal(err)
		}
	}
	add(50)
	after := o.Cursor(o.Len())
	if _, err := o.Ack("late", o.Len()); err != nil {
		t.Fatal(err)
	}
	acked := filepath.Join(consumersDir, "late.json")
	kept, err := os.ReadFile(filepath.Join(feed, acked))
	if err := errors.Join(err, o.Close(), os.RemoveAll(feed), os.CopyFS(feed, os.DirFS(copied)), os.WriteFile(filepath.Join(feed, acked), kept, 0o644)); err != nil {
		t.Fatal(err)
	}
	o = mustOrder(t, dir)
	defer func() { _ = o.Close() }()
	add(60)
	if _, err := o.Index(after); !errors.Is(err, ErrCursorGone) || o.Len() != 8 {
		t.Errorf("cursor %s of what the copy has not, among %d rows: %v", after, o.Len(), err)
	}
	for cursor, want := range map[string]int64{before: 4, begin: 0, o.Cursor(8): 8} {
		if at, err := o.Index(cursor); err != nil || at != want {
			t.Errorf("cursor %s: %d, %v; want %d", cursor, at, err, want)
		}
	}
	if n, ok := o.Acked("late"); ok {
		t.Errorf("what was acknowledged of lost rows counts: %d", n)
	}
}

// An order that former versions kept names no writers, and neither do their cursors: both go on.
func TestCursorsOfFormerVersionsStand(t *testing.T) {
	dir := aRun(t, 1)
	o := mustOrder(t, dir)
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, feedDir, orderName(0))
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := bytes.Cut(text, []byte("\n"))
	if err := os.WriteFile(name, append(orderEntry{Order: o.log.id}.line(), rows...), 0o644); err != nil {
		t.Fatal(err)
	}
	o = mustOrder(t, dir)
	defer o.Close()
	if at, err := o.Index(o.log.id + "-4"); err != nil || at != 4 || o.Cursor(4) != o.log.id+"-4" {
		t.Errorf("%d, %v; today's is %s", at, err, o.Cursor(4))
	}
}

// Whatever operation of the disk fails, and with or without what was not synced, a cursor that was told stands where it stood.
func TestOrderOnAFailingDisk(t *testing.T) {
	for i := 2; ; i++ {
		k, dead := i/2, i%2 == 0 // the operation that fails, and whether all do from there on
		dir := aRun(t, 1)
		d := newFaultyDisk(k, dead)
		told, acked := map[string][]string{}, int64(0)
		note := func(o *Order) {
			told[o.Cursor(o.Reach())] = idsFrom(t, o, 0)
			if n, err := o.Ack("a", o.Reach()); err == nil {
				acked = n
			}
		}
		o, err := openOrderOn(d, dir)
		if err == nil {
			if o.Update() == nil {
				note(o)
			}
			w := mustOpen(t, testConfig(dir))
			mustWrite(t, w, made{run: "r"}.episode(100, 0), made{run: "r"}.episode(101, 0))
			mustClose(t, w)
			mergeParts(t, dir, 0, 2, nil)
			if o.Update() == nil {
				note(o)
			}
			if err := o.Update(); err == nil {
				note(o)
			} else if !dead || !d.hit {
				t.Errorf("operation %d fails: the feed does not go on after it: %v", k, err)
			}
			if err := o.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if i%3 > 0 {
			d.loseUnsynced(t)
		}
		o = mustOrder(t, dir)
		for cursor, ids := range told {
			at, err := o.Index(cursor)
			if got := idsFrom(t, o, 0); err != nil || at != int64(len(ids)) || !slices.Equal(got[:at], ids) {
				t.Errorf("operation %d fails: cursor %s, told behind %d rows: %v, behind %v of\n%v\n%v", k, cursor, len(ids), err, at, got, ids)
			}
		}
		if n, _ := o.Acked("a"); n < acked {
			t.Errorf("operation %d fails: acknowledged %d, after it %d", k, acked, n)
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
		if !d.hit {
			if k < 10 || len(told) != 2 {
				t.Errorf("only %d operations, %d cursors", k, len(told))
			}
			return
		}
	}
}

// A later process begins a file of its own when it has something to add. Whatever fails then, once, the next look goes on, and what was told stands for the
// process after it.
func TestALaterWriterOnAFailingDisk(t *testing.T) {
	for k := 1; ; k++ {
		dir := aRun(t, 1)
		if err := mustOrder(t, dir).Close(); err != nil {
			t.Fatal(err)
		}
		w := mustOpen(t, testConfig(dir))
		mustWrite(t, w, made{run: "r"}.episode(100, 0), made{run: "r"}.episode(101, 0))
		mustClose(t, w)
		d := newFaultyDisk(k, false)
		o, err := openOrderOn(d, dir)
		if err != nil {
			continue // that operation was one of opening
		}
		_ = o.Update() // it may fail
		if err := o.Update(); err != nil || o.Reach() != 6 {
			t.Errorf("operation %d fails: %d rows, %v", k, o.Reach(), err)
		}
		end := o.Cursor(o.Reach())
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := OpenOrder(dir)
		if err != nil {
			t.Errorf("operation %d fails: the order cannot be read any more: %v", k, err)
			continue
		}
		if at, err := again.Index(end); err != nil || at != 6 {
			t.Errorf("operation %d fails: cursor %s: %d, %v", k, end, at, err)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		if !d.hit {
			return
		}
	}
}

// A run is gone on with though a feed has put its folder there.
func TestAFeedDoesNotDisturbTheRun(t *testing.T) {
	dir := aRun(t, 1)
	o := mustOrder(t, dir)
	defer o.Close()
	w := mustOpen(t, testConfig(dir))
	mustWrite(t, w, made{run: "r"}.episode(50, 0))
	mustClose(t, w)
	if err := o.Update(); err != nil || o.Len() != 5 {
		t.Errorf("%d rows, %v", o.Len(), err)
	}
}

func FuzzOrderLine(f *testing.F) {
	f.Add(orderEntry{Order: "0123456789ab", Writer: "01234567"}.line())
	f.Add(orderEntry{First: 3, File: "parts/part-00000.parquet", Keys: make([]byte, 32)}.line())
	f.Add([]byte("00000000 {}\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, ok := parseOrderLine(line)
		if !ok {
			return
		}
		if again, ok := parseOrderLine(e.line()); !ok || again.First != e.First || again.File != e.File || again.Row != e.Row || !bytes.Equal(again.Keys, e.Keys) {
			t.Errorf("%q becomes %+v and then %+v", line, e, again)
		}
		for i := range e.rows() {
			_ = e.key(i)
		}
	})
}
