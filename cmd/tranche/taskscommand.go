package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"tranche/episode"
	"tranche/internal/offspring"
	"tranche/sampler/taskfile"
	"tranche/storage"
)

// tasksCommand is a program whose output is the tasks. What it gives is kept in the run directory before it is drawn, so that a resumed run
// plays the same tasks; then the program is started again and told how many rows are there. It need not heed that: rows that are there already
// are passed over.
type tasksCommand struct {
	kept keptRows // tasks.jsonl
	cmd  *exec.Cmd
	out  *os.File // our end of its standard output
	over chan error

	strict bool // the end of the tasks is written down, so a failure must not be taken for it

	halted atomic.Bool // it was ended because nothing more is to be drawn
	once   sync.Once
}

// keptRows is where rows are kept.
type keptRows interface {
	io.WriteCloser
	Sync() error
}

// leftBehind is how long a read waits for output when the program has ended, of what has left its group and is out of reach.
const leftBehind = 200 * time.Millisecond

// givenRows is the variable that tells the program how many rows it gave to earlier sessions.
const givenRows = "TRANCHE_TASKS_GIVEN"

// openTasksCommand starts a command line. The reader gives the rows that earlier sessions kept, then its own.
func openTasksCommand(ctx context.Context, cfg taskfile.Config, line, dir string, strict bool, stderr io.Writer) (*tasksCommand, *taskfile.Reader, error) {
	kept, rows, err := openKept(filepath.Join(dir, storage.StreamName))
	if err != nil {
		return nil, nil, err
	}
	c := &tasksCommand{kept: kept, strict: strict, over: make(chan error, 1)}
	earlier, err := os.ReadFile(kept.Name())
	if err == nil {
		err = syncFolder(kept.Name()) // the file may be new
	}
	if err == nil {
		err = c.start(line, rows, stderr)
	}
	if err != nil {
		return nil, nil, errors.Join(err, kept.Close())
	}
	cfg.Paths = []string{"tasks command"}
	reader, err := taskfile.Stream(ctx, cfg, io.MultiReader(bytes.NewReader(earlier), newFreshLines(c, kept, earlier, taskfile.DefaultMaxLineBytes)), c.close)
	if err != nil {
		return nil, nil, errors.Join(err, c.close())
	}
	return c, reader, nil
}

// openKept opens the rows that are kept, without a torn last one.
func openKept(path string) (f *os.File, rows int, err error) {
	if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666); err != nil {
		return nil, 0, err
	}
	text, err := io.ReadAll(f)
	whole := bytes.LastIndexByte(text, '\n') + 1
	if err == nil {
		err = f.Truncate(int64(whole))
	}
	if err == nil {
		_, err = f.Seek(int64(whole), io.SeekStart)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, bytes.Count(text[:whole], []byte("\n")), nil
}

// start runs the program. It is the head of a group that ends with us.
func (c *tasksCommand) start(line string, rows int, stderr io.Writer) error {
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	c.out = out
	c.cmd = exec.Command("/bin/sh", "-c", line)
	c.cmd.Stdout, c.cmd.Stderr = in, stderr
	c.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", givenRows, rows))
	offspring.Bind(c.cmd)
	began := make(chan error)
	go func() { // ends with the program, which close ends and awaits
		defer offspring.Leash(c.cmd)()
		err := c.cmd.Start()
		in.Close()
		began <- err
		if err == nil {
			err := c.cmd.Wait()
			if errors.Is(err, exec.ErrWaitDelay) { // it ended well, and left something running that holds its output
				err = nil
			}
			offspring.End(c.cmd) // what it left running ends with it
			c.over <- err
			_ = out.SetReadDeadline(time.Unix(1, 0)) // wakes a read that waits; Read takes what is there before it believes in the end
		}
	}()
	if err := <-began; err != nil {
		return errors.Join(fmt.Errorf("start the tasks command: %w", err), out.Close())
	}
	return nil
}

// halt ends the program because nothing more is to be drawn: a read may be waiting for it.
func (c *tasksCommand) halt() {
	c.halted.Store(true)
	c.end()
}

// end kills the program's group, unless the program was seen to end: the group went with it, and its number may be another's by now.
func (c *tasksCommand) end() {
	if len(c.over) == 0 {
		offspring.End(c.cmd)
	}
}

// Read gives what the program writes. The end of a program that was stopped with the run is no end of the tasks; that of one that failed is, so that what it
// gave is played, and failure tells of it.
func (c *tasksCommand) Read(p []byte) (int, error) {
	n, err := c.out.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) { // the program has ended; what it wrote may still lie in the pipe, however long ago that was
		_ = c.out.SetReadDeadline(time.Now().Add(leftBehind))
		if n, err = c.out.Read(p); err != nil {
			_ = c.out.SetReadDeadline(time.Unix(1, 0))
		}
	}
	if n > 0 || err == nil {
		return n, nil
	}
	if c.halted.Load() {
		return 0, errors.New("the run was stopped")
	}
	if err != io.EOF && !errors.Is(err, os.ErrDeadlineExceeded) { // of which the latter is that something which left its group holds its output
		return 0, err
	}
	failed := <-c.over
	c.over <- failed // for the next to ask
	switch {
	case failed == nil:
		return 0, io.EOF
	case c.strict:
		return 0, fmt.Errorf("it failed: %w", failed)
	}
	return 0, errCutOff
}

// failure is why the program has failed, nil where it did not or still runs.
func (c *tasksCommand) failure() error {
	select {
	case failed := <-c.over:
		c.over <- failed // for the next to ask
		if failed != nil && !c.halted.Load() {
			return fmt.Errorf("the tasks command failed: %w", failed)
		}
	default:
	}
	return nil
}

// close ends the program.
func (c *tasksCommand) close() (err error) {
	c.once.Do(func() {
		if len(c.over) == 0 { // it runs, and nobody wants more of it
			c.halted.Store(true)
		}
		c.end()
		failed := <-c.over
		c.over <- failed // for failure
		err = errors.Join(c.out.Close(), c.kept.Close())
	})
	return err
}

// commandSource draws from a command: when its context ends, what waits for the command ends too.
type commandSource struct {
	order
	mu      sync.Mutex // guards what is below
	command *tasksCommand
	halted  bool
}

// Next passes the draw on.
func (c *commandSource) Next(ctx context.Context) (episode.Draw, error) {
	defer context.AfterFunc(ctx, c.halt)()
	return c.order.Next(ctx)
}

// Learn passes the outcome on to a source that learns.
func (c *commandSource) Learn(o episode.Outcome) {
	if l, ok := c.order.(episode.Learner); ok {
		l.Learn(o)
	}
}

// failure is why the command has failed, nil where it did not.
func (c *commandSource) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.command == nil {
		return nil
	}
	return c.command.failure()
}

func (c *commandSource) halt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.halted = true; c.command != nil {
		c.command.halt()
	}
}

// started takes the command that the order reads from now.
func (c *commandSource) started(cmd *tasksCommand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.command = cmd; c.halted {
		cmd.halt()
	}
}
