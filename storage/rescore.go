package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/parquet-go/parquet-go"
)

// Rescoring gives the rows of a run other verdicts, part by part. What was made is durable and stays when it is stopped; the same
// again goes on behind it.
type Rescoring struct {
	// Dir is the run directory. It is locked, unless the result goes elsewhere.
	Dir string
	// Into is a directory for a dataset of its own; "" makes a set of parts in Dir, which becomes the current one when it is complete.
	Into string
	// Run is the run's id: Into takes no rows of another run. Needed with Into.
	Run string
	// Set names the set: letters, digits, dots, dashes and underscores.
	Set string
	// Rule is kept with the set; see RewardSet.
	Rule json.RawMessage
	// Digest of all that decides the verdicts. A set that is there with another one is refused.
	Digest string
	// MarkEqual says that the run marked groups whose rewards are all the same (Config.MarkEqual): those that are so now are.
	MarkEqual bool
	// Width is how many groups are judged at once, over all of them in memory. Default 16.
	Width int
	// Judge gives the rows of a group that ended well, in sample order, their verdicts: with Row.SetVerdict, and it may change nothing else.
	// It is called for several groups at once. whole says that no sample is missing but failed and cut ones, and those that were
	// published before.
	Judge func(ctx context.Context, rows []*Row, whole bool) error
	// Compared, where it is not nil, is told of every row of the set, in order: those of an earlier session too.
	Compared func(before, after *Judged)
}

// Judged is what a row holds of its verdict, as far as sums need it.
type Judged struct {
	EpisodeID string   `parquet:"episode_id"`
	TaskID    string   `parquet:"task_id"`
	Reward    *float64 `parquet:"reward,optional"`
	Rewards   []Reward `parquet:"rewards,optional,list"`
}

// Rescored is what came of it.
type Rescored struct {
	Set     string // its folder, in Dir or Into
	Rows    int64  // with verdicts of this set
	Earlier int64  // of Rows: they had them before this call
	Failed  int64  // rows without verdicts, as they were
	Journal int64  // rows that are in the journal only: their group is not complete, and the set has none of them
}

// RowsToRescore is how many rows a run has in its parts.
func (r *Run) RowsToRescore() (int64, error) {
	m, err := r.Manifest()
	return m.Rows, err
}

// Validate reports every fault at once.
func (c Rescoring) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("storage: "+format, args...)) }
	if c.Dir == "" || c.Judge == nil || c.Digest == "" {
		bad("rescoring: expected Dir, Digest and Judge")
	}
	if c.Into != "" && c.Run == "" {
		bad("rescoring into %s: expected Run", c.Into)
	}
	if c.Set == PlayedRewards || !isFileName(c.Set) {
		bad("set %q: expected letters, digits, dots, dashes and underscores, and not %q", c.Set, PlayedRewards)
	}
	if c.Width < 0 {
		bad("Width is %d: expected 0 (default) or more", c.Width)
	}
	if c.Into != "" && sameDir(c.Dir, c.Into) {
		bad("%s: expected another directory than that of the run", c.Into)
	}
	return errors.Join(errs...)
}

func sameDir(a, b string) bool {
	ai, aerr := os.Stat(a)
	bi, berr := os.Stat(b)
	return aerr == nil && berr == nil && os.SameFile(ai, bi)
}

// Rescore makes the set. Errors: those of the configuration, ErrNotRun, ErrLocked, ErrOtherSet, ErrDamaged, what Judge said, ctx, a
// failing disk.
func Rescore(ctx context.Context, cfg Rescoring) (Rescored, error) {
	return rescoreOn(ctx, disk{}, cfg)
}

func rescoreOn(ctx context.Context, fsys fileSystem, cfg Rescoring) (Rescored, error) {
	if err := cfg.Validate(); err != nil {
		return Rescored{}, err
	}
	set(&cfg.Width, 16)
	r := &rescoring{Rescoring: cfg, fs: fsys, options: partOptions(), seen: map[key]struct{}{}}
	lock, err := r.open()
	if err != nil {
		return Rescored{}, err
	}
	err = r.all(ctx)
	return r.result, errors.Join(err, lock.Close())
}

// rescoring is the work on one set.
type rescoring struct {
	Rescoring
	fs      fileSystem
	options []parquet.WriterOption
	run     Manifest         // of Dir
	out     Manifest         // of the directory that is written: run's, or that of Into
	seen    map[key]struct{} // groups of which some rows came, and not all
	result  Rescored
}

