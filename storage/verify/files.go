package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"tranche/storage"
)

// open reads the manifest and opens the journal that goes with it: what is published between the two is looked for again. A nil journal without an
// error: the manifest cannot be read, which is a finding.
func (v *Verifier) open() (m storage.Manifest, journal *storage.JournalFiles, err error) {
	for {
		v.run, err = storage.OpenRun(v.cfg.Dir)
		if err == nil {
			m, err = v.run.Manifest()
		}
		switch {
		case errors.Is(err, storage.ErrNotRun):
			return m, nil, err
		case err != nil && unreadable(v.cfg.Dir):
			return m, nil, err
		case err != nil:
			v.find("manifest", Place{File: "manifest.json", What: err.Error()})
			return m, nil, nil
		}
		journal, err = v.run.InspectJournal(m)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return m, nil, err
		}
		after, merr := v.run.Manifest()
		switch {
		case merr == nil && after.Generation == m.Generation && err == nil:
			return m, journal, nil
		case merr == nil && after.Generation == m.Generation: // nothing was published: the folder is gone
			v.find("journal", Place{File: "journal", What: err.Error()})
			return m, &storage.JournalFiles{}, nil
		}
		if journal != nil {
			if cerr := journal.Close(); cerr != nil {
				return m, nil, cerr
			}
		}
	}
}

// unreadable says that it is the disk, and not what stands in the file.
func unreadable(dir string) bool {
	_, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	return err != nil
}

// manifest holds it to itself.
func (v *Verifier) manifest(m storage.Manifest) {
	bad := func(format string, args ...any) {
		v.find("manifest", Place{File: "manifest.json", What: fmt.Sprintf(format, args...)})
	}
	if n := rowsOf(m.Parts); n != m.Rows {
		bad("rows is %d, the parts add up to %d", m.Rows, n)
	}
	if n := rowsOf(m.Failures); n != m.FailureRows {
		bad("failure_rows is %d, the failures add up to %d", m.FailureRows, n)
	}
	seen := map[string]bool{}
	for _, l := range []struct {
		folder string
		next   int
		list   []storage.Part
	}{{"parts", m.NextPart, m.Parts}, {"failures", m.NextFailure, m.Failures}} {
		for _, p := range l.list {
			switch n, ok := numberIn(l.folder, p); {
			case !ok:
				bad("%q is no path of a file in %s", p.Path, l.folder)
			case seen[p.Path]:
				bad("%s is listed twice", p.Path)
			case n >= l.next && m.Rescored == nil: // a copy that nobody writes on has no next number
				bad("%s is listed, and the next number is %d", p.Path, l.next)
			}
			seen[p.Path] = true
		}
	}
	v.manifestSets(m, bad)
}

// numberIn is the number in the name of a file of that folder; false = it is none.
func numberIn(folder string, p storage.Part) (n int, ok bool) {
	_, err := fmt.Sscanf(path.Base(p.Path), "part-%d.parquet", &n)
	return n, err == nil && path.Clean(p.Path) == p.Path && path.Dir(p.Path) == folder
}

func (v *Verifier) manifestSets(m storage.Manifest, bad func(format string, args ...any)) {
	current := m.CurrentRewards == ""
	for _, s := range m.RewardSets {
		current = current || s.Name == m.CurrentRewards && s.Complete
		for _, p := range s.Parts {
			if _, ok := numberIn("rewards/"+s.Name, p); !ok {
				bad("%q is no path of a file of the set %s", p.Path, s.Name)
			}
		}
	}
	if !current {
		bad("the current rewards are %q, and there is no such complete set", m.CurrentRewards)
	}
}

func rowsOf(list []storage.Part) (n int64) {
	for _, p := range list {
		n += p.Rows
	}
	return n
}

func setParts(m storage.Manifest) (list []storage.Part) {
	for _, s := range m.RewardSets {
		list = append(list, s.Parts...)
	}
	return list
}

// strays are files beside the listed ones. While a process writes, a file may be there just before the manifest lists it.
func (v *Verifier) strays(m storage.Manifest) error {
	list, err := v.run.Strays(m)
	for _, s := range list {
		switch {
		case s.Data && !v.report.Live:
			v.find("file-unlisted", Place{File: s.Path, What: s.What})
		case s.Data:
			v.note("files that are not listed yet, or not any more: the run is being written", Place{File: s.Path, What: s.What})
		default:
			v.note("files beside those of the dataset", Place{File: s.Path, What: s.What})
		}
	}
	return err
}

