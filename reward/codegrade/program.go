package codegrade

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"tranche/action/sandbox"
)

// mostAnswer is how long one message of a sandbox may be, bytes.
const mostAnswer = 16 << 20

// program is one of our drivers at work in a sandbox. One goroutine uses it.
type program struct {
	proc sandbox.Process
	from *bufio.Reader
}

// helloWall bounds how long python may take to start a driver.
const helloWall = time.Minute

// begin starts a driver and waits until it says that it is there: what fails before is never an answer's fault. The limits are a backstop:
// those of single exchanges are shorter.
func begin(ctx context.Context, box sandbox.Sandbox, script string, cpu, wall time.Duration) (*program, error) {
	p, err := box.Start(ctx, sandbox.Cmd{Args: []string{"python3", "-s", "-u", "-c", script}, CPU: cpu + time.Second, Wall: wall + time.Minute, Keep: 4 << 10, Control: true})
	if err != nil {
		return nil, err
	}
	c := p.Control()
	if c == nil {
		r, err := p.Wait(ctx)
		return nil, errors.Join(fmt.Errorf("python3 in the sandbox: %s", r.Status), err)
	}
	prog := &program{proc: p, from: bufio.NewReaderSize(c, 16<<10)}
	if err := prog.greeted(ctx); err != nil {
		return nil, err
	}
	return prog, nil
}

// greeted waits for the driver's first word, and ends the program where there is none.
func (p *program) greeted(ctx context.Context) error {
	r, err := p.exchange(ctx, nil, limits{wall: helloWall})
	if err == nil && string(r.text) == `"hello"` {
		return nil
	}
	res, serr := p.stop(cmp.Or(r.end, broken))
	return errors.Join(err, serr, fmt.Errorf("python3 did not come up in the sandbox: %s", res.Status))
}

// limits bound one exchange. Zero is no limit.
type limits struct{ cpu, wall time.Duration }

// reply is what came of one exchange: a message, or why there is none.
type reply struct {
	text []byte
	end  sandbox.Status // "" = there is a message; StatusOK = the program let go of its descriptor
	pace pace
}

// broken is the end of an exchange with a program that says what is no message: somebody else than our driver speaks.
const broken sandbox.Status = "broken_message"

// lookEvery is how often the CPU time of a program that works is looked at.
const lookEvery = 20 * time.Millisecond

// exchange sends a message, if not nil, and waits for the next one. After a reply with an end, the program is only to be stopped. The error is ctx's.
func (p *program) exchange(ctx context.Context, message any, lim limits) (reply, error) {
	told := make(chan reply, 1)
	go func() { told <- p.trade(message) }() // ends with the program at the latest
	began, used := time.Now(), p.proc.Usage().CPU
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for seen := lookEvery; ; seen += lookEvery {
		now := func(r reply) reply {
			r.pace = pace{seen: seen, took: time.Since(began), worked: p.proc.Usage().CPU - used}
			return r
		}
		select {
		case r := <-told:
			return now(r), nil
		case <-ctx.Done():
			return reply{}, ctx.Err()
		case <-look.C:
			switch {
			case lim.cpu > 0 && p.proc.Usage().CPU-used >= lim.cpu:
				return now(reply{end: sandbox.StatusCPULimit}), nil
			case lim.wall > 0 && time.Since(began) >= lim.wall:
				return now(reply{end: sandbox.StatusWallLimit}), nil
			}
		}
	}
}

// pace says how a program's time went by. On a machine that is too busy, time that ran out says nothing of the program.
type pace struct {
	seen   time.Duration // how long it was really looked at: less than what passed where this process itself was hardly run
	took   time.Duration // how long it was waited for
	worked time.Duration // CPU time that it used meanwhile
}

func (p *pace) add(more pace) {
	p.seen, p.took, p.worked = p.seen+more.seen, p.took+more.took, p.worked+more.worked
}

// starved tells whether the end of a wall time is the machine's fault: the program was hardly looked at, or worked half of the time and still
// did not come to the end of its CPU time. A program that works less slept, whatever it meant by it: else a wrong one could choose to have no
// verdict. With the default limits half of the wall time is all the CPU time there is.
func (p pace) starved(wall time.Duration) bool { return p.seen < wall/2 || p.worked > p.took/2 }

func (p *program) trade(message any) reply {
	if message != nil && p.write(message) != nil {
		return reply{end: sandbox.StatusOK}
	}
	text, err := p.read()
	switch {
	case errors.Is(err, errWire):
		return reply{end: broken}
	case err != nil:
		return reply{end: sandbox.StatusOK}
	}
	return reply{text: text}
}

func (p *program) write(message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		panic(err) // it is made of texts and numbers
	}
	_, err = p.proc.Control().Write(append(fmt.Appendf(nil, "%015d\n", len(text)), text...))
	return err
}

func (p *program) read() ([]byte, error) {
	var head [16]byte
	if _, err := io.ReadFull(p.from, head[:]); err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(string(head[:]), "\n"), 10, 63)
	if err != nil || n > mostAnswer {
		return nil, errWire
	}
	text := make([]byte, n)
	if _, err = io.ReadFull(p.from, text); err == nil && parts(text) > mostParts {
		err = errWire
	}
	return text, err
}

// mostParts bounds what a message takes when it is read, which is many times its length where it is all brackets. wire.py stays well below.
const mostParts = 1 << 20

// parts counts brackets and commas outside of texts.
func parts(text []byte) (n int) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '[' || c == ',' || c == '{'):
			n++
		}
	}
	return n
}

// gone is how long a program that let go of its descriptor may take to end by itself, so that its status can be told.
const gone = 2 * time.Second

// stop ends the program. r says how it ended, where it did so by itself.
func (p *program) stop(end sandbox.Status) (sandbox.Result, error) {
	soon, cancel := context.WithTimeout(context.Background(), gone)
	defer cancel()
	if end != sandbox.StatusOK {
		cancel()
	}
	r, err := p.proc.Wait(soon)
	if end != sandbox.StatusOK {
		r.Status = end
	}
	return r, err
}
