package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

func TestPortHolderNamesTheProcess(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%v: not tried", err)
			continue
		}
		port := l.Addr().(*net.TCPAddr).Port
		if got := portHolder(port); !strings.HasPrefix(got, fmt.Sprintf("process %d (", os.Getpid())) {
			t.Errorf("%s is held by %q, want this process, %d", l.Addr(), got, os.Getpid())
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got := portHolder(port); got != "" {
			t.Errorf("port %d, closed, is held by %q", port, got)
		}
	}
}

func FuzzListener(f *testing.F) {
	f.Add("  sl  local_address rem_address   st\n   0: 0100007F:1F40 00000000:0000 0A 0:0 00:0 0 1000 0 615352 1\n", 8000)
	f.Fuzz(func(t *testing.T, table string, port int) {
		if inode, uid, ok := listener(table, port); ok && (inode == "" || uid == "" || port < 0 || port > 65535) {
			t.Fatalf("%q, %q for port %d", inode, uid, port)
		}
	})
}
