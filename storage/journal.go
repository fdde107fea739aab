package storage

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// segment is one journal file. Its file handle is for reading rows back; only the journal writes.
type segment struct {
	number  int
	path    string
	file    file
	bytes   int64 // durable
	damaged bool  // holds bytes that are no frame: kept aside instead of removed
}

func segmentName(number int) string { return fmt.Sprintf("segment-%08d%s", number, segmentExtension) }

func segmentNumber(name string) (int, bool) {
	var n int
	if _, err := fmt.Sscanf(name, "segment-%d"+segmentExtension, &n); err != nil || segmentName(n) != name {
		return 0, false
	}
	return n, true
}

// readFrame reads the frame of a record back and checks it.
func (s *segment) readFrame(r record, buf []byte) ([]byte, error) {
	return frameAt(s.file, s.path, r.offset, r.bytes, buf)
}

// journal appends to one segment at a time. One goroutine owns it.
type journal struct {
	fs     fileSystem
	dir    string
	next   int      // number of the next segment
	active *segment // nil until something is appended
}

// append makes frames durable and returns the segment and offset they begin at. After an error nothing of them is in the
// journal, as far as the disk lets us take it back, and the journal is not to be used again.
func (j *journal) append(frames []byte) (*segment, int64, error) {
	if j.active == nil {
		if err := j.open(); err != nil {
			return nil, 0, err
		}
	}
	s := j.active
	at := s.bytes
	n, err := s.file.Write(frames)
	if err == nil && n < len(frames) {
		err = fmt.Errorf("%d of %d bytes written", n, len(frames))
	}
	if err == nil {
		err = s.file.Sync()
	}
	if err == nil {
		err = s.inPlace(j.fs)
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("append to %s: %w", s.path, err), j.rollBack())
	}
	s.bytes += int64(len(frames))
	return s, at, nil
}

// inPlace says whether the name of a segment still leads to it: what is written to a file that was removed is durable and lost.
func (s *segment) inPlace(fsys fileSystem) error {
	mine, err := s.file.Stat()
	if err != nil {
		return err
	}
	there, err := fsys.Stat(s.path)
	if err != nil {
		return fmt.Errorf("it was removed while it was written: %w", err)
	}
	if !os.SameFile(mine, there) {
		return errors.New("another file was put in its place while it was written")
	}
	return nil
}

func (j *journal) rollBack() error {
	s := j.active
	err := s.file.Truncate(s.bytes)
	if err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("roll %s back to byte %d: %w", s.path, s.bytes, err)
	}
	return nil
}

// open starts a segment; its name is durable before anything in it is acknowledged.
func (j *journal) open() error {
	path := filepath.Join(j.dir, segmentName(j.next))
	f, err := j.fs.Create(path)
	if err != nil {
		return fmt.Errorf("start journal segment: %w", err)
	}
	_, err = f.Write([]byte(segmentMagic))
	if err == nil {
		err = j.fs.SyncDir(j.dir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start journal segment %s: %w", path, err), f.Close())
	}
	j.active = &segment{number: j.next, path: path, file: f, bytes: int64(len(segmentMagic))}
	j.next++
	return nil
}

// rotate ends the active segment: later rows go to a later one. It returns the ended segment, nil when none was begun, and a
// number between the two for the rows that are carried over.
func (j *journal) rotate() (ended *segment, carry int) {
	ended, j.active = j.active, nil
	carry = j.next
	j.next++
	return ended, carry
}

// carry copies frames into a segment of their own, whole and durable before its name exists. No records, no segment.
func (j *journal) carry(number int, records []record) (*segment, []record, error) {
	if len(records) == 0 {
		return nil, nil, nil
	}
	temp := filepath.Join(j.dir, tempPrefix+segmentName(number))
	f, err := j.fs.Create(temp)
	if err != nil {
		return nil, nil, fmt.Errorf("carry journal rows over: %w", err)
	}
	s := &segment{number: number, path: filepath.Join(j.dir, segmentName(number)), file: f}
	moved, err := s.copyFrom(records)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = j.fs.Rename(temp, s.path)
	}
	if err == nil {
		err = j.fs.SyncDir(j.dir)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("carry journal rows over to %s: %w", s.path, err), f.Close())
		_ = j.fs.Remove(temp) // room on a full disk; what stays is swept by the next Open
		return nil, nil, err
	}
	return s, moved, nil
}

func (s *segment) copyFrom(records []record) ([]record, error) {
	if _, err := s.file.Write([]byte(segmentMagic)); err != nil {
		return nil, err
	}
	s.bytes = int64(len(segmentMagic))
	moved := make([]record, len(records))
	var buf []byte
	for i, r := range records {
		frame, err := r.seg.readFrame(r, buf)
		if err != nil {
			return nil, err
		}
		if n, err := s.file.Write(frame); err != nil || n < len(frame) {
			return nil, cmp.Or(err, fmt.Errorf("%d of %d bytes written", n, len(frame)))
		}
		r.seg, r.offset = s, s.bytes
		s.bytes += r.bytes
		moved[i], buf = r, frame
	}
	return moved, nil
}

// drop removes a segment that nothing needs any more. One with damage in it is kept under another name for a person to look at.
func (j *journal) drop(s *segment) error {
	err := s.file.Close()
	if s.damaged {
		return errors.Join(err, j.fs.Rename(s.path, s.path+damagedSuffix))
	}
	return errors.Join(err, j.fs.Remove(s.path))
}
