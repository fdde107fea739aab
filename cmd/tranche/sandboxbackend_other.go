//go:build !linux || (!amd64 && !arm64)

package main

import (
	"errors"

	"tranche/action/sandbox"
)

func sandboxInit() {}

func openExecutor(string, map[string]string) (sandbox.Executor, error) {
	return nil, errors.New("sandboxes need Linux on amd64 or arm64")
}
