package codetools

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tranche/action"
	"tranche/action/sandbox"
	"tranche/action/sandbox/session"
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
	turn     chan struct{} // holds one token while a call of the episode goes on; guards what follows
	holds    bool          // its share of the memory
	box      sandbox.Sandbox
	sessions map[session.Kind]*session.Session

	over bool // the episode has ended; guarded by the desk's mu
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
func (d *Desk) room(episode string) *room {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.rooms[episode]
	if r == nil {
		r = &room{turn: make(chan struct{}, 1), sessions: map[session.Kind]*session.Session{}}
		d.rooms[episode] = r
	}
	return r
}

// wait is the tools' Wait: for the episode's other calls, for its share of the memory, and for a run token where tokens is 1.
func (d *Desk) wait(ctx context.Context, episode string, tokens int64) (done func(), err error) {
	r := d.room(episode)
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !r.holds {
		if err := d.memory.take(ctx, d.cfg.share()); err != nil {
			<-r.turn
			return nil, err
		}
		r.holds = true
	}
	if err := d.runs.take(ctx, tokens); err != nil {
		<-r.turn
		return nil, err
	}
	return func() {
		d.runs.give(tokens)
		<-r.turn
		d.late(r)
	}, nil
}

// late clears a room whose episode ended while a call of it went on.
func (d *Desk) late(r *room) {
	d.mu.Lock()
	over := r.over
	d.mu.Unlock()
	if !over {
		return
	}
	select {
	case r.turn <- struct{}{}:
		_ = d.clear(r) // nobody is left to be told
		<-r.turn
	default: // who holds it clears it
	}
}

// box returns the sandbox of a room, opened where it is not; to be called in the room's turn.
func (d *Desk) box(ctx context.Context, r *room) (sandbox.Sandbox, error) {
	if r.box != nil {
		return r.box, nil
	}
	x, err := d.open()
	if err != nil {
		return nil, err
	}
	box, err := x.Open(ctx, d.cfg.Spec)
	if err != nil {
		return nil, fmt.Errorf("open the sandbox of the episode: %w", err)
	}
	r.box = box
	return box, nil
}

// session returns a session of a room, begun where it is not.
func (d *Desk) session(ctx context.Context, r *room, kind session.Kind) (*session.Session, error) {
	if s := r.sessions[kind]; s != nil {
		return s, nil
	}
	box, err := d.box(ctx, r)
	if err != nil {
		return nil, err
	}
	opt := session.Options{Kind: kind, Keep: d.cfg.Keep, Grace: d.cfg.Grace}
	if kind == session.Python {
		opt.Modules = d.cfg.Modules
	}
	s, err := session.New(box, opt)
	if err != nil {
		return nil, err
	}
	r.sessions[kind] = s
	return s, nil
}

// end lets go of what an episode has. Every tool is told of the end; the first to be told does it.
func (d *Desk) end(ctx context.Context, episode string) error {
	d.mu.Lock()
	r := d.rooms[episode]
	delete(d.rooms, episode)
	if r != nil {
		r.over = true
	}
	d.mu.Unlock()
	if r == nil {
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

// clear closes a room's sandbox and gives its memory back; to be called in the room's turn.
func (d *Desk) clear(r *room) error {
	var errs []error
	for kind, s := range r.sessions {
		errs = append(errs, s.Close())
		delete(r.sessions, kind)
	}
	if r.box != nil {
		errs = append(errs, r.box.Close())
		r.box = nil
	}
	if r.holds {
		r.holds = false
		d.memory.give(d.cfg.share())
	}
	return errors.Join(errs...)
}

// tier is what holds the limits, for the record.
func (d *Desk) tier() string {
	x, err := d.open()
	if err != nil {
		return ""
	}
	return string(x.Capabilities().Tier)
}
