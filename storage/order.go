package storage

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/parquet-go/parquet-go"
)

const feedDir = "feed"

// Errors of cursors.
var (
	// ErrCursor: the text is no cursor at all.
	ErrCursor = errors.New("no cursor")
	// ErrCursorGone: the cursor is of another order: that of another run, or of one whose folder feed/ was removed or put back from a copy.
	ErrCursorGone = errors.New("the cursor is of an order that is gone")
)

// Order is the order in which the rows of a run were seen published, each with an index that stays: compaction, retried failures and other
// rewards put rows into other files, and a cursor of before still stands between the same rows. It is kept in feed/ of the run directory.
//
// One process keeps the order at a time, beside the one that writes the run; all methods may be called from many goroutines at once.
type Order struct {
	dir  string
	fs   fileSystem
	lock io.Closer

	updating sync.Mutex // one Update at a time; guards the fields up to mu
	log      orderLog
	manifest fs.FileInfo           // as it was when it was last followed
	followed map[string]bool       // the files it listed then; nil = none was followed yet
	moved    map[string][]rowRange // files that hold rows which are logged under another file

	acking sync.Mutex // one acknowledgement is written at a time

	mu        sync.RWMutex      // guards everything below
	places    []rowRange        // by index
	files     map[string]string // that stand in the place of listed ones, with other rewards
	length    int64
	writers   []orderWriter
	reach     int64            // every row below has its place
	damage    error            // why reach is less than length
	consumers map[string]int64 // what each has acknowledged
}

// rowRange is a stretch of rows in one file whose indices follow one another.
type rowRange struct {
	file  string // as the manifest lists it; Order.files has the one that is read in its place
	row   int64  // the first row, in the file
	first int64  // its index
	rows  int64
}

func (p rowRange) failures() bool { return strings.HasPrefix(p.file, failuresDir+"/") }

// between is what of a place lies between two indices.
func (p rowRange) between(from, to int64) rowRange {
	if skip := from - p.first; skip > 0 {
		p.row, p.first, p.rows = p.row+skip, from, p.rows-skip
	}
	p.rows = min(p.rows, to-p.first)
	return p
}

// Placed is a row with its index.
type Placed struct {
	Index  int64
	Row    *Row
	Failed bool // it is of failures/
}

// OpenOrder opens the order of a run directory, begins one where there is none, and holds its lock until Close. Errors: ErrNotRun, ErrLocked,
// ErrDamaged, a failing disk.
func OpenOrder(dir string) (*Order, error) { return openOrderOn(disk{}, dir) }

func openOrderOn(fsys fileSystem, dir string) (*Order, error) {
	if _, err := loadManifest(fsys, dir); err != nil {
		return nil, err
	}
	folder := filepath.Join(dir, feedDir)
	if err := fsys.MakeDir(filepath.Join(folder, consumersDir)); err != nil {
		return nil, fmt.Errorf("make the folder of the feed: %w", err)
	}
	if err := errors.Join(fsys.SyncDir(dir), fsys.SyncDir(folder)); err != nil {
		return nil, fmt.Errorf("make the folder of the feed: %w", err)
	}
	lock, err := fsys.Lock(filepath.Join(folder, lockName))
	if err != nil {
		return nil, fmt.Errorf("the feed of %s: %w", dir, err)
	}
	o := &Order{dir: dir, fs: fsys, lock: lock, log: orderLog{fs: fsys, folder: folder}, moved: map[string][]rowRange{}, consumers: map[string]int64{}}
	if err := o.open(); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

func (o *Order) open() error {
	if err := o.log.load(); err != nil {
		return err
	}
	if o.log.id == "" {
		o.log.id = randomHex(orderIDBytes)
		if err := o.log.begin(); err != nil { // a cursor may be told before there is a row
			return fmt.Errorf("begin the order of the feed: %w", err)
		}
	}
	o.length, o.writers = o.log.next(), o.log.writers
	return o.loadConsumers()
}

// Close gives the lock back.
func (o *Order) Close() error { return errors.Join(o.log.close(), o.lock.Close()) }

// Len is how many indices there are. Rows that were replaced since leave theirs empty.
func (o *Order) Len() int64 {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.length
}

// Reach is the index up to which rows can be read: Len, unless a file is damaged.
func (o *Order) Reach() int64 {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.reach
}

// Cursor is the text for a place between rows: behind all with a lower index. It names the order, the index, and the writer of the row before.
func (o *Order) Cursor(index int64) string {
	o.mu.RLock()
	defer o.mu.RUnlock()
	cursor := o.log.id + "-" + strconv.FormatInt(index, 10)
	if w := writerOf(index, o.writers); w != "" {
		cursor += "-" + w
	}
	return cursor
}

// Index reads a cursor. Errors: ErrCursor, ErrCursorGone.
func (o *Order) Index(text string) (int64, error) {
	c, err := parseCursor(text)
	if err != nil {
		return 0, err
	}
	if !o.has(c) {
		return 0, fmt.Errorf("%w: %q", ErrCursorGone, text)
	}
	return c.index, nil
}

// has says whether a cursor stands in this order: behind a row that is the one it was told behind.
func (o *Order) has(c cursor) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return c.order == o.log.id && c.index <= o.length && c.writer == writerOf(c.index, o.writers)
}

