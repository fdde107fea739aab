package codetools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"tranche/action"
	"tranche/action/sandbox"
	"tranche/action/sandbox/session"
	"tranche/episode"
)

// What the tools can do besides running.
var (
	_ = []action.Waiter{(*interpreter)(nil), (*readFile)(nil), (*writeFile)(nil)}
	_ = []action.Ender{(*interpreter)(nil), (*readFile)(nil), (*writeFile)(nil)}
	_ = []action.Timed{(*interpreter)(nil)}
)

// interpreter is the tool python or bash.
type interpreter struct {
	desk *Desk
	kind session.Kind
}

func (t *interpreter) Name() string { return string(t.kind) }

func (t *interpreter) Definition() json.RawMessage {
	if t.kind == session.Bash {
		return definition("bash", "Run bash code in a session that lasts for the whole task: folder, variables and functions stay. You see what it prints.",
			"command", "What to run. There is no input to read.")
	}
	if t.desk.cfg.Once {
		return definition("python", "Run a Python program. Each call is a program of its own: variables do not stay, files do. You see what it prints.",
			"code", "The whole program. There is no input to read.")
	}
	return definition("python", "Run Python code in a session that lasts for the whole task: variables, functions and imports stay. You see what it prints, "+
		"and the value of its last line where that is an expression.", "code", "The code. There is no input to read.")
}

// definition is an OpenAI tool definition with string arguments, given as name and description.
func definition(name, what string, args ...string) json.RawMessage {
	properties, required := map[string]any{}, []string{}
	for i := 0; i < len(args); i += 2 {
		properties[args[i]] = map[string]string{"type": "string", "description": args[i+1]}
		required = append(required, args[i])
	}
	text, err := json.Marshal(map[string]any{"type": "function", "function": map[string]any{
		"name": name, "description": what,
		"parameters": map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false},
	}})
	if err != nil {
		panic(err) // it is made of texts
	}
	return text
}

func (t *interpreter) Wait(ctx context.Context, env action.Env) (func(), error) {
	return t.desk.wait(ctx, env.Episode, t.kind)
}

func (t *interpreter) Timeout() time.Duration { return t.desk.timeout() }

func (t *interpreter) End(ctx context.Context, episode string) error { return t.desk.end(ctx, episode) }

// Run runs one call in the episode's session, which Wait has begun, within the turn that Wait took.
func (t *interpreter) Run(ctx context.Context, args json.RawMessage, env action.Env) (action.Result, error) {
	var in struct{ Code, Command string }
	if err := json.Unmarshal(args, &in); err != nil {
		return action.Result{}, fmt.Errorf("reading the arguments of %s: %w", t.kind, err)
	}
	room := t.desk.room(env.Episode)
	if room.unbegun != nil {
		return action.Result{}, room.unbegun
	}
	room.touched = true
	t.before(ctx, room)
	r, err := t.do(ctx, room, in.Code+in.Command)
	others, herr := room.hold()
	t.after(ctx, room, r.LeftBehind+others)
	var refused *session.InputError
	if errors.As(err, &refused) {
		return action.Result{}, action.Reject("%s", refused.Why)
	}
	if err = errors.Join(err, herr); err != nil {
		return action.Result{}, err
	}
	out, err := t.told(r)
	out.Footprint = room.footprint(r.Usage, r.LeftBehind+others)
	return out, err
}

// do runs one call in its session, or as a program of its own.
func (t *interpreter) do(ctx context.Context, r *room, code string) (session.Result, error) {
	limits := session.Limits{Wall: t.desk.cfg.Wall, CPU: t.desk.cfg.CPU}
	if !t.once() {
		return r.sessions[t.kind].Do(ctx, code, limits)
	}
	end, err := r.zygote.Run(ctx, code, nil, limits)
	told := session.Result{Status: end.Status, Exit: end.Exit, Output: end.Stdout, Wall: end.Wall, Usage: end.Usage, LeftBehind: end.LeftBehind}
	if end.Status == sandbox.StatusSignaled {
		told.Why = fmt.Sprintf("the program was ended by signal %d", end.Signal)
	}
	return told, err
}

// once tells that each call is a program of its own.
func (t *interpreter) once() bool { return t.desk.cfg.Once && t.kind == session.Python }

// footprint is what a call waited for, needed and left.
func (r *room) footprint(u sandbox.Usage, left int) *episode.Footprint {
	f := r.took
	f.PeakMemory, f.OOMKills, f.RefusedForks, f.LeftBehind = u.PeakMemory, u.OOMKills, u.RefusedForks, left
	return &f
}

// told is a call's result as the model sees it.
func (t *interpreter) told(r session.Result) (action.Result, error) {
	out := action.Result{OutBytes: r.Output.Total, CPU: &r.Usage.CPU, Tier: t.desk.tier(), Rootfs: t.desk.cfg.Spec.RootfsDigest}
	out.Text, out.Truncated = joined(r.Output)
	if r.Exit >= 0 {
		code := int32(r.Exit)
		out.ExitCode = &code
	}
	words := t.fault(r)
	if words == "" {
		return out, nil
	}
	return out, &action.ToolError{Text: words, TimedOut: r.Status == sandbox.StatusWallLimit}
}

