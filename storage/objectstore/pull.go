package objectstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"

	"tranche/storage"
)

// Pull says what is to be fetched. The zero value of every field but Store and Dir is its default.
type Pull struct {
	// Store is where the run is.
	Store Store
	// Dir is the run directory it becomes: a new or empty one, one that an earlier pull began, or an earlier state of the same run
	// without rows of its own.
	Dir string
	// Width is how many objects are on their way at once. Default 4.
	Width int
	// Attempts is how often an object is fetched that breaks off or comes with other bytes. Default 4.
	Attempts int
}

// Validate reports every fault at once.
func (c Pull) Validate() error {
	var errs []error
	if c.Dir == "" || c.Store == nil {
		errs = append(errs, errors.New("objectstore: pull: expected Dir and Store"))
	}
	if c.Width < 0 || c.Width > 256 || c.Attempts < 0 {
		errs = append(errs, fmt.Errorf("objectstore: pull: Width is %d, Attempts %d: expected 0 (default) to 256, and 0 or more", c.Width, c.Attempts))
	}
	return errors.Join(errs...)
}

// Pulled is what came of it so far.
type Pulled struct {
	URL          string `json:"url"`
	Dir          string `json:"dir"`
	Generation   int64  `json:"generation"` // of the manifest
	Rows         int64  `json:"rows"`
	Failures     int64  `json:"failure_rows"`
	Files        int    `json:"files"` // that are there and whole
	Bytes        int64  `json:"bytes"`
	Fetched      int    `json:"files_fetched"`
	FetchedBytes int64  `json:"bytes_fetched"`
	Of           int    `json:"-"`
	OfBytes      int64  `json:"-"`
}

// Puller brings a run from a store into a directory. One goroutine calls its methods; Progress may be called by any.
type Puller struct {
	Pull
	begun  bool       // the directory was looked at, and is this pull's since
	same   bool       // the directory has the manifest of the store
	mu     sync.Mutex // guards result
	result Pulled
}

// NewPuller asks no service anything yet. ErrOverlap.
func NewPuller(cfg Pull) (*Puller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := apart(cfg.Store, cfg.Dir); err != nil {
		return nil, err
	}
	cfg.Width, cfg.Attempts = cmp.Or(cfg.Width, 4), cmp.Or(cfg.Attempts, readings)
	return &Puller{Pull: cfg, result: Pulled{URL: cfg.Store.String(), Dir: cfg.Dir}}, nil
}

// Progress is how far it came.
func (p *Puller) Progress() Pulled {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.result
}

// Run fetches everything, compares it with the manifest, and writes the manifest last: until then the directory is no run. What is
// there already is not fetched again. Errors: those of the store, ErrNoRun, ErrOtherRun, ErrAhead, storage.ErrLocked,
// storage.ErrNotRun, storage.ErrDamaged.
func (p *Puller) Run(ctx context.Context) error { return named(p.Store, p.run(ctx)) }

func (p *Puller) run(ctx context.Context) error {
	found, err := readRemote(ctx, p.Store) // before anything is made: there may be nothing
	if err != nil {
		return err
	}
	if err := storage.MakeRunDir(p.Dir); err != nil {
		return err
	}
	lock, err := storage.Lock(p.Dir)
	if err != nil {
		return err
	}
	return errors.Join(p.all(ctx, found), lock.Close())
}

// all fetches the state that the store has now. A publisher may replace it meanwhile and remove what was listed: then again.
func (p *Puller) all(ctx context.Context, found remote) error {
	for {
		err := p.state(ctx, found)
		if !errors.Is(err, ErrNotFound) && !errors.Is(err, storage.ErrDamaged) {
			return err
		}
		after, rerr := readRemote(ctx, p.Store)
		if rerr != nil {
			return errors.Join(err, rerr)
		}
		if after.sum == found.sum {
			return fmt.Errorf("%s: %w: %w", p.Store, storage.ErrDamaged, err)
		}
		found = after
	}
}

