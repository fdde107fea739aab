package codegrade

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"tranche/action/sandbox"
	"tranche/reward"
)

//go:embed wire.py
var wireScript string

//go:embed candidate.py
var candidateScript string

// player is an answer's program at work: it lives as long as it can, and is begun anew when a test was its end.
type player struct {
	box   sandbox.Sandbox
	load  loadJob
	opt   Options
	until time.Time     // end of its wall time
	cpu   time.Duration // of programs that have ended
	live  *program
	peak  int64 // bytes
	pace  pace
	tier  sandbox.Tier

	accepts func(ctx context.Context, c check, output string) (why string, err error) // nil = outputs are compared with the expected ones

	deaths int
	stage  string // how far loading came: compile, load, run, setup, names, ready; "" = not tried, or ended before it was compiled
	broken string // why no more tests are run, "" = they are
}

// stageLoad is where a program is that was compiled and is not loaded yet.
const stageLoad = "load"

// loadJob tells candidate.py what to be.
type loadJob struct {
	Nonce   string            `json:"nonce"`
	Source  string            `json:"source"`
	Setup   string            `json:"setup"`
	Modules []string          `json:"modules"`
	Aliases map[string]string `json:"aliases"`
	Names   []string          `json:"names"`
}

// callJob is one thing to work out: a call, or an expression.
type callJob struct {
	Nonce  string           `json:"nonce"`
	Call   string           `json:"call,omitempty"`
	Args   []value          `json:"args"`
	Kwargs map[string]value `json:"kwargs"`
	Wrap   [][]any          `json:"wrap"`
	Expr   string           `json:"expr,omitempty"`
	Watch  bool             `json:"watch,omitempty"` // say what it did to its arguments
}

// outcome is what came of a call. Exactly one of value and why is there.
type outcome struct {
	value   *value
	changed map[string]value
	raised  string // builtin class of an exception, where it raised one
	why     string // in words, the same whenever the same happens
}

// mostDeaths is after how many ends of its process an answer has failed the rest of its tests.
const mostDeaths = 5

// ask has one thing worked out. The error is ours: the sandbox's, or ctx's.
func (p *player) ask(ctx context.Context, job callJob) (outcome, error) {
	if err := p.ready(ctx); err != nil {
		return outcome{}, err
	}
	if p.broken != "" {
		return outcome{why: p.broken}, nil
	}
	job.Nonce = nonce()
	var told struct {
		Nonce                 string
		Value                 json.RawMessage
		Changed               map[string]json.RawMessage
		Raised, Kind, Refused string
	}
	end, err := p.exchange(ctx, job, &told)
	switch {
	case err != nil:
		return outcome{}, err
	case end != "":
		return outcome{why: "it ended the program: " + end}, nil
	case told.Nonce != job.Nonce:
		return outcome{why: "an answer to another test"}, p.lose()
	case told.Refused != "":
		return outcome{why: "returned " + clip(told.Refused)}, nil
	case told.Value == nil && told.Kind == "":
		return outcome{why: "what it sent is no answer"}, p.lose()
	case told.Value == nil:
		return outcome{raised: word(told.Kind), why: "raised " + word(told.Raised)}, nil
	}
	return p.outcome(told.Value, told.Changed)
}

// outcome reads values; one that is none is the program's own doing.
func (p *player) outcome(text json.RawMessage, changed map[string]json.RawMessage) (outcome, error) {
	v, err := parseValue(text)
	o := outcome{value: &v, changed: map[string]value{}}
	for at, c := range changed {
		after, cerr := parseValue(c)
		if cerr != nil {
			err = cerr
		}
		o.changed[at] = after
	}
	if err != nil {
		return outcome{why: "what it sent is no value"}, p.lose()
	}
	return o, nil
}

// ready begins the program where none is alive.
func (p *player) ready(ctx context.Context) error {
	if p.live != nil || p.broken != "" {
		return nil
	}
	if p.deaths > mostDeaths {
		p.broken = fmt.Sprintf("not run: tests before it ended the program %d times", p.deaths)
		return nil
	}
	if p.spent() {
		return p.starved()
	}
	if p.deaths > 0 { // what it left behind must not keep it from coming up again
		if err := p.box.Reset(ctx); err != nil {
			return died("empty the sandbox", err)
		}
	}
	var err error
	if p.live, err = begin(ctx, p.box, wireScript+candidateScript, p.left().cpu, p.left().wall); err != nil {
		return died("start the program", err)
	}
	return p.loadIt(ctx)
}

