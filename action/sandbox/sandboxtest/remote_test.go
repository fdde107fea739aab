//go:build linux && (amd64 || arm64)

package sandboxtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tranche/action/sandbox"
	"tranche/action/sandbox/remote"
)

// overHTTP is what no request and its answer can do.
func overHTTP() Except {
	return Except{
		"private descriptor": "there is none over HTTP", "interrupt": "nothing reaches a program before it ends",
		"cancel": "no output is seen before the end", "background until Reset": "nothing goes on after a program",
		"inherited: folder": "it is the far side's",
	}
}

// Both dialects against far sides of ours, written from the published interfaces: SandboxFusion's run_code as its source has it, SWE-ReX's models.
// Each really runs the code, as this user, as those do where they are set to isolate nothing.
func TestHTTP(t *testing.T) {
	for dialect, handler := range map[string]http.Handler{remote.SandboxFusion: fakeFusion(), remote.SWEReX: fakeSWEReX()} {
		t.Run(dialect, func(t *testing.T) {
			server := httptest.NewServer(handler)
			defer server.Close()
			farSide(t, remote.Config{URL: server.URL, Dialect: dialect, Key: "key"})
		})
	}
}

// The real server of SWE-ReX, where its program is named.
func TestHTTPRealSWEReX(t *testing.T) {
	program := os.Getenv("TRANCHE_SWEREX")
	if program == "" {
		t.Skip("needs the server of SWE-ReX: pip install swe-rex, and TRANCHE_SWEREX=…/bin/swerex-remote")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--host", "127.0.0.1", "--port", strconv.Itoa(port), "--auth-token", "key")
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + t.TempDir()}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	if !eventuallyWithin(patience, func() bool {
		resp, err := http.Get(url + "/")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return true
	}) {
		t.Fatalf("the server does not answer: %s", said.String())
	}
	http.DefaultClient.CloseIdleConnections()
	farSide(t, remote.Config{URL: url, Dialect: remote.SWEReX, Key: "key"})
}

func eventuallyWithin(within time.Duration, holds func() bool) bool {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return true
		}
	}
	return false
}

// farSide plays the suite, and what it has no place for: files, a folder that is gone afterwards, an aide that is killed.
func farSide(t *testing.T, c remote.Config) {
	open := func() (sandbox.Executor, error) { return remote.New(c) }
	t.Run("suite", func(t *testing.T) { RunBrief(t, open, overHTTP()) })
	t.Run("files", func(t *testing.T) {
		s := newStage(t, open, overHTTP())
		s.with(t, func(box sandbox.Sandbox) { remoteFiles(t, box) })
		s.checkNothingLeft(t)
	})
	t.Run("a program that kills its aide", func(t *testing.T) {
		s := newStage(t, open, overHTTP())
		s.with(t, func(box sandbox.Sandbox) {
			r, err := play(box, sandbox.Cmd{Args: []string{"/bin/sh", "-c", "kill -9 $PPID; sleep 1"}, Env: []string{markVariable + "=" + s.mark}, Wall: 3 * time.Second})
			if err == nil {
				t.Errorf("nobody knows how it ended, and it has a verdict: %s", summary(r))
			}
			if _, err := play(box, sandbox.Cmd{Args: []string{"true"}}); err == nil {
				t.Error("a sandbox in which something may still go on was used again")
			}
			if err := box.Reset(context.Background()); err != nil {
				t.Error(err)
			}
			if r := run(t, box, sandbox.Cmd{Args: []string{"true"}}); r.Status != sandbox.StatusOK {
				t.Errorf("after Reset: %s", summary(r))
			}
		})
		if !eventually(func() bool { f := s.look(t); return len(f.sinceIdle(s.idle)) == 0 }) { // sleep 1
			s.checkNothingLeft(t)
		}
	})
	t.Run("refusals", func(t *testing.T) { remoteRefusals(t, open) })
}