// cursor is what the text of one says.
type cursor struct {
	order  string
	index  int64
	writer string
}

func parseCursor(text string) (c cursor, err error) {
	parts := strings.Split(text, "-")
	if len(parts) == 3 && hexOf(parts[2], orderWriterBytes) {
		c.writer, parts = parts[2], parts[:2]
	}
	if len(parts) == 2 && hexOf(parts[0], orderIDBytes) {
		c.order = parts[0]
		if c.index, err = strconv.ParseInt(parts[1], 10, 64); err == nil && c.index >= 0 {
			return c, nil
		}
	}
	return cursor{}, fmt.Errorf("%w: %.80q", ErrCursor, text)
}

// hexOf says whether a text is n bytes in hex.
func hexOf(text string, n int) bool {
	b, err := hex.DecodeString(text)
	return err == nil && len(b) == n
}

// Update takes in what was published since. It costs next to nothing where that is nothing. What can be read in spite of a damaged file is
// taken in; the error comes all the same.
func (o *Order) Update() error {
	o.updating.Lock()
	defer o.updating.Unlock()
	path := filepath.Join(o.dir, manifestName)
	for {
		info, err := o.fs.Stat(path)
		if err != nil {
			return fmt.Errorf("look for what was published: %w", err)
		}
		if o.manifest != nil && os.SameFile(info, o.manifest) && info.ModTime().Equal(o.manifest.ModTime()) && info.Size() == o.manifest.Size() {
			return nil
		}
		m, err := loadManifest(o.fs, o.dir)
		if err != nil {
			return err
		}
		err = o.follow(m)
		if err == nil {
			o.manifest = info
		}
		if !errors.Is(err, errMovedOn) {
			return err
		}
	}
}

// errMovedOn: a file was replaced before it was opened; the manifest says by what.
var errMovedOn = errors.New("the manifest moved on")

func (o *Order) movedOn(m Manifest) bool {
	after, err := loadManifest(o.fs, o.dir)
	return err == nil && after.Generation != m.Generation
}

