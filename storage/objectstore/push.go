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
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"tranche/storage"
)

// Errors of pushing and pulling that callers branch on.
var (
	// ErrOtherRun: the place holds another run, or another copy of this one that was gone on with.
	ErrOtherRun = errors.New("holds another run")
	// ErrAhead: the place holds a later state of this run.
	ErrAhead = errors.New("holds a later state of this run")
	// ErrStray: the place holds objects that belong to no run.
	ErrStray = errors.New("holds something else")
	// ErrOverlap: the place and the run directory are one folder, or one lies in the other.
	ErrOverlap = errors.New("expected two folders of which neither lies in the other")
	// ErrNoRun: the place holds no run.
	ErrNoRun = errors.New("holds no run")
)

const (
	checkKey    = ".tranche-check" // put and deleted again by Prepare
	publishLock = ".publish"       // in the run directory, held by the one process that pushes it
	manifestKey = storage.ManifestName
	runFileKey  = storage.RunFileName
)

// Push says what goes where. The zero value of every field but Dir and Store is its default.
type Push struct {
	// Dir is the run directory. Nothing in it is changed; a run that is going on may be pushed.
	Dir string
	// Store is where it goes.
	Store Store
	// Width is how many objects are on their way at once. Default 4.
	Width int
	// Compare asks the store for the checksum of every file with rows that it has already, one request each; one that differs is sent anew. Default: what has
	// the size that the manifest says is taken for whole.
	Compare bool
	// Every is how often a Follower looks for what is new. Default 1 s.
	Every time.Duration
	// Patience is how long Follower.Finish goes on trying since the last object went out. Default 1 min.
	Patience time.Duration
}

// Validate reports every fault at once.
func (c Push) Validate() error {
	var errs []error
	if c.Dir == "" || c.Store == nil {
		errs = append(errs, errors.New("objectstore: push: expected Dir and Store"))
	}
	if c.Width < 0 || c.Width > 256 {
		errs = append(errs, fmt.Errorf("objectstore: push: Width is %d: expected 0 (default) to 256", c.Width))
	}
	if c.Every < 0 || c.Patience < 0 {
		errs = append(errs, fmt.Errorf("objectstore: push: Every is %v, Patience %v: expected none below 0", c.Every, c.Patience))
	}
	return errors.Join(errs...)
}

func (c Push) withDefaults() Push {
	c.Width, c.Every, c.Patience = cmp.Or(c.Width, 4), cmp.Or(c.Every, time.Second), cmp.Or(c.Patience, time.Minute)
	return c
}

// Pushed is what came of it so far.
type Pushed struct {
	URL        string `json:"url"`
	Generation int64  `json:"generation"` // of the manifest in the store; 0 before there is one
	Rows       int64  `json:"rows"`       // that it lists
	Failures   int64  `json:"failure_rows"`
	Files      int    `json:"files"` // of the run, in the store
	Bytes      int64  `json:"bytes"`
	Sent       int    `json:"files_sent"`
	SentBytes  int64  `json:"bytes_sent"`
	Removed    int    `json:"files_removed"` // that the manifest lists no more
	Unremoved  int    `json:"files_not_removed,omitempty"`
	Of         int    `json:"-"` // files there are to be, as far as is known
	OfBytes    int64  `json:"-"`
}

// Pusher brings a run directory into a store, and keeps it up with the directory: every Pass sends what is new. One goroutine calls
// its methods; Progress may be called by any.
type Pusher struct {
	Push
	lock   io.Closer // nil where the directory was not there yet, or cannot be written
	looked bool
	have   map[string]int64  // objects of the store and their bytes
	same   map[string]string // objects that are known to be whole, and their sums
	remote remote
	tried  map[string]bool // sums of manifests that were put, or may have been
	moves  func()          // told while a file is summed up

	mu     sync.Mutex // guards result, and have and same while objects are on their way
	result Pushed
}