func remoteFiles(t *testing.T, box sandbox.Sandbox) {
	ctx := context.Background()
	sh := func(script string) sandbox.Result {
		return run(t, box, sandbox.Cmd{Args: []string{"/bin/sh", "-c", script}, Wall: patience})
	}
	put(t, box, sandbox.File{Path: "a/b/bytes", Data: []byte("\x00\xff\n"), Mode: 0o755}, sandbox.File{Path: "empty"})
	if f, err := box.Get(ctx, "a/b/bytes", 3); err != nil || string(f.Data) != "\x00\xff\n" || f.Mode != 0o755 {
		t.Errorf("%q, mode %v, %v", f.Data, f.Mode, err)
	}
	if r := sh("ls a/b empty; echo more > a/new; ln -s /etc/passwd link; ln -s /etc etc; mkdir folder; pwd; echo $HOME"); r.Status != sandbox.StatusOK {
		t.Error(summary(r))
	}
	if f, err := box.Get(ctx, "a/new", 100); err != nil || string(f.Data) != "more\n" {
		t.Errorf("what a program left: %q, %v", f.Data, err)
	}
	escape := func(err error) bool { var e *sandbox.EscapeError; return errors.As(err, &e) }
	large := func(err error) bool { var e *sandbox.TooLargeError; return errors.As(err, &e) }
	path := func(err error) bool { var e *sandbox.PathError; return errors.As(err, &e) }
	missing := func(err error) bool { return errors.Is(err, fs.ErrNotExist) }
	for name, right := range map[string]func(error) bool{
		"link": escape, "etc/passwd": escape, "../x": escape, "/etc/passwd": escape, "none": missing, "no/such": missing, "folder": path, "": path, "a/new/x": path,
	} {
		if f, err := box.Get(ctx, name, 1<<20); !right(err) {
			t.Errorf("Get %q: %.20q, %v", name, f.Data, err)
		}
	}
	if _, err := box.Get(ctx, "a/new", 4); !large(err) {
		t.Errorf("a file that is a byte too large: %v", err)
	}
	for _, name := range []string{"etc/x", "../x", "/tmp/x"} {
		if err := box.Put(ctx, sandbox.File{Path: name, Data: []byte("forged")}); !escape(err) {
			t.Errorf("Put %q: %v", name, err)
		}
	}
	if err := box.Put(ctx, sandbox.File{Path: "huge", Data: make([]byte, limits().FileSize+1)}); !large(err) {
		t.Errorf("a file larger than FileSize: %v", err)
	}
	if r := sh("exec head -c 100000000 /dev/zero > large"); r.Status != sandbox.StatusFileLimit {
		t.Error(summary(r))
	}
	sh("mkdir -p x/y; chmod 0 x/y x; rm large")
	where := strings.TrimSpace(text(sh("pwd").Stdout))
	if err := box.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(where); !errors.Is(err, fs.ErrNotExist) { // the far side is this machine
		t.Errorf("the folder %s is still there: %v", where, err)
	}
	if r := sh("ls -A"); text(r.Stdout) != "" || r.Status != sandbox.StatusOK {
		t.Errorf("after Reset: %s", summary(r))
	}
}

