package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// What a verifier needs of a run directory: files as they lie on the disk, and not as readers see them. Nothing here repairs, skips or judges.

// Key is an id in 16 bytes: the id itself where it is 128 bits in hex, else the start of its SHA-256.
type Key = [16]byte

// KeyOf is the key of an episode, group or task id.
func KeyOf(id string) Key { return keyOf(id) }

// PartFile is one listed file, open for inspection.
type PartFile struct {
	path  string
	file  file
	pf    *parquet.File
	Bytes int64
}

// Inspect opens a listed file; fs.ErrNotExist where it is not there. Close it.
func (r *Run) Inspect(p Part) (*PartFile, error) {
	name := filepath.Join(r.dir, filepath.FromSlash(p.Path))
	f, err := r.fs.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &PartFile{path: name, file: f, Bytes: info.Size()}, nil
}

// Close lets go of the file.
func (f *PartFile) Close() error { return f.file.Close() }

// SHA256 reads the whole file, in hex.
func (f *PartFile) SHA256(ctx context.Context) (string, error) {
	sum := sha256.New()
	buf := make([]byte, 1<<20)
	in := io.NewSectionReader(f.file, 0, f.Bytes)
	for {
		n, err := in.Read(buf)
		sum.Write(buf[:n])
		switch {
		case errors.Is(err, io.EOF):
			return hex.EncodeToString(sum.Sum(nil)), nil
		case err != nil:
			return "", fmt.Errorf("read %s: %w", f.path, err)
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		}
	}
}

// Footer reads what stands at the file's end; the methods below need it. An error is an ErrDamaged.
func (f *PartFile) Footer() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	if f.pf, err = parquet.OpenFile(f.file, f.Bytes); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

// RowGroups is the number of rows of each.
func (f *PartFile) RowGroups() []int64 {
	var rows []int64
	for _, g := range f.pf.RowGroups() {
		rows = append(rows, g.NumRows())
	}
	return rows
}

// Lengths compares what the footer says of the four token columns of each row group; nil = they are equally long.
func (f *PartFile) Lengths() error { return equalLengths(f.pf) }

// Rows reads every row with all columns, in order. An error ends it: ErrDamaged, with the page where a checksum tells which. Page says that it did.
func (f *PartFile) Rows() iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		err := eachRow(f.pf, func(row *Row) error {
			if c := *row; !yield(&c, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(nil, fmt.Errorf("%w: %w", ErrDamaged, err))
		}
	}
}

// BrokenPage names the first page whose bytes are not those its checksum was made of; nil when there is none.
func (f *PartFile) BrokenPage() error { return brokenPage(f.file, f.Bytes, chunksOf(f.pf)) }

// SchemaDifference is what a file's columns are, beside those of this version.
type SchemaDifference struct {
	Older []string // columns that came later and the file does not have: it reads as null there
	Wrong []string // columns that are missing, of another type, or not ours, each with what is wrong
}

// Schema compares the file's columns with those of this version.
func (f *PartFile) Schema() (d SchemaDifference) {
	ours, theirs := columnsOf(parquet.SchemaOf(Row{})), columnsOf(f.pf.Schema())
	for _, c := range ours {
		i := slices.IndexFunc(theirs, func(o column) bool { return o.path == c.path })
		switch {
		case i >= 0 && theirs[i].form != c.form:
			d.Wrong = append(d.Wrong, fmt.Sprintf("column %s is %s: expected %s", c.path, theirs[i].form, c.form))
		case i < 0 && later(c.path):
			d.Older = append(d.Older, c.path)
		case i < 0:
			d.Wrong = append(d.Wrong, fmt.Sprintf("column %s is missing", c.path))
		}
	}
	for _, c := range theirs {
		if !slices.ContainsFunc(ours, func(o column) bool { return o.path == c.path }) {
			d.Wrong = append(d.Wrong, fmt.Sprintf("column %s is not one of this format", c.path))
		}
	}
	return d
}

// column is a leaf of a schema: where it stands, and what it is with all that is around it.
type column struct{ path, form string }

func columnsOf(n parquet.Node) (list []column) {
	var walk func(n parquet.Node, path, around string)
	walk = func(n parquet.Node, path, around string) {
		switch {
		case n.Optional():
			around += "optional "
		case n.Repeated():
			around += "repeated "
		}
		if n.Leaf() {
			list = append(list, column{path, around + n.Type().String()})
			return
		}
		for _, f := range n.Fields() {
			walk(f, strings.TrimPrefix(path+"."+f.Name(), "."), around)
		}
	}
	walk(n, "", "")
	return list
}

