//go:build !linux

package rootfs

import (
	"context"
	"errors"
)

// Prepare needs Linux.
func Prepare(context.Context, Config, string) (Tree, error) {
	return Tree{}, errors.New("a rootfs needs Linux")
}
