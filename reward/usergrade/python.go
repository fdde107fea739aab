package usergrade

import (
	"context"
	"crypto/sha256"
	_ "embed" // the driver
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"tranche/action/sandbox"
	"tranche/action/sandbox/session"
	"tranche/reward"
)

// KindPython is the kind of grader that is a Python function.
const KindPython = "python"

type pythonOptions struct {
	File     string          `json:"file"`     // with the function; it is copied into the sandbox
	Function string          `json:"function"` // Default grade
	Trusted  bool            `json:"trusted"`  // you vouch for the file: it may run where nothing holds it
	Modules  []string        `json:"modules"`  // imported before the file
	Timeout  time.Duration   `json:"timeout"`  // of one grading, the start of a session included. Default --score-timeout
	Options  json.RawMessage `json:"options"`  // handed on in the case
}

// python is the grader. Each session lives in a sandbox of its own and takes one case at a time.
type python struct {
	opt    pythonOptions
	name   string
	source []byte
	host   Host
	life   context.Context // ends at Close, and every grading with it
	end    context.CancelFunc

	mu     sync.Mutex
	idle   []*room // guarded by mu
	closed bool    // guarded by mu
	busy   sync.WaitGroup
}

// room is a sandbox with a session that has read the file.
type room struct {
	box     sandbox.Sandbox
	session *session.Session
	tier    string
	cases   int
}

var (
	_ reward.Grader  = (*python)(nil)
	_ reward.Timed   = (*python)(nil)
	_ reward.Decided = (*python)(nil)
)

//go:embed driver.py
var driver string

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func newPython(s reward.Spec, h Host) (*python, error) {
	p := &python{name: s.Name, host: h, opt: pythonOptions{Function: "grade"}}
	p.life, p.end = context.WithCancel(context.Background())
	if err := reward.ReadOptions(s, &p.opt); err != nil {
		return nil, err
	}
	var errs []error
	if p.opt.File == "" {
		errs = append(errs, errors.New("file: is missing; expected a Python file"))
	} else {
		var err error
		if p.source, err = os.ReadFile(p.opt.File); err != nil {
			errs = append(errs, fmt.Errorf("file: %w", err))
		}
	}
	if !identifier.MatchString(p.opt.Function) {
		errs = append(errs, fmt.Errorf("function: %q, expected the name of a function", p.opt.Function))
	}
	if p.opt.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout: %s, expected more than 0s", p.opt.Timeout))
	}
	return p, errors.Join(errs...)
}

// ID is the kind and its version.
func (*python) ID() string { return KindPython + "/1" }

// Timeout is the configured one.
func (p *python) Timeout() time.Duration { return p.opt.Timeout }

// Decides is the file's content, not where it lies.
func (p *python) Decides() string {
	sum := sha256.Sum256(p.source)
	o := p.opt
	o.File, o.Timeout = hex.EncodeToString(sum[:]), 0
	return digestable(o)
}