// fault says what went wrong with a call, "" where nothing did.
func (t *interpreter) fault(r session.Result) string {
	var words []string
	switch r.Status {
	case sandbox.StatusWallLimit:
		words = append(words, fmt.Sprintf("it was stopped after %s, the time limit of one call", t.desk.cfg.Wall))
	case sandbox.StatusCPULimit:
		words = append(words, fmt.Sprintf("it was stopped: it used up the %s of CPU time that one call has", t.desk.cfg.CPU))
	case sandbox.StatusNonzero:
		if r.Raised != "" {
			words = append(words, "the code raised "+r.Raised)
		} else if !r.Lost {
			words = append(words, fmt.Sprintf("exit code %d", r.Exit))
		}
	}
	if r.Status == sandbox.StatusMemoryLimit || r.Usage.OOMKills > 0 {
		words = append(words, fmt.Sprintf("a process was killed: all together used more than the %d MiB of memory there are", t.desk.cfg.share()>>20))
	}
	switch {
	case r.Lost:
		words = append(words, fmt.Sprintf("the %s session has ended (%s) and its state is gone; files are still there; the next call begins a new session", t.kind, r.Why))
	case r.Why != "":
		words = append(words, r.Why)
	case !t.once() && (r.Status == sandbox.StatusWallLimit || r.Status == sandbox.StatusCPULimit):
		words = append(words, "the session goes on with its state")
	}
	return strings.Join(words, "; ")
}

// joined is what is kept of an output, with a line in the place of what is not.
func joined(o sandbox.Output) (string, bool) {
	dropped := o.Total - int64(len(o.Head)+len(o.Tail))
	if dropped <= 0 {
		return string(o.Head) + string(o.Tail), false
	}
	return fmt.Sprintf("%s\n… %d bytes cut …\n%s", o.Head, dropped, o.Tail), true
}

// readFile is the tool read_file.
type readFile struct{ desk *Desk }

func (*readFile) Name() string { return "read_file" }

func (*readFile) Definition() json.RawMessage {
	return definition("read_file", "Read a text file of the work folder.", "path", "Path of the file, relative to the work folder.")
}

func (t *readFile) Wait(ctx context.Context, env action.Env) (func(), error) {
	return t.desk.wait(ctx, env.Episode, "")
}

func (t *readFile) End(ctx context.Context, episode string) error { return t.desk.end(ctx, episode) }

// Run returns the file's text. What is wrong with path or file is a *ToolError.
func (t *readFile) Run(ctx context.Context, args json.RawMessage, env action.Env) (action.Result, error) {
	var in struct{ Path string }
	if err := json.Unmarshal(args, &in); err != nil {
		return action.Result{}, fmt.Errorf("reading the arguments of read_file: %w", err)
	}
	room := t.desk.room(env.Episode)
	f, err := room.box.Get(ctx, t.desk.below(in.Path), t.desk.cfg.MostFile)
	if err != nil {
		return action.Result{}, fileFault(in.Path, err)
	}
	if !utf8.Valid(f.Data) || strings.IndexByte(string(f.Data), 0) >= 0 {
		return action.Result{}, action.Reject("%q has %d bytes and is no text in UTF-8", in.Path, len(f.Data))
	}
	return t.desk.done(room, string(f.Data)), nil
}

// writeFile is the tool write_file.
type writeFile struct{ desk *Desk }

func (*writeFile) Name() string { return "write_file" }

func (*writeFile) Definition() json.RawMessage {
	return definition("write_file", "Write a text file in the work folder; folders on the way are made, and a file that is there already is replaced.",
		"path", "Path of the file, relative to the work folder.", "content", "The whole text of the file.")
}

func (t *writeFile) Wait(ctx context.Context, env action.Env) (func(), error) {
	return t.desk.wait(ctx, env.Episode, "")
}

func (t *writeFile) End(ctx context.Context, episode string) error { return t.desk.end(ctx, episode) }

// Run writes the file. What is wrong with the path is a *ToolError.
func (t *writeFile) Run(ctx context.Context, args json.RawMessage, env action.Env) (action.Result, error) {
	var in struct{ Path, Content string }
	if err := json.Unmarshal(args, &in); err != nil {
		return action.Result{}, fmt.Errorf("reading the arguments of write_file: %w", err)
	}
	room := t.desk.room(env.Episode)
	room.touched = true
	room.keeps.Store(true)
	if err := room.box.Put(ctx, sandbox.File{Path: t.desk.below(in.Path), Data: []byte(in.Content)}); err != nil {
		return action.Result{}, fileFault(in.Path, err)
	}
	return t.desk.done(room, fmt.Sprintf("wrote %d bytes to %s", len(in.Content), in.Path)), nil
}

// done is the result of a call that ran no program.
func (d *Desk) done(r *room, text string) action.Result {
	return action.Result{Text: text, Tier: d.tier(), Rootfs: d.cfg.Spec.RootfsDigest, Footprint: r.footprint(sandbox.Usage{}, 0)}
}

// below makes a path that programs would use one that is relative to the work folder.
func (d *Desk) below(name string) string {
	if rest, ok := strings.CutPrefix(path.Clean(name), d.cfg.Home+"/"); ok && d.cfg.Home != "" {
		return rest
	}
	return name
}

// fileFault makes a *ToolError of what is the path's or the file's fault; anything else is the sandbox's.
func fileFault(name string, err error) error {
	var escape *sandbox.EscapeError
	var large *sandbox.TooLargeError
	var full *sandbox.FullError
	var wrong *sandbox.PathError
	switch {
	case errors.As(err, &escape):
		return action.Reject("%q leads out of the work folder, or through a symbolic link; use a path relative to the work folder", name)
	case errors.As(err, &large):
		return action.Reject("%q has %d bytes; at most %d can be read or written at once", name, large.Size, large.Limit)
	case errors.As(err, &full):
		return action.Reject("there is no room left for %q", name)
	case errors.As(err, &wrong):
		return action.Reject("%q %s", name, wrong.Why)
	case errors.Is(err, fs.ErrNotExist):
		return action.Reject("there is no file %q", name)
	}
	return err
}
