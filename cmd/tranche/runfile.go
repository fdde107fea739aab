package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"
)

// runFile is run.yaml: what the run is, so that resume can tell whether it would be the same run. Every value is written as
// JSON after its key, which is YAML too, and exact for any text.
type runFile struct {
	RunID       string
	Digest      string // sha256 over the result keys and the tasks digest, hex
	TasksDigest string // sha256 over the content of the task files, hex
	TasksCount  int64
	Created     time.Time
	Version     string // version of this program
	Go          string
	Settings    Settings
	Embedded    bool  // the embedded engine answered
	Episodes    int64 // of the whole run; 0 = not known when it began
}

const runFileName = "run.yaml"

// tasksContent is what the digest of the tasks is called among the settings.
const tasksContent = "tasks (content)"

// identity lists what decides the results, key by key, in JSON. Two runs with equal identities store the same keys.
func identity(s *Settings, tasksDigest string, models []string) map[string]string {
	id := map[string]string{tasksContent: tasksDigest}
	for _, k := range keys() {
		if k.scope == scopeResult {
			id[k.name] = string(encode(plain(s, k)))
		}
	}
	models = slices.Compact(slices.Sorted(slices.Values(models)))
	id["model"] = string(encode(strings.Join(models, ", ")))
	if s.drawn() == s.Samples { // nothing is over-provisioned: the same as before there was such a key
		delete(id, "oversample")
	}
	identifyTools(s, id)
	identifyRewards(s, id)
	identifySampler(s, id)
	if len(s.Endpoint) > 0 { // nobody asks the embedded engine
		delete(id, "engine-seed")
		delete(id, "engine-solve-rate")
	} else {
		id["engine"] = `"embedded"`
	}
	bodies := []string{}
	for _, e := range s.Endpoint {
		bodies = append(bodies, string(encode(e.ExtraBody.canonical())))
	}
	if bodies = slices.Compact(slices.Sorted(slices.Values(bodies))); len(bodies) > 1 || len(bodies) == 1 && bodies[0] != "null" {
		id["endpoint: extra-body"] = strings.Join(bodies, " ")
	}
	return id
}

// plain returns a key's value in the one form that digests and comparisons use: no list and an empty list are the same.
func plain(s *Settings, k key) any {
	v := s.field(k)
	if v.Kind() == reflect.Slice && v.Len() == 0 {
		return []string{}
	}
	if o, ok := v.Interface().(Object); ok {
		if len(o) == 0 {
			return nil
		}
		return o.canonical()
	}
	return written(v)
}

