package codegrade

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/action/sandbox"
)

// otherOutput is why a test failed whose program ran well.
const otherOutput = "another output"

// mainFile is what an answer's program is called where it reads input and writes output.
const mainFile = "main.py"

// runMain runs the program on one input, in a sandbox that is as new. "" = its output is the expected one.
func (p *player) runMain(ctx context.Context, c check) (string, error) {
	if p.broken != "" || p.spent() {
		return p.broken, p.starved()
	}
	left := p.left()
	if err := errors.Join(p.box.Reset(ctx), p.box.Put(ctx, sandbox.File{Path: mainFile, Data: []byte(p.load.Source)})); err != nil {
		return "", died("put the program into the sandbox", err)
	}
	most := 2*len(c.text) + 1<<20
	began := time.Now()
	proc, err := p.box.Start(ctx, sandbox.Cmd{
		Args: []string{"python3", "-s", mainFile}, Stdin: []byte(c.in), CPU: left.cpu, Wall: left.wall, Keep: 2 * most, OutputLimit: int64(most),
	})
	if err != nil {
		return "", died("start the program", err)
	}
	r, err := proc.Wait(ctx)
	p.count(r)
	took := time.Since(began)
	p.pace.add(pace{seen: took, took: took, worked: r.Usage.CPU})
	switch {
	case err != nil:
		return "", died("run the program", err)
	case ctx.Err() != nil:
		return "", ctx.Err()
	case r.Status == sandbox.StatusNotFound:
		return "", died("run the program", errors.New("there is no python3 in the sandbox"))
	case r.Status == sandbox.StatusWallLimit:
		p.broken = "not run: a test before it did not end in time"
		if err := p.starved(); err != nil {
			return "", err
		}
	}
	if r.Status != sandbox.StatusOK {
		return fmt.Sprintf("it ended badly: %s%s", r.Status, exitCode(r)), nil
	}
	got := string(r.Stdout.Head) + string(r.Stdout.Tail)
	switch {
	case p.accepts != nil:
		return p.accepts(ctx, c, got)
	case !p.opt.sameOutput(c.text, got):
		return otherOutput, nil
	}
	return "", nil
}

func exitCode(r sandbox.Result) string {
	if r.Status != sandbox.StatusNonzero {
		return ""
	}
	return fmt.Sprintf(" (exit code %d)", r.Exit)
}

// compiles tells whether a source is a program, in a process that does not run it.
func (p *player) compiles(ctx context.Context) (bool, error) {
	prog, err := begin(ctx, p.box, wireScript+compileScript, p.opt.TestCPU, p.opt.Wall)
	if err != nil {
		return false, died("start python", err)
	}
	r, err := prog.exchange(ctx, map[string]string{"source": p.load.Source}, limits{p.opt.TestCPU, time.Until(p.until)})
	res, serr := prog.stop(r.end)
	p.count(res)
	switch {
	case err != nil:
		return false, err
	case serr != nil, r.end == sandbox.StatusWallLimit:
		return false, died("compile the program", errors.Join(serr, fmt.Errorf("%s", res.Status)))
	}
	return string(r.text) == "true", nil // a source that python chokes on is no program
}

const compileScript = `
def check():
    encode, decode, receive, send, Refused = wire()
    job = receive()
    try:
        compile(job["source"], "<answer>", "exec", 0, True)
        send(True)
    except BaseException:
        send(False)

check()
`

// sameOutput compares what a program printed with what was expected.
func (o Options) sameOutput(want, got string) bool {
	switch o.Output {
	case "exact":
		return want == got
	case "lines":
		return slices.Equal(trimmed(want), trimmed(got))
	}
	return slices.EqualFunc(strings.Fields(want), strings.Fields(got), o.sameWord)
}

// trimmed is a text's lines without spaces at their ends, and without empty lines at its end.
func trimmed(text string) []string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t\r")
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// sameWord compares two words; numbers with the tolerance, where one was given and a number with a point is expected.
func (o Options) sameWord(want, got string) bool {
	if want == got {
		return true
	}
	if o.Tolerance == 0 || !strings.ContainsAny(want, ".eE") {
		return false
	}
	w, err1 := strconv.ParseFloat(want, 64)
	g, err2 := strconv.ParseFloat(got, 64)
	return err1 == nil && err2 == nil && math.Abs(w-g) <= o.Tolerance*max(1, math.Abs(w))
}
