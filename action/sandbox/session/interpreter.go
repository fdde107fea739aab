package session

import (
	"bufio"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tranche/action/sandbox"
)

//go:embed driver.py
var pythonDriver string

//go:embed driver.sh
var bashDriver string

// interpreter is one running program of a session.
type interpreter struct {
	opt  Options
	proc sandbox.Process
	from *bufio.Reader // what the program says on the control descriptor
	used sandbox.Usage // before the call
}

// program is what a kind of session runs.
func program(kind Kind) []string {
	if kind == Bash {
		return []string{"bash", "--norc", "--noprofile", "-c", oneLine(bashDriver), "bash"}
	}
	return []string{"python3", "-u", "-c", pythonDriver}
}

// oneLine joins a shell program to one line.
func oneLine(script string) string {
	var words []string
	for line := range strings.Lines(script) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			words = append(words, line)
		}
	}
	return strings.Join(words, " ")
}

// begin starts an interpreter and waits until it takes calls.
func begin(ctx context.Context, box sandbox.Sandbox, opt Options) (*interpreter, error) {
	in, err := launch(ctx, box, opt)
	if err != nil {
		return nil, err
	}
	if opt.Kind == Python {
		if err := in.hello(ctx, 'p', opt.Modules); err != nil {
			return nil, err
		}
	}
	return in, nil
}

func launch(ctx context.Context, box sandbox.Sandbox, opt Options) (*interpreter, error) {
	p, err := box.Start(ctx, sandbox.Cmd{Args: program(opt.Kind), Env: opt.Env, Keep: opt.Keep, Control: true})
	if err != nil {
		return nil, err
	}
	in := &interpreter{opt: opt, proc: p}
	if c := p.Control(); c != nil {
		in.from = bufio.NewReaderSize(c, 4096)
		return in, nil
	}
	r, err := in.kill() // the program is not there
	return nil, errors.Join(startFault(opt.Kind, r), err)
}

// StartError says that an interpreter ended before it took its first call. Whether that is the executor's fault or that of what runs in the
// sandbox already, the status tells: StatusNotFound is never a program's.
type StartError struct {
	Kind   Kind
	Status sandbox.Status
	Said   string // what it printed
}

func (e *StartError) Error() string {
	return fmt.Sprintf("session: %s did not start: %s: %s", e.Kind, e.Status, e.Said)
}

func startFault(kind Kind, r sandbox.Result) error {
	return &StartError{kind, r.Status, strings.TrimSpace(string(r.Stdout.Head) + string(r.Stderr.Head))}
}

// hello tells python what it is to be and which modules to import, and waits until it has done so.
func (in *interpreter) hello(ctx context.Context, what byte, modules []string) error {
	mark, err := in.ask(ctx, pythonFrame(what, []byte(strings.Join(modules, " "))))
	if err == nil && mark[0] == "ok" {
		return nil
	}
	r, kerr := in.kill()
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), kerr)
	}
	return errors.Join(startFault(in.opt.Kind, r), kerr)
}

// ask sends a frame and returns the words of its answer, however long that takes.
func (in *interpreter) ask(ctx context.Context, frame []byte) ([]string, error) {
	select {
	case m := <-in.send(frame):
		return m.words, m.err
	case <-ctx.Done():
		return nil, ctx.Err() // the caller kills the program, which ends send
	}
}

// mark is the end of a call, as the program told it.
type mark struct {
	words []string
	err   error // the program has closed its end
}

// send sends a frame with a number behind it and reads until that number comes back. The channel gets one mark; the goroutine behind
// it ends when the program does.
func (in *interpreter) send(frame []byte) <-chan mark {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	nonce := hex.EncodeToString(random[:])
	end := byte('\n')
	if in.opt.Kind == Bash {
		end = 0
	}
	told := make(chan mark, 1)
	go func() {
		if _, err := in.proc.Control().Write(append(append(frame, nonce...), end)); err != nil {
			told <- mark{err: err}
			return
		}
		words, err := in.await(nonce)
		told <- mark{words, err}
	}()
	return told
}

// await reads lines until one begins with the number. All else there is of the program's making and means nothing.
func (in *interpreter) await(nonce string) ([]string, error) {
	for whole := true; ; {
		line, err := in.from.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			whole = false
			continue
		}
		if err != nil {
			return nil, err
		}
		if words := strings.Fields(string(line)); whole && len(words) > 1 && words[0] == nonce {
			return words[1:], nil
		}
		whole = true
	}
}

func pythonFrame(kind byte, text []byte) []byte {
	return append(fmt.Appendf(nil, "%c%014d\n", kind, len(text)), text...)
}

func (in *interpreter) frame(code string) []byte {
	if in.opt.Kind == Bash {
		return append([]byte(code), 0)
	}
	return pythonFrame('c', in.code(code))
}

// code is a program as python can read it.
func (in *interpreter) code(text string) []byte { return []byte(strings.ToValidUTF8(text, "\uFFFD")) }

// do runs one call.
func (in *interpreter) do(ctx context.Context, code string, lim Limits) (Result, error) {
	in.used = in.proc.Usage() // what others in the sandbox used between the calls is not this one's, where only all together are counted
	began := time.Now()
	w := watch{in: in, limits: lim}
	m, cause := w.wait(ctx, in.send(in.frame(code)))
	r, err := in.conclude(ctx, m, cause, lim, began)
	r.Wall = time.Since(began)
	return r, err
}

