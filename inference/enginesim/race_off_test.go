//go:build !race

package enginesim

import "testing"

func oneGoroutine(*testing.T) {}
