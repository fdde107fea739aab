package codegrade

import (
	"bufio"
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

// begin starts a driver. The limits are a backstop: those of single exchanges are shorter.
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
	return &program{proc: p, from: bufio.NewReaderSize(c, 16<<10)}, nil
}

// limits bound one exchange. Zero is no limit.
type limits struct{ cpu, wall time.Duration }

// reply is what came of one exchange: a message, or why there is none.
type reply struct {
	text    []byte
	end     sandbox.Status // "" = there is a message; StatusOK = the program let go of its descriptor
	watched time.Duration  // how long it was really looked at: less than the time that passed where this process itself was hardly run
}

// lookEvery is how often the CPU time of a program that works is looked at.
const lookEvery = 20 * time.Millisecond

// exchange sends a message and waits for the next one. After a reply with an end, the program is only to be stopped. The error is ctx's.
func (p *program) exchange(ctx context.Context, message any, lim limits) (reply, error) {
	told := make(chan reply, 1)
	go func() { told <- p.trade(message) }() // ends with the program at the latest
	began, used := time.Now(), p.proc.Usage().CPU
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for watched := lookEvery; ; watched += lookEvery {
		select {
		case r := <-told:
			r.watched = watched
			return r, nil
		case <-ctx.Done():
			return reply{}, ctx.Err()
		case <-look.C:
			switch {
			case lim.cpu > 0 && p.proc.Usage().CPU-used >= lim.cpu:
				return reply{end: sandbox.StatusCPULimit, watched: watched}, nil
			case lim.wall > 0 && time.Since(began) >= lim.wall:
				return reply{end: sandbox.StatusWallLimit, watched: watched}, nil
			}
		}
	}
}

func (p *program) trade(message any) reply {
	text, err := json.Marshal(message)
	if err != nil {
		panic(err) // it is made of texts and numbers
	}
	if _, err := p.proc.Control().Write(append(fmt.Appendf(nil, "%015d\n", len(text)), text...)); err != nil {
		return reply{end: sandbox.StatusOK}
	}
	if text, err = p.read(); err != nil {
		return reply{end: sandbox.StatusOK}
	}
	return reply{text: text}
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