// digestOf is the sha256 of an identity, in hex.
func digestOf(identity map[string]string) string {
	h := sha256.New()
	h.Write([]byte("tranche run 1\n"))
	for _, name := range slices.Sorted(mapKeys(identity)) {
		fmt.Fprintf(h, "%q %q\n", name, identity[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

func mapKeys[V any](m map[string]V) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// runIDOf is the run's id: 16 hex digits of the digest.
func runIDOf(digest string) string { return digest[:16] }

// change is one result key that differs from what the run was started with.
type change struct{ name, was, is string }

// changes compares two identities.
func changes(was, is map[string]string) []change {
	var list []change
	all := map[string]bool{}
	for k := range was {
		all[k] = true
	}
	for k := range is {
		all[k] = true
	}
	for _, name := range slices.Sorted(mapKeys(all)) {
		if was[name] != is[name] {
			list = append(list, change{name, orNone(was[name]), orNone(is[name])})
		}
	}
	return list
}

func orNone(s string) string {
	if s == "" || s == "null" || s == "[]" || s == `""` {
		return "(none)"
	}
	return short(s, 120)
}

// refuseChanges is the error for a run that would not be the same run any more.
func refuseChanges(dir string, list []change) error {
	if len(list) == 0 {
		return nil
	}
	f := &faults{}
	f.add("%s: refused: this run was started with other settings, and these would change its results:", dir)
	for _, c := range list {
		f.add("  %s: was %s, now %s", c.name, c.was, c.is)
	}
	f.add("%s", wayOn(dir, list))
	return withCode(codeRefused, f.err())
}

// wayOn is what can be done about changed settings. Where the tasks alone are others, what was typed is no matter.
func wayOn(dir string, list []change) string {
	if len(list) == 1 && list[0].name == tasksContent {
		return "put the tasks back as they were and resume, or play those there are now as a run of their own (-o NEWDIR); `tranche merge` makes one dataset of two runs"
	}
	return fmt.Sprintf("start a new run with -o DIR, or go on unchanged with: tranche resume %s", dir)
}

// refuseEdited is the error for a file that no longer says what the run was started with. Comparing the settings themselves is
// not enough: an edited file would be compared with itself.
func (r *runFile) refuseEdited(dir, program string) error {
	digest := digestOf(identity(&r.Settings, r.TasksDigest, modelsOf(&r.Settings)))
	if digest == r.Digest && r.RunID == runIDOf(digest) {
		return nil
	}
	path := filepath.Join(dir, runFileName)
	f := &faults{}
	f.add("%s: refused: %s was edited: what it says now is not what run %s was started with (its digest is %s, the settings give %s)",
		dir, runFileName, r.RunID, short(r.Digest, 16), short(digest, 16))
	if now := versionText(); r.Version != now {
		f.add("  (or it is of another version: %s wrote it, this is %s)", r.Version, now)
	}
	f.add("restore %s as it was written, or start a new run with the new settings: %s run -c %s -o NEWDIR", path, program, quoted(path))
	return withCode(codeRefused, f.err())
}

// versionText is the version as run.yaml states it.
func versionText() string {
	v := buildVersion()
	return v.Version + " " + v.Commit
}

// bytes writes the file.
func (r *runFile) bytes() []byte {
	var b strings.Builder
	line := func(indent, name string, v any) { fmt.Fprintf(&b, "%s%s: %s\n", indent, name, encode(v)) }
	b.WriteString("# What this run is, written once by tranche. `tranche resume` checks against it; `tranche run -c` on this file starts the same run anew.\n")
	line("", "run-id", r.RunID)
	line("", "digest", r.Digest)
	line("", "tasks-sha256", r.TasksDigest)
	line("", "tasks-count", r.TasksCount)
	line("", "created", r.Created.UTC().Format(time.RFC3339))
	line("", "tranche", r.Version)
	line("", "go", r.Go)
	line("", "embedded-engine", r.Embedded)
	line("", "episodes", r.Episodes)
	b.WriteString("settings:\n")
	for _, k := range keys() {
		if v := r.Settings.field(k); k.scope != scopeSession && !unset(v) {
			line("  ", k.name, written(v))
		}
	}
	return []byte(b.String())
}

// unset tells values that YAML should not show: absent is what they mean.
func unset(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return v.IsNil() || v.Kind() != reflect.Pointer && v.Len() == 0
	case reflect.String:
		return v.Len() == 0
	}
	return false
}

// written is the value as the YAML reader takes it: times with their unit.
func written(v reflect.Value) any {
	if d, ok := v.Interface().(time.Duration); ok {
		return d.String()
	}
	return v.Interface()
}

// readRunFile reads dir/run.yaml. ok is false when there is none: no run lives there.
func readRunFile(dir string) (r *runFile, ok bool, err error) {
	path := filepath.Join(dir, runFileName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, withCode(codeDisk, fmt.Errorf("read the run's settings: %w", err))
	}
	r = &runFile{}
	if err := r.parse(path, text); err != nil {
		return nil, false, withCode(codeRefused, err)
	}
	return r, true, nil
}

func (r *runFile) parse(path string, text []byte) error {
	if r.Settings = defaults(); len(text) == 0 {
		return fmt.Errorf("%s: is empty: the run was stopped before it began; remove the folder", path)
	}
	if _, err := readSettings(path, &r.Settings, nil); err != nil {
		return err
	}
	head := map[string]any{
		"run-id": &r.RunID, "digest": &r.Digest, "tasks-sha256": &r.TasksDigest, "tasks-count": &r.TasksCount,
		"created": &r.Created, "tranche": &r.Version, "go": &r.Go, "embedded-engine": &r.Embedded, "episodes": &r.Episodes,
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		into, known := head[name]
		if !known {
			continue
		}
		if err := json.Unmarshal([]byte(value), into); err != nil {
			return fmt.Errorf("%s: %s: %w", path, name, err)
		}
	}
	if r.RunID == "" || r.Digest == "" {
		return fmt.Errorf("%s: holds no run-id and digest: it is not the file tranche wrote", path)
	}
	return nil
}
