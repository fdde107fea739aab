//go:build linux

package tree

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tranche/action/sandbox"
)

// Root is one folder of a snapshot, under the name that it has in the tar stream, such as "w".
type Root struct {
	Name string // one path element
	Dir  *os.File
}

// Left counts what a tar stream leaves out.
type Left struct {
	Devices, FIFOs, Sockets int
}

const (
	tarBlock = 512          // bytes of a header, and what contents are filled up to
	tarLeast = 2 * tarBlock // bytes that end a stream
	mostTar  = 1 << 20      // entries of one stream
)

// Tar writes folders as one stream: regular files, folders and symbolic links, sorted, with permission bits and without times and
// owners, so that equal trees give equal bytes. Hard links become files of their own. A stream of more than maxBytes is a
// *sandbox.TooLargeError. A file that shrinks meanwhile is filled up with zeros, as long as its header said.
func Tar(w io.Writer, maxBytes int64, roots ...Root) (Left, error) {
	return pack(w, maxBytes, false, roots)
}

// TarWithTimes is Tar with the times that files were last written at: python's compiled modules go by them.
func TarWithTimes(w io.Writer, maxBytes int64, roots ...Root) (Left, error) {
	return pack(w, maxBytes, true, roots)
}

func pack(w io.Writer, maxBytes int64, times bool, roots []Root) (Left, error) {
	p := packer{out: &limited{w: w, limit: maxBytes, left: maxBytes}, times: times}
	p.tar = tar.NewWriter(p.out)
	for _, r := range roots {
		if err := p.add(r); err != nil {
			return p.left, err
		}
	}
	return p.left, p.tar.Close()
}

// Snapshot is Tar in memory.
func Snapshot(maxBytes int64, roots ...Root) (*sandbox.Snapshot, Left, error) {
	var b bytes.Buffer
	left, err := Tar(&b, maxBytes, roots...)
	if err != nil {
		return nil, left, err
	}
	sum := sha256.Sum256(b.Bytes())
	return &sandbox.Snapshot{Tar: b.Bytes(), Digest: hex.EncodeToString(sum[:])}, left, nil
}

// Digest is that of a Snapshot, and the bytes of its stream, none of which is kept.
func Digest(maxBytes int64, roots ...Root) (digest string, bytes int64, err error) {
	sum := counted{Hash: sha256.New()}
	if _, err := Tar(&sum, maxBytes, roots...); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(sum.Sum(nil)), sum.bytes, nil
}

// counted is a hash that knows how much it was given.
type counted struct {
	hash.Hash
	bytes int64
}

func (c *counted) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	return c.Hash.Write(p)
}

// packer writes one stream.
type packer struct {
	out   *limited
	tar   *tar.Writer
	left  Left
	times bool // those of files are told
}

func (p *packer) add(r Root) (err error) {
	w := &walker{dir: r.Dir, room: int(min(mostTar, p.out.limit/tarBlock))} // each takes a block, and memory until it is written
	defer func() { err = errors.Join(err, w.close()) }()
	return w.walk(func(e Entry) error {
		h := &tar.Header{Name: r.Name + "/" + e.Path, Mode: int64(e.Mode.Perm()), Format: tar.FormatPAX}
		switch e.Mode.Type() {
		case 0:
			return p.file(w, h, e)
		case fs.ModeDir:
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
			return p.tar.WriteHeader(h)
		case fs.ModeSymlink:
			return p.link(w, h, e)
		}
		p.leave(e.Mode)
		return nil
	})
}

func (p *packer) leave(mode fs.FileMode) {
	switch mode.Type() {
	case fs.ModeNamedPipe:
		p.left.FIFOs++
	case fs.ModeSocket:
		p.left.Sockets++
	default:
		p.left.Devices++
	}
}

func (p *packer) file(w *walker, h *tar.Header, e Entry) error {
	f, err := w.open(e.Path, readFlags)
	if gone(err) {
		return nil
	}
	if err != nil {
		return explain(e.Path, err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return explain(e.Path, err)
	}
	if now := entry(e.Path, &st); !now.Mode.IsRegular() {
		p.leave(now.Mode)
		return nil
	}
	if st.Size > p.out.left {
		return &sandbox.TooLargeError{Path: e.Path, Size: st.Size, Limit: p.out.limit}
	}
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	if p.times {
		h.ModTime = time.Unix(st.Mtim.Unix()).Truncate(time.Second)
	}
	if err := p.tar.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(p.tar, io.LimitReader(f, st.Size))
	if err != nil {
		return err
	}
	_, err = io.CopyN(p.tar, zeros{}, st.Size-n)
	return err
}

func (p *packer) link(w *walker, h *tar.Header, e Entry) error {
	parent, err := w.parent(e.Path)
	if gone(err) {
		return nil
	}
	if err != nil {
		return explain(e.Path, err)
	}
	defer parent.Close()
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(parent.Fd()), path.Base(e.Path), target)
	if gone(err) || errors.Is(err, unix.EINVAL) { // no link any more
		return nil
	}
	if err != nil {
		return explain(e.Path, err)
	}
	h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, string(target[:n]), 0o777
	return p.tar.WriteHeader(h)
}

