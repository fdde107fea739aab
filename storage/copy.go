package storage

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// Copying makes one dataset of rows of others: all of them, or those that Keep takes. Rows come in the order of the sources, good rows of
// a group together, also where they were apart. What a source has in its journal only is not taken: those groups are not complete.
type Copying struct {
	// From are the directories of the sources.
	From []string
	// Into is the new directory; see DatasetConfig.
	Into string
	// How and Choice go into the manifest; see Making.
	How, Choice string
	// Keep chooses rows by their ids. Default: every row.
	Keep func(episodeID string) bool
	// Prefer says which of several rows of one id is taken where they differ. Default PreferNone: Copy refuses.
	Prefer Preference
	// RowGroupBytes and PartBytes are those of DatasetConfig.
	RowGroupBytes, PartBytes int64
	// Progress, where it is not nil, is told of every row that was written.
	Progress func()
}

// Preference chooses among sources that have different rows of one id.
type Preference string

// Preferences.
const (
	PreferNone  Preference = ""
	PreferFirst Preference = "first" // the source that is named first
	PreferLast  Preference = "last"
)

// Validate reports every fault at once.
func (c Copying) Validate() error {
	var errs []error
	if len(c.From) == 0 || c.How == "" {
		errs = append(errs, errors.New("storage: copying: expected From and How"))
	}
	if !slices.Contains([]Preference{PreferNone, PreferFirst, PreferLast}, c.Prefer) {
		errs = append(errs, fmt.Errorf("storage: Prefer is %q: expected first, last or nothing", c.Prefer))
	}
	return errors.Join(append(errs, c.dataset().Validate())...)
}

func (c Copying) dataset() DatasetConfig {
	return DatasetConfig{Dir: c.Into, RowGroupBytes: c.RowGroupBytes, PartBytes: c.PartBytes}
}

// Copied is what came of it.
type Copied struct {
	Summary   Summary  // of the new dataset
	Manifest  Manifest // of the new dataset
	Alike     int64    // rows that were there already, the same in every column
	Preferred int64    // rows that were left out for a different one of the same id
	Gathered  int64    // groups that were apart and are together now
}

// ConflictError says that several sources have different rows of one id.
type ConflictError struct {
	Total int        // ids
	First []Conflict // at most ten of them
}

// Conflict is one such id.
type Conflict struct {
	EpisodeID string
	Dirs      []string // that have a row of it
}

func (e *ConflictError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d episodes have different rows under one id:", e.Total)
	for _, c := range e.First {
		fmt.Fprintf(&b, "\n  %s in %s", c.EpisodeID, strings.Join(c.Dirs, ", "))
	}
	if n := e.Total - len(e.First); n > 0 {
		fmt.Fprintf(&b, "\n  and %d more", n)
	}
	return b.String()
}

// Copy makes the dataset. Errors: those of the configuration, *ConflictError, ErrTaken, ErrLocked, ErrNotRun, ErrDamaged, ErrMoved, ctx,
// a failing disk.
func Copy(ctx context.Context, cfg Copying) (Copied, error) { return copyOn(ctx, disk{}, cfg) }

func copyOn(ctx context.Context, fsys fileSystem, cfg Copying) (Copied, error) {
	if err := cfg.Validate(); err != nil {
		return Copied{}, err
	}
	chosen := cfg.Keep != nil
	if !chosen {
		cfg.Keep = func(string) bool { return true }
	}
	c := &copying{Copying: cfg, chosen: chosen, fs: fsys, sources: make([]Source, len(cfg.From)), manifests: make([]Manifest, len(cfg.From))}
	if err := absent(fsys, cfg.Into); err != nil { // before the sources are read
		return Copied{}, err
	}
	for i := range cfg.From {
		if err := c.open(i); err != nil {
			return Copied{}, err
		}
	}
	if err := c.settleTwice(ctx); err != nil {
		return Copied{}, err
	}
	if err := c.findScattered(ctx); err != nil {
		return Copied{}, err
	}
	return c.write(ctx)
}

// copying is the work. Of every row it holds a key, of every group another; rows themselves only for a part at a time.
type copying struct {
	Copying
	fs        fileSystem
	chosen    bool // rows are chosen: groups may be cut
	partial   bool // one was, or a source says so of itself
	sources   []Source
	manifests []Manifest

	twice     map[key]choice // ids that come more than once
	scattered map[key]int    // groups whose rows are apart, and how many rows there will be
	need      float64        // bytes that the new dataset takes, at least
	out       *Dataset
	spill     *spill
	result    Copied
}

// choice is which of the rows of an id is taken.
type choice struct {
	source int
	alike  bool // the others are the same
}

