package main

import (
	"context"
	"fmt"
	"time"
)

// countLine tells how far something is until its context ends: on a terminal one line that is drawn again, else a line now and then.
type countLine struct {
	a    *app
	text func() string
}

func (c countLine) run(ctx context.Context) {
	if c.a.quiet {
		return
	}
	every := plainEvery
	if c.a.terminal {
		every = barEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if c.a.terminal {
				fmt.Fprint(c.a.stderr, clearLine)
			}
			return
		case <-tick.C:
			c.draw()
		}
	}
}

func (c countLine) draw() {
	line := visibleLine(c.text())
	if c.a.terminal {
		fmt.Fprintf(c.a.stderr, "%s%s", clearLine, cutTo(line, c.a.width()-1))
		return
	}
	fmt.Fprintln(c.a.stderr, line)
}