func (p *player) loadIt(ctx context.Context) error {
	job := p.load
	job.Nonce = nonce()
	var told struct{ Nonce, Stage, Raised, Missing string }
	p.stage = ""
	for next := any(job); ; next = nil { // it says when it has been compiled, then what came of it
		end, err := p.exchange(ctx, next, &told)
		if err != nil {
			return err
		}
		if end != "" {
			p.broken = "loading it ended the program: " + end
			return nil
		}
		if told.Nonce != job.Nonce {
			p.broken = "loading it: no word of ours"
			return p.lose()
		}
		if told.Stage != stageLoad || p.stage == stageLoad {
			break
		}
		p.stage = stageLoad
	}
	p.stage = told.Stage
	switch told.Stage {
	case "ready":
	case "names":
		p.broken = fmt.Sprintf("there is no %s in it", clip(told.Missing))
	case "compile":
		p.broken = "it does not compile: " + word(told.Raised)
	default:
		p.broken = "loading it raised " + word(told.Raised)
	}
	return nil
}

// exchange is one message to the program and one back. end says how the program ended, where it did.
func (p *player) exchange(ctx context.Context, job, told any) (end string, err error) {
	r, err := p.live.exchange(ctx, job, p.left().some())
	if err != nil {
		return "", err
	}
	p.pace.add(r.pace)
	if r.end == "" {
		if json.Unmarshal(r.text, told) == nil {
			return "", nil
		}
		return "what it sent is no message", p.lose()
	}
	live := p.live
	p.live = nil
	p.deaths++
	res, err := live.stop(r.end)
	p.count(res)
	if err != nil {
		return "", died("the program's end", err)
	}
	if r.end == broken {
		p.broken = interfered
	}
	if r.end == sandbox.StatusWallLimit {
		if err := p.starved(); err != nil {
			return "", err
		}
		p.broken = "not run: a test before it did not end in time"
	}
	return string(ended(res)), nil
}

// ended is how a program ended, as a verdict tells it.
func ended(r sandbox.Result) sandbox.Status {
	if r.Status == sandbox.StatusCanceled { // it let go of its descriptor and lived on
		return sandbox.StatusOK
	}
	return r.Status
}

// left is the time that a test may take.
func (p *player) left() limits {
	used := p.cpu
	if p.live != nil {
		used += p.live.proc.Usage().CPU
	}
	return limits{cpu: min(p.opt.TestCPU, p.opt.CPU-used), wall: time.Until(p.until)}
}

// some is limits that still let a program say why it ended.
func (l limits) some() limits {
	return limits{max(l.cpu, lookEvery), max(l.wall, lookEvery)}
}

// spent tells that no time is left for more tests.
func (p *player) spent() bool {
	left := p.left()
	if left.cpu <= 0 {
		p.broken = "not run: the CPU time is used up"
	} else if left.wall <= 0 {
		p.broken = "not run: the time is used up"
	}
	return p.broken != ""
}

// starved is the error where wall time ran out on a machine that is too busy.
func (p *player) starved() error {
	if time.Until(p.until) > 0 || !p.pace.starved(p.opt.Wall) {
		return nil
	}
	return tooBusy()
}

func tooBusy() error {
	return died("wait for the program", errors.New("this machine is too busy to tell a slow program from a stopped one"))
}

// lose ends a program that does not keep to the rules, for good.
func (p *player) lose() error {
	p.broken = interfered
	return p.close()
}

// interfered is why the tests behind one are not run in which the program spoke in the driver's place.
const interfered = "not run: it spoke in the place of the driver"

// close ends the program.
func (p *player) close() error {
	if p.live == nil {
		return nil
	}
	live := p.live
	p.live = nil
	r, err := live.stop(sandbox.StatusCanceled)
	p.count(r)
	if err != nil {
		return died("end the program", err)
	}
	return nil
}

func (p *player) count(r sandbox.Result) {
	p.cpu += r.Usage.CPU
	p.peak = max(p.peak, r.Usage.PeakMemory)
	p.tier = r.Tier
}

// died is a failure of the sandbox: asking again may help.
func died(what string, err error) error {
	return &reward.Unjudged{Reason: SandboxFailed, Detail: fmt.Sprintf("%s: %v", what, err), Retry: true}
}

// SandboxFailed is the reason of a verdict that is missing because a sandbox could not do its job.
const SandboxFailed = "sandbox_failed"

func nonce() string { return rand.Text() }

// word is a class name that a program told, as far as it is one.
func word(s string) string {
	for _, r := range s {
		if r != '_' && r != '.' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') {
			return "something"
		}
	}
	return clip(s)
}

// clip bounds what a program told, at a rune: a piece of one would have to be repaired where it is stored.
func clip(s string) string {
	end := min(len(s), 60)
	for end < len(s) && end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
