//go:build linux && (amd64 || arm64)

package docker

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// program writes a program that is nothing but its headers.
func program(t *testing.T, segment elf.ProgType) string {
	const headers = 64 + 56
	interpreter := "/lib/ld.so\x00"
	h := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}, Type: uint16(elf.ET_EXEC),
		Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64,
	}
	var b bytes.Buffer
	for _, part := range []any{h, elf.Prog64{Type: uint32(segment), Off: headers, Filesz: uint64(len(interpreter)), Memsz: uint64(len(interpreter))}, []byte(interpreter)} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, b.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// A program that would not start in a container is refused at once, before anybody is asked.
func TestStatic(t *testing.T) {
	if err := static(program(t, elf.PT_LOAD)); err != nil {
		t.Error(err)
	}
	began := time.Now()
	_, err := New(t.Context(), Config{Image: "x", Socket: "/nonexistent", Program: program(t, elf.PT_INTERP)})
	if err == nil || !strings.Contains(err.Error(), "is not static: it needs /lib/ld.so, ") || time.Since(began) > connectWithin/2 {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	if err := static("/etc/passwd"); err == nil {
		t.Error("a text is taken for a program")
	}
}
