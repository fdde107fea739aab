package verify

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"time"

	"tranche/episode"
	"tranche/storage"
)

// keyDerived: ids follow from run, task, round and sample, so that a resume computes the same.
func keyDerived(r *row) (column, what string) {
	if want := episode.GroupID(r.RunID, r.TaskID, int(r.Round)); r.GroupID != want {
		return "group_id", fmt.Sprintf("group_id is %s, run, task and round give %s", r.GroupID, want)
	}
	if want := episode.ID(r.GroupID, strconv.Itoa(int(r.SampleIndex))); r.EpisodeID != want {
		return "episode_id", fmt.Sprintf("episode_id is %s, group and sample give %s", r.EpisodeID, want)
	}
	return "", ""
}

func keyRun(r *row) (column, what string) {
	if r.run != "" && r.RunID != r.run {
		return "run_id", fmt.Sprintf("run_id is %q, run.yaml says %q", r.RunID, r.run)
	}
	return "", ""
}

func folder(r *row) (column, what string) {
	switch lost := lostRow(r.Row); {
	case lost && (r.home == inParts || r.home == inSet):
		return "status", fmt.Sprintf("status is %s: expected it in failures", text(r.Status))
	case !lost && r.home == inFailures:
		return "status", fmt.Sprintf("status is %q: expected it in parts", text(r.Status))
	}
	return "", ""
}

// lostRow says that the row failed or was cut.
func lostRow(r *storage.Row) bool { return storage.IsLost(text(r.Status)) }

// books are what is known over all rows: 16 bytes and a place for each key, and a little for each task and each group of several samples.
type books struct {
	seen   map[storage.Key]origin
	files  []string // that origins and groups speak of
	groups map[storage.Key]groupBook
	tasks  map[storage.Key]uint64 // of each task of a run, the beginning of its hash's key
	open   stretch
}

// origin is where an episode was seen first.
type origin struct {
	file, row int32
	lost      bool
}

// groupBook is what is known of one group.
type groupBook struct {
	ended     int64 // when the last of its good rows had ended, µs since 1970
	at        int64 // of its first row: the row of the file, or the byte of the journal
	file      int32
	rowGroup  int32 // inJournalFile = none
	size      int32
	rows      int32
	stretches int32
	published bool
}

// inJournalFile stands for a row group where there are none.
const inJournalFile = -1

// stretch is good rows of one group that stand together.
type stretch struct {
	group  storage.Key
	rows   int
	number int   // row group
	began  int64 // when the first of its rows was created
	ended  int64
	sample int32
	at     Place
	mixed  bool // its order is not that of the samples
}

func newBooks() *books {
	return &books{seen: map[storage.Key]origin{}, groups: map[storage.Key]groupBook{}, tasks: map[storage.Key]uint64{}}
}

// file is the number of a file; files come one after the other.
func (b *books) file(name string) int32 {
	if n := len(b.files); n == 0 || b.files[n-1] != name {
		b.files = append(b.files, name)
	}
	return int32(len(b.files) - 1)
}

// place is that of a group's first row.
func (b *books) place(g groupBook) Place {
	p := Place{File: b.files[g.file]}
	if g.rowGroup == inJournalFile {
		p.Offset = new(g.at)
	} else {
		p.Row, p.RowGroup = new(g.at), new(int(g.rowGroup))
	}
	return p
}

// enter books a row of a file. One that the journal has a newer row of is not counted.
func (v *Verifier) enter(r *row, at Place) {
	b, k := v.books, storage.KeyOf(r.EpisodeID)
	newer, replaced := v.index[k]
	if was, twice := b.seen[k]; twice {
		at.What = fmt.Sprintf("it is in %s too, row %d", b.files[was.file], was.row)
		v.find("key-unique", at)
		b.endStretch(v)
		return
	}
	lost := lostRow(r.Row)
	b.seen[k] = origin{b.file(at.File), int32(*at.Row), lost}
	if !lost || !replaced {
		v.summary.Add(r.Row)
	}
	if replaced && !lost {
		at.What = fmt.Sprintf("it is in %s too, at byte %d", newer.file, newer.offset)
		v.find("key-unique", at)
	}
	v.group(r, at, true)
	if r.home == inParts {
		b.stretch(v, r, at)
	}
}

