package objectstore

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"sync"
)

// chunks is how an object is cut for an upload in parts.
type chunks struct {
	size, each int64
}

// mostParts is what S3 takes of one object.
const mostParts = 10_000

// cut makes parts of about each bytes, larger ones where there would be too many.
func cut(size, each int64) chunks {
	if least := (size + mostParts - 1) / mostParts; least > each {
		each = (least + 1<<20 - 1) >> 20 << 20
	}
	return chunks{size, each}
}

func (c chunks) count() int { return int((c.size + c.each - 1) / c.each) }

// at is where part i (from 0) begins, and its length.
func (c chunks) at(i int) (offset, length int64) {
	offset = int64(i) * c.each
	return offset, min(c.each, c.size-offset)
}

// abreast is how many parts of one object are on their way at once.
const abreast = 4

// each calls do for 0 to n-1, width at once, and returns the first error; the others are told by their context.
func each(ctx context.Context, n, width int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	next := make(chan int)
	for range min(width, n) {
		all.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	all.Wait()
	return context.Cause(ctx)
}

// sumOf is the SHA-256 of a stretch, in hex.
func sumOf(r io.ReaderAt, offset, length int64) (string, error) {
	b, err := digest(sha256.New(), r, offset, length)
	return hex.EncodeToString(b), err
}

// md5Of is what Azure and Google compare with what came.
func md5Of(r io.ReaderAt, offset, length int64) ([]byte, error) {
	return digest(md5.New(), r, offset, length)
}

func digest(h hash.Hash, r io.ReaderAt, offset, length int64) ([]byte, error) {
	n, err := io.Copy(h, io.NewSectionReader(r, offset, length))
	if err == nil && n != length {
		err = io.ErrUnexpectedEOF
	}
	return h.Sum(nil), err
}
