package storage

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// key is an episode, group or task id in 16 bytes: the id itself where it is 128 bits in hex, as episode.ID makes them, else
// the start of its SHA-256.
type key [16]byte

func keyOf(id string) key {
	var k key
	if len(id) == 2*len(k) && !strings.ContainsAny(id, "ABCDEF") {
		if _, err := hex.Decode(k[:], []byte(id)); err == nil {
			return k
		}
	}
	sum := sha256.Sum256([]byte(id))
	copy(k[:], sum[:])
	return k
}

// record is a durable row: where it is in the journal, and what publishing it has to know.
type record struct {
	key, group, task key
	seq              uint64
	round, sample    int32
	groupSize        int32
	ended            bool // its group ended with fewer samples than its row says: groupSize is right
	failed           bool
	alone            bool // its siblings were published before it
	equal            bool // all rewards of its group are the same
	reward           *float64
	raw              int64 // bytes, see Row.rawBytes
	seg              *segment
	offset, bytes    int64 // of the frame
}

func (r record) good() bool { return !r.failed }

func (r record) bad() bool { return r.failed }

func recordOf(r *Row, seq uint64) record {
	group := r.GroupID
	if group == "" {
		group = r.EpisodeID
	}
	return record{
		key: keyOf(r.EpisodeID), group: keyOf(group), task: keyOf(r.TaskID), seq: seq,
		round: r.Round, sample: r.SampleIndex, groupSize: max(r.GroupSize, 1), failed: r.failed(), raw: r.rawBytes(), reward: clone(r.Reward),
	}
}

// group is the samples of one draw that are in the journal.
type group struct {
	records []record // one a key, in sample order
	ready   bool     // nothing is missing: to be published
}

func (g *group) bytes() int64 {
	var n int64
	for _, r := range g.records {
		n += r.raw
	}
	return n
}

// put adds a record or replaces the older one of the same key.
func (g *group) put(r record) {
	if i := slices.IndexFunc(g.records, func(o record) bool { return o.key == r.key }); i >= 0 {
		if r.seq >= g.records[i].seq {
			g.records[i] = r
		}
		return
	}
	at, _ := slices.BinarySearchFunc(g.records, r, func(a, b record) int { return cmp.Compare(a.sample, b.sample) })
	g.records = slices.Insert(g.records, at, r)
}

// ledger says which key is where. It does no I/O and takes no lock: the Writer's mutex guards it.
type ledger struct {
	good, failed keySet
	// retry holds what the summary needs of the failures that may be written once more; they count as not done.
	retry map[key]digest
	// placed is the number of the failure file that holds a published failure; unplaced while that file is being built.
	placed map[key]int
	// groups are the unpublished ones, complete or not.
	groups     map[key]*group
	ready      []*group // complete, in the order of completion
	readyBytes int64
	summary    Summary
	mark       bool // Config.MarkEqual
}

const unplaced = -1

func newLedger() *ledger {
	return &ledger{retry: map[key]digest{}, placed: map[key]int{}, groups: map[key]*group{}}
}

// done reports whether the key needs no more work.
func (l *ledger) done(k key) bool {
	if _, ok := l.retry[k]; ok {
		return false
	}
	return l.known(k)
}

// known reports whether there is a row of the key, also one that may be written once more.
func (l *ledger) known(k key) bool {
	return l.good.has(k) || l.failed.has(k)
}

// add takes a durable record that is in the journal.
func (l *ledger) add(r record, d digest) {
	l.count(r.key, r.failed, d)
	l.hold(r)
}

// count notes a key as done and counts its row.
func (l *ledger) count(k key, failed bool, d digest) {
	delete(l.retry, k)
	l.failed.remove(k)
	if failed {
		l.failed.add(k)
	} else {
		l.good.add(k)
	}
	l.summary.add(&d)
}

// countRetry notes a failure that may be written once more: it is in the summary only as long as nothing replaces it.
func (l *ledger) countRetry(k key, d digest) {
	l.failed.add(k)
	l.retry[k] = d
}

// hold puts a record where publishing finds it. A row that replaces a published failure has its group in the parts already
// and is published by itself.
func (l *ledger) hold(r record) {
	if _, ok := l.placed[r.key]; ok {
		r.alone = r.groupSize > 1
		l.finish(&group{records: []record{r}})
		return
	}
	g := l.groups[r.group]
	if g == nil {
		g = &group{}
		l.groups[r.group] = g
	}
	before := g.bytes()
	g.put(r)
	switch {
	case g.ready:
		l.readyBytes += g.bytes() - before
	case len(g.records) >= int(r.groupSize):
		l.finish(g)
	}
}

