package action

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/episode"
	"tranche/internal/offspring"
)

// CommandConfig is a program of the user's own that models may call. It is trusted and runs on the host, outside any sandbox.
type CommandConfig struct {
	Name        string          // what the model calls it by
	Description string          // told to the model
	Parameters  json.RawMessage // JSON schema of the arguments; empty = any object
	Run         []string        // the program and its arguments; no shell is in between
	Dir         string          // where it runs; "" = here
	Timeout     time.Duration   // of one run; 0 = that of all tools
	Idempotent  bool            // safe to run twice: it is run once more where it could not do its job
	Stateless   bool            // it keeps nothing of an episode between runs
	Env         []string        // names of environment variables it gets, besides PATH, HOME, LANG, TZ and TMPDIR
	Output      string          // OutputText (the default) or OutputJSON
}

// How a program's standard output is taken.
const (
	OutputText = "text" // as it is, without the line break at its end
	OutputJSON = "json" // one object: {"text", "error", "done", "submitted"}, all optional
)

// Command is a CommandConfig as a tool. Each call starts the program, hands it the arguments as JSON on standard input, and ends its
// whole process group when it is over.
//
// Exit status 0 is a result. ExitUnable says that the program could not do its job, by no fault of the model: the episode fails. Any
// other status is an error for the model, with the end of standard error; a signal is a failure of the program.
type Command struct {
	cfg     CommandConfig
	def     json.RawMessage
	env     []string
	secrets Secrets // in env
}

// ExitUnable is the exit status of a program that could not do its job (EX_TEMPFAIL of sysexits.h).
const ExitUnable = 75

// Bounds of what is kept of a program's output, bytes: the model sees less of it still.
const (
	keptOutput = 1 << 20
	keptErrors = 4 << 10
)

var (
	_ Tool       = (*Command)(nil)
	_ Repeatable = (*Command)(nil)
	_ Timed      = (*Command)(nil)
	_ Keeper     = (*Command)(nil)
)

// NewCommand checks that there is such a program and such variables, and makes the tool.
func NewCommand(cfg CommandConfig) (*Command, error) {
	env, secrets, err := Environment(cfg.Env)
	errs := []error{err}
	switch {
	case len(cfg.Run) == 0 || cfg.Run[0] == "":
		errs = append(errs, errors.New("run: is missing; expected a list: the program, then its arguments"))
	default:
		errs = append(errs, CanStart(cfg.Run[0], cfg.Dir))
	}
	if cfg.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout: expected a time over 0, found %s", cfg.Timeout))
	}
	if !slices.Contains([]string{"", OutputText, OutputJSON}, cfg.Output) {
		errs = append(errs, fmt.Errorf("output: expected %s or %s, found %q", OutputText, OutputJSON, cfg.Output))
	}
	def, err := Define(cfg.Name, cfg.Description, cfg.Parameters)
	return &Command{cfg: cfg, def: def, env: env, secrets: secrets}, errors.Join(append(errs, err)...)
}

// CanStart says why a program cannot be started in a directory, nil where it can.
func CanStart(program, dir string) error {
	if dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return fmt.Errorf("dir: expected a directory, found %q", dir)
		}
		if strings.ContainsRune(program, filepath.Separator) && !filepath.IsAbs(program) {
			program = filepath.Join(dir, program)
		}
	}
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("run: expected a program that can be started: %w", err)
	}
	return nil
}

