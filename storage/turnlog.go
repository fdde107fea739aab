package storage

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tranche/episode"
)

// turnLog keeps what the turns of open episodes added, so that an episode goes on after a crash. Its files stand beside the segments: rows are
// neither slower for it nor in danger of it, and publishing does not copy what thousands of open episodes hold.
//
// A record is written when its turn has ended, by the goroutine that plays the episode, and never synced: kill -9 loses nothing of it, a loss of power what
// the system had not written by itself. When an episode's row is durable its records are dead. A file without live records is removed;
// when more is dead than lives, what lives is moved out of the file with most dead in it.
type turnLog struct {
	fs    fileSystem
	dir   string
	bytes int64 // after which a file is ended
	slack int64 // dead bytes that are never moved for

	seq atomic.Uint64

	write  sync.Mutex // guards active, next and what is in the files; taken before mu
	active *turnFile  // nil until something is written
	next   int

	mu      sync.Mutex // guards everything below
	chains  map[key]*chain
	files   []*turnFile // the active one included
	trouble error       // the first thing that failed
	unkept  error       // why a turn could not be written as it is; of the first such
	off     bool        // nothing is kept any more
	unread  bool        // a file could not be read: what seems dead may follow what is in it
}

const (
	turnFileBytes = 16 << 20
	turnSlack     = 64 << 20
)

// turnFile is one file of records; the log's mu guards live, write the rest.
type turnFile struct {
	number int
	path   string
	file   file
	bytes  int64
	live   int64 // bytes of records that are part of a chain
}

func turnFileName(number int) string { return fmt.Sprintf("turns-%08d%s", number, segmentExtension) }

func turnFileNumber(name string) (int, bool) {
	var n int
	if _, err := fmt.Sscanf(name, "turns-%d"+segmentExtension, &n); err != nil || turnFileName(n) != name {
		return 0, false
	}
	return n, true
}

// recordAt is where a record of a turn is.
type recordAt struct {
	seq           uint64
	file          *turnFile
	offset, bytes int64
}

// chain is the records of one episode that it can be gone on from: turn 0, 1, 2 … of one attempt.
type chain struct {
	attempt uint32
	turns   []recordAt
	end     recordAt // of the record that says that tools hold something from here on; no file = there is none
	kept    []string // these tools
	ended   bool     // in this process: no more turns of this attempt are taken
}

// all are the records of a chain, those that a turn puts out of force with from > 0.
func (c *chain) all(from int) []recordAt {
	list := slices.Clone(c.turns[from:])
	if c.end.file != nil {
		list = append(list, c.end)
	}
	return list
}

// take adds a record to a chain, nil for none, and returns the chain and what is dead then. A first turn begins the chain anew; a turn that was there is
// played anew from there on; what does not follow the turn before it is dead itself.
func (c *chain) take(h turnHeader, kept []string, p recordAt) (*chain, []recordAt) {
	if c == nil && h.turn == 0 {
		c = &chain{attempt: h.attempt}
	}
	if !c.leads(h) {
		return c, []recordAt{p}
	}
	dead := c.all(int(h.turn))
	c.attempt, c.turns, c.end, c.kept = h.attempt, c.turns[:h.turn], recordAt{}, nil
	if h.ends {
		c.end, c.kept = p, kept
	} else {
		c.turns = append(c.turns, p)
	}
	return c, dead
}

// leads says whether a record follows what is in the chain.
func (c *chain) leads(h turnHeader) bool {
	switch {
	case c == nil:
		return h.turn == 0
	case h.turn == 0:
		return h.attempt >= c.attempt
	}
	return h.attempt == c.attempt && int(h.turn) <= len(c.turns) && c.turns[h.turn-1].seq == h.prev
}

// KeepTurn keeps the turn that an episode has just ended and goes on from. See episode.TurnLog.
func (w *Writer) KeepTurn(e *episode.Episode, s *episode.Step) { w.turns.keep(e, s) }

// Begun is what is known of an episode that an earlier process began and did not end; nil = nothing.
func (w *Writer) Begun(episodeID string) *episode.Begun { return w.turns.begun(keyOf(episodeID)) }

// TurnTrouble is why turns are not kept, or were not found, any more; nil where nothing failed. No row is in danger of it.
func (w *Writer) TurnTrouble() error {
	w.turns.mu.Lock()
	defer w.turns.mu.Unlock()
	return cmp.Or(w.turns.trouble, w.turns.unkept)
}