// end completes a group that has fewer samples than its rows say. One that is not here is in the parts already.
func (l *ledger) end(k key, samples int) {
	g := l.groups[k]
	if g == nil || g.ready || len(g.records) < samples {
		return
	}
	for i := range g.records {
		g.records[i].groupSize, g.records[i].ended = int32(samples), true
	}
	l.finish(g)
}

// markEqual marks the rows of a group that tells nothing: two or more verdicts, all the same.
func (l *ledger) markEqual(g *group) {
	var first *float64
	for n, r := range g.records {
		if r.reward == nil || n > 0 && *r.reward != *first {
			return
		}
		first = r.reward
	}
	if len(g.records) < 2 {
		return
	}
	for i := range g.records {
		g.records[i].equal = true
		tally(&l.summary.Flags, FlagZeroVariance)
	}
}

func (l *ledger) finish(g *group) {
	g.ready = true
	l.ready = append(l.ready, g)
	l.readyBytes += g.bytes()
}

// take hands out the complete groups, and the records of the incomplete ones that have to outlive their segments. The failures
// handed out count as placed from now on: a retry that comes while their file is being built has to replace them there.
func (l *ledger) take() (ready []*group, incomplete []record) {
	ready = l.ready
	l.ready, l.readyBytes = nil, 0
	for _, g := range ready {
		if l.mark {
			l.markEqual(g)
		}
		for _, r := range g.records {
			if l.groups[r.group] == g {
				delete(l.groups, r.group)
			}
			if _, ok := l.placed[r.key]; r.failed && !ok {
				l.placed[r.key] = unplaced
			}
		}
	}
	for _, g := range l.groups {
		incomplete = append(incomplete, g.records...)
	}
	slices.SortFunc(incomplete, bySeq)
	return ready, incomplete
}

// move notes the new place of a record that was copied; one that was replaced meanwhile stays where it is.
func (l *ledger) move(r record) {
	g := l.groups[r.group]
	if g == nil {
		return
	}
	for i := range g.records {
		if g.records[i].key == r.key && g.records[i].seq == r.seq {
			g.records[i] = r
		}
	}
}

// total is the summary of every key's one row.
func (l *ledger) total() Summary {
	s := l.summary.clone()
	for _, d := range l.retry {
		s.add(&d)
	}
	return s
}

// amend counts what publishing added to the verdict of a row that is counted already.
func (l *ledger) amend(a amendment) { l.summary.amend(&a.before, &a.after) }

func bySeq(a, b record) int { return cmp.Compare(a.seq, b.seq) }

// layout is what one part will hold: row groups of records. It points into the groups: a part may have 100,000 rows.
type layout [][]*record

// arrange decides which rows go into which row group of which part. Rows of a group stay together in one row group, in sample
// order; groups of one task follow one another by round, tasks in the order of their oldest row. A row group is closed before
// it passes groupBytes and a part before it passes partBytes, unless a single group is larger.
func arrange(groups []*group, keep func(record) bool, groupBytes, partBytes int64) []layout {
	var parts []layout
	var inGroup, inPart int64
	for _, g := range ordered(groups) {
		rows, n := g.pick(keep)
		if len(rows) == 0 {
			continue
		}
		switch {
		case len(parts) == 0 || inPart+n > partBytes:
			parts = append(parts, layout{rows})
			inGroup, inPart = 0, 0
		case inGroup+n > groupBytes:
			parts[len(parts)-1] = append(parts[len(parts)-1], rows)
			inGroup = 0
		default:
			last := parts[len(parts)-1]
			last[len(last)-1] = append(last[len(last)-1], rows...)
		}
		inGroup += n
		inPart += n
	}
	return parts
}

func (g *group) pick(keep func(record) bool) (rows []*record, bytes int64) {
	for i := range g.records {
		if r := &g.records[i]; keep(*r) {
			rows = append(rows, r)
			bytes += r.raw
		}
	}
	return rows, bytes
}

func ordered(groups []*group) []*group {
	oldest := map[key]uint64{} // of a task
	for _, g := range groups {
		for _, r := range g.records {
			if seq, ok := oldest[r.task]; !ok || r.seq < seq {
				oldest[r.task] = r.seq
			}
		}
	}
	out := slices.Clone(groups)
	slices.SortStableFunc(out, func(a, b *group) int {
		x, y := a.records[0], b.records[0]
		return cmp.Or(cmp.Compare(oldest[x.task], oldest[y.task]), slices.Compare(x.task[:], y.task[:]), cmp.Compare(x.round, y.round))
	})
	return out
}