// Environment is what a program of the user's own gets of ours: what every program needs, and what is named. Nothing else: keys
// stay with us. What is named may be secret.
func Environment(names []string) (env []string, secrets Secrets, err error) {
	for _, name := range []string{"PATH", "HOME", "LANG", "TZ", "TMPDIR", "SYSTEMROOT"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	var errs []error
	for _, name := range names {
		v, ok := os.LookupEnv(name)
		switch {
		case strings.Contains(name, "="):
			errs = append(errs, errors.New("env: expected NAMES of environment variables; values must not stand here (the one given is not shown)"))
		case !ok:
			errs = append(errs, fmt.Errorf("env: the environment variable %s is not set", name))
		default:
			env = append(env, name+"="+v)
			secrets.addVariable(v)
		}
	}
	return env, secrets, errors.Join(errs...)
}

// Name is the configured one.
func (c *Command) Name() string { return c.cfg.Name }

// Definition tells name, description and parameters.
func (c *Command) Definition() json.RawMessage { return c.def }

// Repeatable tells what the user declared.
func (c *Command) Repeatable() bool { return c.cfg.Idempotent }

// Keeps tells what the user declared.
func (c *Command) Keeps(string) bool { return !c.cfg.Stateless }

// Timeout is the configured one.
func (c *Command) Timeout() time.Duration { return c.cfg.Timeout }

// Run starts the program and waits for its end.
func (c *Command) Run(ctx context.Context, args json.RawMessage, env Env) (Result, error) {
	out, errOut := NewSpool(keptOutput), NewSpool(keptErrors)
	cmd := exec.CommandContext(ctx, c.cfg.Run[0], c.cfg.Run[1:]...)
	cmd.Dir = c.cfg.Dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(append(slices.Clip(args), '\n')), out, errOut
	cmd.Env = append(slices.Clip(c.env), "TRANCHE_EPISODE="+env.Episode, "TRANCHE_ACTION="+env.Action, "TRANCHE_TURN="+strconv.Itoa(env.Turn))
	offspring.Bind(cmd)
	defer offspring.Leash(cmd)()
	if err := cmd.Start(); err != nil {
		return Result{}, fmt.Errorf("%w: start %s: %w", ErrNotRun, c.cfg.Run[0], err)
	}
	err := cmd.Wait()
	offspring.End(cmd)
	state := cmd.ProcessState
	r := Result{OutBytes: out.Total(), Truncated: out.Cut()}
	if state != nil {
		cpu := state.UserTime() + state.SystemTime()
		r.CPU = &cpu
		if code := state.ExitCode(); code >= 0 {
			r.ExitCode = episode.Ptr(int32(code))
		}
	}
	if ctx.Err() != nil {
		r.Text = c.printed(out)
		return r, ctx.Err()
	}
	if state == nil || !state.Exited() {
		return r, fmt.Errorf("%s: %w%s", c.cfg.Run[0], err, errOut.said(c.secrets))
	}
	return c.result(r, state.ExitCode(), out, errOut)
}

// result reads what a program that ended by itself said.
func (c *Command) result(r Result, code int, out, errOut *Spool) (Result, error) {
	switch {
	case code == ExitUnable:
		return r, fmt.Errorf("%s says that it could not do its job (exit status %d)%s", c.cfg.Run[0], code, errOut.said(c.secrets))
	case code != 0:
		r.Text = c.printed(out)
		return r, Reject("the program ended with exit status %d%s", code, errOut.said(c.secrets))
	case c.cfg.Output == OutputJSON:
		return c.object(r, out.Text(Secrets{})) // secrets may be escaped in it
	}
	r.Text = c.printed(out)
	return r, nil
}

// printed is what a program wrote to standard output, as it is shown.
func (c *Command) printed(out *Spool) string { return strings.TrimRight(out.Text(c.secrets), "\n") }

// object reads OutputJSON.
func (c *Command) object(r Result, text string) (Result, error) {
	var said struct {
		Text      string  `json:"text"`
		Error     string  `json:"error"`
		Done      bool    `json:"done"`
		Submitted *string `json:"submitted"`
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&said)
	if err == nil && !strings.HasPrefix(strings.TrimSpace(text), "{") {
		err = errors.New("it is no object")
	}
	if _, more := d.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("more stands behind it")
	}
	if err != nil {
		return r, c.secrets.Hide(fmt.Errorf(`%s wrote no object of "text", "error", "done" and "submitted": %w`, c.cfg.Run[0], err))
	}
	r.Text, r.Done = c.secrets.Redact(said.Text), said.Done || said.Submitted != nil
	if said.Submitted != nil {
		r.Submitted = episode.Ptr(c.secrets.Redact(*said.Submitted))
	}
	if said.Error != "" {
		return r, &ToolError{Text: c.secrets.Redact(said.Error)}
	}
	return r, nil
}

// Define writes the OpenAI definition of a tool. No parameters mean any object.
func Define(name, description string, parameters json.RawMessage) (json.RawMessage, error) {
	if len(parameters) == 0 {
		parameters = json.RawMessage(`{"type":"object"}`)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(parameters, &object); err != nil || object == nil {
		return nil, errors.New("parameters: expected a JSON schema: an object")
	}
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	def, err := plainJSON(struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{"function", function{name, description, parameters}})
	if err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	return def, nil
}

// plainJSON writes JSON without HTML escapes: models and services read it.
func plainJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}
