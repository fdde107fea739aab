package codetools

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tranche/action"
	"tranche/action/sandbox"
	"tranche/action/sandbox/session"
	"tranche/episode"
)

// Desk is what the code tools of a run share. Its methods may be called at once.
type Desk struct {
	cfg    Config
	open   func() (sandbox.Executor, error) // once
	runs   *budget
	memory *budget

	mu     sync.Mutex
	opened bool             // open was called; guarded by mu
	rooms  map[string]*room // by episode; guarded by mu
}

// room is one episode's sandbox and sessions.
type room struct {
	episode    string
	turn       chan struct{} // holds one token while a call of the episode goes on; guards what follows
	holds      bool          // its share of the memory
	box        sandbox.Sandbox
	sessions   map[session.Kind]*session.Session
	zygote     *session.Zygote   // of python calls that are programs of their own; nil = there was none yet
	going      bool              // a call goes on, so its processes may run
	held       bool              // they are stopped until the next call
	took       episode.Footprint // of the call's beginning
	touched    bool              // a call may have changed what is in the sandbox
	unbegun    error             // why the session of this call did not begin
	spent      error             // what could not be held, and so was ended with the sandbox: no call can go on in it
	clean      string            // digest of the file tree before the first call, where each call is a program of its own; "" = not known
	cleanBytes int64             // of the stream that has it

	keeps  atomic.Bool // a call left something that the next one finds
	unsure atomic.Bool // a call goes on that may
	over   bool        // the episode has ended, and whoever has the turn last clears it; guarded by the desk's mu
}

// New makes a Desk. open makes the back end; it is called once, at the first need, and Close closes what it made.
func New(open func() (sandbox.Executor, error), cfg Config) (*Desk, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	d := &Desk{cfg: cfg, runs: newBudget(int64(cfg.Runs)), memory: newBudget(cfg.Memory), rooms: map[string]*room{}}
	d.open = sync.OnceValues(func() (sandbox.Executor, error) {
		d.mu.Lock()
		d.opened = true
		d.mu.Unlock()
		return open()
	})
	return d, nil
}

// Tools returns the tools: python, bash, read_file, write_file.
func (d *Desk) Tools() []action.Tool {
	return []action.Tool{
		&interpreter{desk: d, kind: session.Python}, &interpreter{desk: d, kind: session.Bash}, &readFile{desk: d}, &writeFile{desk: d},
	}
}

// Check opens a sandbox and closes it again: what this host cannot do is known before the first episode.
func (d *Desk) Check(ctx context.Context) error {
	x, err := d.open()
	if err != nil {
		return err
	}
	box, err := x.Open(ctx, d.cfg.Spec)
	if err != nil {
		return err
	}
	return box.Close()
}

// Close closes the back end, with every sandbox that is open still. No call may be going on or come later.
func (d *Desk) Close() error {
	d.mu.Lock()
	opened := d.opened
	d.mu.Unlock()
	if !opened {
		return nil
	}
	x, err := d.open()
	if err != nil {
		return nil // said where it was needed
	}
	return x.Close()
}

// timeout is when a call that does not even end after its grace is given up.
func (d *Desk) timeout() time.Duration { return d.cfg.Wall + d.cfg.Grace + 2*time.Second }

// room returns an episode's room.
func (d *Desk) room(id string) *room {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.rooms[id]
	if r == nil {
		r = &room{episode: id, turn: make(chan struct{}, 1), sessions: map[session.Kind]*session.Session{}}
		d.rooms[id] = r
	}
	return r
}

// wait is the tools' Wait: for the episode's other calls and its share of the memory, then for what the call works in. A kind is that of the
// session that the call needs, "" = none: it needs no run token then. Nothing that can take long is left to the call itself, whose time counts;
// and no token is held while a sandbox waits for room, which those who have one may need tokens to give back.
func (d *Desk) wait(ctx context.Context, id string, kind session.Kind) (done func(), err error) {
	began := time.Now()
	r := d.room(id)
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	err = errors.New("the episode has ended")
	r.took = episode.Footprint{}
	if !d.ended(r) {
		err = d.prepare(ctx, r, kind)
	}
	if err != nil {
		d.leave(r)
		return nil, err
	}
	r.took.Queue = time.Since(began) - r.took.Setup
	return func() {
		if kind != "" {
			_, _ = r.hold() // Run has done so, but for one that never came to it; a sandbox that fails here fails the next call too (spent)
			d.runs.give(1)
		}
		d.leave(r)
	}, nil
}

// hold stops all that runs in the sandbox until the next call, which has a run token again, and counts what is there besides the interpreters.
// A back end that cannot do so at all leaves it going; one that fails is not left going without a run token: its sandbox is closed.
func (r *room) hold() (others int, err error) {
	pauser, ok := r.box.(sandbox.Pauser)
	if !ok || !r.going {
		return 0, nil
	}
	r.going, r.held = false, true
	others, err = pauser.Pause(context.Background()) // bounded by the back end; a call that is cancelled must not leave anything going
	if err != nil {
		r.spent = fmt.Errorf("the sandbox of the episode was closed: %w", err)
		err = errors.Join(r.spent, r.box.Close())
	}
	return others, err
}