func (c *copying) open(i int) (err error) {
	dir := c.From[i]
	var m Manifest
	var unfinished int64
	err = steady(c.fs, dir, func(now Manifest) (err error) {
		m = now
		unfinished, err = inJournal(c.fs, dir, m)
		return err
	})
	if err != nil {
		return fmt.Errorf("read run %s: %w", dir, err)
	}
	s := Source{Dir: dir, Generation: m.Generation, Made: m.Made, Unfinished: unfinished}
	s.Rewards, s.Rule = m.rewards()
	c.sources[i], c.manifests[i] = s, m
	c.partial = c.partial || m.Made != nil && m.Made.PartialGroups
	return nil
}

// each reads the columns that T names of every row of every source, file by file, in the order in which rows are copied. It calls open
// before a file and end where a row group ends.
func each[T any](ctx context.Context, c *copying, open func(source int, p Part) error, do func(source int, row *T) error, end func() error) error {
	for i, dir := range c.From {
		for _, p := range c.manifests[i].read() {
			err := open(i, p)
			if err == nil {
				err = eachIn(ctx, c.fs, dir, p, func(row *T) error { return do(i, row) }, end)
			}
			if err != nil {
				return c.explain(i, p, err)
			}
		}
	}
	return nil
}

// eachIn reads one file. What the reader says of it is damage; what do and end say is not.
func eachIn[T any](ctx context.Context, fsys fileSystem, dir string, p Part, do func(*T) error, end func() error) error {
	var own error
	err := openPart(fsys, dir, p, func(pf *parquet.File) error {
		return eachInGroups(pf, func(row *T) error {
			own = do(row)
			if own == nil && ctx.Err() != nil {
				own = context.Cause(ctx)
			}
			return own
		}, func() error { own = end(); return own })
	})
	if err == nil || own != nil || errors.Is(err, ErrDamaged) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// eachInGroups is eachRow that tells where row groups end.
func eachInGroups[T any](pf *parquet.File, do func(*T) error, end func() error) error {
	var ends []int64
	n := int64(0)
	for _, g := range pf.RowGroups() {
		n += g.NumRows()
		ends = append(ends, n)
	}
	at := int64(0)
	return eachRow(pf, func(row *T) error {
		if err := do(row); err != nil {
			return err
		}
		at++
		for len(ends) > 0 && at >= ends[0] {
			ends = ends[1:]
			if err := end(); err != nil {
				return err
			}
		}
		return nil
	})
}

// explain tells a file that is gone because its run goes on from one that is missing.
func (c *copying) explain(i int, p Part, err error) error {
	err = moved(c.fs, c.From[i], c.manifests[i], err)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrMoved) { // it says where
		return err
	}
	return fmt.Errorf("copy %s: %w", filepath.Join(c.From[i], filepath.FromSlash(p.Path)), err)
}

func nothing() error                   { return nil }
func (c *copying) any(int, Part) error { return nil }

// settleTwice finds the ids that come more than once and chooses among their rows.
func (c *copying) settleTwice(ctx context.Context) error {
	seen := map[key]struct{}{}
	again := map[key]struct{}{}
	err := each(ctx, c, c.any, func(_ int, row *idOnly) error {
		if !c.Keep(row.EpisodeID) {
			return nil
		}
		k := keyOf(row.EpisodeID)
		if _, ok := seen[k]; ok {
			again[k] = struct{}{}
		}
		seen[k] = struct{}{}
		return nil
	}, nothing)
	if err != nil || len(again) == 0 {
		return err
	}
	return c.choose(ctx, again)
}

// version is one row of an id that comes more than once.
type version struct {
	source int
	sum    key
}

// choose compares the rows of such ids, every column of them.
func (c *copying) choose(ctx context.Context, again map[key]struct{}) error {
	versions := map[key][]version{}
	ids := map[key]string{}
	var buf []byte
	err := each(ctx, c, c.any, func(source int, row *Row) error {
		k := keyOf(row.EpisodeID)
		if _, ok := again[k]; !ok || !c.Keep(row.EpisodeID) {
			return nil
		}
		sum, b, err := sumOfRow(row, buf)
		buf = b
		versions[k] = append(versions[k], version{source, sum})
		ids[k] = row.EpisodeID
		return err
	}, nothing)
	if err != nil {
		return err
	}
	c.twice = map[key]choice{}
	var conflict ConflictError
	for k, list := range versions {
		one := choice{source: list[0].source, alike: true}
		for _, v := range list {
			one.alike = one.alike && v.sum == list[0].sum
		}
		if !one.alike && c.Prefer == PreferLast {
			one.source = list[len(list)-1].source
		}
		if !one.alike && c.Prefer == PreferNone {
			conflict.add(ids[k], list, c.From)
		}
		c.twice[k] = one
	}
	if conflict.Total > 0 {
		return conflict.sorted()
	}
	return nil
}

