package inference

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// chunks reads a body in the chunked transfer encoding to its end, and not a byte more. It takes all the chunks that have come at once: a stream has
// one for each event, and net/http's reader spends more on their borders than a short event costs.
type chunks struct {
	r      *bufio.Reader
	at     chunkPart
	left   uint64 // of the data of the chunk
	excess int    // bytes of borders over what is fair for the data
}

// chunkPart is what comes next.
type chunkPart int

const (
	chunkSize chunkPart = iota
	chunkData
	chunkEnd
	chunkTrailer
	chunkNothing
)

const (
	longestChunkLine = 4 << 10
	mostExcess       = 16 << 10
)

var (
	errChunk       = errors.New("a malformed chunk")
	errChunkExcess = errors.New("chunks with next to no data in them")
)

func (c *chunks) Read(p []byte) (int, error) {
	for len(p) > 0 {
		has, _ := c.r.Peek(c.r.Buffered()) // of what is there, so that it cannot fail
		n, used, err := c.take(p, has)
		_, _ = c.r.Discard(used)
		switch {
		case err != nil && n == 0:
			return 0, err
		case n > 0: // an error comes again
			return n, nil
		case c.at == chunkNothing:
			return 0, io.EOF
		}
		if _, err := c.r.Peek(len(has) - used + 1); err != nil {
			return 0, cutShort(err)
		}
	}
	return 0, nil
}

// cutShort is the error of a body that ends before its end.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// take moves data from b to p, up to what is whole of it. It stops where b does not hold what comes next, or p is full.
func (c *chunks) take(p, b []byte) (n, used int, err error) {
	for {
		switch c.at {
		case chunkData:
			m := copy(p[n:], b[used:used+int(min(uint64(len(b)-used), c.left))])
			n, used, c.left = n+m, used+m, c.left-uint64(m)
			if c.left > 0 {
				return n, used, nil
			}
			c.at = chunkEnd
		case chunkEnd:
			if len(b)-used < 2 {
				return n, used, nil
			}
			if b[used] != '\r' || b[used+1] != '\n' {
				return n, used, errChunk
			}
			used, c.at = used+2, chunkSize
		case chunkNothing:
			return n, used, nil
		default:
			line, err := lineOf(b[used:])
			if line == nil || err != nil {
				return n, used, err
			}
			if err := c.border(line); err != nil {
				return n, used, err
			}
			used += len(line) + 2
		}
	}
}

// lineOf is the line at the start of b, without its end; nil = it has not come whole.
func lineOf(b []byte) ([]byte, error) {
	i := bytes.IndexByte(b[:min(len(b), longestChunkLine)], '\n')
	switch {
	case i < 0 && len(b) < longestChunkLine:
		return nil, nil
	case i < 1 || bytes.IndexByte(b[:i], '\r') != i-1:
		return nil, errChunk
	}
	return b[:i-1], nil
}

// border takes the line before a chunk, or one behind the last.
func (c *chunks) border(line []byte) error {
	if c.excess += len(line) + 2; c.excess > mostExcess {
		return errChunkExcess
	}
	if c.at == chunkTrailer {
		if len(line) == 0 {
			c.at = chunkNothing
		}
		return nil
	}
	size, _, _ := bytes.Cut(line, []byte(";"))
	n, ok := hex(bytes.TrimRight(size, " \t"))
	if !ok {
		return errChunk
	}
	if c.left, c.at = n, chunkData; n == 0 {
		c.at = chunkTrailer
	}
	c.excess = max(c.excess-16-2*int(min(n, mostExcess)), 0)
	return nil
}

func hex(s []byte) (n uint64, ok bool) {
	for _, c := range s {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		n = n<<4 | uint64(c)
	}
	return n, len(s) > 0 && len(s) <= 16
}