// Grade calls the function in a session. A session in which anything went wrong is not used again.
func (p *python) Grade(ctx context.Context, in reward.Input) (reward.Finding, error) {
	text, err := newCase(p.name, p.opt.Options, in, 0)
	if err != nil {
		return reward.Finding{}, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(p.life, stop)()
	r, err := p.take(ctx)
	if err != nil {
		return reward.Finding{}, told(ctx, err)
	}
	f, fit, err := r.grade(ctx, text)
	if gone := p.give(r, fit); gone != nil && err == nil {
		err = &reward.Unjudged{Reason: Died, Detail: gone.Error(), Retry: true}
	}
	f.Tier = r.tier
	return f, told(ctx, err)
}

// told is err, but that of ctx where that is why.
func told(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// take gives a session that waits, or a new one.
func (p *python) take(ctx context.Context) (*room, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errors.New("the grader is closed")
	}
	p.busy.Add(1)
	if n := len(p.idle); n > 0 {
		r := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return r, nil
	}
	p.mu.Unlock()
	r, err := p.open(ctx)
	if err != nil {
		p.busy.Done()
	}
	return r, err
}

// give has a session wait for the next case, or closes its sandbox.
func (p *python) give(r *room, fit bool) error {
	defer p.busy.Done()
	p.mu.Lock()
	if fit = fit && !p.closed; fit {
		p.idle = append(p.idle, r)
	}
	p.mu.Unlock()
	if fit {
		return nil
	}
	return r.close()
}

// open makes a sandbox and has a session read the file.
func (p *python) open(ctx context.Context) (*room, error) {
	x, err := p.host.Boxes(ctx)
	if err != nil {
		return nil, broken("the sandbox", err)
	}
	spec := p.host.Spec
	spec.Trusted = spec.Trusted || p.opt.Trusted
	box, err := x.Open(ctx, spec)
	if err != nil {
		return nil, broken("open a sandbox", err)
	}
	r := &room{box: box, tier: string(x.Capabilities().Tier)}
	if err = r.begin(ctx, p); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// broken is a failure of the sandbox: asking again may find another.
func broken(what string, err error) error {
	return &reward.Unjudged{Reason: Died, Detail: fmt.Sprintf("%s: %v", what, err), Retry: true}
}

func (r *room) begin(ctx context.Context, p *python) (err error) {
	if err := r.box.Put(ctx, sandbox.File{Path: filepath.Base(p.opt.File), Data: p.source}); err != nil {
		return broken("put the file", err)
	}
	if r.session, err = session.New(r.box, session.Options{Kind: session.Python, Modules: p.opt.Modules}); err != nil {
		return err
	}
	done, err := r.session.Do(ctx, fmt.Sprintf("%s\n_tranche_load(%q, %q)\n", driver, filepath.Base(p.opt.File), p.opt.Function), session.Limits{})
	return judgeCall("read "+filepath.Base(p.opt.File), done, err)
}

// judgeCall says what a call that did not end well means: an exception is the function's failure, a session that is gone may be another time.
func judgeCall(what string, r session.Result, err error) error {
	switch {
	case err != nil:
		return broken(what, err)
	case r.Lost || r.Status != sandbox.StatusOK && r.Raised == "":
		return &reward.Unjudged{Reason: Died, Detail: fmt.Sprintf("%s: %s: %s", what, r.Status, r.Why), Retry: true}
	case r.Status != sandbox.StatusOK:
		return fmt.Errorf("%s: %s", what, lastLine(r.Output))
	}
	return nil
}

// lastLine is where a traceback says what it is about.
func lastLine(out sandbox.Output) string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(out.Head)+string(out.Tail), ""))
	return strings.TrimSpace(text[strings.LastIndex(text, "\n")+1:])
}

// grade has the function judge one case. fit says that the session can take another.
func (r *room) grade(ctx context.Context, text []byte) (f reward.Finding, fit bool, err error) {
	r.cases++
	in, out := fmt.Sprintf("case-%d.json", r.cases), fmt.Sprintf("verdict-%d.json", r.cases) // never one of another case
	if err := r.box.Put(ctx, sandbox.File{Path: in, Data: text}); err != nil {
		return f, false, broken("put the case", err)
	}
	done, err := r.session.Do(ctx, fmt.Sprintf("_tranche_grade(%q, %q)\n", in, out), session.Limits{})
	f.Cost.CPU = done.Usage.CPU
	if err := judgeCall("the function", done, err); err != nil {
		return f, false, err
	}
	file, err := r.box.Get(ctx, out, maxAnswer)
	if err != nil {
		return f, false, broken("get the verdict", err)
	}
	a, err := read(file.Data)
	if err != nil {
		return f, false, err
	}
	cpu := f.Cost.CPU
	f, err = a.finding(func(text string) string { return text })
	f.Cost.CPU = cpu
	return f, true, err
}

func (r *room) close() error {
	var err error
	if r.session != nil {
		err = r.session.Close()
	}
	return errors.Join(err, r.box.Close())
}

// Close closes all sandboxes. It ends the gradings that go on, whoever began them, and waits for them.
func (p *python) Close() error {
	p.end()
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	var errs []error
	for _, r := range idle {
		errs = append(errs, r.close())
	}
	p.busy.Wait()
	return errors.Join(errs...)
}
