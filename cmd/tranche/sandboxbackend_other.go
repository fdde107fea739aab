//go:build !linux || (!amd64 && !arm64)

package main

import (
	"context"
	"errors"

	"tranche/action/sandbox"
)

func sandboxInit() {}

func imageDigest(context.Context, map[string]string) (string, error) {
	return "", errors.New("sandboxes need Linux on amd64 or arm64")
}

func openExecutor(context.Context, string, map[string]string) (sandbox.Executor, error) {
	return nil, errors.New("sandboxes need Linux on amd64 or arm64")
}