// groupKey is a row's group; one without an id stands alone.
func groupKey(r *storage.Row) storage.Key { return storage.KeyOf(cmp.Or(r.GroupID, r.EpisodeID)) }

// group counts a row in its group, and holds row, group and task to what others say. A group of one sample is whole with its row: it is not kept, but
// where the record of draws is to be asked.
func (v *Verifier) group(r *row, at Place, published bool) {
	b, k := v.books, groupKey(r.Row)
	size := max(r.GroupSize, 1)
	g, met := b.groups[k]
	if !met {
		g = groupBook{size: size, file: b.file(at.File), rowGroup: inJournalFile}
		if at.Row != nil {
			g.at, g.rowGroup = *at.Row, int32(*at.RowGroup)
		} else {
			g.at = *at.Offset
		}
	}
	g.rows++
	g.published = g.published || published
	if _, asked := v.cfg.Ended[k]; met || size > 1 || asked {
		b.groups[k] = g
	}
	switch {
	case g.size != size:
		at.Column, at.What = "group_size", fmt.Sprintf("group_size is %d, another row of the group says %d", r.GroupSize, g.size)
		v.find("group-size", at)
	case r.SampleIndex < 0 || r.SampleIndex >= size:
		at.Column, at.What = "sample_index", fmt.Sprintf("sample_index is %d of %d", r.SampleIndex, r.GroupSize)
		v.find("group-size", at)
	}
	v.task(r, at)
}

func (v *Verifier) task(r *row, at Place) {
	task, hash := storage.KeyOf(r.RunID+" "+r.TaskID), beginning(storage.KeyOf(r.TaskHash))
	if was, met := v.books.tasks[task]; met && was != hash {
		at.Column, at.What = "task_hash", fmt.Sprintf("task_hash is %.16s, another row of the task %.60q has another", r.TaskHash, r.TaskID)
		v.find("task-hash", at)
		return
	}
	v.books.tasks[task] = hash
}

func beginning(k storage.Key) uint64 { return binary.BigEndian.Uint64(k[:]) }

// stretch goes on with the rows that stand together, or begins anew.
func (b *books) stretch(v *Verifier, r *row, at Place) {
	k := groupKey(r.Row)
	if s := b.open; s.rows == 0 || s.group != k || s.at.File != at.File || s.number != *at.RowGroup {
		b.endStretch(v)
		b.open = stretch{group: k, number: *at.RowGroup, at: at, sample: -1}
	}
	s := &b.open
	began := r.CreatedAt.UnixMicro()
	if r.SampleIndex <= s.sample && began <= s.ended {
		s.mixed = true
	}
	if s.rows == 0 || began < s.began {
		s.began = began
	}
	s.ended, s.sample, s.rows = max(s.ended, began+int64(r.Timing.Total*1e6)), max(s.sample, r.SampleIndex), s.rows+1
}

// endStretch holds the stretch that ends to those before it. Rows of one group may stand apart where a sample failed and was played again: then it was
// begun when all that had been published of its group was over.
func (b *books) endStretch(v *Verifier) {
	s := b.open
	b.open = stretch{}
	g, met := b.groups[s.group]
	if s.rows == 0 || !met { // a group of one sample
		return
	}
	switch {
	case g.stretches > 0 && s.began <= g.ended:
		s.at.What = fmt.Sprintf("rows of the group stand at row %d of %s, row group %d, as well, and these were not played later", g.at, b.files[g.file], g.rowGroup)
		v.find("group-together", s.at)
	case g.stretches == 0 && s.mixed:
		s.at.Column, s.at.What = "sample_index", "the rows of the group do not stand in the order of their samples"
		v.find("group-together", s.at)
	}
	g.stretches++
	g.ended = max(g.ended, s.ended)
	b.groups[s.group] = g
}

// journalEntry is the latest record of a key.
type journalEntry struct {
	seq    uint64
	file   string
	offset int64
	lost   bool
}

