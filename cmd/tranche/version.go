package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
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

// named is one line for a record that has to tell two builds apart. A tree with uncommitted changes has one version for all of them, so the
// program itself is named too.
func (v version) named() string {
	text := v.Version
	if text == "(devel)" {
		text = "commit " + v.Commit
	}
	return text + label(", binary ", binaryDigest())
}

// binaryDigest is a fingerprint of the running program; "" where its file cannot be read.
func binaryDigest() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
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
