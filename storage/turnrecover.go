package storage

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
)

// openTurns finds the turns of episodes that have no row. A failure that is to be played again has one: it begins again.
func (w *Writer) openTurns() {
	var damage []Damage
	w.turns, damage = openTurnLog(w.fs, filepath.Join(w.cfg.Dir, journalDir), w.ledger.known)
	w.recovery.Damage = append(w.recovery.Damage, damage...)
	w.recovery.Open = w.turns.openEpisodes()
}

// openTurnLog finds the chains of the episodes that are not settled. What cannot be read costs turns, never a row, and no start: it is in trouble, and
// damage is returned.
func openTurnLog(fsys fileSystem, dir string, settled func(key) bool) (*turnLog, []Damage) {
	l := &turnLog{fs: fsys, dir: dir, bytes: turnFileBytes, slack: turnSlack, chains: map[key]*chain{}}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		l.fail(fmt.Errorf("look for records of turns: %w", err))
		return l, nil
	}
	var found []foundTurn
	var damage []Damage
	for _, e := range entries {
		n, ok := turnFileNumber(e.Name())
		if !ok {
			continue
		}
		l.next = max(l.next, n+1)
		turns, gaps, err := l.scan(n)
		if err != nil {
			l.fail(err) // new records would get numbers that stand in the file
			l.unread = true
		}
		found, damage = append(found, turns...), append(damage, gaps...)
	}
	l.link(found, settled)
	l.write.Lock()
	defer l.write.Unlock()
	if useless, _ := l.survey(); len(useless) > 0 && !l.unread {
		if err := l.remove(useless); err != nil {
			l.note(fmt.Errorf("remove records of turns whose rows are there: %w", err))
		}
	}
	return l, damage
}

// foundTurn is a record on disk.
type foundTurn struct {
	turnHeader
	kept []string
	at   recordAt
}

// scan reads one file. One that cannot be read is none of the log's: it stays, for a process that can.
func (l *turnLog) scan(number int) (found []foundTurn, damage []Damage, err error) {
	f := &turnFile{number: number, path: filepath.Join(l.dir, turnFileName(number))}
	if f.file, err = l.fs.Open(f.path); err != nil {
		return nil, nil, err
	}
	info, err := f.file.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, f.file.Close())
	}
	f.bytes = info.Size()
	gaps, err := scanFrames(f.file, f.bytes, func(offset int64, frame []byte) error {
		turn, err := foundAt(recordAt{0, f, offset, int64(len(frame))}, frame)
		if err == nil {
			found = append(found, turn)
		}
		return nil // what is no turn record, or one of another version, is passed over
	})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read records of turns in %s: %w", f.path, err), f.file.Close())
	}
	l.files = append(l.files, f)
	for _, g := range gaps {
		if !g.torn {
			damage = append(damage, Damage{File: path.Join(journalDir, filepath.Base(f.path)), Offset: g.offset, Bytes: g.bytes, Turns: true})
		}
	}
	return found, damage, nil
}

// link makes chains of what was found, in the order in which it was written.
func (l *turnLog) link(found []foundTurn, settled func(key) bool) {
	slices.SortStableFunc(found, func(a, b foundTurn) int { return cmp.Compare(a.seq, b.seq) })
	last := uint64(0)
	for _, t := range found {
		if t.seq == last || settled(t.key) { // the same record twice: it was being moved
			continue
		}
		last = t.seq
		c, dead := l.chains[t.key].take(t.turnHeader, t.kept, t.at)
		t.at.file.live += t.at.bytes
		bury(dead)
		if c != nil {
			l.chains[t.key] = c
		}
	}
	if len(found) > 0 {
		l.seq.Store(found[len(found)-1].seq)
	}
}

func foundAt(p recordAt, frame []byte) (t foundTurn, err error) {
	kind, payload, err := parseFrame(frame)
	if err == nil && kind != frameTurn {
		err = fmt.Errorf("a frame of kind %d is no turn record", kind)
	}
	if err == nil {
		t.turnHeader, err = readTurnHeader(payload)
	}
	p.seq = t.seq
	if err != nil || !t.ends {
		return foundTurn{t.turnHeader, nil, p}, err
	}
	text, _, err := readTurnText(payload)
	if err != nil {
		return t, err
	}
	return foundTurn{t.turnHeader, text.Kept, p}, nil
}
