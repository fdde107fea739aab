package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"

	"tranche/action/codetools"
	"tranche/action/sandbox"
)

// SandboxSpec is where the code tools of a run work. Zero fields take the defaults.
type SandboxSpec struct {
	Backend  string `json:"backend,omitempty"` // ns, landlock, bwrap, docker, http or plain; "" = ns
	Memory   Bytes  `json:"memory,omitempty"`  // of all processes and files of one sandbox
	Pids     int    `json:"pids,omitempty"`
	Disk     Bytes  `json:"disk,omitempty"`      // of the work folder, and as much again of /tmp
	FileSize Bytes  `json:"file-size,omitempty"` // of one file
	Net      bool   `json:"net,omitempty"`       // the host's network
	Rootfs   string `json:"rootfs,omitempty"`    // folder or tar file seen as /; "" = the host's /usr
	// RootfsDigest is of what is in it, or the id of the image of the back end docker. The run puts in what it found, and refuses another.
	RootfsDigest string   `json:"rootfs-digest,omitempty"`
	Require      []string `json:"require,omitzero"`  // promises that must be enforced
	Modules      []string `json:"modules,omitzero"`  // imported before the first python call
	Python       string   `json:"python,omitempty"`  // session or once; "" = session
	CPU          Span     `json:"cpu,omitempty"`     // of one call
	Grace        Span     `json:"grace,omitempty"`   // for an interrupted call to end
	Options      Headers  `json:"options,omitempty"` // of the back end: backendOptions

	MaxMemory Bytes `json:"max-memory,omitempty"` // of all open sandboxes together
	MaxRuns   int   `json:"max-runs,omitempty"`   // calls that run at once

	TrustEveryModel bool `json:"trust-every-model-with-everything-i-have,omitempty"` // plain runs nothing without it
}

// What a call of the tool python is.
const (
	pythonSession = "session" // a part of a session, which has what earlier calls made
	pythonOnce    = "once"    // a program of its own, forked off a process that has the modules
)

func (s *SandboxSpec) readYAML(y *yamlFile, name string, n ast.Node) {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		*s = SandboxSpec{}
		y.fields(name, n, fieldsOf(s))
	default:
		y.expected(n, name, "a map {backend, memory, pids, …}")
	}
}

// backend is the name of the back end.
func (s SandboxSpec) backend() string { return cmp.Or(s.Backend, backendNS) }

// check reports every fault under its key.
func (s SandboxSpec) check(f *faults) {
	for _, err := range checkBackendOptions(s.backend(), s.Options) {
		f.add("sandbox: %v", err)
	}
	if b := s.backend(); b == backendPlain && !s.TrustEveryModel {
		f.add("sandbox: backend: plain runs what a model wrote on this machine, as you, with all you have; " +
			"if that is meant, say so: trust-every-model-with-everything-i-have: true")
	}
	if s.TrustEveryModel && s.backend() != backendPlain {
		f.add("sandbox: trust-every-model-with-everything-i-have: is for the backend plain; %s trusts nobody", s.backend())
	}
	for _, name := range s.Require {
		if !slices.Contains(sandbox.Promises(), sandbox.Promise(name)) {
			f.add("sandbox: require: expected some of %v, found %q", sandbox.Promises(), name)
		}
	}
	if s.Python != "" && s.Python != pythonSession && s.Python != pythonOnce {
		f.add("sandbox: python: expected %s or %s, found %q", pythonSession, pythonOnce, s.Python)
	}
	if s.Rootfs != "" && !showsRootfs(s.backend()) {
		f.add("sandbox: rootfs: the back end %s cannot show a program another root file system", s.backend())
	}
	if s.RootfsDigest != "" && s.Rootfs == "" && s.backend() != backendDocker { // whose image is one
		f.add("sandbox: rootfs-digest: has no meaning without rootfs")
	}
	if _, err := readDigest(s.RootfsDigest); s.RootfsDigest != "" && err != nil {
		f.add("sandbox: rootfs-digest: %w", err)
	}
	f.at("sandbox", limitFaults(s.spec().Limits, ""))
	if s.MaxRuns < 0 {
		f.add("sandbox: max-runs: expected 1 or more, or 0 for the default, found %d", s.MaxRuns)
	}
	for name, v := range map[string]Span{"cpu": s.CPU, "grace": s.Grace} {
		if v < 0 {
			f.add("sandbox: %s: expected a time over 0, found %s", name, time.Duration(v))
		}
	}
	if one := cmp.Or(s.Memory, Bytes(sandbox.DefaultLimits().Memory)); s.MaxMemory > 0 && one > s.MaxMemory {
		f.add("sandbox: max-memory: expected at least the %s of one sandbox, found %s", one, s.MaxMemory)
	}
}

// spec is a sandbox of it.
func (s SandboxSpec) spec() sandbox.Spec {
	spec := sandbox.Spec{
		Rootfs: absolutePath(s.Rootfs), Net: s.Net, Trusted: s.TrustEveryModel,
		Limits: sandbox.Limits{Memory: int64(s.Memory), Pids: s.Pids, Disk: int64(s.Disk), FileSize: int64(s.FileSize)},
	}
	for _, name := range s.Require {
		spec.Require = append(spec.Require, sandbox.Promise(name))
	}
	return spec
}

// cutMarker is about what the line is long that stands in the place of output that was cut.
const cutMarker = 64

// config is what the code tools are made of.
func (s SandboxSpec) config(set *Settings) codetools.Config {
	cfg := codetools.Config{
		Spec: s.spec(), Wall: set.ActionTimeout, CPU: time.Duration(s.CPU), Grace: time.Duration(s.Grace), Runs: s.MaxRuns, Memory: int64(s.MaxMemory),
		Once: s.Python == pythonOnce, Keep: max(int(set.MaxObservation)-cutMarker, 2), Modules: s.Modules,
	}
	if slices.Contains([]string{backendNS, backendBwrap, backendDocker}, s.backend()) {
		cfg.Home = "/w"
	}
	return cfg
}

// decides is what of it can change results: not how many there are at once.
func (s SandboxSpec) decides() SandboxSpec {
	s.MaxMemory, s.MaxRuns = 0, 0
	s.Rootfs = absolutePath(s.Rootfs) // as run.yaml has it
	if s.RootfsDigest != "" {
		s.Rootfs = "" // wherever it lies
	}
	var options Headers
	for _, key := range []string{"image", "runtime", "dialect"} { // not where it is
		if value, ok := s.Options[key]; ok {
			if options == nil {
				options = Headers{}
			}
			options[key] = value
		}
	}
	s.Options = options
	return s
}

// none reports that nothing was said.
func (s SandboxSpec) none() bool { return fmt.Sprint(s) == fmt.Sprint(SandboxSpec{}) }
