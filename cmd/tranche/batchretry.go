package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// batchReplaced says which files a batch may replace with its own: those of itself whose failed lines are asked again. A digest is
// sha256 over the file, hex; "" = there was none.
type batchReplaced struct {
	Out    string `json:"out"`
	Errors string `json:"errors"`
}

// batchEnded is a finished batch whose results a new journal begins with.
type batchEnded struct {
	files batchOutput
	lines *batchFile
}

// replaced digests the files of a finished batch; nil = there are none.
func (b *batchEnded) replaced() (*batchReplaced, error) {
	there, err := b.files.exists()
	if there == "" || err != nil {
		return nil, err
	}
	r := &batchReplaced{}
	if r.Out, err = fileDigest(b.files.out); err == nil && b.files.errors != "" {
		r.Errors, err = fileDigest(b.files.errors)
	}
	return r, err
}

// fileDigest is sha256 over a file, hex; "" when it is not there.
func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// takeIn writes the results of a finished batch as records from at on, and syncs them.
func (j *batchJournal) takeIn(b *batchEnded, at int64) error {
	w := bufio.NewWriterSize(io.NewOffsetWriter(j.file, at), 1<<20)
	var record []byte
	found, err := b.files.look(b.lines, func(line int, failed bool, text []byte) error {
		record = appendRecord(record[:0], line, failed, text)
		at += int64(len(record))
		j.count(line, failed, at-1-int64(len(text)), len(text))
		_, err := w.Write(record)
		return err
	})
	if err == nil && (found.foreign || found.missing > 0) {
		err = withCode(codeRefused, fmt.Errorf("%s was changed since it was looked at", b.files.out))
	}
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = j.file.Sync()
	}
	j.size = at
	return err
}

// mayReplace are the digests of the files that the batch's own may take the place of.
func (j *batchJournal) mayReplace() batchReplaced {
	if j.replaces == nil {
		return batchReplaced{}
	}
	return *j.replaces
}

// askAgain makes lines of those that failed which have no result yet. It returns how many. Call it before the first Write.
func (j *batchJournal) askAgain() (n int) {
	for i := range j.where {
		if p := &j.where[i]; p.failed {
			p.again = true
			n++
		}
	}
	j.failed = 0
	return n
}

// strange names a file of the output that is there and is not one that may be replaced; "" when none is.
func (o batchOutput) strange(may *batchReplaced) (string, error) {
	if may == nil {
		return o.exists()
	}
	for _, f := range []struct{ path, digest string }{{o.out, may.Out}, {o.errors, may.Errors}} {
		if f.path == "" {
			continue
		}
		digest, err := fileDigest(f.path)
		if err != nil {
			return "", err
		}
		if digest != "" && digest != f.digest {
			return f.path, nil
		}
	}
	return "", nil
}

// publishLeft publishes a journal that was complete already, which a crash left, and begins another with its results.
func (b *batch) publishLeft() error {
	err := withCode(codeDisk, b.files.publish(b.journal))
	if err = errors.Join(err, b.closeJournal(err == nil)); err != nil {
		return err
	}
	return b.openJournal()
}
