//go:build linux && (amd64 || arm64)

package docker

import (
	"debug/elf"
	"fmt"
	"io"
	"strings"
)

// static is an error for a program that needs an interpreter: the containers' images need not have it, and then the program does not start and
// nobody says why.
func static(program string) error {
	f, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("read the program %s: %w", program, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		const most = 4096
		name, err := io.ReadAll(io.LimitReader(p.Open(), most))
		if err != nil {
			return fmt.Errorf("read the program %s: %w", program, err)
		}
		return fmt.Errorf("the program %s is not static: it needs %s, which an image may lack; build it with CGO_ENABLED=0", program, strings.TrimRight(string(name), "\x00"))
	}
	return nil
}
