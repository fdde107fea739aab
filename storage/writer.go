package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/parquet-go/parquet-go"

	"tranche/episode"
)

// Writer writes one run directory. It is an episode.Sink; all methods may be called from many goroutines at once.
//
// Two goroutines belong to it: the committer owns the journal and makes rows durable, the sealer turns complete groups into
// parts. Close waits for both.
type Writer struct {
	cfg      Config
	fs       fileSystem
	lock     io.Closer
	recovery Recovery
	journal  *journal // the committer's, but for carry and drop, which the sealer calls
	turns    *turnLog // of episodes that have no row yet
	most     int      // bytes of a record

	queue     chan *entry        // Write to committer
	rotations chan chan snapshot // sealer to committer
	wake      chan struct{}      // committer to sealer: something changed; buffered, never blocks
	flushes   chan chan error    // Flush to sealer
	frames    sync.Pool          // *[]byte of rows that are durable
	stopSeal  chan struct{}      // closed by Close: seal what is complete and end
	stopLog   chan struct{}      // closed by Close after the sealer ended
	sealed    chan struct{}      // closed by the sealer when it ends
	committed chan struct{}      // closed by the committer when it ends

	closing   sync.Once
	closeErr  error
	inFlight  sync.WaitGroup         // Writes that passed admission
	options   []parquet.WriterOption // of every part
	published Manifest               // the sealer's; readers take mu
	compactor *compactor             // the sealer's

	uncompacted bool // the sealer's: a merge failed, and none is tried any more

	mu         sync.Mutex // guards everything below, and published against reading
	ledger     *ledger
	claimed    map[key]struct{} // keys on their way into the journal
	nextSeq    uint64
	segments   []*segment    // that hold rows which are not in parts, the active one excluded
	sealing    int64         // raw bytes being turned into parts
	firstReady time.Time     // when the oldest complete group became complete; zero = none
	seals      int           // so far, for the visibility schedule
	room       chan struct{} // closed and replaced when sealing made room or the writer broke
	compacted  Compacted     // so far
	broken     error         // the first write error; final
	closed     bool
}

// entry is one row on its way into the journal.
type entry struct {
	frame []byte
	rec   record
	dig   digest
	done  chan error // buffered, one answer
}

// Open creates the run directory or recovers it, and holds its lock until Close. Errors: ErrLocked, ErrNotRun, ErrDamaged,
// what Accept said, a failing disk.
func Open(cfg Config) (*Writer, error) { return openOn(disk{}, cfg) }

