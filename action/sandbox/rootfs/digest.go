//go:build linux

package rootfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// digest returns the sha256 of what read writes of a path: the one that was remembered where nothing below the path has changed since.
func (c Config) digest(ctx context.Context, path string, read func(w io.Writer) error) (string, error) {
	began := time.Now()
	before, err := stampOf(ctx, path)
	if err != nil {
		return "", err
	}
	if digest, ok := c.recall(path, before); ok {
		return digest, nil
	}
	h := sha256.New()
	if err := read(untilDone{ctx, h}); err != nil {
		return "", err
	}
	after, err := stampOf(ctx, path)
	if err != nil {
		return "", err
	}
	if after.looks != before.looks {
		return "", fmt.Errorf("%s was changed while it was read", path)
	}
	digest := hex.EncodeToString(h.Sum(nil))
	if after.times == before.times && began.Sub(after.newest) > settled {
		c.remember(path, note{Stamp: after.times, Digest: digest})
	}
	return digest, nil
}

// settled is how old the last change of a tree must be for its digest to be remembered: another change within one tick of the file system's
// clock would go unseen.
const settled = 2 * time.Second

// stamp is what tells without reading whether a tree is what it was.
type stamp struct {
	looks  string    // of names, kinds, sizes and times of last writing
	times  string    // of these, and of the times of the last change, which no program can set
	newest time.Time // the last change of all
}

func stampOf(ctx context.Context, top string) (stamp, error) {
	looks, times, newest := sha256.New(), sha256.New(), time.Time{}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return firstOf(err, ctx.Err())
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		changed := time.Unix(st.Ctim.Unix())
		if changed.After(newest) {
			newest = changed
		}
		fmt.Fprintf(looks, "%q %d %d %d\n", path[len(top):], st.Ino, st.Size, info.ModTime().UnixNano())
		fmt.Fprintf(times, "%q %d %v %d\n", path[len(top):], st.Dev, info.Mode(), changed.UnixNano())
		return nil
	})
	look := looks.Sum(nil)
	return stamp{hex.EncodeToString(look), hex.EncodeToString(times.Sum(look)), newest}, err
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// note is a digest that was found, in the cache.
type note struct {
	Stamp  string `json:"stamp"`
	Digest string `json:"digest"`
}

// noteFile is where the note of a path lies.
func (c Config) noteFile(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(c.Cache, "note-"+hex.EncodeToString(sum[:])+".json")
}

func (c Config) recall(path string, now stamp) (string, bool) {
	var n note
	raw, err := os.ReadFile(c.noteFile(path))
	if err != nil || json.Unmarshal(raw, &n) != nil {
		return "", false // there is none, or it was half written
	}
	return n.Digest, n.Stamp == now.times
}

// remember writes a note. One that cannot be written costs the time to read the tree again, and nothing else.
func (c Config) remember(path string, n note) {
	raw, err := json.Marshal(n)
	if err != nil {
		return
	}
	f, err := os.CreateTemp(c.Cache, "note-*.tmp")
	if err != nil {
		return
	}
	_, err = f.Write(raw)
	if err = firstOf(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), c.noteFile(path))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
}

// untilDone writes until ctx is done.
type untilDone struct {
	ctx context.Context
	w   io.Writer
}

func (u untilDone) Write(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.w.Write(p)
}
