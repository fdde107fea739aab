package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/parquet-go/parquet-go"
)

// Making says of which datasets one was put together that no run wrote.
type Making struct {
	How    string `json:"how"`              // merge, sample
	Choice string `json:"choice,omitempty"` // which rows were taken, in words; "" = all
	ID     string `json:"id"`               // of its set of episodes: the same ones, however they came together, have the same
	// PartialGroups says that rows of a group were left out that a source has, here or where a source came about: groups need not be whole.
	PartialGroups bool `json:"partial_groups,omitempty"`
	// Sources are in the order in which they were named. What the i-th knew of itself (run.yaml and the like) is in the folder
	// sources/i, five digits, of the dataset.
	Sources []Source `json:"sources"`
}

// Source is a dataset that rows were taken from.
type Source struct {
	Dir        string          `json:"dir"` // as it was named
	RunID      string          `json:"run_id"`
	Generation int64           `json:"generation"`           // of its manifest
	Rewards    string          `json:"rewards,omitempty"`    // the set of rewards that its rows have; "" = the run's own
	Rule       json.RawMessage `json:"rule,omitempty"`       // that of the set; see RewardSet
	Rows       int64           `json:"rows"`                 // taken from its parts
	Failures   int64           `json:"failure_rows"`         // taken from its failure files
	Made       *Making         `json:"made,omitempty"`       // it was put together itself; its sources are in sources/i/sources
	Unfinished int64           `json:"unfinished,omitempty"` // rows in its journal, of groups that are not complete: not taken
}

// SourceFolder is where a dataset keeps what its i-th source knew of itself.
func SourceFolder(dir string, i int) string {
	return filepath.Join(dir, sourcesDir, fmt.Sprintf("%05d", i))
}

const sourcesDir = "sources"

// ErrTaken: a new dataset is to go where something is already.
var ErrTaken = errors.New("there is something already")

// DatasetConfig says where a dataset of rows goes that are there already. The zero value of every field but Dir is its default.
type DatasetConfig struct {
	// Dir is the new directory. It must not exist, or be empty.
	Dir string
	// RowGroupBytes and PartBytes cut row groups and parts as those of Config do; a part is held in memory until it is full. Defaults: 8
	// and 64 MiB.
	RowGroupBytes, PartBytes int64
}

// Validate reports every fault at once.
func (c DatasetConfig) Validate() error {
	err := Config{Dir: c.Dir, RowGroupBytes: c.RowGroupBytes, PartBytes: c.PartBytes}.Validate()
	if name := filepath.Base(filepath.Clean(c.Dir)); c.Dir != "" && (name == "." || name == ".." || name == string(filepath.Separator)) {
		err = errors.Join(err, fmt.Errorf("storage: Dir is %q: expected a new directory by its name: it is made under another one and renamed", c.Dir))
	}
	return err
}

// Dataset writes rows that are there already, as a run writes its own: parts and failures, but no journal. Nothing is to be seen under
// its name before Close, for it is made beside it; what a process that died left there goes when the same dataset is begun again.
// It is used by one goroutine.
type Dataset struct {
	cfg     DatasetConfig
	fs      fileSystem
	temp    string // where it is made
	lock    io.Closer
	options []parquet.WriterOption

	manifest     Manifest
	summary      Summary
	good, failed pending
	seq          uint64
	ids          key // of all rows, one over the other
}

// pending is the rows of the next file of a kind.
type pending struct {
	folder string
	groups []*group
	rows   map[key]*Row
	bytes  int64
}

// NewDataset begins one. Errors: those of the configuration, ErrTaken, ErrLocked, a failing disk.
func NewDataset(cfg DatasetConfig) (*Dataset, error) { return newDatasetOn(disk{}, cfg) }