// records reads what is JSON beside the dataset. A file that is being replaced is whole all the same.
func (v *Verifier) records() error {
	files, err := filepath.Glob(filepath.Join(v.cfg.Dir, "endpoints", "*.json"))
	if err != nil {
		return err
	}
	for _, name := range []string{"summary.json", "account.json", "task-states.json"} {
		files = append(files, filepath.Join(v.cfg.Dir, name))
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !json.Valid(text) {
			rel, _ := filepath.Rel(v.cfg.Dir, name) // it is below
			v.find("records", Place{File: filepath.ToSlash(rel), What: "no JSON: " + syntaxOf(text)})
		}
	}
	return nil
}

func syntaxOf(text []byte) string {
	var any json.RawMessage
	err := json.NewDecoder(bytes.NewReader(text)).Decode(&any)
	if err == nil {
		return "something follows the document"
	}
	return err.Error()
}

// files goes through all that are listed, but for those whose name is none, which is told of the manifest.
func (v *Verifier) files(ctx context.Context, m storage.Manifest) error {
	var copied *storage.RewardSet // all rows are of it
	if m.Rescored != nil {
		copied = &m.Rescored.Set
	}
	for _, l := range []struct {
		folder string
		list   []storage.Part
		where  home
	}{{"parts", m.Parts, inParts}, {"failures", m.Failures, inFailures}} {
		for _, p := range l.list {
			if _, ok := numberIn(l.folder, p); !ok {
				v.unread = true
			} else if err := v.part(ctx, p, l.where, copied, nil); err != nil {
				return err
			}
		}
	}
	for _, s := range m.RewardSets {
		if err := v.set(ctx, m, s); err != nil {
			return err
		}
	}
	return nil
}

// set goes through the files of rescored rewards.
func (v *Verifier) set(ctx context.Context, m storage.Manifest, s storage.RewardSet) error {
	for _, p := range s.Parts {
		if _, ok := numberIn("rewards/"+s.Name, p); !ok {
			continue
		}
		own := slices.IndexFunc(m.Parts, func(o storage.Part) bool { return path.Base(o.Path) == path.Base(p.Path) })
		if own < 0 {
			v.find("reward-set", Place{File: p.Path, What: "there is no such file in parts"})
			continue
		}
		if err := v.part(ctx, p, inSet, &s, &m.Parts[own]); err != nil {
			return err
		}
	}
	return nil
}

// part verifies one file; set is that of its rewards, nil = they are the run's own; own is the one that a file of a set stands for. An error is that of the
// disk or of ctx.
func (v *Verifier) part(ctx context.Context, p storage.Part, where home, set *storage.RewardSet, own *storage.Part) error {
	v.report.Files++
	defer v.bytesDone.Add(p.Bytes)
	f, err := v.run.Inspect(p)
	if errors.Is(err, fs.ErrNotExist) {
		v.lost("file-missing", p, "there is no such file")
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", p.Path, err)
	}
	defer f.Close()
	v.report.Bytes += f.Bytes
	if f.Bytes != p.Bytes {
		v.lost("file-bytes", p, fmt.Sprintf("it has %d bytes, the manifest says %d", f.Bytes, p.Bytes))
		return nil
	}
	if !v.cfg.Quick {
		sum, err := f.SHA256(ctx)
		if err != nil {
			return err
		}
		if sum != p.SHA256 {
			v.find("file-sha256", Place{File: p.Path, What: fmt.Sprintf("its SHA-256 is %s, the manifest says %s", sum, p.SHA256)})
		}
	}
	if err := f.Footer(); err != nil {
		v.lost("file-footer", p, err.Error())
		return nil
	}
	difference := f.Schema()
	if len(difference.Wrong) > 0 {
		v.lost("file-schema", p, strings.Join(first(difference.Wrong, v.cfg.Places), "; "))
		return nil
	}
	if n := len(difference.Older); n > 0 {
		v.note("files of an older version, without columns that came later", Place{File: p.Path, What: "without " + strings.Join(difference.Older, ", ")})
	}
	groups := f.RowGroups()
	if n := total(groups); n != p.Rows || len(groups) != p.RowGroups {
		v.find("file-rows", Place{File: p.Path, What: fmt.Sprintf("it has %d rows in %d row groups, the manifest says %d in %d", n, len(groups), p.Rows, p.RowGroups)})
	}
	if v.cfg.Quick {
		if err := f.Lengths(); err != nil {
			v.find("token-lengths", Place{File: p.Path, What: err.Error()})
		}
		return nil
	}
	if err := v.partRows(ctx, f, p, groups, where, set, difference.Older); err != nil || own == nil {
		return err
	}
	return v.pair(ctx, f, p, *own)
}