func (l *turnLog) keep(e *episode.Episode, s *episode.Step) {
	h := turnHeader{key: keyOf(e.ID), attempt: uint32(e.Attempt), turn: uint32(len(e.Turns) - 1), ends: len(s.Kept) > 0}
	var ok bool
	if h.prev, ok = l.before(h); !ok {
		return
	}
	h.seq = l.seq.Add(1)
	frame, err := appendFrame(nil, frameTurn, func(b []byte) ([]byte, error) { return appendTurn(b, h, e, s) })
	if err != nil {
		l.mu.Lock() // the turns after it follow nothing; the ones before stay
		defer l.mu.Unlock()
		l.unkept = cmp.Or(l.unkept, fmt.Errorf("turn %d of episode %s, and those after it, are not kept: %w", h.turn, e.ID, err))
		return
	}
	if err := l.append(h, s.Kept, frame); err != nil {
		l.fail(fmt.Errorf("keep a turn of episode %s: %w", e.ID, err))
	}
}

// before is the seq of the turn before; false where the record would be part of no chain.
func (l *turnLog) before(h turnHeader) (seq uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.chains[h.key]
	if l.off || c != nil && c.ended && h.attempt == c.attempt {
		return 0, false
	}
	if n := int(h.turn); c != nil && n > 0 && n <= len(c.turns) {
		h.prev = c.turns[n-1].seq
	}
	return h.prev, c.leads(h)
}

// fail gives the log up: rows are not in danger, and what is known stays.
func (l *turnLog) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble, l.off = cmp.Or(l.trouble, err), true
}

func (l *turnLog) append(h turnHeader, kept []string, frame []byte) error {
	l.write.Lock()
	defer l.write.Unlock()
	if l.given() {
		return nil
	}
	if err := l.makeRoom(); err != nil {
		return err
	}
	p, err := l.put(h.seq, frame)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p.file.live += p.bytes
	c, dead := l.chains[h.key].take(h, kept, p)
	bury(dead)
	if c != nil {
		c.ended = h.ends
		l.chains[h.key] = c
	}
	return nil
}

// given says that the log was given up or closed.
func (l *turnLog) given() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.off
}

// put writes a frame to the active file. The caller holds write.
func (l *turnLog) put(seq uint64, frame []byte) (recordAt, error) {
	f := l.active
	n, err := f.file.Write(frame)
	if err == nil && n < len(frame) {
		err = fmt.Errorf("%d of %d bytes written to %s", n, len(frame), f.path)
	}
	p := recordAt{seq, f, f.bytes, int64(len(frame))}
	f.bytes += int64(n)
	return p, err
}

// makeRoom has an active file that is not full. The caller holds write.
func (l *turnLog) makeRoom() error {
	if l.active != nil && l.active.bytes < l.bytes {
		return nil
	}
	if err := l.open(); err != nil {
		return err
	}
	return l.tidy()
}

func (l *turnLog) open() error {
	f := &turnFile{number: l.next, path: filepath.Join(l.dir, turnFileName(l.next))}
	var err error
	if f.file, err = l.fs.Create(f.path); err != nil {
		return err
	}
	l.next++
	l.mu.Lock()
	l.files = append(l.files, f)
	l.mu.Unlock()
	l.active = f
	n, err := f.file.Write([]byte(segmentMagic))
	f.bytes = int64(n)
	return err
}

// bury counts records as dead. The caller holds mu.
func bury(dead []recordAt) {
	for _, p := range dead {
		p.file.live -= p.bytes
	}
}

// drop forgets an episode whose row is durable.
func (l *turnLog) drop(k key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.chains[k]; c != nil {
		bury(c.all(0))
		delete(l.chains, k)
	}
}

// tidy removes files in which nothing lives, and moves records out of the one with most dead in it for as long as more is dead than lives. The caller
// holds write.
func (l *turnLog) tidy() error {
	for {
		useless, worst := l.survey()
		if err := l.remove(useless); err != nil {
			return err
		}
		if worst == nil {
			return nil
		}
		if err := l.vacate(worst); err != nil {
			return err
		}
	}
}

// survey finds the files in which nothing lives, the active one left out, and the one to be vacated; nil = none is.
func (l *turnLog) survey() (useless []*turnFile, worst *turnFile) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var live, dead int64
	for _, f := range l.files {
		switch {
		case f == l.active:
			continue
		case f.live == 0:
			useless = append(useless, f)
			continue
		}
		live, dead = live+f.live, dead+f.bytes-f.live
		if worst == nil || f.bytes-f.live > worst.bytes-worst.live {
			worst = f
		}
	}
	if dead <= max(live, l.slack) {
		worst = nil
	}
	return useless, worst
}

// remove removes files that hold nothing. The caller holds write.
func (l *turnLog) remove(files []*turnFile) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.file.Close(), l.fs.Remove(f.path))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files = slices.DeleteFunc(l.files, func(f *turnFile) bool { return slices.Contains(files, f) })
	return errors.Join(errs...)
}