func (p *Puller) state(ctx context.Context, found remote) error {
	if err := p.before(ctx, found); err != nil {
		return err
	}
	p.begun = true
	parts, extras, err := p.plan(ctx, found)
	if err != nil {
		return err
	}
	if len(extras) > 0 && extras[0].Key == runFileKey { // it says whose the directory is from now on
		if err := p.extra(ctx, extras[0]); err != nil {
			return err
		}
		extras = extras[1:]
	}
	err = each(ctx, len(parts), p.Width, func(ctx context.Context, i int) error { return p.part(ctx, parts[i]) })
	if err == nil {
		err = each(ctx, len(extras), p.Width, func(ctx context.Context, i int) error { return p.extra(ctx, extras[i]) })
	}
	if err != nil {
		return err
	}
	text, o, err := readObject(ctx, p.Store, manifestKey)
	if err != nil {
		return err
	}
	if sum := sumBytes(text); sum != found.sum {
		return fmt.Errorf("%s: %w", manifestKey, ErrNotFound) // a later one; its files are other ones
	}
	err = storage.PublishFile(p.path(manifestKey), true, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}, func(string) error { return nil })
	if err != nil {
		return err
	}
	p.settle(o.Bytes, true)
	p.mu.Lock()
	p.result.Generation, p.result.Rows, p.result.Failures = found.manifest.Generation, found.manifest.Rows, found.manifest.FailureRows
	p.mu.Unlock()
	return p.drop(found.manifest)
}

// before looks at the directory: what it holds must be an earlier state of the same run, without rows that nobody else has.
func (p *Puller) before(ctx context.Context, found remote) error {
	says := func(err error) error { return fmt.Errorf("%s %w", p.Dir, err) }
	ours, err := os.ReadFile(filepath.Join(p.Dir, runFileKey))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	theirs, _, err := readObject(ctx, p.Store, runFileKey)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if len(ours) > 0 && !bytes.Equal(ours, theirs) {
		return says(ErrOtherRun)
	}
	p.same = false
	m, text, err := storage.LoadManifest(p.Dir)
	switch {
	case errors.Is(err, storage.ErrNotRun):
		if len(ours) > 0 || p.begun { // a pull of this run began
			return nil
		}
		return p.unclaimed(found.manifest, len(theirs) > 0)
	case err != nil:
		return err
	}
	if sumBytes(text) == found.sum {
		p.same = true
		return nil
	}
	if err := follows(m, found.manifest, says); err != nil {
		return err
	}
	switch rows, err := storage.JournalRows(p.Dir); {
	case err != nil:
		return err
	case rows > 0:
		return fmt.Errorf("%s has %d rows in its journal that the store has not: it %w than %s", p.Dir, rows, ErrAhead, p.Store)
	}
	return nil
}

// unclaimed refuses a directory with neither a manifest nor run.yaml that has files with rows. Where the store has no run.yaml either, a pull that was killed
// left none, and may have left files that are listed.
func (p *Puller) unclaimed(listed storage.Manifest, claims bool) error {
	may := map[string]int64{}
	if !claims {
		for _, part := range listed.Published() {
			may[part.Path] = part.Bytes
		}
	}
	here := os.DirFS(p.Dir) // a pattern with the path in it would take [ for a class
	for _, pattern := range []string{"parts/*.parquet", "failures/*.parquet", "rewards/*/*.parquet"} {
		files, err := fs.Glob(here, pattern)
		if err != nil {
			return err
		}
		for _, name := range files {
			info, err := fs.Stat(here, name)
			if err != nil {
				return err
			}
			if size, ok := may[name]; !ok || size != info.Size() {
				return fmt.Errorf("%s %w: %s, and no %s; expected a new or an empty directory", p.Dir, ErrStray, p.path(name), manifestKey)
			}
		}
	}
	return nil
}