func first(list []string, n int) []string {
	if len(list) <= n {
		return list
	}
	return append(slices.Clone(list[:n]), fmt.Sprintf("and %d more", len(list)-n))
}

func total(list []int64) (n int64) {
	for _, x := range list {
		n += x
	}
	return n
}

// lost enters a finding of a file whose rows cannot be read. One that the manifest does not list any more was replaced meanwhile, and is none.
func (v *Verifier) lost(check string, p storage.Part, what string) {
	v.unread = true
	if now, err := v.run.Manifest(); err == nil && !slices.ContainsFunc(slices.Concat(now.Parts, now.Failures, setParts(now)), func(o storage.Part) bool { return o.Path == p.Path && o.SHA256 == p.SHA256 }) {
		v.note("files that the run replaced while this was reading", Place{File: p.Path})
		return
	}
	v.find(check, Place{File: p.Path, What: what})
}

// partRows reads a file's rows.
func (v *Verifier) partRows(ctx context.Context, f *storage.PartFile, p storage.Part, groups []int64, where home, set *storage.RewardSet, older []string) error {
	ids := storage.Part{Path: p.Path}
	older = tops(older)
	n, group, left := int64(0), 0, int64(0)
	if len(groups) > 0 {
		left = groups[0]
	}
	var ofSet Total // one for the whole file
	if set != nil {
		ofSet = v.totalOfSet(set)
	}
	for r, err := range f.Rows() {
		if err != nil {
			v.undecoded(f, p, err)
			return nil
		}
		if n%64 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for left == 0 && group+1 < len(groups) {
			group++
			left = groups[group]
		}
		at := Place{File: p.Path, RowGroup: new(group), Row: new(n), Episode: r.EpisodeID}
		one := &row{Row: r, home: where, older: older, total: ofSet}
		if set == nil {
			one.total = v.totalOf(r)
		}
		v.look(one, at)
		if where != inSet {
			v.enter(one, at)
		}
		noteID(&ids, r.EpisodeID)
		n, left = n+1, left-1
	}
	v.books.endStretch(v)
	if ids.FirstEpisode != p.FirstEpisode || ids.LastEpisode != p.LastEpisode || ids.MinEpisode != p.MinEpisode || ids.MaxEpisode != p.MaxEpisode {
		v.find("file-ids", Place{File: p.Path, What: fmt.Sprintf("first, last, least and greatest are %.8s, %.8s, %.8s, %.8s; the manifest says %.8s, %.8s, %.8s, %.8s",
			ids.FirstEpisode, ids.LastEpisode, ids.MinEpisode, ids.MaxEpisode, p.FirstEpisode, p.LastEpisode, p.MinEpisode, p.MaxEpisode)})
	}
	return nil
}

// undecoded says why rows of a file cannot be read.
func (v *Verifier) undecoded(f *storage.PartFile, p storage.Part, err error) {
	v.books.endStretch(v)
	if page := f.BrokenPage(); page != nil {
		v.lost("file-pages", p, page.Error())
		return
	}
	v.lost("file-decode", p, err.Error())
}

// noteID keeps the first, last, least and greatest id in p.
func noteID(p *storage.Part, id string) {
	if p.Rows == 0 {
		p.FirstEpisode, p.MinEpisode = id, id
	}
	p.LastEpisode = id
	p.MinEpisode, p.MaxEpisode = min(p.MinEpisode, id), max(p.MaxEpisode, id)
	p.Rows++
}

// tops are the columns at the top of a row.
func tops(columns []string) (list []string) {
	for _, c := range columns {
		top, _, _ := strings.Cut(c, ".")
		if top == c || !slices.Contains([]string{"turns", "actions", "rewards"}, top) {
			list = append(list, top)
		}
	}
	return list
}