// goOn lets what is held go on.
func (r *room) goOn(ctx context.Context) error {
	r.going = true
	if !r.held {
		return nil
	}
	r.held = false
	return r.box.(sandbox.Pauser).Resume(ctx)
}

// prepare has all of a room that a call needs, and a run token where it needs one; to be called in the room's turn.
func (d *Desk) prepare(ctx context.Context, r *room, kind session.Kind) error {
	if r.spent != nil {
		return r.spent
	}
	if !r.holds {
		if err := d.memory.take(ctx, d.cfg.share()); err != nil {
			return err
		}
		r.holds = true
	}
	err := r.timed(func() error { return d.openBox(ctx, r) })
	if err != nil || kind == "" {
		return err
	}
	if err := d.runs.take(ctx, 1); err != nil {
		return err
	}
	err = r.timed(func() error {
		if err := r.goOn(ctx); err != nil {
			return err
		}
		return d.begin(ctx, r, kind)
	})
	if err != nil {
		_, _ = r.hold() // the first error says more
		d.runs.give(1)
	}
	return err
}

// timed counts what a step takes as set-up.
func (r *room) timed(step func() error) error {
	began := time.Now()
	defer func() { r.took.Setup += time.Since(began) }()
	return step()
}

// leave ends a room's turn.
func (d *Desk) leave(r *room) {
	<-r.turn
	d.late(r)
}

func (d *Desk) ended(r *room) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return r.over
}

// late clears a room whose episode ended while a call of it went on.
func (d *Desk) late(r *room) {
	if !d.ended(r) {
		return
	}
	select {
	case r.turn <- struct{}{}:
		_ = d.clear(r) // nobody is left to be told
		<-r.turn
	default: // who holds it clears it
	}
}

// openBox opens the sandbox of a room where it is not open.
func (d *Desk) openBox(ctx context.Context, r *room) error {
	if r.box != nil {
		return nil
	}
	x, err := d.open()
	if err != nil {
		return err
	}
	box, err := x.Open(ctx, d.cfg.Spec)
	if err != nil {
		return fmt.Errorf("open the sandbox of the episode: %w", err)
	}
	r.box = box
	return nil
}

// startPatience is how long an interpreter may take until it takes calls, its modules imported, on a host that is busy.
const startPatience = 2 * time.Minute

// begin begins a session of a room where none is. What earlier calls of the episode may have caused is kept for the call to tell (unbegun);
// an error is the executor's.
func (d *Desk) begin(ctx context.Context, r *room, kind session.Kind) error {
	r.unbegun = nil
	s, err := d.starter(r, kind)
	if err != nil {
		return err
	}
	timed, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	err = s.Start(timed)
	if ctx.Err() != nil || err == nil {
		return err
	}
	if !r.touched {
		return fmt.Errorf("begin the %s session of the episode: %w", kind, err)
	}
	var start *session.StartError
	switch {
	case errors.As(err, &start) && start.Status != sandbox.StatusNotFound:
		r.unbegun = action.Reject("the %s session could not begin (%s): %s", kind, start.Status, start.Said)
	case errors.Is(err, context.DeadlineExceeded):
		r.unbegun = action.Reject("the %s session could not begin: it was not ready after %s", kind, startPatience)
	default:
		return err
	}
	return nil
}

// starter is what a call needs to have begun: a session, or the zygote that its program is forked off.
func (d *Desk) starter(r *room, kind session.Kind) (interface{ Start(context.Context) error }, error) {
	opt := session.Options{Kind: kind, Keep: d.cfg.Keep, Grace: d.cfg.Grace}
	if kind == session.Python {
		opt.Modules = d.cfg.Modules
	}
	if d.cfg.Once && kind == session.Python {
		if r.zygote == nil {
			r.zygote = session.NewZygote(r.box, opt)
		}
		return r.zygote, nil
	}
	if s := r.sessions[kind]; s != nil {
		return s, nil
	}
	s, err := session.New(r.box, opt)
	if err == nil {
		r.sessions[kind] = s
	}
	return s, err
}

// end lets go of what an episode has. Every tool is told of the end; the first to be told does it.
func (d *Desk) end(ctx context.Context, id string) error {
	d.mu.Lock()
	r := d.rooms[id]
	told := r == nil || r.over
	if !told {
		r.over = true
	}
	d.mu.Unlock()
	if told {
		return nil
	}
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return errors.New("a call of the episode goes on; its sandbox is closed when that ends")
	}
	err := d.clear(r)
	<-r.turn
	return err
}

// clear closes a room's sandbox, gives its memory back and forgets the room; to be called in the room's turn.
func (d *Desk) clear(r *room) error {
	var errs []error
	for kind, s := range r.sessions {
		errs = append(errs, s.Close())
		delete(r.sessions, kind)
	}
	if r.zygote != nil {
		errs = append(errs, r.zygote.Close())
	}
	if r.box != nil {
		errs = append(errs, r.box.Close())
		r.box = nil
	}
	if r.holds {
		r.holds = false
		d.memory.give(d.cfg.share())
	}
	d.mu.Lock()
	delete(d.rooms, r.episode)
	d.mu.Unlock()
	return errors.Join(errs...)
}

// tier is what holds the limits, for the record.
func (d *Desk) tier() string {
	x, err := d.open()
	if err != nil {
		return ""
	}
	return x.Capabilities().HeldBy()
}
