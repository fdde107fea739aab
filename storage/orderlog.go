package storage

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// The order is kept in files feed/order-00000.log and so on, one for each process that had something to add. A line is a checksum in hex, a
// space and a JSON object: in the first line of a file whose order it is, in the others a stretch of rows. Lines are durable before an index
// of theirs is told to anybody. What a crash left of a last line is passed over: nobody was told of it.

const (
	orderIDBytes     = 6
	orderWriterBytes = 4
)

// randomHex is an id of n random bytes.
func randomHex(n int) string {
	id := make([]byte, n)
	_, _ = rand.Read(id) // it never fails
	return hex.EncodeToString(id)
}

// orderLog reads and extends these files.
type orderLog struct {
	fs        fileSystem
	folder    string
	id        string       // of the order; "" = there is none yet
	stretches []loggedRows // by index
	files     int          // there are
	writers   []orderWriter
	out       file // of this process; nil until there is something to add
	outName   string
	outBytes  int64
	torn      bool // behind outBytes a write that failed may have left something
}

// orderWriter is the process that added the rows from an index on, up to the next one's. Where feed/ is put back from an older copy, other rows get
// the indices of those that the copy has not: the writer tells them apart.
type orderWriter struct {
	first int64
	id    string // of the file; "" in those of former versions
}

// loggedRows is what is known of a line without its keys.
type loggedRows struct {
	rowRange
	log       string
	at, bytes int64
}

// orderEntry is the JSON of a line.
type orderEntry struct {
	Order  string `json:"order,omitempty"`  // in the first line
	Writer string `json:"writer,omitempty"` // there too

	First int64  `json:"first,omitempty"` // index of the first row
	File  string `json:"file,omitempty"`  // that held them when they were seen first
	Row   int64  `json:"row,omitempty"`   // where
	Keys  []byte `json:"keys,omitempty"`  // 16 bytes a row
}

func (e orderEntry) rows() int64 { return int64(len(e.Keys) / len(key{})) }

func (e orderEntry) key(i int64) (k key) {
	copy(k[:], e.Keys[i*int64(len(k)):])
	return k
}

func (e orderEntry) line() []byte {
	text := mustMarshal(e)
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(text, castagnoli()), text)
}

// mustMarshal marshals numbers, strings and bytes, which cannot fail.
func mustMarshal(e orderEntry) []byte {
	text, err := json.Marshal(e)
	if err != nil {
		panic("storage: " + err.Error())
	}
	return text
}

// parseOrderLine reads a line with its end.
func parseOrderLine(line []byte) (e orderEntry, ok bool) {
	text, whole := bytes.CutSuffix(line, []byte("\n"))
	if !whole || len(text) < 9 || text[8] != ' ' {
		return e, false
	}
	var sum [4]byte
	if _, err := hex.Decode(sum[:], text[:8]); err != nil {
		return e, false
	}
	want := uint32(sum[0])<<24 | uint32(sum[1])<<16 | uint32(sum[2])<<8 | uint32(sum[3])
	if crc32.Checksum(text[9:], castagnoli()) != want || json.Unmarshal(text[9:], &e) != nil {
		return e, false
	}
	return e, len(e.Keys)%len(key{}) == 0
}

func orderName(n int) string { return fmt.Sprintf("order-%05d.log", n) }

// next is the index of the next row that is added.
func (l *orderLog) next() int64 {
	if len(l.stretches) == 0 {
		return 0
	}
	last := l.stretches[len(l.stretches)-1]
	return last.first + last.rows
}

func (l *orderLog) load() error {
	entries, err := l.fs.ReadDir(l.folder)
	if err != nil {
		return fmt.Errorf("read the order of the feed: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "order-") && strings.HasSuffix(e.Name(), ".log") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if _, err := fmt.Sscanf(name, "order-%d.log", &l.files); err != nil {
			return fmt.Errorf("%w: %s in %s: expected order-00000.log or the like", ErrDamaged, name, l.folder)
		}
		l.files++
		if err := l.loadFile(name); err != nil {
			return fmt.Errorf("read the order of the feed: %w", err)
		}
	}
	return nil
}

