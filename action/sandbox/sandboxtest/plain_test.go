//go:build linux && (amd64 || arm64)

package sandboxtest

import (
	"testing"

	"tranche/action/sandbox"
	"tranche/action/sandbox/plain"
)

// The back end without isolation stands what it promises: endings, output, files of its own.
func TestPlain(t *testing.T) {
	Run(t, func() (sandbox.Executor, error) { return plain.New(plain.Config{}) })
}
