//go:build unix && !linux

package offspring

import (
	"os"
	"os/exec"
	"syscall"
)

func bind(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func kill(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }

func leash(*exec.Cmd) {}