func remoteRefusals(t *testing.T, open func() (sandbox.Executor, error)) {
	ctx := context.Background()
	x, err := open()
	if err != nil {
		t.Fatal(err)
	}
	box, err := x.Open(ctx, sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	for name, cmd := range map[string]sandbox.Cmd{"control": {Args: []string{"true"}, Control: true}, "background": {Args: []string{"true"}, Background: true}, "no name": {}} {
		if _, err := box.Start(ctx, cmd); err == nil {
			t.Errorf("%s: it was started", name)
		}
	}
	if _, err := box.Snapshot(ctx); err == nil {
		t.Error("a snapshot was made")
	}
	if _, err := x.Open(ctx, sandbox.Spec{Rootfs: "/"}); err == nil {
		t.Error("a root file system was taken")
	}
	p, err := box.Start(ctx, sandbox.Cmd{Args: []string{"sleep", "2"}, Wall: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	began := time.Now()
	cut, cancel := context.WithCancel(ctx)
	cancel()
	if r, err := p.Wait(cut); err != nil || r.Status != sandbox.StatusCanceled || time.Since(began) > patience/2 {
		t.Errorf("%v, %s", err, summary(r))
	}
	time.Sleep(2 * time.Second) // it goes on over there until then
	if err := errors.Join(box.Close(), box.Close(), x.Close()); err != nil {
		t.Error(err)
	}
	if _, err := x.Open(ctx, sandbox.Spec{}); err == nil {
		t.Error("opened after Close")
	}
}

// What the far side does wrong is an error of the executor, whatever the program did.
func TestHTTPFaultsAreNoVerdicts(t *testing.T) {
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	broken := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, `{"status":`)
	}
	files := func(text string) string {
		return string(must(json.Marshal(map[string]any{"status": "Success", "files": map[string][]byte{"tranche-answer.json": []byte(text), "tranche-tree.tar": {}}})))
	}
	stdout := func(text string) string {
		return string(must(json.Marshal(map[string]any{"stdout": text, "exit_code": 0})))
	}
	hangs := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the server sees that nobody waits any more
		<-r.Context().Done()
	}
	for _, c := range []struct {
		name, dialect string
		then          http.HandlerFunc // once the program is sent
	}{
		{"500", remote.SandboxFusion, answer(500, "down")},
		{"429", remote.SandboxFusion, answer(429, "busy")},
		{"no JSON", remote.SandboxFusion, answer(200, "<html>")},
		{"cut off", remote.SandboxFusion, broken},
		{"silent", remote.SandboxFusion, hangs},
		{"its sandbox failed", remote.SandboxFusion, answer(200, `{"status":"SandboxError","message":"no room"}`)},
		{"its own timeout", remote.SandboxFusion, answer(200, `{"status":"Failed","message":"","run_result":{"status":"TimeLimitExceeded"}}`)},
		{"success without an answer", remote.SandboxFusion, answer(200, `{"status":"Success","message":"","run_result":{"status":"Finished","return_code":0,"stdout":"ok"}}`)},
		{"an empty answer", remote.SandboxFusion, answer(200, files(`{}`))},
		{"an answer of the aide's failure", remote.SandboxFusion, answer(200, files(`{"error":"OSError: no pipes"}`))},
		{"an end that is none", remote.SandboxFusion, answer(200, files(`{"status":127}`))},
		{"no tree", remote.SandboxFusion, answer(200, string(must(json.Marshal(map[string]any{"files": map[string][]byte{"tranche-answer.json": []byte(`{"status":0}`)}}))))},
		{"500", remote.SWEReX, answer(500, "down")},
		{"wrong key", remote.SWEReX, answer(401, `{"detail":"Invalid API Key"}`)},
		{"an exception", remote.SWEReX, answer(511, `{"swerexception":{"message":"Timeout","class_path":"swerex.exceptions.CommandTimeoutError"}}`)},
		{"silent", remote.SWEReX, hangs},
		{"the aide failed", remote.SWEReX, answer(200, `{"stdout":"","stderr":"MemoryError","exit_code":1}`)},
		{"the aide was killed", remote.SWEReX, answer(200, `{"stdout":"","stderr":"","exit_code":-9}`)},
		{"no exit code", remote.SWEReX, answer(200, stdout(`{"status":0}`)[:20]+`"}`)},
		{"an empty answer", remote.SWEReX, answer(200, stdout(`{}`))},
		{"a forged tail", remote.SWEReX, answer(200, stdout(`{"status":256}{"status":0}`))},
	} {
		t.Run(c.dialect+", "+c.name, func(t *testing.T) {
			good := map[string]http.Handler{remote.SandboxFusion: fakeFusion(), remote.SWEReX: fakeSWEReX()}[c.dialect]
			var bad atomic.Bool
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if bad.Load() && r.URL.Path != "/write_file" {
					c.then(w, r)
					return
				}
				good.ServeHTTP(w, r)
			}))
			defer server.Close()
			x, err := remote.New(remote.Config{URL: server.URL, Dialect: c.dialect, Patience: patienceOf(c.name)})
			if err != nil {
				t.Fatal(err)
			}
			box, err := x.Open(context.Background(), sandbox.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			bad.Store(true)
			if r, err := play(box, sandbox.Cmd{Args: []string{"true"}, Wall: 100 * time.Millisecond}); err == nil {
				t.Errorf("it has a verdict: %s", summary(r))
			} else {
				t.Log(err)
			}
			bad.Store(false)
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// patienceOf is long but where a silent far side is to be waited for.
func patienceOf(name string) time.Duration {
	if name == "silent" {
		return 3 * time.Second
	}
	return patience
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err) // of a value that stands in this file
	}
	return text
}