func newDatasetOn(fsys fileSystem, cfg DatasetConfig) (*Dataset, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	set(&cfg.RowGroupBytes, 8<<20)
	set(&cfg.PartBytes, 64<<20)
	cfg.Dir = filepath.Clean(cfg.Dir)
	if err := absent(fsys, cfg.Dir); err != nil {
		return nil, err
	}
	d := &Dataset{
		cfg: cfg, fs: fsys, temp: filepath.Join(filepath.Dir(cfg.Dir), tempPrefix+filepath.Base(cfg.Dir)), options: partOptions(),
		manifest: Manifest{SchemaVersion: SchemaVersion, Parts: []Part{}, Failures: []Part{}},
		good:     pending{folder: partsDir, rows: map[key]*Row{}}, failed: pending{folder: failuresDir, rows: map[key]*Row{}},
	}
	return d, d.begin()
}

// absent refuses a name under which there is something.
func absent(fsys fileSystem, dir string) error {
	entries, err := fsys.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(entries) == 0:
		return nil
	case err == nil:
		return fmt.Errorf("%s: %w; expected a new or an empty directory", dir, ErrTaken)
	}
	if _, serr := fsys.Stat(dir); serr == nil {
		return fmt.Errorf("%s: %w, and it is no directory", dir, ErrTaken)
	}
	return fmt.Errorf("look at %s: %w", dir, err)
}