// remote is the manifest in the store.
type remote struct {
	there    bool
	version  string
	sum      string
	bytes    int64
	manifest storage.Manifest
}

// NewPusher asks no service anything yet. ErrOverlap.
func NewPusher(cfg Push) (*Pusher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := apart(cfg.Store, cfg.Dir); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Pusher{Push: cfg, same: map[string]string{}, tried: map[string]bool{}, moves: func() {}, result: Pushed{URL: cfg.Store.String()}}, nil
}

// Close lets another process push the directory.
func (p *Pusher) Close() error {
	if p.lock == nil {
		return nil
	}
	defer func() { p.lock = nil }()
	return p.lock.Close()
}

// Progress is how far it came.
func (p *Pusher) Progress() Pushed {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.result
}

func (p *Pusher) count(do func(r *Pushed)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do(&p.result)
}

// Prepare finds out whether the directory may go to the place, which includes writing there: an object that is deleted again. The
// directory need not be there yet; then the place must hold no run. Errors: those of the store, ErrOtherRun, ErrAhead, ErrStray,
// storage.ErrLocked.
func (p *Pusher) Prepare(ctx context.Context) error { return named(p.Store, p.prepare(ctx)) }

func (p *Pusher) prepare(ctx context.Context) error {
	if err := p.take(); err != nil {
		return err
	}
	if err := p.look(ctx); err != nil {
		return err
	}
	if err := p.checkWriting(ctx); err != nil {
		return err
	}
	m, text, err := storage.LoadManifest(p.Dir)
	switch {
	case errors.Is(err, storage.ErrNotRun) && !p.remote.there:
		return nil
	case errors.Is(err, storage.ErrNotRun):
		return p.says(ErrOtherRun)
	case err != nil:
		return err
	}
	return p.mayReplace(m, sumBytes(text))
}

// take holds the directory against another push from this machine.
func (p *Pusher) take() error {
	if p.lock != nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(p.Dir, manifestKey)); err != nil {
		return nil // a run that has not begun: its directory must stay as it is
	}
	f, err := os.OpenFile(filepath.Join(p.Dir, publishLock), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil // it cannot be written; the store has conditions of its own
	}
	if err := storage.LockFile(f); err != nil {
		return errors.Join(fmt.Errorf("%s is being pushed already: %w", p.Dir, err), f.Close())
	}
	p.lock = f
	return nil
}

// named puts the place before what a request to it said.
func named(s Store, err error) error {
	var e *Error
	if errors.As(err, &e) && !strings.HasPrefix(err.Error(), s.String()) {
		return fmt.Errorf("%s: %w", s, err)
	}
	return err
}

// says names the place with what it holds.
func (p *Pusher) says(err error) error { return fmt.Errorf("%s %w", p.Store, err) }

// checkWriting writes an object, and finds out whether the service holds conditions.
func (p *Pusher) checkWriting(ctx context.Context) error {
	put := func(text string, when Condition) error {
		b := []byte(text)
		_, err := p.Store.Put(ctx, checkKey, bytes.NewReader(b), int64(len(b)), sumBytes(b), when)
		return err
	}
	if err := put("tranche can write here\n", Condition{}); err != nil {
		return err
	}
	if b, ok := p.Store.(*bucket); ok { // the others all do
		err := put("tranche must not replace this\n", Condition{Version: strings.Repeat("0", 32)}) // nothing has that one
		var e *Error
		switch {
		case err == nil, errors.As(err, &e) && e.Status == http.StatusNotImplemented:
			b.loose.Store(true)
		case !errors.Is(err, ErrConflict) && !errors.Is(err, ErrNotFound): // whoever checks beside us may have deleted it
			return err
		}
	}
	if err := p.Store.Delete(ctx, checkKey); !errors.Is(err, ErrDenied) {
		return err
	}
	return nil
}

