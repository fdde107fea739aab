package codegrade

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// mostTree is how large a tree may be, bytes.
const mostTree = 256 << 20

// readTree reads an archive: regular files, without .git. A tree with links, or with files that lead out of it, is refused.
func readTree(name string) (files, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var r io.Reader = f
	if ext := filepath.Ext(name); ext == ".gz" || ext == ".tgz" {
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		defer z.Close()
		r = z
	}
	return untar(io.LimitReader(r, mostTree))
}

func untar(r io.Reader) (files, error) {
	out := files{}
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(path.Clean(h.Name), "./")
		switch h.Typeflag {
		case tar.TypeReg:
		case tar.TypeDir, tar.TypeXGlobalHeader:
			continue
		default:
			return nil, fmt.Errorf("%q is no regular file", h.Name)
		}
		if !local(name) {
			return nil, fmt.Errorf("%q leads out of the tree", h.Name)
		}
		text, err := io.ReadAll(t)
		if err != nil {
			return nil, err
		}
		out[name] = string(text)
	}
}

// tree is a task's files as they were before anybody changed them, without git's history.
func (o RepoOptions) tree(r row) (files, error) {
	raw, ok := r.column(or(o.Tree, "tree")...)
	if !ok {
		return nil, missing("no column %s with a file tree", or(o.Tree, "tree")[0])
	}
	var out files
	var name string
	switch {
	case json.Unmarshal(raw, &name) == nil:
		if o.Root == "" || !local(name) {
			return nil, bad("the tree %q is a file's name, and repo.root names no folder with such files, or it leads out of that", name)
		}
		var err error
		if out, err = readTree(filepath.Join(o.Root, name)); err != nil {
			return nil, bad("the tree: %v", err)
		}
	case json.Unmarshal(raw, &out) != nil:
		return nil, bad("the tree is no map of paths to texts and no file's name")
	}
	for _, name := range sortedKeys(out) {
		if !local(name) {
			return nil, bad("the tree: %q leads out of it", name)
		}
		if inFolder(name, ".git") {
			delete(out, name)
		}
	}
	return out, nil
}

func inFolder(name, folder string) bool { return name == folder || strings.HasPrefix(name, folder+"/") }

// guard says which files an answer may not change: the tests, what steers them, and what Python runs unasked.
type guard struct {
	tests map[string]bool // put in place by the task
	more  []string        // patterns of the settings
	pure  files
}

// touch is what a change of a protected file is.
type touch string

const (
	allowed touch = ""
	dropped touch = "dropped"  // a test of the answer's own: it does not count, and is no offence
	tamper  touch = "tampered" // somebody's tests were changed, or a hook was laid
)

// judge says what a change of a file is.
func (g guard) judge(name string) touch {
	base := path.Base(name)
	switch {
	case g.tests[name], hook(name, base), slices.ContainsFunc(g.more, func(p string) bool { ok, _ := path.Match(p, name); return ok || inFolder(name, p) }):
		return tamper
	case isTest(name, base):
		if _, there := g.pure[name]; there {
			return tamper
		}
		return dropped
	case g.shadows(name):
		return tamper
	}
	return allowed
}

// hook tells whether test runners, git or Python load a file without being asked.
func hook(name, base string) bool {
	switch base {
	case "conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", "noxfile.py", ".coveragerc", "sitecustomize.py", "usercustomize.py", "pyvenv.cfg":
		return true
	}
	ext := path.Ext(base)
	return ext == ".pth" || ext == ".pyc" || ext == ".so" || ext == ".egg-link" || inFolder(name, ".git") || strings.Contains(name, "__pycache__/") || strings.Contains(name, "site-packages/")
}

func isTest(name, base string) bool {
	if strings.HasPrefix(base, "test_") || strings.HasSuffix(strings.TrimSuffix(base, ".py"), "_test") {
		return true
	}
	for _, folder := range strings.Split(path.Dir(name), "/") {
		if folder == "tests" || folder == "test" {
			return true
		}
	}
	return false
}

// shadows tells whether a new file would be imported in the place of what the tests run on.
func (g guard) shadows(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	module := strings.TrimSuffix(first, ".py")
	for have := range g.pure {
		if f, _, _ := strings.Cut(have, "/"); strings.TrimSuffix(f, ".py") == module {
			return false // it is the repository's own
		}
	}
	return slices.Contains(strings.Fields(shadowed), module)
}

// shadowed are the modules that tests run on and that a file beside them would replace.
const shadowed = `pytest _pytest pluggy iniconfig unittest doctest nose hypothesis coverage mock py builtins sys os io re json ast inspect types typing
importlib functools itertools operator collections contextlib copy math random string time datetime traceback warnings weakref abc enum dataclasses
decimal fractions numbers pathlib shutil tempfile subprocess threading multiprocessing asyncio logging argparse textwrap pprint difflib signal socket
struct hashlib pickle linecache tokenize codecs encodings site atexit gc platform locale select queue heapq bisect numpy`
