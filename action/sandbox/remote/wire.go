//go:build linux

package remote

import (
	"bytes"
	"context"
	_ "embed" // the aide
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

//go:embed aide.py
var aide string

// mostAnswer bounds what is read of an answer.
const mostAnswer = 1 << 30

// wire sends JSON to a far side.
type wire struct {
	base, key string
	client    *http.Client
}

// statusError is an answer that is none.
type statusError struct {
	path   string
	status int
	body   string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s answered with HTTP %d: %.500s", e.path, e.status, e.body)
}

func (w wire) post(ctx context.Context, path string, ask, into any) error {
	text, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.base+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if w.key != "" {
		req.Header.Set("X-API-Key", w.key)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer of %s: %w", path, err)
	case resp.StatusCode != http.StatusOK:
		return &statusError{path, resp.StatusCode, string(body)}
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("read the answer of %s: %w in %.200q", path, err, body)
	}
	return nil
}

// fusion is SandboxFusion's run_code. Nothing is kept over there: the file tree comes along with each request, and back.
type fusion struct{ wire }

// names of files that go with a request.
const (
	requestFile = "tranche-request.json"
	answerFile  = "tranche-answer.json"
	treeFile    = "tranche-tree.tar"
)

func (*fusion) make(context.Context) (folder, error) { return folder{}, nil }

func (*fusion) unmake(context.Context, *folder) error { return nil }

// runCode is the request, as the API's documentation has it; bytes of files are in base64.
type runCode struct {
	Code       string            `json:"code"`
	Language   string            `json:"language"`
	RunTimeout float64           `json:"run_timeout"` // seconds
	Files      map[string][]byte `json:"files"`
	FetchFiles []string          `json:"fetch_files"`
}

type ranCode struct {
	Status  string `json:"status"` // Success, Failed or SandboxError
	Message string `json:"message"`
	Result  *struct {
		Status string `json:"status"` // Finished, Error or TimeLimitExceeded
		Code   *int   `json:"return_code"`
		Stdout string `json:"stdout"`
		Stderr string `json:"stderr"`
	} `json:"run_result"`
	Files map[string][]byte `json:"files"`
}

// sparedSeconds is how much longer the far side is told to wait than the aide does itself.
const sparedSeconds = 20

func (f *fusion) do(ctx context.Context, at *folder, r request, within time.Duration) (a answer, err error) {
	text, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	ask := runCode{Code: aide, Language: "python", RunTimeout: within.Seconds() + sparedSeconds, Files: map[string][]byte{requestFile: text}, FetchFiles: []string{answerFile, treeFile}}
	if at.tree != nil {
		ask.Files[treeFile] = at.tree
	}
	var ran ranCode
	if err := f.post(ctx, "/run_code", ask, &ran); err != nil {
		return a, err
	}
	text, ok := ran.Files[answerFile]
	if !ok {
		return a, ran.silent()
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("read what the aide says: %w", err)
	}
	if tree, ok := ran.Files[treeFile]; ok {
		at.tree = tree
	} else if a.Error == "" {
		return a, errors.New("the file tree did not come back")
	}
	return a, nil
}

// silent says why there is no answer of the aide, as far as the far side knows.
func (r *ranCode) silent() error {
	why := fmt.Sprintf("status %s %.500s", r.Status, r.Message)
	if r.Result != nil {
		why += fmt.Sprintf("; the aide's status is %s: %.500s", r.Result.Status, r.Result.Stderr)
	}
	return errors.New("there is no answer of the aide: " + why)
}

// swerex is SWE-ReX. Its execute is used and not its sessions: in those, the end of a command and its exit code are lines among its output, which
// a program can print too.
type swerex struct {
	wire
	patience time.Duration
}

type execute struct {
	Command []string          `json:"command"`
	Timeout float64           `json:"timeout"` // seconds
	Env     map[string]string `json:"env"`
	Check   bool              `json:"check"`
}

type executed struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	Exit   *int   `json:"exit_code"`
}

// python runs a Python program over there with nothing but a PATH in its environment.
func (s *swerex) python(ctx context.Context, within time.Duration, args ...string) (string, error) {
	var done executed
	err := s.post(ctx, "/execute", execute{
		Command: append([]string{"python3", "-I"}, args...), Timeout: (within + s.patience).Seconds(), Env: map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin"},
	}, &done)
	switch {
	case err != nil:
		return "", err
	case done.Exit == nil || *done.Exit != 0:
		exit := "unknown"
		if done.Exit != nil {
			exit = strconv.Itoa(*done.Exit)
		}
		return "", fmt.Errorf("the aide ended with exit code %s: %.500s", exit, done.Stderr)
	}
	return done.Stdout, nil
}

const (
	makeFolder   = "import tempfile; print(tempfile.mkdtemp(prefix='tranche-'), end='')"
	removeFolder = "import shutil, sys; shutil.rmtree(sys.argv[1])"
)

// undoTime is how long a folder that could not be filled gets to be removed.
const undoTime = 10 * time.Second

// make makes a folder with the aide in it, and the work folder beside that.
func (s *swerex) make(ctx context.Context) (f folder, err error) {
	path, err := s.python(ctx, 0, "-c", makeFolder)
	if err != nil {
		return f, err
	}
	if err := s.fill(ctx, path); err != nil {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), min(undoTime, s.patience))
		defer stop()
		_, undone := s.python(ctx, 0, "-c", removeFolder, path)
		return f, errors.Join(err, undone)
	}
	return folder{path: path}, nil
}

func (s *swerex) fill(ctx context.Context, path string) error {
	var none struct{}
	if err := s.post(ctx, "/write_file", map[string]string{"path": path + "/aide.py", "content": aide}, &none); err != nil {
		return err
	}
	if err := s.post(ctx, "/write_file", map[string]string{"path": path + "/w/.tranche", "content": ""}, &none); err != nil { // makes its folder
		return err
	}
	_, err := s.python(ctx, 0, "-c", "import os, sys; os.unlink(sys.argv[1] + '/.tranche'); os.chmod(sys.argv[1], 0o755)", path+"/w")
	return err
}

func (s *swerex) do(ctx context.Context, f *folder, r request, within time.Duration) (a answer, err error) {
	r.Work = f.path + "/w"
	text, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	var none struct{}
	if err := s.post(ctx, "/write_file", map[string]string{"path": f.path + "/request.json", "content": string(text)}, &none); err != nil {
		return a, err
	}
	said, err := s.python(ctx, within, f.path+"/aide.py", f.path+"/request.json")
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal([]byte(said), &a); err != nil {
		return a, fmt.Errorf("read what the aide says: %w in %.200q", err, said)
	}
	return a, nil
}

// unmake removes the folder, also what a program closed to its owner: the aide empties the work folder first.
func (s *swerex) unmake(ctx context.Context, f *folder) error {
	if f.path == "" {
		return nil
	}
	a, err := s.do(ctx, f, request{Op: "unmake"}, 0)
	if err == nil && a.Error != "" {
		err = errors.New("over there: " + a.Error)
	}
	if err != nil {
		return err
	}
	_, err = s.python(ctx, 0, "-c", removeFolder, f.path)
	return err
}
