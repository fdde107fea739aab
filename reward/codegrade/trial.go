package codegrade

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tranche/action/sandbox"
	"tranche/reward"
)

//go:embed trial.py
var trialScript string

// trialJob tells trial.py what the tests' own code is, and what to do with it.
type trialJob struct {
	Op      string      `json:"op"` // apart, here
	Tests   string      `json:"tests"`
	Setup   string      `json:"setup"`
	Prelude string      `json:"prelude"`
	Entry   string      `json:"entry"`
	Seed    uint64      `json:"seed"`
	Steps   []trialStep `json:"steps,omitempty"` // of here: in their order, those that were taken apart left out
	Modules []string    `json:"modules"`
	Own     []string    `json:"own"`
}

type trialStep struct {
	Kind string `json:"kind"` // here = a test, do = what tests need
	At   int    `json:"at"`
}

// trialTime bounds the tests' own code: taking it apart, and running what was not.
const (
	trialCPU  = 5 * time.Second
	trialWall = time.Minute
)

// TestsTooLong is the reason of a verdict that is missing because a task's tests take more CPU time than this grader gives their own code: they
// may be right.
const TestsTooLong = "tests_too_long"

// endedBy is the error of tests that ended their own process.
func endedBy(how sandbox.Status, what string) error {
	if how == sandbox.StatusCPULimit {
		return &reward.Unjudged{Reason: TestsTooLong, Detail: fmt.Sprintf("%s: it takes more than %s of CPU time", what, trialCPU)}
	}
	return bad("%s: %s", what, how)
}

// apart is what trial.py makes of tests.
type apart struct {
	Bad     string
	Steps   []apartStep
	Names   []string
	Modules []string
	Own     []string
	Param   string
}

type apartStep struct {
	Kind    string
	At      int
	Rule    string
	Call    string
	Expr    string
	Wrap    [][]any
	Args    []json.RawMessage
	Kwargs  map[string]json.RawMessage
	Want    json.RawMessage
	Within  json.RawMessage
	Reached bool
}

// takeApart makes a suite of tests that are code.
func takeApart(ctx context.Context, box sandbox.Sandbox, src source, seed uint64) (*suite, error) {
	job := trialJob{Op: "apart", Tests: src.tests, Setup: src.setup, Prelude: src.prelude, Entry: src.entry, Seed: seed}
	p, err := begin(ctx, box, wireScript+trialScript, trialCPU, trialWall)
	if err != nil {
		return nil, died("start the tests", err)
	}
	r, err := p.exchange(ctx, job, limits{trialCPU, trialWall})
	res, serr := p.stop(r.end)
	if err != nil {
		return nil, err
	}
	if serr != nil || r.end == sandbox.StatusWallLimit {
		return nil, died("take the tests apart", errors.Join(serr, fmt.Errorf("%s", res.Status)))
	}
	if r.end != "" {
		return nil, endedBy(res.Status, "taking the tests apart ended their process")
	}
	var a apart
	if err := json.Unmarshal(r.text, &a); err != nil {
		return nil, died("take the tests apart", err)
	}
	if a.Bad != "" {
		return nil, bad("the tests' own code: %s", a.Bad)
	}
	return a.suite(src, job)
}

// suite makes the checks of what was taken apart.
func (a apart) suite(src source, job trialJob) (*suite, error) {
	s := &suite{form: src.form, entry: src.entry, prompt: src.prelude, setup: src.setup, modules: a.Modules, aliases: map[string]string{}}
	if a.Param != "" && a.Param != src.entry {
		if src.entry == "" {
			return nil, missing("check(%s) is to be called with a function, and none is named", a.Param)
		}
		s.aliases[a.Param] = src.entry
	}
	job.Op, job.Modules, job.Own = "here", a.Modules, a.Own
	here := false
	for _, step := range a.Steps {
		if step.Kind == kindCall {
			c, err := step.check()
			if err != nil {
				return nil, died("take the tests apart", err)
			}
			s.checks = append(s.checks, c)
			continue
		}
		job.Steps = append(job.Steps, trialStep{step.Kind, step.At})
		if step.Kind == kindHere {
			here = true
			s.checks = append(s.checks, check{kind: kindHere, at: step.At})
		}
	}
	if here {
		s.here = &job
	}
	if len(s.checks) == 0 {
		return nil, bad("the tests test nothing")
	}
	return s, nil
}

