//go:build linux

package sandboxtest

import (
	"os"
	"testing"

	"tranche/action/sandbox/plain"
)

func TestMain(m *testing.M) {
	plain.Init()
	os.Exit(m.Run())
}