func (d *Dataset) begin() error {
	if err := d.fs.MakeDir(d.temp); err != nil {
		return fmt.Errorf("make the dataset: %w", err)
	}
	lock, err := d.fs.Lock(filepath.Join(d.temp, lockName))
	if err != nil {
		return fmt.Errorf("make the dataset in %s: %w", d.temp, err)
	}
	d.lock = lock
	err = removeIn(d.fs, d.temp, lockName)
	for _, folder := range []string{partsDir, failuresDir, journalDir} {
		if err == nil {
			err = d.fs.MakeDir(filepath.Join(d.temp, folder))
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make the dataset: %w", err), d.Abandon())
	}
	return nil
}

// removeIn empties a folder but for one entry.
func removeIn(fsys fileSystem, dir, but string) error {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if e.Name() == but {
			continue
		}
		if e.IsDir() {
			if err := removeIn(fsys, name, ""); err != nil {
				return err
			}
		}
		if err := fsys.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

// Add takes rows of one group: all that the dataset is to have of it and that ended well, in sample order, so that they stay together;
// failed ones, which go to failures/, may come with them or by themselves. The rows are the Dataset's from now on.
func (d *Dataset) Add(rows ...*Row) error {
	good, failed := &group{}, &group{}
	for _, r := range rows {
		if err := r.check(); err != nil {
			return err
		}
		d.seq++
		rec := recordOf(r, d.seq)
		d.note(r, rec.key)
		if rec.failed {
			failed.records = append(failed.records, rec)
			d.failed.rows[rec.key] = r
		} else {
			good.records = append(good.records, rec)
			d.good.rows[rec.key] = r
		}
	}
	if err := d.put(&d.good, good); err != nil {
		return err
	}
	return d.put(&d.failed, failed)
}

func (d *Dataset) note(r *Row, k key) {
	d.summary.Add(r)
	for i := range d.ids {
		d.ids[i] ^= k[i]
	}
}

// put adds a group to the next file, or begins another one for it.
func (d *Dataset) put(p *pending, g *group) error {
	if len(g.records) == 0 {
		return nil
	}
	n := g.bytes()
	if p.bytes > 0 && p.bytes+n > d.cfg.PartBytes {
		held := map[key]*Row{} // the rows of g are in already
		for _, r := range g.records {
			held[r.key] = p.rows[r.key]
		}
		if err := d.publish(p); err != nil {
			return err
		}
		p.rows = held
	}
	p.groups = append(p.groups, g)
	p.bytes += n
	return nil
}

// publish writes what is pending.
func (d *Dataset) publish(p *pending) error {
	for _, l := range arrange(p.groups, func(record) bool { return true }, d.cfg.RowGroupBytes, d.cfg.PartBytes) {
		if err := d.part(p, l); err != nil {
			return err
		}
	}
	*p = pending{folder: p.folder, rows: map[key]*Row{}}
	return nil
}

func (d *Dataset) part(p *pending, l layout) error {
	list, number := &d.manifest.Parts, &d.manifest.NextPart
	if p.folder == failuresDir {
		list, number = &d.manifest.Failures, &d.manifest.NextFailure
	}
	part, err := makePart(d.fs, d.temp, partName(p.folder, *number), d.options, func(pw *partWriter) error { return l.fillFrom(p.rows, pw) })
	if err != nil {
		return err
	}
	*list = append(*list, part)
	*number++
	return nil
}

// fillFrom writes the rows of a layout that are in memory.
func (l layout) fillFrom(rows map[key]*Row, pw *partWriter) error {
	for _, records := range l {
		for _, rec := range records {
			if err := pw.add(rows[rec.key]); err != nil {
				return err
			}
		}
		if err := pw.endRowGroup(); err != nil {
			return err
		}
	}
	return nil
}

// Summary counts what was added.
func (d *Dataset) Summary() Summary { return d.summary.clone() }

// keep puts a file into the dataset beside its rows. The name is relative to it, with forward slashes.
func (d *Dataset) keep(name string, content io.Reader) error {
	to := filepath.Join(d.temp, filepath.FromSlash(name))
	if err := d.fs.MakeDir(filepath.Dir(to)); err != nil {
		return err
	}
	return publishFile(d.fs, to, false, func(w io.Writer) error { _, err := io.Copy(w, content); return err }, func(string) error { return nil })
}

// Close publishes the dataset under its name, in one step. made says what it was made of; its ID is filled in here. After an error
// there is nothing under the name, or, where only the last sync failed, all of it.
func (d *Dataset) Close(made Making) (Manifest, error) {
	err := d.finish(made)
	if err != nil {
		return Manifest{}, errors.Join(err, d.Abandon())
	}
	return d.manifest, d.lock.Close()
}

func (d *Dataset) finish(made Making) error {
	if err := errors.Join(d.publish(&d.good), d.publish(&d.failed)); err != nil {
		return err
	}
	if len(d.manifest.Parts) == 0 { // readers find the schema all the same
		if err := d.part(&d.good, layout{}); err != nil {
			return err
		}
	}
	made.ID = fmt.Sprintf("%x", d.ids[:])
	d.manifest.Made = &made
	d.manifest.Rows, d.manifest.FailureRows = rowsIn(d.manifest.Parts), rowsIn(d.manifest.Failures)
	d.manifest.Generation = 1
	if err := d.writeSummary(); err != nil {
		return err
	}
	if err := saveManifest(d.fs, d.temp, d.manifest); err != nil {
		return err
	}
	return d.rename()
}

func (d *Dataset) writeSummary() error {
	b, err := json.MarshalIndent(struct {
		Dataset Summary `json:"dataset"`
		Run     any     `json:"run"`
	}{d.Summary(), nil}, "", " ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", summaryName, err)
	}
	return replaceFile(d.fs, filepath.Join(d.temp, summaryName), append(b, '\n'))
}

// rename gives the dataset its name. An empty directory of that name goes first; one that is not empty by now cannot.
func (d *Dataset) rename() error {
	if err := absent(d.fs, d.cfg.Dir); err != nil {
		return err
	}
	if err := d.fs.Remove(d.cfg.Dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("publish %s: %w: %w", d.cfg.Dir, ErrTaken, err)
	}
	if err := d.fs.Rename(d.temp, d.cfg.Dir); err != nil {
		return fmt.Errorf("publish %s: %w", d.cfg.Dir, err)
	}
	if err := d.fs.SyncDir(filepath.Dir(d.cfg.Dir)); err != nil {
		return fmt.Errorf("publish %s: %w", d.cfg.Dir, err)
	}
	return nil
}

// Abandon removes what was made so far. Where that fails too, the rest goes when the same dataset is begun again.
func (d *Dataset) Abandon() error {
	err := removeIn(d.fs, d.temp, lockName)
	if err == nil {
		err = errors.Join(d.fs.Remove(filepath.Join(d.temp, lockName)), d.fs.Remove(d.temp))
	}
	if errors.Is(err, fs.ErrNotExist) { // it has its name already
		err = nil
	}
	if err = errors.Join(err, d.lock.Close()); err != nil {
		return fmt.Errorf("remove the half-made dataset %s: %w", d.temp, err)
	}
	return nil
}