func (r *rescoring) target() string {
	if r.Into != "" {
		return r.Into
	}
	return r.Dir
}

func (r *rescoring) folder() string {
	if r.Into != "" {
		return partsDir
	}
	return path.Join(rewardsDir, r.Set)
}

// open locks what is written and finds, or begins, the set there.
func (r *rescoring) open() (lock io.Closer, err error) {
	if r.run, err = loadManifest(r.fs, r.Dir); err != nil {
		return nil, err
	}
	if r.Into != "" {
		if err := r.makeInto(); err != nil {
			return nil, err
		}
	}
	lock, err = r.fs.Lock(filepath.Join(r.target(), lockName))
	if err != nil {
		return nil, fmt.Errorf("run directory %s: %w", r.target(), err)
	}
	if err = r.begin(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// makeInto makes the folders of a new dataset, and refuses what is no dataset of ours.
func (r *rescoring) makeInto() error {
	if err := prepareDir(r.fs, r.Into); err != nil {
		return err
	}
	_, err := loadManifest(r.fs, r.Into)
	if !errors.Is(err, ErrNotRun) {
		return err
	}
	return saveManifest(r.fs, r.Into, Manifest{SchemaVersion: SchemaVersion, Parts: []Part{}, Failures: []Part{}, Rescored: &Origin{Dir: r.Dir, Run: r.Run, Set: r.newSet()}})
}

func (r *rescoring) newSet() RewardSet {
	return RewardSet{Name: r.Set, Digest: r.Digest, Rule: r.Rule, Began: time.Now().UTC().Truncate(time.Second), Parts: []Part{}}
}

// begin reads the manifests again, under the lock.
func (r *rescoring) begin() (err error) {
	if r.out, err = loadManifest(r.fs, r.target()); err != nil {
		return err
	}
	if r.Into == "" {
		r.run = r.out
		if r.out.rewardSet(r.Set) == nil {
			r.out.RewardSets = append(slices.Clone(r.out.RewardSets), r.newSet())
		}
	} else if r.out.Rescored == nil {
		return fmt.Errorf("%s: %w: it is a run of its own", r.Into, ErrOtherSet)
	} else if was := r.out.Rescored.Run; was != r.Run {
		return fmt.Errorf("%s: %w: its rows are those of the run %q", r.Into, ErrOtherSet, was)
	}
	if s := r.set(); s.Digest != r.Digest || s.Name != r.Set && r.Into == "" {
		return fmt.Errorf("%s: set %s: %w", r.target(), s.Name, ErrOtherSet)
	}
	if err := r.fs.MakeDir(filepath.Join(r.target(), filepath.FromSlash(r.folder()))); err != nil {
		return fmt.Errorf("make the folder of the set: %w", err)
	}
	return r.fs.SyncDir(filepath.Join(r.target(), filepath.Dir(filepath.FromSlash(r.folder()))))
}

func (r *rescoring) set() *RewardSet {
	if r.Into != "" {
		return &r.out.Rescored.Set
	}
	return r.out.rewardSet(r.Set)
}

// made is the list of the parts of the set.
func (r *rescoring) made() *[]Part {
	if r.Into != "" {
		return &r.out.Parts
	}
	return &r.set().Parts
}

func (r *rescoring) all(ctx context.Context) error {
	err := steady(r.fs, r.Dir, func(m Manifest) (err error) { // without the lock the run may be written
		r.run = m
		r.result.Journal, err = inJournal(r.fs, r.Dir, m)
		return err
	})
	if err != nil {
		return err
	}
	r.result.Set, r.result.Failed = filepath.Join(r.target(), filepath.FromSlash(r.folder())), r.run.FailureRows
	if err := r.dropStale(); err != nil {
		return err
	}
	for _, src := range r.run.current() {
		have, err := r.one(ctx, src)
		if err == nil {
			err = r.compare(src, have)
		}
		if err != nil {
			if r.Into != "" { // the run is not locked
				err = moved(r.fs, r.Dir, r.run, err)
			}
			return fmt.Errorf("rescore %s: %w", src.Path, err)
		}
		r.result.Rows += have.Rows
	}
	return r.finish()
}

// dropStale takes the parts out of a copy whose counterparts in the run were made into larger ones since: their rows are judged with those. (Parts that
// a set in the run's own directory stands on stay as they are.)
func (r *rescoring) dropStale() error {
	if r.Into == "" {
		return nil
	}
	run := RewardSet{Parts: r.run.Parts}
	kept := slices.DeleteFunc(slices.Clone(r.out.Parts), func(p Part) bool { _, ok := run.counterpart(p); return !ok })
	if len(kept) < len(r.out.Parts) {
		r.out.Parts, r.set().Complete = kept, false
		if err := r.save(); err != nil {
			return err
		}
	}
	return r.dropUnlisted(partsDir, kept)
}

// one makes the counterpart of a part, unless it is there.
func (r *rescoring) one(ctx context.Context, src Part) (Part, error) {
	have, ok := RewardSet{Parts: *r.made()}.counterpart(src)
	if ok {
		r.result.Earlier += have.Rows
		return have, r.remember(src)
	}
	made, err := r.part(ctx, src)
	if err != nil {
		return Part{}, err
	}
	list := r.made()
	*list = append(slices.Clone(*list), made)
	return made, r.save()
}

func (r *rescoring) save() error {
	if r.Into != "" {
		r.out.Rows, r.out.FailureRows = rowsIn(r.out.Parts), rowsIn(r.out.Failures)
	}
	r.out.Generation++
	return saveManifest(r.fs, r.target(), r.out)
}

// finish makes a whole set the one that readers see.
func (r *rescoring) finish() error {
	if err := r.copyFailures(); err != nil {
		return err
	}
	s := r.set()
	if s.Complete && (r.Into != "" || r.out.CurrentRewards == r.Set) {
		return nil
	}
	s.Complete = true
	if r.Into == "" {
		r.out.CurrentRewards = r.Set
	}
	return r.save()
}

// part writes the rows of a part with other verdicts.
func (r *rescoring) part(ctx context.Context, src Part) (Part, error) {
	var made Part
	err := r.open1(src, r.Dir, func(pf *parquet.File) (err error) {
		name := path.Join(r.folder(), path.Base(src.Path))
		made, err = makePart(r.fs, r.target(), name, r.options, func(pw *partWriter) error { return r.fill(ctx, pf, pw) })
		return err
	})
	return made, err
}

// open1 reads one file of a directory.
func (r *rescoring) open1(p Part, dir string, do func(*parquet.File) error) error {
	return openPart(r.fs, dir, p, do)
}

// openPart reads one file of a dataset.
func openPart(fsys fileSystem, dir string, p Part, do func(*parquet.File) error) error {
	name := filepath.Join(dir, filepath.FromSlash(p.Path))
	f, err := fsys.Open(name)
	if err != nil {
		return fmt.Errorf("%w: %s is listed in the manifest: %w", ErrDamaged, name, err)
	}
	defer f.Close()
	pf, err := openParquet(f)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	}
	return do(pf)
}

// bunch is the rows of one group on their way.
type bunch struct {
	rows  []*Row
	whole bool
	last  bool       // a row group ends behind it
	done  chan error // buffered, one answer
}

// fill reads, judges and writes: one goroutine reads, one a group judges, at most about Width of them, and the rows are written in the
// order in which they were read.
func (r *rescoring) fill(ctx context.Context, pf *parquet.File, pw *partWriter) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	line := make(chan *bunch, r.Width)
	var unread error // written before line is closed
	all.Go(func() {
		defer close(line)
		unread = r.bunches(pf, func(b *bunch) error {
			all.Go(func() { b.done <- r.judge(ctx, b) })
			select {
			case line <- b:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	for b := range line {
		if err := <-b.done; err != nil {
			return err
		}
		if err := pw.addBunch(b); err != nil {
			return err
		}
	}
	return unread
}

// judge has a group judged. What its rows were flagged with for the rewards they had goes with these.
func (r *rescoring) judge(ctx context.Context, b *bunch) error {
	if err := r.Judge(ctx, b.rows, b.whole); err != nil {
		return err
	}
	for _, row := range b.rows {
		row.unmarkEqual()
	}
	if r.MarkEqual && b.whole {
		markEqual(b.rows)
	}
	return nil
}

func (w *partWriter) addBunch(b *bunch) error {
	if err := w.addAll(b.rows); err != nil {
		return err
	}
	if b.last {
		return w.endRowGroup()
	}
	return nil
}

// bunches cuts a part into its groups, each inside of one row group.
func (r *rescoring) bunches(pf *parquet.File, do func(*bunch) error) error {
	var b *bunch
	flush := func(last bool) error {
		if b == nil {
			return nil
		}
		full := b
		b, full.last, full.whole = nil, last, r.whole(full.rows[0].GroupID, len(full.rows), full.rows[0].GroupSize)
		return do(full)
	}
	return eachInGroups(pf, func(row *Row) error {
		if b != nil && (row.GroupID == "" || row.GroupID != b.rows[0].GroupID) {
			if err := flush(false); err != nil {
				return err
			}
		}
		if b == nil {
			b = &bunch{done: make(chan error, 1)}
		}
		own := *row
		b.rows = append(b.rows, &own)
		return nil
	}, func() error { return flush(true) })
}

// whole tells whether rows are all there is of their group, or the first of it: what comes later stands alone, as it did in the run.
func (r *rescoring) whole(group string, rows int, size int32) bool {
	if group == "" || rows >= int(size) {
		return true
	}
	k := keyOf(group)
	_, before := r.seen[k]
	r.seen[k] = struct{}{}
	return !before
}

// membership is what the books of groups need of a row.
type membership struct {
	GroupID   string `parquet:"group_id"`
	GroupSize int32  `parquet:"group_size"`
}

// remember notes the incomplete groups of a part that an earlier call did.
func (r *rescoring) remember(src Part) error {
	return r.open1(src, r.Dir, func(pf *parquet.File) error {
		last, n := membership{}, 0
		note := func() {
			if n > 0 {
				r.whole(last.GroupID, n, last.GroupSize)
			}
		}
		err := eachRow(pf, func(m *membership) error {
			if n == 0 || m.GroupID != last.GroupID {
				note()
				last, n = *m, 0
			}
			n++
			return nil
		})
		note()
		return err
	})
}

// compare walks a part and its counterpart side by side.
func (r *rescoring) compare(src, made Part) error {
	if r.Compared == nil {
		return nil
	}
	return r.open1(made, r.target(), func(after *parquet.File) error {
		next, stop := iter.Pull2(func(yield func(*Judged, error) bool) {
			err := eachRow(after, func(j *Judged) error {
				if !yield(j, nil) {
					return errStop
				}
				return nil
			})
			if err != nil && !errors.Is(err, errStop) {
				yield(nil, err)
			}
		})
		defer stop()
		return r.open1(src, r.Dir, func(before *parquet.File) error {
			return eachRow(before, func(b *Judged) error {
				a, err, ok := next()
				switch {
				case err != nil:
					return err
				case !ok || a.EpisodeID != b.EpisodeID:
					return fmt.Errorf("%w: %s does not hold the episodes of %s", ErrDamaged, made.Path, src.Path)
				}
				r.Compared(b, a)
				return nil
			})
		})
	})
}

// copyFailures gives a dataset of its own the run's failures, byte for byte. A run that was gone on with has others: what it retried is in its
// parts by now.
func (r *rescoring) copyFailures() error {
	if r.Into == "" {
		return nil
	}
	same := func(a, b Part) bool { return a.Path == b.Path && a.SHA256 == b.SHA256 }
	if !slices.EqualFunc(r.out.Failures, r.run.Failures, same) {
		for _, f := range r.run.Failures {
			if slices.ContainsFunc(r.out.Failures, func(have Part) bool { return same(have, f) }) {
				continue
			}
			if err := r.copyFile(f); err != nil {
				return fmt.Errorf("copy %s: %w", f.Path, err)
			}
		}
		r.out.Failures = slices.Clone(r.run.Failures)
		if err := r.save(); err != nil {
			return err
		}
	}
	return r.dropUnlisted(failuresDir, r.out.Failures)
}

// dropUnlisted removes from a folder of a copy what is not listed any more, also where an earlier call died before it came to that.
func (r *rescoring) dropUnlisted(folder string, listed []Part) error {
	entries, err := r.fs.ReadDir(filepath.Join(r.Into, folder))
	if err != nil {
		return fmt.Errorf("look for files that the run has no more: %w", err)
	}
	for _, e := range entries {
		name := path.Join(folder, e.Name())
		if _, ours := partNumber(name); !ours || slices.ContainsFunc(listed, func(p Part) bool { return p.Path == name }) {
			continue
		}
		if err := r.fs.Remove(filepath.Join(r.Into, filepath.FromSlash(name))); err != nil {
			return fmt.Errorf("remove files that the run has no more: %w", err)
		}
	}
	return nil
}

func (r *rescoring) copyFile(p Part) error {
	b, err := readFile(r.fs, filepath.Join(r.Dir, filepath.FromSlash(p.Path)))
	if err != nil {
		return err
	}
	return replaceFile(r.fs, filepath.Join(r.Into, filepath.FromSlash(p.Path)), b)
}
