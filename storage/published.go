package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ManifestName is the file that says what is published.
const ManifestName = manifestName

// RunFileName is the file that says what a run is: two copies of one run have the same. Open replaces it where Config.RunFile says so.
const RunFileName = runFileName

// LoadManifest reads what is published in a run directory at this moment, and the bytes that say so. ErrNotRun, ErrDamaged.
func LoadManifest(dir string) (Manifest, []byte, error) { return readManifest(disk{}, dir) }

func readManifest(fsys fileSystem, dir string) (Manifest, []byte, error) {
	name := filepath.Join(dir, manifestName)
	b, err := readFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return Manifest{}, nil, fmt.Errorf("%s: %w: it has no %s", dir, ErrNotRun, manifestName)
	}
	if err != nil {
		return Manifest{}, nil, fmt.Errorf("read the manifest: %w", err)
	}
	m, err := ParseManifest(name, b)
	return m, b, err
}

// ParseManifest reads the text of a manifest; name is for messages. ErrDamaged.
func ParseManifest(name string, text []byte) (Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return Manifest{}, fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	}
	if m.SchemaVersion != SchemaVersion {
		return Manifest{}, fmt.Errorf("%s has schema version %d: this program reads version %d", name, m.SchemaVersion, SchemaVersion)
	}
	return m, nil
}

// Published is every file with rows that a manifest lists: parts, failures, and the parts of every set of rewards.
func (m Manifest) Published() []Part {
	all := m.files()
	for _, set := range m.RewardSets {
		all = append(all, set.Parts...)
	}
	return all
}

// IsPartPath tells whether a path relative to a run directory, with forward slashes, is one that a manifest may list.
func IsPartPath(name string) bool {
	if _, ok := partNumber(name); !ok {
		return false
	}
	switch folder := path.Dir(name); folder {
	case partsDir, failuresDir:
		return true
	default:
		set, ok := strings.CutPrefix(folder, rewardsDir+"/")
		return ok && isFileName(set)
	}
}

// isFileName tells whether a name that a person chose, of a set of rewards or a consumer, can be that of a file.
func isFileName(name string) bool {
	return name != "" && !strings.HasPrefix(name, ".") && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == ""
}

// IsExtra tells whether a path relative to a run directory, with forward slashes, is a file that belongs to a run beside its rows and
// its manifest.
func IsExtra(name string) bool {
	if !fs.ValidPath(name) {
		return false
	}
	if inner, ok := inSource(name); ok {
		return IsExtra(inner)
	}
	if slices.Contains([]string{runFileName, summaryName, accountName, DrawsName, TaskStatesName, StreamName}, name) {
		return true
	}
	return path.Dir(name) == endpointsDir && path.Ext(name) == ".json" && !strings.HasPrefix(path.Base(name), ".")
}

// inSource is the name in the folder of a source, sources/00000, of a file that lies in one.
func inSource(name string) (inner string, ok bool) {
	rest, ok := strings.CutPrefix(name, sourcesDir+"/")
	folder, inner, found := strings.Cut(rest, "/")
	return inner, ok && found && isSourceFolder(folder)
}

func isSourceFolder(name string) bool {
	n, err := strconv.Atoi(name)
	return err == nil && n >= 0 && filepath.Base(SourceFolder("", n)) == name
}

// Extras lists the files of a run directory that belong to the run beside its rows and its manifest, with forward slashes, run.yaml first; with those
// that the sources of a dataset left.
func Extras(dir string) ([]string, error) { return extras(disk{}, dir) }

func extras(fsys fileSystem, dir string) ([]string, error) {
	names := []string{runFileName}
	for _, folder := range []string{"", endpointsDir} {
		entries, err := fsys.ReadDir(filepath.Join(dir, folder))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look for the files of run %s: %w", dir, err)
		}
		for _, e := range entries {
			if name := path.Join(folder, e.Name()); e.Type().IsRegular() && IsExtra(name) && name != runFileName {
				names = append(names, name)
			}
		}
	}
	if _, err := fsys.Stat(filepath.Join(dir, runFileName)); errors.Is(err, fs.ErrNotExist) {
		names = names[1:]
	}
	more, err := sourceExtras(fsys, dir)
	return append(names, more...), err
}

// sourceExtras lists those that the sources of a dataset left.
func sourceExtras(fsys fileSystem, dir string) (names []string, err error) {
	entries, err := fsys.ReadDir(filepath.Join(dir, sourcesDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for the sources of dataset %s: %w", dir, err)
	}
	for _, e := range entries {
		if !e.IsDir() || !isSourceFolder(e.Name()) {
			continue
		}
		inner, err := extras(fsys, filepath.Join(dir, sourcesDir, e.Name()))
		if err != nil {
			return nil, err
		}
		for _, name := range inner {
			names = append(names, path.Join(sourcesDir, e.Name(), name))
		}
	}
	return names, nil
}

// MakeRunDir makes a run directory without a manifest, or takes one that is there; ErrNotRun when it holds something else.
func MakeRunDir(dir string) error { return prepareDir(disk{}, dir) }

// Lock takes a run directory for writing until it is closed; ErrLocked when another process has it.
func Lock(dir string) (io.Closer, error) {
	lock, err := lockFile(filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("run directory %s: %w", dir, err)
	}
	return lock, nil
}

// JournalRows counts the rows of a run that are in its journal only. The run may be written meanwhile.
func JournalRows(dir string) (n int64, err error) {
	err = steady(disk{}, dir, func(m Manifest) (err error) {
		n, err = inJournal(disk{}, dir, m)
		return err
	})
	return n, err
}

// steady has do look at what a manifest lists, and begins again with the next one where files went because the run published anew meanwhile.
func steady(fsys fileSystem, dir string, do func(Manifest) error) error {
	for {
		m, err := loadManifest(fsys, dir)
		if err != nil {
			return err
		}
		if err = do(m); !errors.Is(moved(fsys, dir, m, err), ErrMoved) {
			return err
		}
	}
}

// moved tells a file that is gone because the run published anew since that manifest, which is ErrMoved, from one that is missing. Other errors stay
// as they are.
func moved(fsys fileSystem, dir string, was Manifest, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if now, merr := loadManifest(fsys, dir); merr != nil || now.Generation == was.Generation {
		return errors.Join(err, merr)
	}
	return fmt.Errorf("%s: %w: files of it were replaced while they were read", dir, ErrMoved)
}

// inJournal counts the rows that are in no part and no failure file.
func inJournal(fsys fileSystem, dir string, m Manifest) (int64, error) {
	segments, err := openJournal(fsys, dir, m.FirstSegment)
	defer func() {
		for _, s := range segments {
			_ = s.file.Close()
		}
	}()
	if err != nil {
		return 0, err
	}
	rows, _, err := indexJournal(segments)
	return int64(len(rows)), err
}
