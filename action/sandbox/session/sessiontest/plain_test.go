//go:build linux

package sessiontest_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"tranche/action/sandbox"
	"tranche/action/sandbox/landlock"
	"tranche/action/sandbox/ns"
	"tranche/action/sandbox/plain"
	"tranche/action/sandbox/session"
	"tranche/action/sandbox/session/sessiontest"
)

func TestMain(m *testing.M) {
	ns.Init()
	plain.Init()
	landlock.Init()
	goleak.VerifyTestMain(m)
}

func opened(dir string) (sandbox.Sandbox, error) {
	x, err := plain.New(plain.Config{Dir: dir})
	if err != nil {
		return nil, err
	}
	return x.Open(context.Background(), sandbox.Spec{Trusted: true})
}

func TestSessionsOnPlain(t *testing.T) {
	sessiontest.Run(t, func(t *testing.T) sandbox.Sandbox {
		b, err := opened(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
}

func BenchmarkOnPlain(b *testing.B) {
	sessiontest.Bench(b, func() (sandbox.Sandbox, error) { return opened(b.TempDir()) })
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []session.Options{{}, {Kind: "perl"}, {Kind: session.Bash, Modules: []string{"json"}}} {
		if _, err := session.New(nil, o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}