// gone reports that a name is not what it was when its folder was listed.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO)
}

// zeros is an endless file of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// limited refuses to write more than a number of bytes.
type limited struct {
	w           io.Writer
	limit, left int64
}

func (l *limited) Write(p []byte) (int, error) {
	if int64(len(p)) > l.left {
		return 0, &sandbox.TooLargeError{Path: "the snapshot", Size: l.limit - l.left + int64(len(p)), Limit: l.limit}
	}
	l.left -= int64(len(p))
	return l.w.Write(p)
}

// Untar makes what a stream holds in the folders of its roots, which should be empty: a name that is there already is a
// *sandbox.PathError. The stream may be of anybody: names and links in it lead nowhere else. Contents of more than maxBytes are a
// *sandbox.TooLargeError; what came before it has been made.
func Untar(r io.Reader, maxBytes int64, roots ...Root) error {
	u := unpacker{tar: tar.NewReader(r), roots: roots, left: maxBytes, limit: maxBytes}
	for {
		h, err := u.tar.Next()
		if err == io.EOF {
			return u.setModes()
		}
		if err != nil {
			return err
		}
		if err := u.entry(h); err != nil {
			return err
		}
	}
}

// unpacker reads one stream.
type unpacker struct {
	tar         *tar.Reader
	roots       []Root
	limit, left int64
	folders     []madeFolder
}

// madeFolder is a folder that gets its bits when all that it holds is there.
type madeFolder struct {
	root *os.File
	name string
	mode uint32
}

func (u *unpacker) entry(h *tar.Header) error {
	first, rest, _ := strings.Cut(strings.TrimSuffix(h.Name, "/"), "/")
	i := slices.IndexFunc(u.roots, func(r Root) bool { return r.Name == first })
	if i < 0 {
		return &sandbox.EscapeError{Path: h.Name}
	}
	if rest == "" && h.Typeflag == tar.TypeDir {
		return nil // the top itself
	}
	name, err := clean(rest)
	if err != nil {
		return err
	}
	if u.left -= tarBlock + h.Size; u.left < 0 {
		return &sandbox.TooLargeError{Path: h.Name, Size: u.limit - u.left, Limit: u.limit}
	}
	if err := u.make(u.roots[i].Dir, name, h); err != nil {
		return explain(h.Name, err)
	}
	return nil
}

func (u *unpacker) make(root *os.File, name string, h *tar.Header) error {
	if name == "." {
		return unix.EISDIR
	}
	parent, err := openParents(root, path.Dir(name))
	if err != nil {
		return err
	}
	defer parent.Close()
	base, mode := path.Base(name), uint32(h.Mode&0o777)
	switch h.Typeflag {
	case tar.TypeReg:
		return u.file(parent, base, mode)
	case tar.TypeDir:
		f, err := openFolder(int(parent.Fd()), base, 0o700)
		if err != nil {
			return err
		}
		u.folders = append(u.folders, madeFolder{root, name, mode})
		return f.Close()
	case tar.TypeSymlink:
		return unix.Symlinkat(h.Linkname, int(parent.Fd()), base)
	}
	return &sandbox.PathError{Path: h.Name, Why: "is no file, folder or symbolic link"}
}

func (u *unpacker) file(parent *os.File, name string, mode uint32) error {
	f, err := openBelow(int(parent.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, u.tar)
	return errors.Join(err, f.Chmod(fs.FileMode(mode)), f.Close())
}

// setModes gives folders their bits, inner ones first: some keep their owner out.
func (u *unpacker) setModes() error {
	for _, f := range slices.Backward(u.folders) {
		d, err := openBelow(int(f.root.Fd()), f.name, dirFlags, 0)
		if err == nil {
			err = errors.Join(d.Chmod(fs.FileMode(f.mode)), d.Close())
		}
		if err != nil {
			return explain(f.name, err)
		}
	}
	return nil
}