func (l *orderLog) loadFile(name string) error {
	f, err := l.fs.Open(filepath.Join(l.folder, name))
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 64<<10)
	for at, n := int64(0), 0; ; n++ {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		e, ok := parseOrderLine(line)
		if !ok {
			if _, more := in.Peek(1); more == nil {
				return fmt.Errorf("%w: %s at byte %d: the line and its checksum differ; without the folder %s an order begins anew, and cursors are void", ErrDamaged, filepath.Join(l.folder, name), at, l.folder)
			}
			return nil // the end, or what a crash left of it
		}
		if err := l.take(e, n, loggedRows{log: name, at: at, bytes: int64(len(line))}); err != nil {
			return fmt.Errorf("%w: %s at byte %d: %w", ErrDamaged, filepath.Join(l.folder, name), at, err)
		}
		at += int64(len(line))
	}
}

// take notes line n of a file.
func (l *orderLog) take(e orderEntry, n int, s loggedRows) error {
	switch {
	case n == 0 && e.Order == "", n > 0 && e.Order != "":
		return errors.New("expected the id of the order in the first line, and only there")
	case n == 0 && l.id != "" && e.Order != l.id:
		return fmt.Errorf("the order is %s here and %s in the file before", e.Order, l.id)
	case n == 0:
		l.id = e.Order
		l.writers = append(l.writers, orderWriter{l.next(), e.Writer})
		return nil
	case e.First != l.next() || e.rows() == 0:
		return fmt.Errorf("%d rows from index %d on; expected some from %d on", e.rows(), e.First, l.next())
	}
	s.rowRange = rowRange{e.File, e.Row, e.First, e.rows()}
	l.stretches = append(l.stretches, s)
	return nil
}

// writerOf is who added the row before an index; "" before the first.
func writerOf(index int64, writers []orderWriter) string {
	for _, w := range slices.Backward(writers) {
		if w.first < index {
			return w.id
		}
	}
	return ""
}

// append makes entries durable, and then known. After a failure nothing of them is, and the next call begins where they did: a disk that was full may
// have room again.
func (l *orderLog) append(list []orderEntry) error {
	if len(list) == 0 {
		return nil
	}
	err := l.ready()
	if err == nil {
		known, at := l.stretches, l.outBytes
		if err = l.write(list); err != nil {
			l.stretches, l.outBytes, l.torn = known, at, true
		}
	}
	if err != nil {
		return fmt.Errorf("write the order of the feed: %w", err)
	}
	return nil
}

// ready makes the file of this process where there is none yet, and cuts off what a write that failed left in it.
func (l *orderLog) ready() error {
	if l.out == nil {
		return l.begin()
	}
	if !l.torn {
		return nil
	}
	err := l.out.Truncate(l.outBytes)
	l.torn = err != nil
	return err
}

func (l *orderLog) write(list []orderEntry) error {
	for _, e := range list {
		line := e.line()
		if err := l.take(e, 1, loggedRows{log: l.outName, at: l.outBytes, bytes: int64(len(line))}); err != nil {
			return err
		}
		if _, err := l.out.Write(line); err != nil {
			return err
		}
		l.outBytes += int64(len(line))
	}
	return l.out.Sync()
}

// begin makes the file of this process. One that it could not make whole it makes anew.
func (l *orderLog) begin() error {
	path := filepath.Join(l.folder, orderName(l.files))
	if _, err := l.fs.Stat(path); l.outName == "" && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there already (%v)", path, err)
	}
	l.outName = orderName(l.files)
	out, err := l.fs.Create(path)
	if err != nil {
		return err
	}
	head := orderEntry{Order: l.id, Writer: randomHex(orderWriterBytes)}
	line := head.line()
	_, err = out.Write(line)
	if err = errors.Join(err, out.Sync(), l.fs.SyncDir(l.folder)); err != nil {
		return errors.Join(err, out.Close())
	}
	l.out, l.outBytes = out, int64(len(line))
	l.writers = append(l.writers, orderWriter{l.next(), head.Writer})
	return nil
}

// read reads a line again, for its keys.
func (l *orderLog) read(s loggedRows) (orderEntry, error) {
	name := filepath.Join(l.folder, s.log)
	f, err := l.fs.Open(name)
	if err != nil {
		return orderEntry{}, fmt.Errorf("read the order of the feed: %w", err)
	}
	defer f.Close()
	line := make([]byte, s.bytes)
	if _, err := f.ReadAt(line, s.at); err != nil {
		return orderEntry{}, fmt.Errorf("read the order of the feed: %s at byte %d: %w", name, s.at, err)
	}
	e, ok := parseOrderLine(line)
	if !ok || e.rows() != s.rows {
		return orderEntry{}, fmt.Errorf("%w: %s at byte %d: the line and its checksum differ", ErrDamaged, name, s.at)
	}
	return e, nil
}

func (l *orderLog) close() error {
	if l.out == nil {
		return nil
	}
	return l.out.Close()
}