// vacate moves what lives in a file to the active one and makes that durable, its name too, so that the file can be removed. What cannot be read ends its chain. The caller holds write.
func (l *turnLog) vacate(f *turnFile) error {
	var buf []byte
	for _, m := range l.living(f) {
		frame, err := m.from.read(buf)
		if err != nil {
			l.cut(m)
			continue
		}
		buf = frame
		to, err := l.put(m.from.seq, frame)
		if err != nil {
			return err
		}
		l.moved(m, to)
	}
	return errors.Join(l.active.file.Sync(), l.fs.SyncDir(l.dir))
}

// tenant is a record in a file that is vacated: of which chain, and where in it. at = the number of its turns is the record that ends it.
type tenant struct {
	of   key
	at   int
	from recordAt
}

func (l *turnLog) living(f *turnFile) []tenant {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []tenant
	for k, c := range l.chains {
		for i, p := range c.all(0) {
			if p.file == f {
				list = append(list, tenant{k, i, p})
			}
		}
	}
	slices.SortFunc(list, func(a, b tenant) int { return cmp.Compare(a.from.offset, b.from.offset) })
	return list
}

// spot is where the chain holds the record, nil where it holds it no more. The caller holds mu.
func (l *turnLog) spot(m tenant) *recordAt {
	c := l.chains[m.of]
	switch {
	case c == nil:
	case m.at < len(c.turns) && c.turns[m.at] == m.from:
		return &c.turns[m.at]
	case c.end == m.from:
		return &c.end
	}
	return nil
}

func (l *turnLog) moved(m tenant, to recordAt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.spot(m); p != nil { // its row may have come meanwhile
		bury([]recordAt{*p})
		*p = to
		to.file.live += to.bytes
	}
}

// cut ends a chain before a record that cannot be read.
func (l *turnLog) cut(m tenant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spot(m) == nil {
		return
	}
	c := l.chains[m.of]
	at := min(m.at, len(c.turns))
	bury(c.all(at))
	c.turns, c.end, c.kept = c.turns[:at], recordAt{}, nil
}

// read reads a record's frame back and checks it.
func (p recordAt) read(buf []byte) ([]byte, error) {
	return frameAt(p.file.file, p.file.path, p.offset, p.bytes, buf)
}

// begun reads the chain of an episode, as far as it can be read.
func (l *turnLog) begun(k key) *episode.Begun {
	l.mu.Lock()
	c := l.chains[k]
	l.mu.Unlock()
	if c == nil {
		return nil
	}
	l.write.Lock() // no file is removed meanwhile
	defer l.write.Unlock()
	l.mu.Lock()
	turns := slices.Clone(c.turns)
	l.mu.Unlock()
	b := &episode.Begun{Attempt: int(c.attempt)}
	for i, p := range turns {
		frame, err := p.read(nil)
		var t *turnText
		var s episode.Step
		if err == nil {
			t, s, err = decodeStep(frame[frameHead:])
		}
		if err != nil {
			l.note(fmt.Errorf("go on from turn %d: %w", i, err))
			break
		}
		if i == 0 {
			b.Created, b.Opening = time.Unix(0, t.Created).UTC(), t.Opening
		}
		b.Steps = append(b.Steps, s)
	}
	return b
}

// note keeps the first thing that failed.
func (l *turnLog) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble = cmp.Or(l.trouble, err)
}

// close ends the log: what lives is made durable and stays for the next process, files in which nothing lives are removed.
func (l *turnLog) close() {
	l.write.Lock()
	defer l.write.Unlock()
	l.mu.Lock()
	l.off = true
	files := slices.Clone(l.files)
	l.mu.Unlock()
	var errs []error
	stays := false
	for _, f := range files {
		if f.live > 0 || l.unread {
			errs, stays = append(errs, f.file.Sync(), f.file.Close()), true
			continue
		}
		errs = append(errs, f.file.Close(), l.fs.Remove(f.path))
	}
	if stays {
		errs = append(errs, l.fs.SyncDir(l.dir))
	}
	if err := errors.Join(errs...); err != nil {
		l.note(fmt.Errorf("close the records of turns: %w", err))
	}
}

// OpenEpisodes is what is known of episodes that an earlier process began and did not end.
type OpenEpisodes struct {
	GoOn  int      // go on after a turn
	Turns int      // those that they need not play again, sum
	Again int      // begin again, because tools held something of them from their first turn on
	Kept  []string // these tools, sorted
}

func (l *turnLog) openEpisodes() (o OpenEpisodes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := map[string]bool{}
	for _, c := range l.chains {
		if len(c.turns) > 0 {
			o.GoOn++
			o.Turns += len(c.turns)
			continue
		}
		o.Again++
		for _, name := range c.kept {
			names[name] = true
		}
	}
	o.Kept = slices.Sorted(maps.Keys(names))
	return o
}