// follow finds a place for every row that a manifest lists.
func (o *Order) follow(m Manifest) error {
	f := follower{Order: o, m: m, logged: map[string][]rowRange{}, listed: map[string]bool{}, unread: map[bool]bool{}, moved: map[string][]rowRange{}, next: o.log.next()}
	for _, s := range o.log.stretches {
		f.logged[s.file] = append(f.logged[s.file], s.rowRange)
	}
	for _, p := range m.files() {
		f.listed[p.Path] = true
	}
	var errs []error
	for _, p := range m.files() {
		err := f.file(p)
		if err != nil {
			f.unread[rowRange{file: p.Path}.failures()] = true
		}
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	if errors.Is(err, fs.ErrNotExist) && o.movedOn(m) {
		return errMovedOn // nothing was told yet, of rows or of damage
	}
	if lerr := o.log.append(f.fresh); lerr != nil {
		return errors.Join(err, lerr)
	}
	slices.SortFunc(f.places, func(a, b rowRange) int { return cmp.Compare(a.first, b.first) })
	reach := f.next
	if err != nil {
		reach = f.cut()
	}
	files := map[string]string{}
	for i, p := range m.current() {
		files[m.Parts[i].Path] = p.Path
	}
	o.moved = f.moved
	if err == nil {
		o.followed = f.listed
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.places, o.files, o.length, o.writers, o.reach, o.damage = f.places, files, f.next, o.log.writers, reach, err
	return err
}

// follower is one walk over the files of a manifest.
type follower struct {
	*Order
	m      Manifest
	logged map[string][]rowRange // by file
	listed map[string]bool
	unread map[bool]bool // kinds of files, failures or others, of which one cannot be read
	places []rowRange
	moved  map[string][]rowRange
	fresh  []orderEntry // rows that nobody has seen yet
	next   int64        // their next index
	lost   map[bool]map[key]int64
	stay   []rowRange // rows that moved and are still where they were found, by index; nil until it is asked for
}

// cut says where the first row is that may be in a file which cannot be read, going by the sorted places: nobody is to go past it.
func (f *follower) cut() int64 {
	end := f.next
	for _, s := range f.log.stretches {
		if !f.listed[s.file] && f.unread[s.failures()] {
			if at := uncovered(f.places, s.first, s.first+s.rows); at < s.first+s.rows {
				end = min(end, at)
			}
		}
	}
	return end
}

// file finds the places of the rows of one file: as they were logged, else by their keys.
func (f *follower) file(p Part) error {
	own, moved := f.logged[p.Path], f.Order.moved[p.Path]
	if rowsOfPlaces(own)+rowsOfPlaces(moved) == p.Rows {
		f.places = append(append(f.places, own...), moved...)
		f.moved[p.Path] = moved
		return nil
	}
	keys, err := f.keys(p)
	if err != nil {
		return err
	}
	var lost map[key]int64
	if f.left() { // else nothing can have come here from another file
		if lost, err = f.lostKeys(rowRange{file: p.Path}.failures()); err != nil {
			return err
		}
	}
	f.place(p.Path, keys, own, lost)
	return nil
}

// place gives every row of a file its index: the one it was logged with, here or in a file that is gone, or the next.
func (f *follower) place(file string, keys []key, own []rowRange, lost map[key]int64) {
	f.places = append(f.places, own...)
	var moved []rowRange
	for i, k := range keys {
		row := int64(i)
		if slices.ContainsFunc(own, func(p rowRange) bool { return p.row <= row && row < p.row+p.rows }) {
			continue
		}
		if index, ok := lost[k]; ok {
			moved = joined(moved, rowRange{file, row, index, 1})
			continue
		}
		if n := len(f.fresh); n > 0 && f.fresh[n-1].File == file && f.fresh[n-1].Row+f.fresh[n-1].rows() == row {
			f.fresh[n-1].Keys = append(f.fresh[n-1].Keys, k[:]...)
		} else {
			f.fresh = append(f.fresh, orderEntry{First: f.next, File: file, Row: row, Keys: slices.Clone(k[:])})
		}
		f.places = joined(f.places, rowRange{file, row, f.next, 1})
		f.next++
	}
	f.places, f.moved[file] = append(f.places, moved...), moved
}

// joined appends a place, or makes the last one longer.
func joined(list []rowRange, p rowRange) []rowRange {
	if n := len(list); n > 0 {
		if l := &list[n-1]; l.file == p.file && l.row+l.rows == p.row && l.first+l.rows == p.first {
			l.rows += p.rows
			return list
		}
	}
	return append(list, p)
}

func rowsOfPlaces(list []rowRange) (n int64) {
	for _, p := range list {
		n += p.rows
	}
	return n
}

// left says whether a file is not listed any more that was when the order was last followed.
func (f *follower) left() bool {
	if f.followed == nil {
		return true
	}
	for file := range f.followed {
		if !f.listed[file] {
			return true
		}
	}
	return false
}

// placed says whether all rows of a stretch are known to be in files that are listed.
func (f *follower) placed(s rowRange) bool {
	if f.stay == nil {
		f.stay = []rowRange{}
		for file, moved := range f.Order.moved {
			if f.listed[file] {
				f.stay = append(f.stay, moved...)
			}
		}
		slices.SortFunc(f.stay, func(a, b rowRange) int { return cmp.Compare(a.first, b.first) })
	}
	return uncovered(f.stay, s.first, s.first+s.rows) >= s.first+s.rows
}

// uncovered is the first index from one on up to another that places, which are sorted by it, leave out.
func uncovered(places []rowRange, from, to int64) int64 {
	i, _ := slices.BinarySearchFunc(places, from, func(p rowRange, from int64) int { return cmp.Compare(p.first+p.rows-1, from) })
	for ; i < len(places) && from < to && places[i].first <= from; i++ {
		from = places[i].first + places[i].rows
	}
	return from
}

// lostKeys are the rows that were logged under files that are not listed any more: of failures, or of the others. A retried failure is
// another row than the one before.
func (f *follower) lostKeys(failures bool) (map[key]int64, error) {
	if lost, ok := f.lost[failures]; ok {
		return lost, nil
	}
	lost := map[key]int64{}
	for _, s := range f.log.stretches {
		if f.listed[s.file] || s.failures() != failures || f.placed(s.rowRange) {
			continue
		}
		e, err := f.log.read(s)
		if err != nil {
			return nil, err
		}
		for i := range e.rows() {
			lost[e.key(i)] = e.First + i
		}
	}
	if f.lost == nil {
		f.lost = map[bool]map[key]int64{}
	}
	f.lost[failures] = lost
	return lost, nil
}

// keys reads who the rows of a file are.
func (o *Order) keys(p Part) ([]key, error) {
	name := filepath.Join(o.dir, filepath.FromSlash(p.Path))
	f, err := o.fs.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is listed in the manifest: %w", ErrDamaged, name, err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	pf, err := openParquet(f)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	}
	var keys []key
	if err := eachID(pf, func(id string) { keys = append(keys, keyOf(id)) }); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	}
	return keys, nil
}

// Rows yields the rows from one index up to another, which is at most Reach, in order; those of failures/ only when they are asked for. A
// yielded row is the caller's. An error ends the iteration; the row is nil then.
func (o *Order) Rows(from, to int64, failures bool) iter.Seq2[Placed, error] {
	return func(yield func(Placed, error) bool) {
		r := placeReader{dir: o.dir, fs: o.fs}
		defer r.close()
		gone := ""
		for {
			p, ok, err := o.at(from, to, failures)
			if err == nil && !ok {
				return
			}
			if err == nil {
				err = r.rows(p, func(row Placed) bool { from = row.Index + 1; return yield(row, nil) })
			}
			if errors.Is(err, fs.ErrNotExist) && gone != p.path { // it was replaced in this moment
				gone = p.path
				err = o.Update()
			}
			switch {
			case errors.Is(err, errStop):
				return
			case err != nil:
				yield(Placed{}, err)
				return
			}
		}
	}
}

// opened is a place and the file that is read for it.
type opened struct {
	rowRange
	path string
}

// at is the first place between two indices.
func (o *Order) at(from, to int64, failures bool) (p opened, ok bool, err error) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if to > o.reach {
		return opened{}, false, cmp.Or(o.damage, fmt.Errorf("%d rows can be read, not %d", o.reach, to))
	}
	i, _ := slices.BinarySearchFunc(o.places, from, func(p rowRange, from int64) int { return cmp.Compare(p.first+p.rows-1, from) })
	for ; i < len(o.places) && o.places[i].first < to; i++ {
		if p := o.places[i].between(from, to); failures || !p.failures() {
			return opened{p, cmp.Or(o.files[p.file], p.file)}, true, nil
		}
	}
	return opened{}, false, nil
}

