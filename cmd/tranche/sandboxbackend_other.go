//go:build !linux

package main

import (
	"errors"

	"tranche/action/sandbox"
)

func sandboxInit() {}

func openExecutor(string) (sandbox.Executor, error) {
	return nil, errors.New("sandboxes need Linux")
}
