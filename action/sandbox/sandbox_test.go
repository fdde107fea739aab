package sandbox

import "testing"

func TestHeldByNamesTheBackEnd(t *testing.T) {
	for _, c := range []struct {
		backend string
		tier    Tier
		want    string
	}{{"ns", TierCgroup1, "cgroup1"}, {"plain", TierNone, "none"}, {"bwrap", TierRlimit, "bwrap/rlimit"}, {"http", TierRemote, "http/remote"}} {
		if got := (Result{Backend: c.backend, Tier: c.tier}).HeldBy(); got != c.want {
			t.Errorf("a result of %s with %s is held by %q, want %q", c.backend, c.tier, got, c.want)
		}
		if got := (Capabilities{Backend: c.backend, Tier: c.tier}).HeldBy(); got != c.want {
			t.Errorf("%s with %s holds by %q, want %q", c.backend, c.tier, got, c.want)
		}
	}
}