// placeReader reads places; the file of the last one stays open for the next.
type placeReader struct {
	dir  string
	fs   fileSystem
	path string
	file file
	pf   *parquet.File
	in   *parquet.GenericReader[Row]
	row  int64 // that in reads next
}

func (r *placeReader) close() {
	if r.in != nil {
		_ = r.in.Close()
	}
	if r.file != nil {
		_ = r.file.Close()
	}
	r.in, r.file, r.path = nil, nil, ""
}

func (r *placeReader) open(path string) error {
	if r.path == path {
		return nil
	}
	r.close()
	name := filepath.Join(r.dir, filepath.FromSlash(path))
	f, err := r.fs.Open(name)
	if err != nil {
		return fmt.Errorf("%w: %s is listed in the manifest: %w", ErrDamaged, name, err)
	}
	if r.pf, err = openParquet(f); err != nil {
		_ = f.Close()
		return fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	}
	r.file, r.path, r.row, r.in = f, path, 0, parquet.NewGenericReader[Row](r.pf)
	return nil
}

func (r *placeReader) rows(p opened, yield func(Placed) bool) error {
	if err := r.open(p.path); err != nil {
		return err
	}
	if r.row != p.row {
		if err := seekTo(r.in, p.row); err != nil {
			return fmt.Errorf("%w: row %d of %s: %w", ErrDamaged, p.row, p.path, err)
		}
		r.row = p.row
	}
	batch := make([]Row, batchRows)
	for done := int64(0); done < p.rows; {
		batch = batch[:min(batchRows, p.rows-done)]
		clear(batch)
		n, err := readBatch(r.in, batch)
		r.row += int64(n)
		for i := range n {
			row := batch[i]
			if !yield(Placed{p.first + done, &row, p.failures()}) {
				return errStop
			}
			done++
		}
		if err != nil && done < p.rows {
			return fmt.Errorf("%w: row %d of %s: %w", ErrDamaged, r.row, p.path, located(r.pf, err))
		}
	}
	return nil
}