// conclude makes the result of a call: of its mark, or of the interpreter's end where there is none.
func (in *interpreter) conclude(ctx context.Context, m *mark, cause sandbox.Status, lim Limits, began time.Time) (Result, error) {
	var r Result
	switch {
	case m != nil && m.err == nil:
		in.read(&r, m.words)
		if cause != "" {
			r.Status = cause
		}
		if r.Status != statusExit {
			r.Output, _ = in.proc.Take()
			in.charge(&r, in.proc.Usage())
			return r, nil
		}
	case m == nil:
		return in.lose(cause)
	}
	return in.bury(ctx, lim, began)
}

// statusExit marks a call that ended its interpreter; no caller sees it.
const statusExit sandbox.Status = "exit"

// read takes the words of a mark: how, exit code, exception.
func (in *interpreter) read(r *Result, words []string) {
	r.Exit, _ = strconv.Atoi(words[1])
	r.Status = sandbox.StatusOK
	if r.Exit != 0 {
		r.Status = sandbox.StatusNonzero
	}
	if words[0] == "exit" {
		r.Status = statusExit
	}
	if len(words) > 2 && words[2] != "-" {
		r.Raised = words[2]
	}
}

// charge puts what was used since the call began to its account.
func (in *interpreter) charge(r *Result, u sandbox.Usage) { r.Usage = in.since(u) }

// since is what was used since the call began; its memory is the peak so far.
func (in *interpreter) since(u sandbox.Usage) sandbox.Usage {
	u.CPU = max(0, u.CPU-in.used.CPU)
	u.OOMKills = max(0, u.OOMKills-in.used.OOMKills)
	u.RefusedForks = max(0, u.RefusedForks-in.used.RefusedForks)
	return u
}

// lose kills an interpreter that did not end its call when it was told to.
func (in *interpreter) lose(cause sandbox.Status) (Result, error) {
	end, err := in.kill()
	r := Result{Status: cause, Exit: -1, Output: end.Stdout, LeftBehind: end.LeftBehind, Lost: true, Why: "it did not stop and was killed"}
	in.charge(&r, end.Usage)
	return r, err
}

// bury waits for the end of an interpreter that has let go of its descriptor: it ends, or has become another program.
func (in *interpreter) bury(ctx context.Context, lim Limits, began time.Time) (Result, error) {
	timed, cancel := ctx, context.CancelFunc(func() {})
	if lim.Wall > 0 {
		timed, cancel = context.WithDeadline(ctx, began.Add(lim.Wall))
	}
	defer cancel()
	end, err := in.proc.Wait(timed)
	r := Result{Status: end.Status, Exit: end.Exit, Output: end.Stdout, LeftBehind: end.LeftBehind, Lost: true}
	switch {
	case end.Status == sandbox.StatusCanceled && ctx.Err() == nil:
		r.Status, r.Why = sandbox.StatusWallLimit, "it did not stop and was killed"
	case end.Signal != 0:
		r.Why = fmt.Sprintf("it was ended by signal %d (%s)", end.Signal, end.Status)
	default:
		r.Why = fmt.Sprintf("it exited with code %d", end.Exit)
	}
	in.charge(&r, end.Usage)
	return r, err
}

// kill ends the program and what it started.
func (in *interpreter) kill() (sandbox.Result, error) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	return in.proc.Wait(done)
}

// watch is one call that is waited for.
type watch struct {
	in     *interpreter
	limits Limits
}

// How often limits are looked at and interrupts repeated. Several are sent because one ends only the innermost thing that catches it.
const (
	lookEvery      = 50 * time.Millisecond
	interruptEvery = 250 * time.Millisecond
)

// wait returns the call's mark and, where a limit was reached first, which. Without a mark the call has outlived its grace, or ctx.
func (w watch) wait(ctx context.Context, told <-chan mark) (*mark, sandbox.Status) {
	cause, m := w.untilLimit(ctx, told)
	if m != nil || cause == sandbox.StatusCanceled {
		return m, cause
	}
	grace := time.NewTimer(w.in.opt.Grace)
	defer grace.Stop()
	again := time.NewTicker(min(interruptEvery, w.in.opt.Grace/4+1))
	defer again.Stop()
	for {
		_ = w.in.proc.Interrupt() // what cannot be interrupted is killed after the grace
		select {
		case m := <-told:
			return &m, cause
		case <-grace.C:
			return nil, cause
		case <-ctx.Done():
			return nil, cause
		case <-again.C:
		}
	}
}

// untilLimit waits for the mark, or for the first limit that is reached.
func (w watch) untilLimit(ctx context.Context, told <-chan mark) (sandbox.Status, *mark) {
	var wall, look <-chan time.Time
	if w.limits.Wall > 0 {
		t := time.NewTimer(w.limits.Wall)
		defer t.Stop()
		wall = t.C
	}
	if w.limits.CPU > 0 {
		t := time.NewTicker(lookEvery)
		defer t.Stop()
		look = t.C
	}
	for {
		select {
		case m := <-told:
			return "", &m
		case <-wall:
			return sandbox.StatusWallLimit, nil
		case <-ctx.Done():
			return sandbox.StatusCanceled, nil
		case <-look:
			if w.in.proc.Usage().CPU-w.in.used.CPU >= w.limits.CPU {
				return sandbox.StatusCPULimit, nil
			}
		}
	}
}