func (s apartStep) check() (check, error) {
	c := check{kind: kindCall, fromCode: true, rule: s.Rule, reached: s.Reached, call: callJob{Call: s.Call, Expr: s.Expr, Wrap: s.Wrap, Args: make([]value, len(s.Args)), Kwargs: map[string]value{}}}
	var errs []error
	read := func(raw json.RawMessage) value {
		v, err := parseValue(raw)
		errs = append(errs, err)
		return v
	}
	for i, a := range s.Args {
		c.call.Args[i] = read(a)
	}
	for k, a := range s.Kwargs {
		c.call.Kwargs[k] = read(a)
	}
	if s.Want != nil {
		c.want = read(s.Want)
	}
	if s.Within != nil {
		c.within = read(s.Within).re
	}
	return c, errors.Join(errs...)
}

// fromTrial is a message of trial.py while it runs tests: a call of the answer's function, or the end.
type fromTrial struct {
	Bad     string
	Results []string // "" = passed, else why not
	Call    string
	Args    []json.RawMessage
	Kwargs  map[string]json.RawMessage
}

// toTrial is what came of a call.
type toTrial struct {
	Value   *value           `json:"value,omitempty"`
	Changed map[string]value `json:"changed,omitempty"`
	Raised  string           `json:"raised"`
	Said    string           `json:"said"`
}

// runHere runs tests beside their own code and calls the answer's functions for them. One result for each step of kind here; "" = passed.
func runHere(ctx context.Context, box sandbox.Sandbox, job trialJob, player *player) ([]string, error) {
	p, err := begin(ctx, box, wireScript+trialScript, trialCPU, trialWall)
	if err != nil {
		return nil, died("start the tests", err)
	}
	t, err := converse(ctx, p, job, player)
	res, serr := p.stop(t.end)
	switch {
	case err != nil:
		return nil, err
	case serr != nil, t.end == sandbox.StatusWallLimit:
		return nil, died("run the tests", errors.Join(serr, fmt.Errorf("%s", res.Status)))
	case t.end != "" && !t.called:
		return nil, endedBy(res.Status, "the tests' own code ended before it called anything")
	case t.end != "": // what the answer returned made them take more than they may
		return repeated("what it returned ended the tests: "+string(res.Status), job), nil
	}
	return t.results, nil
}

func repeated(why string, job trialJob) []string {
	var results []string
	for _, s := range job.Steps {
		if s.Kind == kindHere {
			results = append(results, why)
		}
	}
	return results
}

// talk is what came of running tests.
type talk struct {
	results []string
	end     sandbox.Status // why there are none, "" = there are
	called  bool           // the answer was asked something, so that an end may be its doing
}

// converse goes on until the tests are through.
func converse(ctx context.Context, p *program, first any, player *player) (t talk, err error) {
	for next := first; ; t.called = true {
		r, err := p.exchange(ctx, next, limits{trialCPU, trialWall})
		if t.end = r.end; err != nil || r.end != "" {
			return t, err
		}
		var m fromTrial
		if err := json.Unmarshal(r.text, &m); err != nil {
			return t, died("run the tests", err)
		}
		switch {
		case m.Bad != "":
			return t, bad("the tests' own code: %s", m.Bad)
		case m.Call == "":
			t.results = m.Results
			return t, nil
		}
		if next, err = relay(ctx, m, player); err != nil {
			return t, err
		}
	}
}

// relay has the answer's program work out a call of the tests.
func relay(ctx context.Context, m fromTrial, player *player) (toTrial, error) {
	c, err := apartStep{Call: m.Call, Args: m.Args, Kwargs: m.Kwargs}.check()
	if err != nil {
		return toTrial{}, died("run the tests", err)
	}
	c.call.Watch = true
	o, err := player.ask(ctx, c.call)
	return toTrial{o.value, o.changed, o.raised, o.why}, err
}
