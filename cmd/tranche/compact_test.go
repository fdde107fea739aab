package main

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"
)

// What is said of a disk that fails is true of compacting: no rows wait for it, and where files are gone rows may be lost.
func TestTroubleWhileCompacting(t *testing.T) {
	c, a := &compactCmd{Dir: "x"}, &app{program: "tranche"}
	for cause, want := range map[syscall.Errno]struct{ says, never string }{
		syscall.ENOSPC: {"--part-bytes at most", "journal"},
		syscall.ENOENT: {"Rows that were in them alone are lost", "Nothing was lost"},
		syscall.EIO:    {"Nothing was lost: tranche view x", "are lost"},
	} {
		err := c.coded(a, &fs.PathError{Op: "write", Path: "x/parts/part-00000.parquet", Err: cause})
		if text := err.Error(); codeOf(err) != codeDisk || !strings.Contains(text, want.says) || strings.Contains(text, want.never) {
			t.Errorf("%v, exit status %d:\n%s", cause, codeOf(err), text)
		}
	}
}
