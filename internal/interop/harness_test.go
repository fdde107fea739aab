package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// built is the folder of the binary under test; TestMain makes and removes it, tranche fills it once.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	os.Exit(func() (code int) {
		defer func() { os.RemoveAll(built.dir) }()
		defer func() {
			if err := llama.stop(code != 0); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}()
		return m.Run()
	}())
}

// tranche builds the command once and returns its path.
func tranche(t *testing.T) string {
	t.Helper()
	watch(t)
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "tranche-interop-"); built.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-o", filepath.Join(built.dir, "tranche"), "tranche/cmd/tranche").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("go build tranche/cmd/tranche: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "tranche")
}

// watch looks at every source file, so that `go test` runs these tests again when one has changed: it caches a pass by the
// files the test itself looks at, and knows nothing of the binary and the programs we start.
func watch(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(root(), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "runs") {
			return fs.SkipDir
		}
		if ext := filepath.Ext(path); ext == ".go" || ext == ".py" || ext == ".mod" {
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// missing skips the test for want of something outside the tree. Where everything must have been installed it fails.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("TRANCHE_CI") == "1" {
		t.Fatalf("TRANCHE_CI=1, and "+format, args...)
	}
	t.Skipf(format, args...)
}

// alone skips a test that needs the cores for itself, where `go test` runs packages side by side.
func alone(t *testing.T) {
	t.Helper()
	if os.Getenv("TRANCHE_CI") != "1" && os.Getenv("TRANCHE_ALONE") != "1" {
		t.Skip("needs the machine for itself for minutes: TRANCHE_ALONE=1 go test -run " + t.Name() + " ./internal/interop")
	}
}

// long skips a test that takes tens of seconds under -short.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes tens of seconds; left out by -short")
	}
}

// engines is where the scripts keep what they install; the same rule stands in scripts/lib.bash.
func engines(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("TRANCHE_ENGINES"); dir != "" {
		return dir
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "tranche-engines")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		missing(t, "there is no home folder to look for installed programs in: %v", err)
	}
	return filepath.Join(home, ".cache", "tranche-engines")
}

// python returns the interpreter that has the packages of scripts/pytools/requirements.txt.
func python(t *testing.T) string {
	t.Helper()
	home := filepath.Join(engines(t), "py")
	have, err := os.ReadFile(filepath.Join(home, "ready"))
	if err != nil {
		missing(t, "the Python readers are not installed; get them with: scripts/pytools.sh install")
	}
	want, err := os.ReadFile(root("scripts", "pytools", "requirements.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		missing(t, "the Python readers are of other versions than scripts/pytools/requirements.txt; get them with: scripts/pytools.sh install")
	}
	return filepath.Join(home, "bin", "python")
}

// data returns the path of a file of the real data sets.
func data(t *testing.T, name ...string) string {
	t.Helper()
	base := os.Getenv("TRANCHE_DATA")
	switch base {
	case "none":
		t.Skip("TRANCHE_DATA=none: this test needs the real data sets")
	case "":
		base = root("..", "shared", "data")
	}
	path := filepath.Join(append([]string{base}, name...)...)
	if _, err := os.Stat(path); err != nil {
		missing(t, "%s is not there; set TRANCHE_DATA to the folder of the real data sets", path)
	}
	return path
}

// root returns a path relative to the repository root, absolute.
func root(elem ...string) string {
	path, err := filepath.Abs(filepath.Join(append([]string{"..", ".."}, elem...)...))
	if err != nil {
		panic(err) // the working directory is gone
	}
	return path
}

// facts are what a program of the python folder prints.
type facts map[string]any

// number returns a fact that must be a number.
func (f facts) number(t *testing.T, name string) float64 {
	t.Helper()
	n, ok := f[name].(float64)
	if !ok {
		t.Fatalf("fact %q: expected a number, got %v", name, f[name])
	}
	return n
}

// want compares facts with what the caller knows.
func (f facts) want(t *testing.T, want map[string]float64) {
	t.Helper()
	for name, n := range want {
		if got := f.number(t, name); got != n {
			t.Errorf("fact %q: expected %v, got %v", name, n, got)
		}
	}
}

// runPython runs a program of the python folder and returns its facts; its faults fail the test.
func runPython(t *testing.T, program string, args ...string) facts {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python(t), append([]string{filepath.Join("python", program)}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONWARNINGS=ignore")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, tail(stderr.String()), stdout.String())
	}
	var f facts
	if err := json.Unmarshal(stdout.Bytes(), &f); err != nil {
		t.Fatalf("%s printed no facts: %v\n%s", program, err, stdout.String())
	}
	return f
}

// tail keeps the last lines of a long text.
func tail(s string) string {
	lines := strings.SplitAfter(s, "\n")
	if len(lines) > 60 {
		lines = append([]string{"…\n"}, lines[len(lines)-60:]...)
	}
	return strings.Join(lines, "")
}

// command runs the binary to its end and returns stdout and its exit status. It fails the test when it cannot be run at all.
func command(t *testing.T, limit time.Duration, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, tranche(t), args...)
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("tranche %s: not done within %v\n%s", strings.Join(args, " "), limit, tail(diag.String()))
	}
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatalf("tranche %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), diag.String(), cmd.ProcessState.ExitCode()
}

