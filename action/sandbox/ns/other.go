//go:build !(linux && (amd64 || arm64))

package ns

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"tranche/action/sandbox"
)

// Init does nothing here: there are no slots.
func Init() {}

// Executor is a back end that can hold nothing here.
type Executor struct{}

// New checks the configuration. The executor it returns opens no sandbox: namespaces are Linux's.
func New(config Config) (*Executor, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("sandbox ns: %w", err)
	}
	return &Executor{}, nil
}

var errElsewhere = errors.New("sandbox ns needs Linux on amd64 or arm64, this is " + runtime.GOOS + " on " + runtime.GOARCH)

// Capabilities says that nothing can be held.
func (*Executor) Capabilities() sandbox.Capabilities {
	c := sandbox.Capabilities{Backend: "ns", Tier: sandbox.TierNone, Promises: map[sandbox.Promise]sandbox.Strength{}, Why: map[sandbox.Promise]string{}}
	for _, p := range sandbox.Promises() {
		c.Promises[p], c.Why[p] = sandbox.Absent, errElsewhere.Error()
	}
	return c
}

// Open fails.
func (*Executor) Open(context.Context, sandbox.Spec) (sandbox.Sandbox, error) {
	return nil, errElsewhere
}

// Close has nothing to end.
func (*Executor) Close() error { return nil }
