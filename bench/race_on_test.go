//go:build race

package bench

import "testing"

// oneGoroutine leaves out, under the race detector, a test in which nothing runs at once: it sees nothing there and takes its time.
func oneGoroutine(t *testing.T) {
	t.Helper()
	t.Skip("runs one goroutine: played without the race detector")
}