// succeed runs the binary and fails the test unless it ends with 0.
func succeed(t *testing.T, limit time.Duration, args ...string) string {
	t.Helper()
	stdout, stderr, exit := command(t, limit, args...)
	if exit != 0 {
		t.Fatalf("tranche %s: exit %d\n%s%s", strings.Join(args, " "), exit, tail(stderr), tail(stdout))
	}
	return stdout
}

// killAfter runs the binary and kills it with SIGKILL after the time given. It reports false when the program ended first,
// which must then be with 0.
func killAfter(t *testing.T, after time.Duration, args ...string) bool {
	t.Helper()
	cmd := exec.Command(tranche(t), args...)
	var diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &diag, &diag
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() }) // an ended process needs no killing
	defer timer.Stop()
	err := cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		t.Fatalf("tranche %s: %v\n%s", strings.Join(args, " "), err, tail(diag.String()))
	}
	return false
}

// engine starts the simulated engine on a free port and returns its address; it is stopped when the test ends.
func engine(t *testing.T, flags ...string) string {
	t.Helper()
	addr := freeAddr(t)
	cmd := exec.Command(tranche(t), append([]string{"engine", "--listen", addr, "--model", "sim"}, flags...)...)
	var diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &diag, &diag
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended
		select {
		case <-ended:
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			<-ended
			t.Error("the engine did not end within a minute of SIGTERM")
		}
	})
	for range 1200 {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the engine ended at once: %v\n%s", err, tail(diag.String()))
		case <-time.After(50 * time.Millisecond):
		}
		if healthy(addr) {
			return addr
		}
	}
	t.Fatalf("the engine did not answer /health with 200 on %s within a minute", addr)
	return ""
}

func healthy(addr string) bool {
	resp, err := http.Get("http://" + addr + "/health")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// freeAddr returns a loopback address that was free a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// counters reads a server's /metrics: the value of every sample, summed over its labels.
func counters(t *testing.T, addr string) map[string]float64 {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET /metrics: %s, %v", resp.Status, err)
	}
	sums := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, value, ok := cutSample(line)
		if ok {
			sums[name] += value
		}
	}
	return sums
}

// cutSample splits a line of the Prometheus text format into the name without labels and the value.
func cutSample(line string) (name string, value float64, ok bool) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return "", 0, false
	}
	end := strings.LastIndexAny(line, "} ")
	value, err := strconv.ParseFloat(strings.TrimSpace(line[end+1:]), 64)
	name, _, _ = strings.Cut(line[:end], "{")
	return strings.TrimSpace(name), value, err == nil
}

// counter returns one sample that must be there.
func counter(t *testing.T, all map[string]float64, name string) float64 {
	t.Helper()
	v, ok := all[name]
	if !ok {
		t.Fatalf("/metrics has no sample %q", name)
	}
	return v
}

// readJSON decodes a file.
func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// write makes a file in a test's own folder.
func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