func TestHTTPConfig(t *testing.T) {
	_, err := remote.New(remote.Config{URL: "host:8080", Dialect: "e2b", Patience: -1})
	for _, want := range []string{"URL", "the dialect", "the patience"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not among the faults: %v", want, err)
		}
	}
}

// fakeFusion is SandboxFusion's run_code for Python, without isolation: code and files go into a folder, and the code is run there.
func fakeFusion() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /run_code", func(w http.ResponseWriter, r *http.Request) {
		var ask struct {
			Code       string            `json:"code"`
			Language   string            `json:"language"`
			RunTimeout float64           `json:"run_timeout"`
			Stdin      *string           `json:"stdin"`
			Files      map[string][]byte `json:"files"`
			FetchFiles []string          `json:"fetch_files"`
		}
		if !read(w, r, &ask) {
			return
		}
		if ask.Language != "python" || ask.Code == "" {
			http.Error(w, `{"detail":[{"type":"missing"}]}`, http.StatusUnprocessableEntity)
			return
		}
		said := map[string]any{"status": "SandboxError", "message": "", "files": map[string][]byte{}}
		if err := fusionRun(said, ask.Code, ask.Files, ask.FetchFiles, time.Duration(ask.RunTimeout*float64(time.Second))); err != nil {
			said["message"] = err.Error()
		}
		_ = json.NewEncoder(w).Encode(said)
	})
	return mux
}

func fusionRun(said map[string]any, code string, files map[string][]byte, fetch []string, timeout time.Duration) error {
	folder, err := os.MkdirTemp("/tmp", "fusion")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	for name, data := range files {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "tmp.py"), []byte(code), 0o644); err != nil {
		return err
	}
	const captured = 1 << 20
	result, exit, err := subprocess(folder, []string{python, filepath.Join(folder, "tmp.py")}, nil, timeout)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		said["status"], said["run_result"] = "Failed", map[string]any{"status": "TimeLimitExceeded"}
	case err != nil:
		return err
	default:
		status := "Failed"
		if exit == 0 {
			status = "Success"
		}
		said["status"] = status
		said["run_result"] = map[string]any{"status": "Finished", "return_code": exit, "stdout": clip(result[0], captured), "stderr": clip(result[1], captured)}
	}
	fetched := map[string][]byte{}
	for _, name := range fetch {
		if data, err := os.ReadFile(filepath.Join(folder, name)); err == nil {
			fetched[name] = data
		}
	}
	said["files"] = fetched
	return nil
}

func clip(s string, most int) string { return s[:min(len(s), most)] }

// subprocess is Python's subprocess.run: the exit code is negative where a signal was the end, and only the program itself is killed in time.
func subprocess(dir string, args []string, env []string, timeout time.Duration) (out [2]string, exit int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(timeout, time.Hour))
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append([]string{"PATH=/usr/local/bin:/usr/bin:/bin"}, env...), &stdout, &stderr
	err = cmd.Run()
	if ctx.Err() != nil {
		return out, 0, ctx.Err()
	}
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		return out, 0, err
	}
	exit = cmd.ProcessState.ExitCode()
	if ws, ok := cmd.ProcessState.Sys().(interface {
		Signaled() bool
	}); ok && ws.Signaled() {
		exit = -9
	}
	return [2]string{stdout.String(), stderr.String()}, exit, nil
}

