//go:build !unix

package offspring

import (
	"os"
	"os/exec"
)

func bind(*exec.Cmd) {}

func kill(p *os.Process) error { return p.Kill() }

func leash(*exec.Cmd) {}
