package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is what the binary knows about itself.
type version struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"` // built from a tree with uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// buildVersion reads what the Go tool stored at build time; `go run` and `go test` store no commit.
func buildVersion() version {
	v := version{Version: "(devel)", Commit: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v version) String() string {
	dirty := ""
	if v.Modified {
		dirty = " (modified)"
	}
	return fmt.Sprintf("tranche %s\ncommit   %s%s\ngo       %s\nplatform %s\n", v.Version, v.Commit, dirty, v.Go, v.Platform)
}

// short is one word or two for a record. A version that the Go tool made of a commit names it.
func (v version) short() string {
	if v.Version != "(devel)" {
		return v.Version
	}
	return "commit " + v.Commit
}

type versionCmd struct {
	JSON bool `name:"json" help:"Print one JSON document."`
}

// Help is kong's long text of the command.
func (versionCmd) Help() string {
	return "Tells which build this is: version, commit, Go version, platform."
}

func (c *versionCmd) do(a *app) error {
	v := buildVersion()
	if c.JSON {
		return a.printJSON(v)
	}
	return a.print(v.String())
}
