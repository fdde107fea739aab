//go:build !race

package bench

import "testing"

func oneGoroutine(*testing.T) {}
