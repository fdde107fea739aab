package codetools

import (
	"context"

	"tranche/action"
)

// What a sandbox holds of an episode decides whether the episode can be gone on with in another process. A session holds variables. A python call that is a
// program of its own (Config.Once) leaves files, or processes, or nothing: then the next call could as well be made in a new sandbox.

var _ = []action.Keeper{(*interpreter)(nil), (*readFile)(nil), (*writeFile)(nil)}

func (t *interpreter) Keeps(episode string) bool { return t.desk.keeps(episode) }
func (t *readFile) Keeps(episode string) bool    { return t.desk.keeps(episode) }
func (t *writeFile) Keeps(episode string) bool   { return t.desk.keeps(episode) }

// keeps says whether anything is left in the sandbox of an episode. What was never opened holds nothing.
func (d *Desk) keeps(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.rooms[id]
	return r != nil && (r.keeps.Load() || r.unsure.Load())
}

// before notes what a session is about to hold, and how the file tree is before the first program of its own. To be called in the room's turn, as after is.
func (t *interpreter) before(ctx context.Context, r *room) {
	if !t.once() {
		r.keeps.Store(true)
		return
	}
	r.unsure.Store(true) // until after: a call that was given up may still go on
	if r.clean != "" || r.keeps.Load() {
		return
	}
	s, err := r.box.Snapshot(ctx)
	if err != nil {
		r.keeps.Store(true) // nobody can tell
		return
	}
	r.clean = s.Digest
}

// after looks whether a program of its own left anything: a process, or a file in the work folder or in /tmp. Once something was left it is not looked again.
func (t *interpreter) after(ctx context.Context, r *room, processes int) {
	if !r.keeps.Load() {
		s, err := r.box.Snapshot(ctx)
		r.keeps.Store(processes > 0 || err != nil || s.Digest != r.clean)
	}
	r.unsure.Store(false)
}
