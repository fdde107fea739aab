package main

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"tranche/storage"
)

// diskTrouble puts below an error of the disk what it means and what to do; other errors stay as they are.
func (s *session) diskTrouble(err error) error {
	var waiting int64
	if s.writer != nil {
		waiting = s.writer.Unpublished()
	}
	said := troubleOf(err, s.dir, roomText(waiting+spareBytes)+" at most for the rows that wait in the journal, and more for what is still to be played")
	if said == "" || errors.Is(err, storage.ErrDamaged) {
		return err
	}
	then := "the same command again"
	if _, ok, rerr := readRunFile(s.dir); ok && rerr == nil {
		then = s.a.program + " resume " + quoted(s.dir)
	}
	kept := "What was acknowledged before is kept."
	if errors.Is(err, fs.ErrNotExist) {
		kept = "Rows that were in them alone are lost, and will be played again."
	}
	return fmt.Errorf("%w\n%s\n%s Then: %s", err, said, kept, then)
}

// troubleOf says what a failing disk wants done; "" = the error is of no kind that is known. need is the room that is needed, and what for.
func troubleOf(err error, dir, need string) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		free := ""
		if n, ok := storage.FreeBytes(dir); ok {
			free = fmt.Sprintf(" (%s free)", roughBytes(n))
		}
		return fmt.Sprintf("The file system of %s is full%s. Free some space. Needed: %s.", dir, free, need)
	case errors.Is(err, syscall.EDQUOT):
		return fmt.Sprintf("The quota on the file system of %s is used up. Free some space or have it raised. Needed: %s.", dir, need)
	case errors.Is(err, syscall.EFBIG):
		return fmt.Sprintf("A file in %s may not grow any further: `ulimit -f` shows the limit of this shell. A file of the journal takes what one or two parts do (--part-bytes).", dir)
	case errors.Is(err, syscall.EROFS):
		return fmt.Sprintf("The file system of %s is read-only. A kernel makes it so when its device reports errors: look there first (dmesg), and mount it for writing.", dir)
	case errors.Is(err, syscall.EIO):
		return fmt.Sprintf("The device below %s reports errors. What it took just now may not be on it; look there first (dmesg).", dir)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("Files of %s were removed or moved while they were written.", dir)
	}
	return ""
}

// spareBytes is for the small files of a run: manifest, summary, account, and the footer of a part.
const spareBytes = 4 << 20

// roomText is a size for people that is no less than n in any unit.
func roomText(n int64) string { return roughBytes(n + n/8 + 1<<20) }