func openOn(fsys fileSystem, cfg Config) (*Writer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if err := prepareDir(fsys, cfg.Dir); err != nil {
		return nil, err
	}
	lock, err := fsys.Lock(filepath.Join(cfg.Dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("run directory %s: %w", cfg.Dir, err)
	}
	w := newWriter(fsys, cfg, lock)
	w.ledger.mark = cfg.MarkEqual
	if err := w.recover(); err != nil {
		w.closeSegments()
		w.turns.close()
		return nil, errors.Join(err, lock.Close())
	}
	go w.commitLoop()
	go w.sealLoop()
	return w, nil
}

func newWriter(fsys fileSystem, cfg Config, lock io.Closer) *Writer {
	options := partOptions()
	return &Writer{
		cfg: cfg, fs: fsys, lock: lock,
		journal: &journal{fs: fsys, dir: filepath.Join(cfg.Dir, journalDir)},
		turns:   &turnLog{off: true}, // until recover opens it
		most:    frameHead + maxPayload,
		queue:   make(chan *entry), rotations: make(chan chan snapshot), wake: make(chan struct{}, 1),
		flushes:  make(chan chan error),
		stopSeal: make(chan struct{}), stopLog: make(chan struct{}),
		sealed: make(chan struct{}), committed: make(chan struct{}),
		ledger: newLedger(), options: options, compactor: newCompactor(fsys, cfg.Dir, options, cfg.RowGroupBytes, cfg.PartBytes), claimed: map[key]struct{}{}, room: make(chan struct{}),
	}
}

// Write makes a closed episode durable. When it returns nil the episode survives kill -9 and loss of power. It waits for the
// next fsync (at most about Config.SyncInterval) and while publishing is too far behind; ctx ends only the second wait.
//
// An episode whose row is too large for a record of the journal fails of it, here and in e: all but its prompt is left out.
//
// Errors: ErrDone, ErrCancelled and an open episode are the caller's mistake and change nothing; a *episode.Fault with
// ClassDisk means that nothing more can be written; ErrClosed.
func (w *Writer) Write(ctx context.Context, e *episode.Episode) error {
	switch {
	case e.Status == episode.StatusCancelled && e.Stop != episode.StopQuorum:
		return fmt.Errorf("write episode %s: %w", e.ID, ErrCancelled)
	case e.Status == episode.StatusOpen:
		return fmt.Errorf("write episode %s: it has not ended", e.ID)
	}
	err := w.store(ctx, e)
	if errors.Is(err, errTooLarge) {
		leaveOut(e, err)
		err = w.store(ctx, e)
	}
	if err != nil {
		return fmt.Errorf("write episode %s: %w", e.ID, err)
	}
	return nil
}

// store encodes the episode from its own lists of tokens, while its owner waits.
func (w *Writer) store(ctx context.Context, e *episode.Episode) error {
	row, logprobs := rowBesideTokens(e), e.Tokens.Logprobs
	row.lendTokens(&e.Tokens)
	if err := row.checkWith(len(logprobs)); err != nil {
		return err
	}
	k := keyOf(row.EpisodeID)
	seq, err := w.admit(ctx, k)
	if err != nil {
		return err
	}
	defer w.inFlight.Done()
	defer w.unclaim(k)
	rec := recordOf(&row, seq)
	frame, err := appendFrame(w.emptyFrame(&row, rec.raw), frameRow, func(b []byte) ([]byte, error) {
		return appendRowWith(b, seq, k, &row, logprobs)
	})
	if err == nil && len(frame) > w.most {
		err = fmt.Errorf("a record of %d bytes: expected %d at most", len(frame), w.most)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errTooLarge, err)
	}
	ent := &entry{frame: frame, rec: rec, dig: digestOf(&row), done: make(chan error, 1)}
	ent.rec.bytes = int64(len(frame))
	w.queue <- ent
	err = <-ent.done
	w.frames.Put(&frame)
	return err
}

// emptyFrame is a buffer with room for about what a row's frame takes: names of columns beside its raw bytes, of which tokens need fewer.
func (w *Writer) emptyFrame(row *Row, raw int64) []byte {
	room := frameHead + 2048 + raw - 5*int64(len(row.TokenIDs))
	if used, ok := w.frames.Get().(*[]byte); ok && int64(cap(*used)) >= room {
		return (*used)[:0]
	}
	return make([]byte, 0, room)
}

// admit claims the key and waits for room. On success the caller owes inFlight a Done and the key an unclaim.
func (w *Writer) admit(ctx context.Context, k key) (seq uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if err := w.refusal(k); err != nil {
			return 0, err
		}
		if w.ledger.readyBytes+w.sealing < 2*w.cfg.PartBytes {
			break
		}
		if err := w.awaitRoom(ctx); err != nil {
			return 0, err
		}
	}
	w.claimed[k] = struct{}{}
	w.inFlight.Add(1)
	w.nextSeq++
	return w.nextSeq, nil
}

// awaitRoom gives mu up until something was published or broke.
func (w *Writer) awaitRoom(ctx context.Context) error {
	room := w.room
	w.mu.Unlock()
	defer w.mu.Lock()
	select {
	case <-room:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Writer) unclaim(k key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.claimed, k)
}

func (w *Writer) refusal(k key) error {
	_, claimed := w.claimed[k]
	switch {
	case w.closed:
		return ErrClosed
	case w.broken != nil:
		return w.broken
	case claimed || w.ledger.done(k):
		return ErrDone
	}
	return nil
}

// Done reports whether the episode is in the dataset, so that it must not be run again.
func (w *Writer) Done(episodeID string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.done(keyOf(episodeID))
}

// Good reports whether the episode is in the dataset with a good row.
func (w *Writer) Good(episodeID string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.good.has(keyOf(episodeID))
}

// Counts is a reading of what is where.
type Counts struct {
	Good      int64 // keys whose row is good
	Failed    int64 // keys whose row is a failure or was cut, those that may be retried included
	Retry     int64 // of Failed: not done, may be written once more
	Published int64 // rows in parts and failure files
	Journal   int64 // rows in the journal only
	Waiting   int64 // of Journal: their group is not complete
}

