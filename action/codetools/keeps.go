package codetools

import (
	"context"
	"errors"

	"tranche/action"
	"tranche/action/sandbox"
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
	digest, bytes, err := r.digest(ctx, mostClean)
	if err != nil {
		r.keeps.Store(true) // nobody can tell
		return
	}
	r.clean, r.cleanBytes = digest, bytes
}

// after looks whether a program of its own left anything: a process, or a file in the work folder or in /tmp. Once something was left it is not looked again.
func (t *interpreter) after(ctx context.Context, r *room, processes int) {
	if !r.keeps.Load() {
		r.keeps.Store(processes > 0 || r.changed(ctx))
	}
	r.unsure.Store(false)
}

// changed says whether the file tree is another than before the first program. A longer one is, and is read no further: what programs write is not
// for this process to hold.
func (r *room) changed(ctx context.Context) bool {
	digest, _, err := r.digest(ctx, r.cleanBytes)
	return err != nil || digest != r.clean
}

// mostClean is the largest tree that programs of their own are looked after in: nothing, or what the modules wrote when they were imported.
const mostClean = 16 << 20

func (r *room) digest(ctx context.Context, most int64) (digest string, bytes int64, err error) {
	d, ok := r.box.(sandbox.Digester)
	if !ok {
		return "", 0, errNoDigest
	}
	return d.Digest(ctx, most)
}

var errNoDigest = errors.New("this back end cannot tell file trees apart")