// look finds out what the place holds.
func (p *Pusher) look(ctx context.Context) error {
	list, err := p.Store.List(ctx)
	if err != nil {
		return err
	}
	p.have = map[string]int64{}
	for _, o := range list {
		p.have[o.Key] = o.Bytes
	}
	found, err := readRemote(ctx, p.Store)
	if err != nil && !errors.Is(err, ErrNoRun) {
		return err
	}
	if p.remote.there && found.sum != p.remote.sum && !p.tried[found.sum] {
		return fmt.Errorf("%s: %s was %w", p.Store, manifestKey, ErrConflict)
	}
	ours, err := p.sameRun(ctx)
	if err != nil {
		return err
	}
	if err := p.stray(found, ours); err != nil {
		return err
	}
	if found.there || ours {
		if err := p.Store.Sweep(ctx); err != nil {
			return err
		}
	}
	p.remote, p.same = found, map[string]string{}
	parts := slices.DeleteFunc(found.manifest.Published(), func(part storage.Part) bool { return p.have[part.Path] != part.Bytes })
	err = each(ctx, len(parts), p.Width, func(ctx context.Context, i int) error { return p.trust(ctx, parts[i]) })
	p.looked = err == nil
	return err
}

// trust takes an object of the right size for the file that the manifest lists, with Compare only where the store knows no other sum of it.
func (p *Pusher) trust(ctx context.Context, part storage.Part) error {
	if p.Compare {
		o, err := p.Store.Stat(ctx, part.Path)
		switch {
		case errors.Is(err, ErrNotFound): // gone since
			return nil
		case err != nil:
			return err
		case o.Bytes != part.Bytes, o.SHA256 != "" && o.SHA256 != part.SHA256:
			return nil
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.same[part.Path] = part.SHA256
	return nil
}

// readRemote reads the manifest of a store. ErrNoRun, storage.ErrDamaged.
func readRemote(ctx context.Context, s Store) (remote, error) {
	text, o, err := readObject(ctx, s, manifestKey)
	if errors.Is(err, ErrNotFound) {
		return remote{}, fmt.Errorf("%s %w: it has no %s", s, ErrNoRun, manifestKey)
	}
	if err != nil {
		return remote{}, err
	}
	m, err := storage.ParseManifest(s.String()+"/"+manifestKey, text)
	return remote{true, o.Version, sumBytes(text), int64(len(text)), m}, err
}

// mostText is what a manifest or a run.yaml may have, bytes.
const mostText = 1 << 30

// readings is how often an object is read that breaks off, or comes with other bytes.
const readings = 4

// reading has an object read, and again where that did not go well and may. Get makes its own request again; that is not done here once more.
func reading(ctx context.Context, s Store, key string, times int, read func(body io.Reader, o Object) error) error {
	t := triesOf(Config{}.withDefaults())
	t.attempts = times
	var refused error
	err := t.do(ctx, func() error {
		body, o, err := s.Get(ctx, key)
		if err != nil {
			refused = err
			return nil
		}
		defer body.Close()
		return read(body, o)
	})
	return cmp.Or(refused, err)
}

// readObject reads a whole small object.
func readObject(ctx context.Context, s Store, key string) (text []byte, about Object, err error) {
	err = reading(ctx, s, key, readings, func(body io.Reader, o Object) (err error) {
		text, err = io.ReadAll(io.LimitReader(body, mostText))
		if err == nil && int64(len(text)) != o.Bytes {
			err = io.ErrUnexpectedEOF
		}
		if about = o; err != nil {
			return noAnswer("get", key, err)
		}
		return nil
	})
	return text, about, err
}

// sameRun tells whether the run.yaml of the place is that of the directory; another one is ErrOtherRun.
func (p *Pusher) sameRun(ctx context.Context) (bool, error) {
	if _, there := p.have[runFileKey]; !there {
		return false, nil
	}
	theirs, _, err := readObject(ctx, p.Store, runFileKey)
	if err != nil {
		return false, err
	}
	ours, err := os.ReadFile(filepath.Join(p.Dir, runFileKey))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if !bytes.Equal(theirs, ours) {
		return false, p.says(ErrOtherRun)
	}
	return true, nil
}

// stray refuses a place without a manifest that holds what this directory has not. Everything else under it is taken for the run's own.
func (p *Pusher) stray(found remote, ours bool) error {
	if found.there || ours {
		return nil
	}
	m, _, err := storage.LoadManifest(p.Dir)
	if err != nil && !errors.Is(err, storage.ErrNotRun) {
		return err
	}
	listed := map[string]int64{checkKey: p.have[checkKey]}
	for _, part := range m.Published() {
		listed[part.Path] = part.Bytes
	}
	extras, err := storage.Extras(p.Dir)
	if err != nil {
		return err
	}
	for _, key := range extras {
		if listed[key], err = sizeOf(p.Dir, key); err != nil {
			return err
		}
	}
	for key, n := range p.have {
		if bytes, ok := listed[key]; !ok || bytes != n {
			return fmt.Errorf("%s %w: %q, and no %s; expected an empty place, or that of this run", p.Store, ErrStray, key, manifestKey)
		}
	}
	return nil
}

// sizeOf is that of a file of a directory; 0 where it has gone meanwhile.
func sizeOf(dir, key string) (int64, error) {
	info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(key)))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// mayReplace tells whether the directory's manifest follows the one in the store.
func (p *Pusher) mayReplace(m storage.Manifest, sum string) error {
	if !p.remote.there || p.remote.sum == sum {
		return nil
	}
	return follows(p.remote.manifest, m, p.says)
}

// kin tells datasets of rows from elsewhere apart, which have no run.yaml to do it; "" for a run.
func kin(m storage.Manifest) string {
	switch {
	case m.Made != nil:
		return m.Made.How + " " + m.Made.ID
	case m.Rescored != nil:
		return "rescore " + m.Rescored.Run + " " + m.Rescored.Set.Digest
	}
	return ""
}

// follows tells whether a manifest is a later state of the same run.
func follows(was, is storage.Manifest, says func(error) error) error {
	if kin(was) != kin(is) {
		return says(ErrOtherRun)
	}
	if was.Generation > is.Generation {
		return says(ErrAhead)
	}
	sums := map[string]string{}
	for _, part := range was.Published() {
		sums[part.Path] = part.SHA256
	}
	other := was.Generation == is.Generation
	for _, part := range is.Published() {
		was, both := sums[part.Path]
		other = other || both && was != part.SHA256
	}
	if other {
		return says(ErrOtherRun)
	}
	return nil
}

// errMoved: a file went while it was to be sent; the directory has another manifest by now.
var errMoved = errors.New("the run published anew meanwhile")

// Pass sends what the store lacks, the manifest last, and removes what it lists no more. The store's manifest lists whole objects
// only, at any moment. An error leaves all that was sent; the next Pass goes on.
func (p *Pusher) Pass(ctx context.Context) error { return named(p.Store, p.passes(ctx)) }

func (p *Pusher) passes(ctx context.Context) error {
	if err := p.take(); err != nil {
		return err
	}
	for {
		m, text, err := storage.LoadManifest(p.Dir)
		if err != nil {
			return err
		}
		err = p.pass(ctx, m, text)
		if !errors.Is(err, errMoved) {
			return err
		}
		if after, _, err := storage.LoadManifest(p.Dir); err == nil && after.Generation == m.Generation {
			return fmt.Errorf("%w: a file that the manifest of %s lists is missing", storage.ErrDamaged, p.Dir)
		}
	}
}

func (p *Pusher) pass(ctx context.Context, m storage.Manifest, text []byte) error {
	fresh := !p.looked
	if fresh {
		if err := p.look(ctx); err != nil {
			return err
		}
	}
	sum := sumBytes(text)
	if err := p.mayReplace(m, sum); err != nil {
		return err
	}
	if err := p.sendAll(ctx, m, int64(len(text))); err != nil {
		return p.unsure(err)
	}
	if err := p.putManifest(ctx, m, text, sum); err != nil {
		return p.unsure(err)
	}
	if err := p.remove(ctx, m); err != nil {
		return p.unsure(err)
	}
	if fresh {
		return p.verify(ctx)
	}
	return nil
}

// unsure makes the next pass look at the store anew: what a request that failed did is not known.
func (p *Pusher) unsure(err error) error {
	p.looked = false
	return err
}

// sendAll sends run.yaml, which says whose the place is, then everything else but the manifest.
func (p *Pusher) sendAll(ctx context.Context, m storage.Manifest, manifestBytes int64) error {
	extras, err := storage.Extras(p.Dir)
	if err != nil {
		return err
	}
	parts := m.Published()
	if err := p.plan(parts, extras, manifestBytes); err != nil {
		return err
	}
	if len(extras) > 0 && extras[0] == runFileKey {
		if err := p.sendExtra(ctx, runFileKey); err != nil {
			return err
		}
		extras = extras[1:]
	}
	err = each(ctx, len(parts), p.Width, func(ctx context.Context, i int) error { return p.sendPart(ctx, parts[i]) })
	if err != nil {
		return err
	}
	return each(ctx, len(extras), p.Width, func(ctx context.Context, i int) error { return p.sendExtra(ctx, extras[i]) })
}

// plan counts what there is to be; size is that of the manifest.
func (p *Pusher) plan(parts []storage.Part, extras []string, size int64) error {
	files := len(parts) + len(extras) + 1
	for _, part := range parts {
		size += part.Bytes
	}
	for _, key := range extras {
		n, err := sizeOf(p.Dir, key)
		if err != nil {
			return err
		}
		size += n
	}
	p.count(func(r *Pushed) { r.Files, r.Bytes, r.Of, r.OfBytes = 0, 0, files, size })
	return nil
}

// isSame tells whether the store is known to hold these bytes, and counts the file if so.
func (p *Pusher) isSame(key, sum string, size int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.same[key] != sum {
		return false
	}
	p.result.Files++
	p.result.Bytes += size
	return true
}

func (p *Pusher) settle(key, sum string, size int64, sent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.same[key], p.have[key] = sum, size
	p.result.Files++
	p.result.Bytes += size
	if sent {
		p.result.Sent++
		p.result.SentBytes += size
	}
}

// sendPart sends a file with rows unless the store has it. Files with rows never change, so none is put over another one that counts.
func (p *Pusher) sendPart(ctx context.Context, part storage.Part) error {
	if p.isSame(part.Path, part.SHA256, part.Bytes) {
		return nil
	}
	f, size, sum, err := p.open(part.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	if size != part.Bytes || sum != part.SHA256 {
		return fmt.Errorf("%w: %s is not the file that the manifest lists", storage.ErrDamaged, f.Name())
	}
	when, same, err := p.place(ctx, part.Path, size, sum)
	if err != nil {
		return err
	}
	if !same {
		if _, err = p.Store.Put(ctx, part.Path, f, size, sum, when); err != nil {
			return err
		}
	}
	p.settle(part.Path, sum, size, !same)
	return nil
}

// place looks what stands where a file is to go: nothing, the file already, or another one. That of a part is what a push that was killed
// left of a state that never came to count.
func (p *Pusher) place(ctx context.Context, key string, size int64, sum string) (when Condition, same bool, err error) {
	p.mu.Lock()
	_, there := p.have[key]
	p.mu.Unlock()
	if !there {
		return Condition{Absent: true}, false, nil
	}
	o, err := p.Store.Stat(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		return Condition{Absent: true}, false, nil
	case err != nil:
		return Condition{}, false, err
	}
	return Condition{Version: o.Version}, o.Bytes == size && o.SHA256 == sum, nil
}

// sendExtra sends a file that may change, as it is now.
func (p *Pusher) sendExtra(ctx context.Context, key string) error {
	f, size, sum, err := p.open(key)
	if errors.Is(err, errMoved) {
		return nil // whoever removed it does not want it
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if p.isSame(key, sum, size) {
		return nil
	}
	when, same, err := p.place(ctx, key, size, sum)
	if err != nil {
		return err
	}
	if !same {
		when.Absent = when.Absent && key == runFileKey // of the others the last one to come is right
		when.Version = ""
		if _, err = p.Store.Put(ctx, key, f, size, sum, when); err != nil {
			return err
		}
	}
	p.settle(key, sum, size, !same)
	return nil
}

// open opens a file of the directory and sums up what it holds at this moment. What is added to it later is not sent.
func (p *Pusher) open(key string) (f *os.File, size int64, sum string, err error) {
	f, err = os.Open(filepath.Join(p.Dir, filepath.FromSlash(key)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, "", fmt.Errorf("%w: %w", errMoved, err)
	}
	if err != nil {
		return nil, 0, "", err
	}
	info, err := f.Stat()
	if err == nil {
		size = info.Size()
		sum, err = sumOf(&movingBody{f, p.moves}, 0, size)
	}
	if err != nil {
		return nil, 0, "", errors.Join(err, f.Close())
	}
	return f, size, sum, nil
}

// putManifest replaces the manifest in the store, where it is still the one that was read.
func (p *Pusher) putManifest(ctx context.Context, m storage.Manifest, text []byte, sum string) error {
	if !p.remote.there || p.remote.sum != sum {
		when := Condition{Absent: !p.remote.there, Version: p.remote.version}
		p.tried[sum] = true
		o, err := p.Store.Put(ctx, manifestKey, bytes.NewReader(text), int64(len(text)), sum, when)
		if errors.Is(err, ErrConflict) {
			return fmt.Errorf("%s: %s was %w: another process pushes there", p.Store, manifestKey, ErrConflict)
		}
		if err != nil {
			return err
		}
		p.remote = remote{true, o.Version, sum, int64(len(text)), m}
		p.count(func(r *Pushed) { r.Sent++; r.SentBytes += int64(len(text)) })
	}
	p.count(func(r *Pushed) {
		r.Files++
		r.Bytes += int64(len(text))
		r.Generation, r.Rows, r.Failures = m.Generation, m.Rows, m.FailureRows
	})
	return nil
}

// remove deletes files with rows that the manifest lists no more. Where deleting is not allowed they stay; no reader trusts them.
func (p *Pusher) remove(ctx context.Context, m storage.Manifest) error {
	listed := map[string]bool{}
	for _, part := range m.Published() {
		listed[part.Path] = true
	}
	for key := range p.have {
		if listed[key] || !storage.IsPartPath(key) {
			continue
		}
		err := p.Store.Delete(ctx, key)
		if errors.Is(err, ErrDenied) {
			p.count(func(r *Pushed) { r.Unremoved++ })
		} else if err != nil {
			return err
		} else {
			p.count(func(r *Pushed) { r.Removed++ })
		}
		delete(p.have, key)
		delete(p.same, key)
	}
	return nil
}

// Verify asks the store whether everything that its manifest lists is there.
func (p *Pusher) Verify(ctx context.Context) error { return named(p.Store, p.verify(ctx)) }

func (p *Pusher) verify(ctx context.Context) error {
	list, err := p.Store.List(ctx)
	if err != nil {
		return p.unsure(err)
	}
	there := map[string]int64{}
	for _, o := range list {
		there[o.Key] = o.Bytes
	}
	for _, part := range p.remote.manifest.Published() {
		if n, ok := there[part.Path]; !ok || n != part.Bytes {
			return p.unsure(&Error{Op: "verify", Key: part.Path, Err: errors.New("it was put and is not there: does another process push to the same place?")})
		}
	}
	return nil
}

func sumBytes(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