// later names the columns that came to version 1 after its first files; see docs/format.md, "in rows of before the column".
func later(name string) bool {
	for _, whole := range []string{"raw", "breaks", "forms", "scored", "turn_credit", "credits", "variant"} {
		if name == whole || strings.HasPrefix(name, whole+".") {
			return true
		}
	}
	list, field, ok := strings.Cut(name, ".list.element.")
	if !ok {
		return false
	}
	switch list {
	case "turns":
		return field == "exchange" || field == "logprobs_of"
	case "actions":
		return slices.Contains([]string{"rootfs", "queue_ms", "setup_ms", "peak_memory", "oom_kills", "refused_forks", "left_behind"}, field)
	case "rewards":
		return slices.Contains([]string{"raw", "config", "tier", "tries", "prompt_tokens", "completion_tokens", "wall_ms", "cpu_ms"}, field)
	}
	return false
}

// JournalFiles is a run's journal of one moment: what a writer removes meanwhile stays readable.
type JournalFiles struct{ segments []*segment }

// JournalRow is one row record of a journal.
type JournalRow struct {
	File   string // relative to the run directory
	Offset int64
	Seq    uint64
	Key    Key
	Row    *Row  // nil where it cannot be read
	Err    error // why
}

// InspectJournal opens the segments that count by that manifest. Close it.
func (r *Run) InspectJournal(m Manifest) (*JournalFiles, error) {
	segments, err := openJournal(r.fs, r.dir, m.FirstSegment)
	j := &JournalFiles{segments}
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// Close lets go of the files.
func (j *JournalFiles) Close() error {
	var errs []error
	for _, s := range j.segments {
		errs = append(errs, s.file.Close())
	}
	return errors.Join(errs...)
}

// Rows calls each for every row record, superseded ones included, and returns the stretches that hold none. An error is that of the disk, or
// each's.
func (j *JournalFiles) Rows(each func(JournalRow) error) (damage []Damage, err error) {
	for _, s := range j.segments {
		gaps, err := scanFrames(s.file, s.bytes, func(offset int64, frame []byte) error {
			if kind, payload, err := parseFrame(frame); err == nil && kind == frameRow {
				return each(s.journalRow(offset, payload))
			}
			return nil
		})
		if err != nil {
			return damage, fmt.Errorf("read journal %s: %w", s.path, err)
		}
		for _, g := range gaps {
			damage = append(damage, s.damage(g))
		}
	}
	return damage, nil
}

func (s *segment) journalRow(offset int64, payload []byte) JournalRow {
	r := JournalRow{File: path.Join(journalDir, filepath.Base(s.path)), Offset: offset}
	seq, k, err := payloadKey(payload)
	if err == nil {
		r.Seq, r.Key = seq, k
		r.Row, err = decodeRow(payload)
	}
	if r.Err = err; err != nil {
		r.Row = nil
	}
	return r
}

// Stray is a file of a run directory that no manifest lists.
type Stray struct {
	Path string // relative to the run directory
	What string // for people
	// Data: it has the name of a part, so that whoever reads the folder by a pattern reads its rows too.
	Data bool
}

// Strays lists the files beside those that m lists. Files at the top that are not of ours are not looked at: people keep notes there.
func (r *Run) Strays(m Manifest) (list []Stray, err error) {
	listed := map[string]bool{}
	folders := []string{".", partsDir, failuresDir, journalDir}
	for _, p := range m.files() {
		listed[p.Path] = true
	}
	for _, s := range m.RewardSets {
		folders = append(folders, path.Join(rewardsDir, s.Name))
		for _, p := range s.Parts {
			listed[p.Path] = true
		}
	}
	for _, folder := range folders {
		entries, err := r.fs.ReadDir(filepath.Join(r.dir, filepath.FromSlash(folder)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look into %s: %w", folder, err)
		}
		for _, e := range entries {
			name := path.Join(folder, e.Name())
			if s, ok := strayOf(m, folder, name); ok && !listed[name] && !e.IsDir() {
				list = append(list, s)
			}
		}
	}
	return list, nil
}

// strayOf says what a file is that is not listed; false = nothing to speak of.
func strayOf(m Manifest, folder, name string) (Stray, bool) {
	base := path.Base(name)
	if strings.HasPrefix(base, tempPrefix) {
		return Stray{Path: name, What: "a half-made file that a crash left; the next start removes it"}, true
	}
	switch folder {
	case ".":
		return Stray{}, false
	case journalDir:
		if strings.HasSuffix(base, damagedSuffix) {
			return Stray{Path: name, What: "a damaged piece of the journal that was kept for a person to look at"}, true
		}
		n, ok := segmentNumber(base)
		return Stray{Path: name, What: "a piece of the journal whose rows are all in files; the next start removes it"}, ok && n < m.FirstSegment
	}
	if strings.HasSuffix(base, ".parquet") {
		return Stray{Path: name, What: "the manifest does not list it", Data: true}, true
	}
	return Stray{Path: name, What: "no file of a run"}, true
}
