//go:build linux && (amd64 || arm64)

package ns

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// asNobody is set in the environment of this test binary where it runs as an ordinary user.
const asNobody = "TRANCHE_TEST_AS_NOBODY"

// TestAsAnOrdinaryUser runs the tests of this package again without any privilege: what root gets by ids of their own, an ordinary
// user must get by other means.
func TestAsAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user")
	}
	if testing.Short() {
		t.Skip("all tests of the package once more")
	}
	const nobody = 65534
	run := "^(" + testsOfUsers + ")$"
	cmd := exec.Command("/proc/self/exe", "-test.run", run, "-test.timeout", "15m")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), asNobody+"=1", "HOME=/", "TMPDIR=/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

const testsOfUsers = "TestStatus|TestCaseSBo1.*|TestGrandchild.*|TestStdin|TestFiles.*|TestSnapshot.*|TestTwoPrograms.*|TestInit.*|TestPids.*|TestSockets.*|TestNextRunIsClean|TestControl.*|TestBackground.*|TestStart.*|TestSecond.*"

// privileged says how this test process runs.
func privileged() bool { return os.Getenv(asNobody) == "" && os.Geteuid() == 0 }