// sumOfRow is a digest of every column of a row.
func sumOfRow(r *Row, buf []byte) (key, []byte, error) {
	buf, err := appendRow(buf[:0], 0, key{}, r)
	sum := sha256.Sum256(buf)
	return key(sum[:16]), buf, err
}

func (e *ConflictError) add(id string, list []version, dirs []string) {
	one := Conflict{EpisodeID: id}
	for _, v := range list {
		one.Dirs = append(one.Dirs, dirs[v.source])
	}
	e.Total++
	e.First = append(e.First, one)
	if len(e.First) > 20 {
		_ = e.sorted()
	}
}

// sorted keeps the first ten by id, so that the same sources always give the same message.
func (e *ConflictError) sorted() error {
	slices.SortFunc(e.First, func(a, b Conflict) int { return cmp.Compare(a.EpisodeID, b.EpisodeID) })
	e.First = e.First[:min(len(e.First), 10)]
	return e
}

// taker tells row by row, in the order of reading, which are taken. Each pass has its own.
type taker struct {
	c     *copying
	taken map[key]struct{} // of the ids that come more than once
}

func (c *copying) taker() *taker { return &taker{c, map[key]struct{}{}} }

func (t *taker) take(source int, id string) bool {
	if !t.c.Keep(id) {
		return false
	}
	k := keyOf(id)
	one, twice := t.c.twice[k]
	if !twice {
		return true
	}
	if _, had := t.taken[k]; had || one.source != source {
		return false
	}
	t.taken[k] = struct{}{}
	return true
}

// seat is what finding scattered groups needs of a row.
type seat struct {
	EpisodeID string  `parquet:"episode_id"`
	GroupID   string  `parquet:"group_id"`
	Status    *string `parquet:"status,optional"`
}

// findScattered finds the groups of which good rows that are taken are in more than one place: several sources, files or row groups. It weighs the
// rows that are taken, too.
func (c *copying) findScattered(ctx context.Context) error {
	rows := map[key]int{} // of groups that were met
	c.scattered = map[key]int{}
	share := 0.0 // of a row of the file that is being read, in its bytes
	taker, cut := c.taker(), cuts{}
	open, n := "", 0 // the group that is being read
	end := func() error {
		if open == "" {
			return nil
		}
		k := keyOf(open)
		if before := rows[k]; before > 0 {
			c.scattered[k] = 0
		}
		rows[k] += n
		open, n = "", 0
		return nil
	}
	weigh := func(_ int, p Part) error { share = float64(p.again()) / float64(max(p.Rows, 1)); return nil }
	err := each(ctx, c, weigh, func(source int, row *seat) error {
		if c.chosen && row.GroupID != "" {
			c.partial = cut.note(keyOf(row.GroupID), c.Keep(row.EpisodeID)) || c.partial
		}
		if !taker.take(source, row.EpisodeID) {
			return nil
		}
		c.need += share
		if bad(row.Status) || row.GroupID == "" {
			return nil
		}
		if row.GroupID != open {
			_ = end()
		}
		open = row.GroupID
		n++
		return nil
	}, end)
	for k := range c.scattered {
		c.scattered[k] = rows[k]
	}
	return err
}

// cuts finds groups of which rows are taken and others left out.
type cuts map[key]bool // whether the rows of a group that were met are taken

func (c cuts) note(group key, taken bool) (cut bool) {
	was, met := c[group]
	c[group] = taken
	return met && was != taken
}

func (c *copying) write(ctx context.Context) (result Copied, err error) {
	if c.out, err = newDatasetOn(c.fs, c.dataset()); err != nil {
		return Copied{}, err
	}
	if err := c.fill(ctx); err != nil {
		return Copied{}, errors.Join(err, c.out.Abandon())
	}
	c.result.Summary = c.out.Summary()
	c.result.Manifest, err = c.out.Close(Making{How: c.How, Choice: c.Choice, PartialGroups: c.partial, Sources: c.sources})
	return c.result, err
}

func (c *copying) fill(ctx context.Context) error {
	if err := hasRoom(c.fs, c.out.temp, int64(c.need)); err != nil {
		return err
	}
	if len(c.scattered) > 0 {
		var err error
		if c.spill, err = newSpill(c.fs, filepath.Join(c.out.temp, tempPrefix+"spill")); err != nil {
			return err
		}
	}
	err := c.rows(ctx)
	if c.spill != nil {
		err = errors.Join(err, c.spill.remove())
	}
	if err != nil {
		return err
	}
	for i, dir := range c.From {
		if err := c.keepSource(dir, path.Join(sourcesDir, filepath.Base(SourceFolder("", i)))); err != nil {
			return err
		}
	}
	return nil
}

