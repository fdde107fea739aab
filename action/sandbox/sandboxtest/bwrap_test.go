//go:build linux && (amd64 || arm64)

package sandboxtest

import (
	"os"
	"testing"

	"tranche/action/sandbox"
	"tranche/action/sandbox/bwrap"
)

// The back end on bubblewrap, where that is installed, with each tier and as a user who may nothing.
func TestBwrap(t *testing.T) {
	if _, err := bwrap.Find(""); err != nil {
		t.Skip(err)
	}
	eachTier(t, RunBrief, os.Getenv(wholeVariable) != "", func(tier sandbox.Tier) func() (sandbox.Executor, error) {
		return func() (sandbox.Executor, error) { return bwrap.New(bwrap.Config{Tier: tier}) }
	}, Except{"many small files": "bubblewrap cannot bound how many there are; the memory they take counts where there are control groups"})
}

func TestBwrapAsNobody(t *testing.T) {
	if _, err := bwrap.Find(""); err != nil {
		t.Skip(err)
	}
	needWhole(t)
	asNobody(t, "^TestBwrap$")
}
