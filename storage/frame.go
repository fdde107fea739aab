package storage

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

// A journal segment is segmentMagic and then frames, each
//
//	length  uint32 little endian   bytes of the payload
//	crc     uint32 little endian   CRC-32C of length, kind and payload
//	kind    byte                   frameRow, or frameTurn in the files of turnLog
//	payload length bytes
const (
	segmentMagic = "tranche journal1"
	frameHead    = 9
	frameRow     = byte(1)
	frameTurn    = byte(2)
	maxPayload   = 1 << 30
)

func isKind(b byte) bool { return b == frameRow || b == frameTurn }

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func frameCRC(length []byte, kind byte, payload []byte) uint32 {
	c := crc32.Update(0, castagnoli(), length)
	c = crc32.Update(c, castagnoli(), []byte{kind})
	return crc32.Update(c, castagnoli(), payload)
}

// appendFrame frames a payload that fill appends to the buffer it is given.
func appendFrame(dst []byte, kind byte, fill func([]byte) ([]byte, error)) ([]byte, error) {
	start := len(dst)
	dst = append(dst, make([]byte, frameHead)...)
	dst, err := fill(dst)
	if err != nil {
		return nil, err
	}
	n := len(dst) - start - frameHead
	if n > maxPayload {
		return nil, fmt.Errorf("a record of %d bytes: the most a journal record holds is %d", n, maxPayload)
	}
	head := dst[start : start+frameHead]
	binary.LittleEndian.PutUint32(head, uint32(n))
	head[8] = kind
	binary.LittleEndian.PutUint32(head[4:], frameCRC(head[:4], kind, dst[start+frameHead:]))
	return dst, nil
}

// parseFrame splits a whole frame.
func parseFrame(frame []byte) (kind byte, payload []byte, err error) {
	if len(frame) < frameHead {
		return 0, nil, fmt.Errorf("%d bytes are no frame", len(frame))
	}
	n := binary.LittleEndian.Uint32(frame)
	kind, payload = frame[8], frame[frameHead:]
	if int64(n) != int64(len(payload)) {
		return 0, nil, fmt.Errorf("the frame says %d bytes and has %d", n, len(payload))
	}
	if frameCRC(frame[:4], kind, payload) != binary.LittleEndian.Uint32(frame[4:]) {
		return 0, nil, fmt.Errorf("checksum mismatch")
	}
	return kind, payload, nil
}

// frameAt reads a frame of the file of that name back and checks it. buf is reused.
func frameAt(r io.ReaderAt, name string, offset, bytes int64, buf []byte) ([]byte, error) {
	frame := grow(buf, int(bytes))
	if _, err := r.ReadAt(frame, offset); err != nil {
		return frame, fmt.Errorf("read %s at byte %d: %w", name, offset, err)
	}
	if _, _, err := parseFrame(frame); err != nil {
		return frame, fmt.Errorf("%w: %s at byte %d: %w", ErrDamaged, name, offset, err)
	}
	return frame, nil
}

// gap is a stretch of a segment that holds no valid frame.
type gap struct {
	offset, bytes int64
	torn          bool // the tail of a write that a crash cut: nothing valid follows, and it is no whole frame
}

// scanFrames calls each for every valid frame of a segment of that size, in order, and returns the stretches between that are
// not valid. frame is only valid during the call. each's error ends the scan; a read error is one of the scan, wherever it was: bytes that
// could not be read are neither torn nor damaged.
func scanFrames(r io.ReaderAt, size int64, each func(offset int64, frame []byte) error) ([]gap, error) {
	read := &failingAt{ReaderAt: r}
	gaps, err := framesIn(read, size, each)
	return gaps, cmp.Or(err, read.err)
}

// failingAt keeps the first read error but an end of file.
type failingAt struct {
	io.ReaderAt
	err error
}

func (f *failingAt) ReadAt(p []byte, at int64) (int, error) {
	n, err := f.ReaderAt.ReadAt(p, at)
	if err != io.EOF {
		f.err = cmp.Or(f.err, err)
	}
	return n, err
}

func framesIn(r io.ReaderAt, size int64, each func(offset int64, frame []byte) error) ([]gap, error) {
	var gaps []gap
	offset := int64(len(segmentMagic))
	if !hasMagic(r, size) {
		offset = findFrame(r, 0, size)
		if offset > 0 {
			gaps = append(gaps, gap{0, offset, offset == size})
		}
	}
	for offset < size {
		end, err := scanRun(r, offset, size, each)
		if err != nil {
			return gaps, err
		}
		if end == size {
			break
		}
		next, ok := behind(r, end, size)
		if !ok {
			next = findFrame(r, end+1, size)
		}
		if next == size {
			return append(gaps, lastGaps(r, end, size)...), nil
		}
		gaps = append(gaps, gap{end, next - end, false})
		offset = next
	}
	return gaps, nil
}

// lastGaps tells damage from what a crash leaves, behind the last valid frame: a write that was cut lacks bytes, so a frame that has
// all of its own and another checksum was changed after it was written. Zeros are no frame: power was lost before data came.
func lastGaps(r io.ReaderAt, offset, size int64) (gaps []gap) {
	for offset < size {
		n := spoiltFrame(r, offset, size)
		if n == 0 {
			return append(gaps, gap{offset, size - offset, true})
		}
		gaps = append(gaps, gap{offset, n, false})
		offset += n
	}
	return gaps
}