// fakeSWEReX is what the client uses of SWE-ReX's server: execute and write_file. A failure over there is HTTP 511 with the exception.
func fakeSWEReX() http.Handler {
	exception := func(w http.ResponseWriter, class, message string) {
		w.WriteHeader(511)
		_ = json.NewEncoder(w).Encode(map[string]any{"swerexception": map[string]any{"message": message, "class_path": class}})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /execute", func(w http.ResponseWriter, r *http.Request) {
		var ask struct {
			Command []string          `json:"command"`
			Timeout *float64          `json:"timeout"`
			Env     map[string]string `json:"env"`
		}
		if !read(w, r, &ask) {
			return
		}
		var timeout time.Duration
		if ask.Timeout != nil {
			timeout = time.Duration(*ask.Timeout * float64(time.Second))
		}
		if name := ask.Command[0]; name == "python3" { // as PATH has it over there
			ask.Command[0] = python
		}
		var env []string
		for k, v := range ask.Env {
			env = append(env, k+"="+v)
		}
		out, exit, err := subprocess("/", ask.Command, env, timeout)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			exception(w, "swerex.exceptions.CommandTimeoutError", "Timeout exceeded")
		case err != nil:
			exception(w, "builtins.FileNotFoundError", err.Error())
		default:
			_ = json.NewEncoder(w).Encode(map[string]any{"stdout": out[0], "stderr": out[1], "exit_code": exit})
		}
	})
	mux.HandleFunc("POST /write_file", func(w http.ResponseWriter, r *http.Request) {
		var ask struct{ Path, Content string }
		if !read(w, r, &ask) {
			return
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(ask.Path), 0o755), os.WriteFile(ask.Path, []byte(ask.Content), 0o644)); err != nil {
			exception(w, "builtins.OSError", err.Error())
			return
		}
		fmt.Fprint(w, "{}")
	})
	return mux
}

func read(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return false
	}
	return true
}

// A program cannot choose to have no verdict: one that leaves more than can be kept has broken a limit, and the next one finds what was before.
func TestHTTPFullFolder(t *testing.T) {
	server := httptest.NewServer(fakeFusion())
	defer server.Close()
	x, err := remote.New(remote.Config{URL: server.URL, Dialect: remote.SandboxFusion})
	if err != nil {
		t.Fatal(err)
	}
	box, err := x.Open(context.Background(), sandbox.Spec{Limits: sandbox.Limits{Disk: 1 << 20, FileSize: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	sh := func(script string) sandbox.Result {
		return run(t, box, sandbox.Cmd{Args: []string{"/bin/sh", "-c", script}})
	}
	full := "for i in 1 2 3; do head -c 500000 /dev/zero > $i; done; echo said"
	if r := sh(full + "; exit 1"); r.Status != sandbox.StatusFileLimit || text(r.Stdout) != "said\n" {
		t.Errorf("at first: %s", summary(r))
	}
	put(t, box, sandbox.File{Path: "kept", Data: []byte("kept")})
	if r := sh("rm kept; " + full); r.Status != sandbox.StatusFileLimit {
		t.Error(summary(r))
	}
	if r := sh("mkdir d; echo closed > d/f; chmod 0 d/f; ls; cat kept"); r.Status != sandbox.StatusOK || text(r.Stdout) != "d\nkept\nkept" {
		t.Errorf("afterwards: %s", summary(r))
	}
	var none *sandbox.FullError
	for i := range 2 {
		err = box.Put(context.Background(), sandbox.File{Path: strconv.Itoa(i), Data: make([]byte, 600_000)})
	}
	if !errors.As(err, &none) {
		t.Errorf("a file too much: %v", err)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}
