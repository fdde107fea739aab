package storage

import (
	"time"
)

const (
	batchEntries = 4096    // rows in one fsync at most
	batchFrames  = 4 << 20 // bytes after which a batch is written
	bigFrame     = 1 << 20 // bytes of a frame that is written by itself
)

// commitLoop owns the journal: it collects the rows of many Writes, appends them with one fsync and answers all of them.
func (w *Writer) commitLoop() {
	defer close(w.committed)
	var last time.Time // end of the last fsync
	var frames []byte
	for {
		select {
		case ent := <-w.queue:
			batch := w.gather(ent, last)
			frames = w.commit(batch, frames[:0])
			last = time.Now()
		case reply := <-w.rotations:
			reply <- w.rotate()
		case <-w.stopLog:
			return
		}
	}
}

// gather waits until the next fsync is due and takes every row that comes meanwhile.
func (w *Writer) gather(first *entry, last time.Time) []*entry {
	batch := []*entry{first}
	full := func() bool { return len(batch) >= batchEntries }
	if wait := time.Until(last.Add(w.cfg.SyncInterval)); wait > 0 {
		due := time.NewTimer(wait)
		defer due.Stop()
		for waiting := true; waiting && !full(); {
			select {
			case ent := <-w.queue:
				batch = append(batch, ent)
			case <-due.C:
				waiting = false
			}
		}
	}
	for !full() {
		select {
		case ent := <-w.queue:
			batch = append(batch, ent)
		default:
			return batch
		}
	}
	return batch
}

// commit makes a batch durable in as few appends as its size allows. It returns the buffer for the next one.
func (w *Writer) commit(batch []*entry, frames []byte) []byte {
	from := 0
	flush := func(to int) {
		w.append(batch[from:to], frames)
		frames, from = frames[:0], to
	}
	for i, ent := range batch {
		if len(ent.frame) >= bigFrame { // not worth a copy
			flush(i)
			w.append(batch[i:i+1], ent.frame)
			from = i + 1
			continue
		}
		frames = append(frames, ent.frame...)
		if len(frames) >= batchFrames {
			flush(i + 1)
		}
	}
	flush(len(batch))
	return frames
}

func (w *Writer) append(batch []*entry, frames []byte) {
	if len(batch) == 0 {
		return
	}
	w.mu.Lock()
	err := w.broken
	w.mu.Unlock()
	if err == nil {
		var seg *segment
		var at int64
		if seg, at, err = w.journal.append(frames); err != nil {
			err = w.fail(err)
		} else {
			w.book(batch, seg, at)
		}
	}
	for _, ent := range batch {
		ent.done <- err
	}
}

// book enters durable rows in the ledger.
func (w *Writer) book(batch []*entry, seg *segment, at int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ent := range batch {
		ent.rec.seg, ent.rec.offset = seg, at
		at += ent.rec.bytes
		w.ledger.add(ent.rec, ent.dig)
		w.turns.drop(ent.rec.key)
	}
	w.wakeSealer()
}

// wakeSealer has the sealer look again where a group is complete. The caller holds mu.
func (w *Writer) wakeSealer() {
	if len(w.ledger.ready) == 0 {
		return
	}
	if w.firstReady.IsZero() {
		w.firstReady = time.Now()
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// rotate ends the active segment and takes what is complete. No row is half booked at this moment: the committer calls it
// between batches.
func (w *Writer) rotate() snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	ended, carry := w.journal.rotate()
	if ended != nil {
		w.segments = append(w.segments, ended)
	}
	snap := snapshot{carry: carry, old: w.segments}
	w.segments = nil
	snap.ready, snap.incomplete = w.ledger.take()
	for _, g := range snap.ready {
		w.sealing += g.bytes()
		for _, r := range g.records {
			if part, ok := w.ledger.placed[r.key]; ok && part != unplaced {
				snap.replace(part, r.key)
			}
		}
	}
	w.firstReady = time.Time{}
	return snap
}
