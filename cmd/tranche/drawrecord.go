package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"tranche/sampler"
	"tranche/storage"
)

// drawRecord is draws.jsonl of a run: what the sampler decided, where it decides by results.
type drawRecord struct {
	path string
	file *os.File
}

// openDrawRecord opens the record of a run and returns what it holds, without a torn last line, and what that sums up to.
func openDrawRecord(dir string) (r *drawRecord, text []byte, sum sampler.Recorded, err error) {
	r = &drawRecord{path: filepath.Join(dir, storage.DrawsName)}
	text, sum, err = readDrawRecord(dir)
	if err != nil {
		return nil, nil, sum, err
	}
	if r.file, err = os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE, 0o666); err != nil {
		return nil, nil, sum, err
	}
	if err = r.file.Truncate(int64(sum.Whole)); err == nil {
		_, err = r.file.Seek(int64(sum.Whole), 0)
	}
	if err == nil {
		err = syncFolder(r.path) // the file may be new
	}
	if err != nil {
		return nil, nil, sum, errors.Join(err, r.file.Close())
	}
	return r, text[:sum.Whole], sum, nil
}

// drawSums is what the record of a run sums up to, read once for all who ask.
type drawSums struct {
	sampler.Recorded
	there bool
	err   error // a fault of the record
}

func readDrawSums(dir string) drawSums {
	text, sum, err := readDrawRecord(dir)
	return drawSums{sum, text != nil, err}
}

// readDrawRecord reads the record of a run; nothing where there is none.
func readDrawRecord(dir string) (text []byte, sum sampler.Recorded, err error) {
	path := filepath.Join(dir, storage.DrawsName)
	text, err = os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, sum, nil
	}
	if err == nil {
		sum, err = sampler.ReadRecord(text)
	}
	if err != nil {
		return nil, sum, fmt.Errorf("read %s: %w", path, err)
	}
	return text, sum, nil
}

// Append writes one line.
func (r *drawRecord) Append(line []byte, durable bool) error {
	if _, err := r.file.Write(line); err != nil {
		return err
	}
	if durable {
		return r.file.Sync()
	}
	return nil
}

func (r *drawRecord) close() error { return errors.Join(r.file.Sync(), r.file.Close()) }

// lateRecord is a record whose place is not known yet.
type lateRecord struct{ *drawRecord }

// Append writes one line, once the record is open.
func (r *lateRecord) Append(line []byte, durable bool) error {
	if r.drawRecord == nil {
		return errors.New("the record of draws is not open")
	}
	return r.drawRecord.Append(line, durable)
}