// Counts reads the counts of this moment.
func (w *Writer) Counts() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := Counts{Good: int64(w.ledger.good.len()), Failed: int64(w.ledger.failed.len()), Retry: int64(len(w.ledger.retry)),
		Published: w.published.Rows + w.published.FailureRows}
	for _, g := range w.ledger.ready {
		c.Journal += int64(len(g.records))
	}
	for _, g := range w.ledger.groups {
		if !g.ready {
			c.Journal += int64(len(g.records))
			c.Waiting += int64(len(g.records))
		}
	}
	return c
}

// Unpublished is about how much of the dataset is in the journal alone, bytes before encoding.
func (w *Writer) Unpublished() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.sealing + w.ledger.readyBytes
	for _, g := range w.ledger.groups {
		if !g.ready {
			n += g.bytes()
		}
	}
	return n
}

// Summary counts every row of the dataset, those of earlier processes included.
func (w *Writer) Summary() Summary {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.total()
}

// Manifest is what is published at this moment.
func (w *Writer) Manifest() Manifest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.published
}

// Recovery tells what Open found.
func (w *Writer) Recovery() Recovery { return w.recovery }

// WriteSummary replaces summary.json by what storage counts, under "dataset", and the caller's own facts about the run, under
// "run" (null for nil). Call it before Close.
func (w *Writer) WriteSummary(run any) error {
	return w.replaceJSON(summaryName, struct {
		Dataset Summary `json:"dataset"`
		Run     any     `json:"run"`
	}{w.Summary(), run})
}

// WriteAccount replaces account.json: what the caller keeps of the run beside its rows, across sessions. It may be called while rows
// are written, until Close.
func (w *Writer) WriteAccount(account any) error { return w.replaceJSON(accountName, account) }

func (w *Writer) replaceJSON(name string, v any) error {
	w.mu.Lock()
	closed := w.closed
	w.mu.Unlock()
	if closed {
		return fmt.Errorf("write %s: %w", name, ErrClosed)
	}
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return replaceFile(w.fs, filepath.Join(w.cfg.Dir, name), append(b, '\n'))
}

// Writing says whether a process is writing a run directory now, and which one ("" where it is not known).
func Writing(dir string) (process string, writing bool) {
	return lockHolder(filepath.Join(dir, lockName))
}

// ReadAccount reads what WriteAccount left in a run directory into account; false when there is none.
func ReadAccount(dir string, account any) (bool, error) { return readJSON(dir, accountName, account) }

func readJSON(dir, name string, v any) (bool, error) {
	path := filepath.Join(dir, name)
	b, err := readFile(disk{}, path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return true, nil
}

// Flush publishes every complete group now and returns when the manifest lists it.
func (w *Writer) Flush() error {
	reply := make(chan error, 1)
	select {
	case w.flushes <- reply:
		return <-reply
	case <-w.sealed:
		return fmt.Errorf("flush: %w", ErrClosed)
	}
}

// Close waits for Writes that have begun, publishes every complete group, leaves incomplete groups in the journal and gives the
// lock back. Later calls do nothing and return the same error. After a write error it publishes nothing: what was durable
// stays as it is, for the next Open.
func (w *Writer) Close() error {
	w.closing.Do(func() { w.closeErr = w.shutDown() })
	return w.closeErr
}

func (w *Writer) shutDown() error {
	w.mu.Lock()
	w.closed = true
	w.freeRoom() // a Write that waits for room finds the writer closed
	w.mu.Unlock()
	w.inFlight.Wait()
	close(w.stopSeal)
	<-w.sealed
	close(w.stopLog)
	<-w.committed
	w.mu.Lock()
	err := w.broken
	w.mu.Unlock()
	w.closeSegments()
	w.turns.close()
	if cerr := w.lock.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("release the lock of %s: %w", w.cfg.Dir, cerr)
	}
	return err
}

func (w *Writer) closeSegments() {
	for _, s := range w.segments {
		_ = s.file.Close() // read handles; what was written to them is synced
	}
	if s := w.journal.active; s != nil {
		_ = s.file.Close()
	}
}

// fail makes err the answer to every further Write. The first error stands.
func (w *Writer) fail(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == nil {
		w.broken = &episode.Fault{Stage: episode.StageStorage, Class: episode.ClassDisk, Cause: err}
	}
	w.freeRoom()
	return w.broken
}

// freeRoom wakes the Writes that wait for room. The caller holds mu.
func (w *Writer) freeRoom() {
	close(w.room)
	w.room = make(chan struct{})
}
