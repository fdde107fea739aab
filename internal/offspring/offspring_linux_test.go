package offspring

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

const asParent = "TRANCHE_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(asParent) != "" {
		parent()
		return
	}
	os.Exit(m.Run())
}

// parent starts a program on a leash, says its id, and waits for it.
func parent() {
	cmd := exec.CommandContext(context.Background(), "sleep", "300")
	Bind(cmd)
	defer Leash(cmd)()
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	fmt.Println(cmd.Process.Pid)
	_ = cmd.Wait()
}

// alive reports whether a process is there and no zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z")
}

func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	for range 6000 { // half a minute
		if !alive(pid) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("process %d goes on", pid)
}

// What is on a leash dies when its parent is killed, which can clear up nothing itself.
func TestLeashedProgramsDieWithUs(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), asParent+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || !alive(pid) {
		t.Fatalf("%q: %v", line, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	awaitEnd(t, pid)
}

// A group ends as a whole: by its context, and by End when its head has ended.
func TestGroupsEndAsAWhole(t *testing.T) {
	for name, script := range map[string]string{"by its context": "sleep 300 & echo $!; sleep 300", "by End": "sleep 300 & echo $!"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cmd := exec.CommandContext(ctx, "sh", "-c", script)
			Bind(cmd)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if name == "by its context" {
				cancel()
			}
			_ = cmd.Wait() // it was killed, or left its pipe open
			End(cmd)
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			awaitEnd(t, pid)
		})
	}
}