// indexJournal checks every row of the journal and finds the latest of each key.
func (v *Verifier) indexJournal(ctx context.Context, journal *storage.JournalFiles) error {
	damage, err := journal.Rows(func(j storage.JournalRow) error {
		at := Place{File: j.File, Offset: new(j.Offset)}
		switch {
		case j.Err != nil:
			at.What = j.Err.Error()
			v.find("journal-rows", at)
			v.unread = true
			return ctx.Err()
		case storage.KeyOf(j.Row.EpisodeID) != j.Key:
			at.Episode, at.What = j.Row.EpisodeID, "its key is that of another episode"
			v.find("journal-rows", at)
			v.unread = true
			return ctx.Err()
		}
		at.Episode = j.Row.EpisodeID
		v.report.Journal++
		v.look(&row{Row: j.Row, home: inJournal, total: v.totalOf(j.Row)}, at)
		v.indexRow(j, at)
		return ctx.Err()
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	for _, d := range damage {
		if at := placeOf(d); d.Torn {
			v.note("a half-written record at the end of the journal: nothing that was acknowledged; the next start cuts it off", at)
		} else {
			v.unread = true
			v.find("journal", at)
		}
	}
	return err
}

func placeOf(d storage.Damage) Place {
	return Place{File: d.File, Offset: new(d.Offset), What: fmt.Sprintf("%d bytes", d.Bytes)}
}

// turns looks at the turns that are kept of open episodes. A torn end is what a crash leaves, or what is being written.
func (v *Verifier) turns() error {
	damage, err := v.run.InspectTurns()
	for _, d := range damage {
		if !d.Torn {
			v.find("journal-turns", placeOf(d))
		}
	}
	return err
}

func (v *Verifier) indexRow(j storage.JournalRow, at Place) {
	old, twice := v.index[j.Key]
	now := journalEntry{seq: j.Seq, file: j.File, offset: j.Offset, lost: lostRow(j.Row)}
	switch {
	case !twice, old.seq == j.Seq: // there twice, unchanged: a crash came before the older segment was removed
	case old.seq < j.Seq && old.lost, old.seq > j.Seq && now.lost: // a failure and its retry
	default:
		at.What = fmt.Sprintf("it is in %s too, at byte %d", old.file, old.offset)
		v.find("key-unique", at)
	}
	if !twice || j.Seq >= old.seq {
		v.index[j.Key] = now
	}
}

// countJournal counts the rows that are in the journal only.
func (v *Verifier) countJournal(ctx context.Context, journal *storage.JournalFiles) error {
	_, err := journal.Rows(func(j storage.JournalRow) error {
		e, ok := v.index[j.Key]
		if !ok || j.Row == nil || e.seq != j.Seq || e.offset != j.Offset || e.file != j.File {
			return ctx.Err()
		}
		was, published := v.books.seen[j.Key]
		if published && !was.lost {
			return ctx.Err()
		}
		v.summary.Add(j.Row)
		if !published {
			at := Place{File: j.File, Offset: new(j.Offset), Episode: j.Row.EpisodeID}
			v.group(&row{Row: j.Row, home: inJournal}, at, false)
		}
		return ctx.Err()
	})
	return cmp.Or(context.Cause(ctx), err)
}

// conclude makes the checks that need all rows.
func (v *Verifier) conclude() {
	if v.unread {
		for _, check := range []string{"group-whole", "draws", "summary"} {
			v.miss(check, "rows are missing or cannot be read", 0)
		}
		return
	}
	if v.partial {
		v.miss("group-whole", "rows of the dataset were chosen singly: that samples are missing is no fault", 0)
	}
	v.wholeGroups()
	v.endedGroups()
	v.sameSummary()
}

func (v *Verifier) wholeGroups() {
	for _, g := range v.books.wrong(func(g groupBook) bool { return g.published && (g.rows > g.size || g.rows < g.size && !v.partial) }) {
		at := v.books.place(g)
		at.Column, at.What = "group_size", fmt.Sprintf("the group has %d rows of %d", g.rows, g.size)
		v.find("group-whole", at)
	}
}

// wrong are the groups of which that is true, in the order in which they were met.
func (b *books) wrong(is func(groupBook) bool) (list []groupBook) {
	for _, g := range b.groups {
		if is(g) {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b groupBook) int { return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.at, b.at)) })
	return list
}

// endedGroups holds the groups to the record of draws.
func (v *Verifier) endedGroups() {
	for k, size := range v.cfg.Ended {
		if g, met := v.books.groups[k]; met && g.published && g.size != size {
			at := v.books.place(g)
			at.Column, at.What = "group_size", fmt.Sprintf("draws.jsonl says that the group was ended with %d samples, its rows say %d", size, g.size)
			v.find("draws", at)
		}
	}
}

// since is when a time was, for people.
func since(t time.Time) string { return t.UTC().Format(time.RFC3339) }