// spoiltFrame returns the length of the damaged whole frame at offset, where nothing valid follows; 0 = it is none as far as can be known.
func spoiltFrame(r io.ReaderAt, offset, size int64) int64 {
	head := make([]byte, frameHead)
	if _, err := r.ReadAt(head, offset); err != nil {
		return 0
	}
	rest := size - offset
	n := int64(binary.LittleEndian.Uint32(head)) + frameHead
	if n > frameHead && (n == rest || n < rest && isKind(head[8])) {
		return n
	}
	if rest > maxPayload+frameHead {
		return 0
	}
	frame := make([]byte, rest) // is it the length alone that was damaged?
	if _, err := r.ReadAt(frame, offset); err != nil {
		return 0
	}
	binary.LittleEndian.PutUint32(frame, uint32(rest-frameHead))
	if _, _, err := parseFrame(frame); err != nil {
		return 0
	}
	return rest
}

func hasMagic(r io.ReaderAt, size int64) bool {
	b := make([]byte, len(segmentMagic))
	if size < int64(len(b)) {
		return false
	}
	_, err := r.ReadAt(b, 0)
	return err == nil && string(b) == segmentMagic
}

// scanRun reads valid frames from offset on and returns where they end: at size, or at the first invalid one.
func scanRun(r io.ReaderAt, offset, size int64, each func(int64, []byte) error) (int64, error) {
	in := bufio.NewReaderSize(io.NewSectionReader(r, offset, size-offset), 1<<20)
	var frame []byte
	for offset < size {
		head, err := in.Peek(frameHead)
		if err == io.EOF {
			return offset, nil
		}
		if err != nil {
			return offset, err
		}
		n := int64(binary.LittleEndian.Uint32(head)) + frameHead
		if n > size-offset || n > maxPayload+frameHead {
			return offset, nil
		}
		frame = grow(frame, int(n))
		if _, err := io.ReadFull(in, frame); err != nil {
			return offset, err
		}
		if _, _, err := parseFrame(frame); err != nil {
			return offset, nil
		}
		if err := each(offset, frame); err != nil {
			return offset, err
		}
		offset += n
	}
	return offset, nil
}

// behind is the offset behind the frame at offset by its own word, where a valid frame is: damage seldom is in the length.
func behind(r io.ReaderAt, offset, size int64) (next int64, ok bool) {
	head := make([]byte, frameHead+recordHead)
	n, _ := r.ReadAt(head[:min(int64(len(head)), size-offset)], offset)
	if n < frameHead || !isKind(head[8]) {
		return 0, false
	}
	next = offset + frameHead + int64(binary.LittleEndian.Uint32(head))
	if next >= size {
		return 0, false
	}
	n, _ = r.ReadAt(head[:min(int64(len(head)), size-next)], next)
	return next, plausible(head[:n], size-next) && validAt(r, next, make([]byte, checkedBytes))
}

// findFrame returns the offset of the first valid frame at or after from, or size. It runs only over damage, so a plain
// search is good enough: a candidate must begin as a record does and fit, and then its checksum decides.
func findFrame(r io.ReaderAt, from, size int64) int64 {
	const window, over = 1 << 20, frameHead + recordHead
	buf, checked := make([]byte, window+over), make([]byte, checkedBytes)
	for base := from; base < size; base += window {
		n, _ := r.ReadAt(buf[:min(int64(len(buf)), size-base)], base)
		for i := 0; i+frameHead <= n && i < window; i++ {
			at := base + int64(i)
			if isKind(buf[i+8]) && plausible(buf[i:min(i+over, n)], size-at) && validAt(r, at, checked) {
				return at
			}
		}
	}
	return size
}

// recordHead is how much of a payload tells whether it may be a record.
const recordHead = turnHead + 4 + 1

// plausible says whether a frame may begin so, with that many bytes left. Numbers in a damaged row that look like a length and a kind are many, and a
// checksum over megabytes for each would take minutes: a record has a known mark or JSON at a certain place, of a length that fits.
func plausible(head []byte, rest int64) bool {
	if len(head) < frameHead {
		return false
	}
	length, kind, payload := int64(binary.LittleEndian.Uint32(head)), head[8], head[frameHead:]
	switch {
	case length > maxPayload || length+frameHead > rest:
		return false
	case kind == frameRow:
		return plausibleRow(payload, length)
	case kind == frameTurn:
		return plausibleTurn(payload, length)
	}
	return false
}

const checkedBytes = 64 << 10 // are read at once

// validAt says whether the frame at an offset has its checksum.
func validAt(r io.ReaderAt, at int64, buf []byte) bool {
	if _, err := r.ReadAt(buf[:frameHead], at); err != nil {
		return false
	}
	left, kind, want := int64(binary.LittleEndian.Uint32(buf)), buf[8], binary.LittleEndian.Uint32(buf[4:])
	sum := frameCRC(buf[:4], kind, nil)
	for at += frameHead; left > 0; {
		part := buf[:min(left, int64(len(buf)))]
		if _, err := r.ReadAt(part, at); err != nil {
			return false
		}
		sum = crc32.Update(sum, castagnoli(), part)
		at, left = at+int64(len(part)), left-int64(len(part))
	}
	return sum == want
}

func grow(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n, n+n/4)
	}
	return b[:n]
}