// plan lists what is to be there. Names come from the store and are not trusted: only those that a run has are taken.
func (p *Puller) plan(ctx context.Context, found remote) (parts []storage.Part, extras []Object, err error) {
	parts = found.manifest.Published()
	size := found.bytes
	for _, part := range parts {
		if !storage.IsPartPath(part.Path) {
			return nil, nil, fmt.Errorf("%w: %s lists %q, which is no name of a part", errWrongName, manifestKey, part.Path)
		}
		size += part.Bytes
	}
	list, err := p.Store.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range list {
		if storage.IsExtra(o.Key) {
			extras = append(extras, o)
			size += o.Bytes
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortStableFunc(extras, func(a, b Object) int { return cmp.Compare(order(a.Key), order(b.Key)) })
	p.result.Files, p.result.Bytes, p.result.Of, p.result.OfBytes = 0, 0, len(parts)+len(extras)+1, size
	return parts, extras, nil
}

// order puts run.yaml before all else.
func order(key string) int {
	if key == runFileKey {
		return 0
	}
	return 1
}

// errWrongName: a manifest that no program of ours wrote.
var errWrongName = errors.New("the manifest in the store is not one of this program")

func (p *Puller) settle(size int64, fetched bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.Files++
	p.result.Bytes += size
	if fetched {
		p.result.Fetched++
		p.result.FetchedBytes += size
	}
}

func (p *Puller) path(key string) string { return filepath.Join(p.Dir, filepath.FromSlash(key)) }

// part fetches a file with rows, unless it is there as the manifest says.
func (p *Puller) part(ctx context.Context, part storage.Part) error {
	if f, err := os.Open(p.path(part.Path)); err == nil {
		sum, err := sumOf(f, 0, part.Bytes)
		info, serr := f.Stat()
		if errors.Join(f.Close(), err, serr) == nil && info.Size() == part.Bytes && sum == part.SHA256 {
			p.settle(part.Bytes, false)
			return nil
		}
	}
	return p.fetch(ctx, part.Path, part.Bytes, part.SHA256)
}

// extra fetches a file that may change; where the store knows its sum, it is compared. What is here of the same state stays, and so does a log that has
// more lines here: they were written since it was pushed.
func (p *Puller) extra(ctx context.Context, o Object) error {
	if here, err := os.Stat(p.path(o.Key)); err == nil && (p.same || path.Ext(o.Key) == ".jsonl" && here.Size() > o.Bytes) {
		p.settle(here.Size(), false)
		return nil
	}
	err := p.fetch(ctx, o.Key, -1, "")
	if errors.Is(err, ErrNotFound) {
		return nil // removed since
	}
	return err
}

// fetch writes an object to a file of its own name when it is whole: size and sum are what it must have, -1 and "" = what the store
// says of it.
func (p *Puller) fetch(ctx context.Context, key string, size int64, sum string) error {
	return reading(ctx, p.Store, key, p.Attempts, func(body io.Reader, o Object) error {
		if size < 0 {
			return p.write(body, key, o.Bytes, o.SHA256)
		}
		return p.write(body, key, size, sum)
	})
}

func (p *Puller) write(body io.Reader, key string, size int64, sum string) error {
	name := p.path(key)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	in, h, n := &source{r: body}, sha256.New(), int64(0)
	err := storage.PublishFile(name, true, func(w io.Writer) (err error) {
		n, err = io.Copy(io.MultiWriter(w, h), in)
		return err
	}, func(string) error {
		if got := hex.EncodeToString(h.Sum(nil)); n != size || sum != "" && got != sum {
			// Other bytes may be those of a connection that broke off quietly: they are fetched again like any failure.
			return &Error{Op: "get", Key: key, Err: fmt.Errorf("%w: %d bytes with the SHA-256 %.12s came; expected %d with %.12s", storage.ErrDamaged, n, got, size, sum)}
		}
		return nil
	})
	if in.err != nil { // the disk has done nothing wrong
		return noAnswer("get", key, in.err)
	}
	if err == nil {
		p.settle(n, true)
	}
	return err
}

// source keeps the error of a reader.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// drop removes files with rows that the manifest does not list, whoever left them: this pull, one that was killed, or a publisher that
// compacted meanwhile; and what was being written when a pull was killed. A reader that goes by a glob would take rows twice.
func (p *Puller) drop(now storage.Manifest) error {
	listed := map[string]bool{}
	for _, part := range now.Published() {
		listed[part.Path] = true
	}
	folders := []string{"", "parts", "failures", "endpoints"}
	sets, err := os.ReadDir(p.path("rewards")) // of names that no set has, none is a part
	for _, set := range sets {
		folders = append(folders, path.Join("rewards", set.Name()))
	}
	for i := 0; i < len(folders) && (err == nil || errors.Is(err, fs.ErrNotExist)); i++ {
		err = p.dropIn(folders[i], listed)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what is published no more: %w", err)
	}
	return nil
}

func (p *Puller) dropIn(folder string, listed map[string]bool) error {
	info, err := os.Stat(p.path(folder))
	if err != nil || !info.IsDir() {
		return err
	}
	entries, err := os.ReadDir(p.path(folder))
	if err != nil {
		return err
	}
	for _, e := range entries {
		key := path.Join(folder, e.Name())
		if e.IsDir() || listed[key] || !storage.IsPartPath(key) && !half(key) {
			continue
		}
		if err := os.Remove(p.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// half tells whether a file is one that storage.PublishFile was writing for a run.
func half(key string) bool {
	folder, base := path.Split(key)
	name, ok := storage.HalfPublished(base)
	key = folder + name
	return ok && (storage.IsPartPath(key) || storage.IsExtra(key) || key == manifestKey)
}
