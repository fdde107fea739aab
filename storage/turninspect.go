package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
)

// InspectTurns reads the files in which turns of open episodes are kept, and returns the stretches that hold no record. A file that a writer removes
// meanwhile holds nothing any more.
func (r *Run) InspectTurns() (damage []Damage, err error) {
	dir := filepath.Join(r.dir, journalDir)
	entries, err := r.fs.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for records of turns: %w", err)
	}
	for _, e := range entries {
		if _, ok := turnFileNumber(e.Name()); !ok {
			continue
		}
		gaps, err := r.turnGaps(filepath.Join(dir, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read records of turns in %s: %w", e.Name(), err)
		}
		for _, g := range gaps {
			damage = append(damage, Damage{File: path.Join(journalDir, e.Name()), Offset: g.offset, Bytes: g.bytes, Torn: g.torn, Turns: true})
		}
	}
	return damage, nil
}

func (r *Run) turnGaps(name string) ([]gap, error) {
	s, err := openSegment(r.fs, name, 0)
	if err != nil {
		return nil, err
	}
	defer s.file.Close()
	return scanFrames(s.file, s.bytes, func(int64, []byte) error { return nil })
}
