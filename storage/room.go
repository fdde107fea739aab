package storage

import (
	"errors"
	"fmt"
)

// ErrNoRoom: less is free on the disk than is about to be written.
var ErrNoRoom = errors.New("there is not enough room on the disk")

// hasRoom looks before work is begun that a full disk would end. Where nobody knows what is free, there is room.
func hasRoom(fsys fileSystem, dir string, need int64) error {
	free, known := fsys.Free(dir)
	if !known || free >= need {
		return nil
	}
	return fmt.Errorf("%s: %w: at least %d KiB are to be written, and %d KiB are free", dir, ErrNoRoom, (need+1023)>>10, free>>10)
}

// smallFile is the most that the footer and the filters of a file of few rows take, bytes.
const smallFile = 64 << 10

// again is how much of a file comes again, at least, when its rows are written into a larger one.
func (p Part) again() int64 { return max(p.Bytes-smallFile, 0) }
