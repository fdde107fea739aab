package codegrade

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tranche/action/sandbox"
)

//go:embed checker.py
var checkerScript string

// checker is a task's own program that decides whether an output is right, for tasks with many right ones. It has a sandbox of its own, which
// the answer's program never enters, and says what it decides over a private descriptor. One goroutine uses it.
type checker struct {
	box    sandbox.Sandbox
	source string
	opt    Options
	until  time.Time // end of the wall time of all tests
	live   *program  // nil = not yet, or it ended
}

// checked is what it said of one output.
type checked struct {
	Passed bool   `json:"passed"`
	Raised string `json:"raised"` // class of an exception
	end    sandbox.Status
}

// failed says in words why there is no decision, "" where there is one.
func (c checked) failed() string {
	switch {
	case c.end != "":
		return "it ended: " + string(c.end)
	case c.Raised != "":
		return "it raised " + word(c.Raised)
	}
	return ""
}

// accepts decides on an output. "" = it is right. A checker that fails with an output is asked for the expected one: where it decides on that,
// the output is what it could not take, which is the answer's doing; else the checker is no good, and there is no verdict.
func (c *checker) accepts(ctx context.Context, t check, output string) (why string, err error) {
	said, err := c.ask(ctx, t, output)
	if err != nil {
		return "", err
	}
	failed := said.failed()
	if failed == "" {
		if said.Passed {
			return "", nil
		}
		return otherOutput, nil
	}
	again, err := c.ask(ctx, t, t.text)
	if err != nil {
		return "", err
	}
	if own := again.failed(); own != "" {
		return "", bad("the checker fails with the expected output: %s", own)
	}
	return otherOutput + ", which the checker cannot take: " + failed, nil
}

// ask has it decide on one output. The error is the sandbox's, ctx's, or says that the source is no checker. One that ends may have spent its
// time and memory on outputs before: a new one is asked then.
func (c *checker) ask(ctx context.Context, t check, output string) (said checked, err error) {
	used := c.live != nil
	if said, err = c.once(ctx, t, output); err == nil && said.end != "" && used {
		return c.once(ctx, t, output)
	}
	return said, err
}

func (c *checker) once(ctx context.Context, t check, output string) (said checked, err error) {
	if c.live == nil {
		if err := c.begin(ctx); err != nil {
			return said, err
		}
	}
	end, err := c.exchange(ctx, map[string]string{"input": t.in, "expected": t.text, "output": output}, &said)
	said.end = end
	return said, err
}

func (c *checker) begin(ctx context.Context) (err error) {
	if c.live, err = begin(ctx, c.box, wireScript+checkerScript, c.opt.CPU, c.opt.Wall); err != nil {
		return died("start the checker", err)
	}
	var told struct{ Fault string }
	end, err := c.exchange(ctx, map[string]string{"source": c.source}, &told)
	switch {
	case err != nil:
		return err
	case end != "":
		return bad("the checker ended while it was loaded: %s", end)
	case told.Fault != "":
		return errors.Join(bad("the checker does not load: %s", word(told.Fault)), c.close())
	}
	return nil
}

// exchange trades one message within the time of a test. A program that has an end is stopped. Its wall time may end by a machine that is too
// busy, so that is the sandbox's failure. It is twice the CPU time of a test at least, however late it is: a program that slept nearly all the time of the tests
// away, and then printed what takes long to decide on, could else choose to have no verdict.
func (c *checker) exchange(ctx context.Context, message, into any) (end sandbox.Status, err error) {
	r, err := c.live.exchange(ctx, message, limits{c.opt.TestCPU, max(time.Until(c.until), 2*c.opt.TestCPU+time.Second)})
	if err == nil && r.end == "" && json.Unmarshal(r.text, into) != nil {
		r.end = broken
	}
	if err == nil && r.end == "" {
		return "", nil
	}
	res, serr := c.live.stop(r.end)
	c.live = nil
	switch {
	case err != nil:
		return "", err
	case serr != nil || r.end == sandbox.StatusWallLimit:
		return "", died("run the checker", errors.Join(serr, fmt.Errorf("%s", res.Status)))
	}
	return res.Status, nil
}

// close ends it.
func (c *checker) close() error {
	if c.live == nil {
		return nil
	}
	_, err := c.live.stop(broken)
	c.live = nil
	if err != nil {
		return died("end the checker", err)
	}
	return nil
}

// judged runs do with a player whose outputs the task's checker decides on, where it has one.
func (g *Grader) judged(ctx context.Context, p *player, s *suite, do func() error) error {
	if s.checker == "" {
		return do()
	}
	return g.inBox(ctx, func(box sandbox.Sandbox) error {
		c := &checker{box: box, source: s.checker, opt: g.opt, until: p.until}
		p.accepts = c.accepts
		err := do()
		return errors.Join(err, c.close())
	})
}