// rows copies them. Good rows of a group that follow one another go in one piece.
func (c *copying) rows(ctx context.Context) error {
	taker := c.taker()
	var run []*Row
	end := func() error {
		if len(run) == 0 {
			return nil
		}
		rows := run
		run = nil
		return c.add(rows)
	}
	check := func(source int, p Part) error { return checkSum(ctx, c.fs, c.From[source], p) }
	return each(ctx, c, check, func(source int, row *Row) error {
		if !taker.take(source, row.EpisodeID) {
			c.count(row.EpisodeID)
			return nil
		}
		if len(run) > 0 && (row.GroupID == "" || row.GroupID != run[0].GroupID || row.failed() != run[0].failed()) {
			if err := end(); err != nil {
				return err
			}
		}
		own := *row
		run = append(run, &own)
		c.book(source, &own)
		return nil
	}, end)
}

// count notes a row that is left out though it was chosen.
func (c *copying) count(id string) {
	one, twice := c.twice[keyOf(id)]
	switch {
	case !twice || !c.Keep(id):
	case one.alike:
		c.result.Alike++
	default:
		c.result.Preferred++
	}
}

func (c *copying) book(source int, r *Row) {
	s := &c.sources[source]
	if s.RunID == "" {
		s.RunID = r.RunID
	}
	if r.failed() {
		s.Failures++
	} else {
		s.Rows++
	}
	if c.Progress != nil {
		c.Progress()
	}
}

// add hands rows on, or holds them until their group is whole.
func (c *copying) add(rows []*Row) error {
	k := keyOf(rows[0].GroupID)
	want, apart := c.scattered[k]
	if !apart || rows[0].failed() {
		return c.out.Add(rows...)
	}
	for _, r := range rows {
		if err := c.spill.put(k, r); err != nil {
			return err
		}
	}
	if len(c.spill.at[k]) < want {
		return nil
	}
	rows, err := c.spill.take(k)
	if err != nil {
		return err
	}
	slices.SortStableFunc(rows, func(a, b *Row) int {
		return cmp.Or(cmp.Compare(a.SampleIndex, b.SampleIndex), cmp.Compare(a.BranchIndex, b.BranchIndex))
	})
	c.result.Gathered++
	return c.out.Add(rows...)
}

// checkSum compares a file with the manifest.
func checkSum(ctx context.Context, fsys fileSystem, dir string, p Part) error {
	f, err := (&Run{dir: dir, fs: fsys}).Inspect(p)
	if err != nil {
		return fmt.Errorf("%w: %s of %s is listed in the manifest: %w", ErrDamaged, p.Path, dir, err)
	}
	defer f.Close()
	sum, err := f.SHA256(ctx)
	if err == nil && (f.Bytes != p.Bytes || sum != p.SHA256) {
		err = fmt.Errorf("%w: it is not the file that was published: %d bytes and another checksum than the manifest says (%d bytes)", ErrDamaged, f.Bytes, p.Bytes)
	}
	return err
}

// keepSource copies what a source knew of itself, and of its own sources.
func (c *copying) keepSource(dir, to string) error {
	names, err := extras(c.fs, dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		f, err := c.fs.Open(filepath.Join(dir, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err == nil {
			err = errors.Join(c.out.keep(path.Join(to, name), f), f.Close())
		}
		if err != nil {
			return fmt.Errorf("keep %s of %s: %w", name, dir, err)
		}
	}
	return nil
}

// spill holds rows of scattered groups in a file until the last of their group has come.
type spill struct {
	fs   fileSystem
	name string
	file file
	at   map[key][]extent // by group
	end  int64
	buf  []byte
}

type extent struct{ offset, bytes int64 }

func newSpill(fsys fileSystem, name string) (*spill, error) {
	f, err := fsys.Create(name)
	if err != nil {
		return nil, fmt.Errorf("hold groups that are apart: %w", err)
	}
	return &spill{fs: fsys, name: name, file: f, at: map[key][]extent{}}, nil
}

func (s *spill) put(group key, r *Row) (err error) {
	if s.buf, err = appendRow(s.buf[:0], 0, keyOf(r.EpisodeID), r); err != nil {
		return err
	}
	if _, err := s.file.Write(s.buf); err != nil {
		return fmt.Errorf("hold groups that are apart in %s: %w", s.name, err)
	}
	s.at[group] = append(s.at[group], extent{s.end, int64(len(s.buf))})
	s.end += int64(len(s.buf))
	return nil
}

// take returns the rows of a group and forgets them.
func (s *spill) take(group key) ([]*Row, error) {
	var rows []*Row
	for _, e := range s.at[group] {
		b := make([]byte, e.bytes)
		if _, err := s.file.ReadAt(b, e.offset); err != nil {
			return nil, fmt.Errorf("read groups back that are apart, from %s: %w", s.name, err)
		}
		r, err := decodeRow(b)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	delete(s.at, group)
	return rows, nil
}

func (s *spill) remove() error { return errors.Join(s.file.Close(), s.fs.Remove(s.name)) }
