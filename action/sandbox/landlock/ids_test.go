//go:build linux && (amd64 || arm64)

package landlock

import (
	"strings"
	"testing"
)

// An account among the ids of sandboxes is named, and what is advised is something that a user can do.
func TestAccountsAmongTheIDs(t *testing.T) {
	_, err := newIDs(0, 1) // root is on every host
	if err == nil || !strings.Contains(err.Error(), "root of /etc/passwd") || !strings.Contains(err.Error(), "run as an ordinary user") || strings.Contains(err.Error(), "FirstID") {
		t.Error(err)
	}
}
