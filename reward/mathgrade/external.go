package mathgrade

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"tranche/episode"
	"tranche/internal/ends"
	"tranche/internal/offspring"
	"tranche/reward"
)

// ExternalName is the kind that asks the Python library math-verify.
const ExternalName = "math_verify"

//go:embed verify.py
var script string

// ExternalOptions are the options of kind math_verify. The zero value is valid and has every default.
type ExternalOptions struct {
	// Python is the program that has the library: pip install math-verify. Default python3.
	Python string `json:"python"`
	// Children is how many are kept, each of which judges one answer at a time. Default 2.
	Children int `json:"children"`
	// Limit is the longest that one judgement may take; the child is killed then, and another is started. Default 10s.
	Limit time.Duration `json:"limit"`
	// Memory is the most that a child may have, MiB of address space. Default 4096.
	Memory int `json:"memory"`
	// Markers are those of kind math; they find the truth in a worked solution. How an answer is found is the library's business.
	Markers []string `json:"markers"`
}

func (o ExternalOptions) withDefaults() ExternalOptions {
	o.Python = cmp.Or(o.Python, "python3")
	o.Children = cmp.Or(o.Children, 2)
	o.Limit = cmp.Or(o.Limit, 10*time.Second)
	o.Memory = cmp.Or(o.Memory, 4096)
	return o
}

// Validate reports every fault at once.
func (o ExternalOptions) Validate() error {
	var errs []error
	o = o.withDefaults()
	if _, err := exec.LookPath(o.Python); err != nil {
		errs = append(errs, fmt.Errorf("python: %w", err))
	}
	for name, n := range map[string]int{"children": o.Children, "memory": o.Memory} {
		if n < 1 {
			errs = append(errs, fmt.Errorf("%s: %d, expected 1 or more, or 0 for the default", name, n))
		}
	}
	if o.Limit <= 0 {
		errs = append(errs, fmt.Errorf("limit: %s, expected more than 0s, or 0s for the default", o.Limit))
	}
	return errors.Join(errs...)
}

// ExternalKind offers the grader.
func ExternalKind() reward.Kind {
	return reward.Kind{Name: ExternalName, Make: func(s reward.Spec) (reward.Grader, error) {
		var opt ExternalOptions
		if err := reward.ReadOptions(s, &opt); err != nil {
			return nil, err
		}
		return NewExternal(opt)
	}}
}

// External asks children that run the library. They are started when they are first needed, and end at Close, or with this process.
type External struct {
	opt   ExternalOptions
	truth *Grader // finds it
	asks  chan ask
	ctx   context.Context // ends at Close
	stop  context.CancelFunc
	once  sync.Once
	tasks sync.WaitGroup // one goroutine a child
	busy  time.Duration  // CPU time of a child that was killed at its limit, from which on it was at work; less is a busy machine
}

// NewExternal makes a grader and starts nothing.
func NewExternal(opt ExternalOptions) (*External, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	truth, err := New(Options{Markers: opt.Markers})
	if err != nil {
		return nil, err
	}
	x := &External{opt: opt.withDefaults(), truth: truth, asks: make(chan ask)}
	x.busy = x.opt.Limit / 2
	x.ctx, x.stop = context.WithCancel(context.Background())
	return x, nil
}

// Decides is all but how many children there are. Limit and Memory are in it: an answer that the library cannot cope with within them is 0.
func (x *External) Decides() string {
	o := x.opt
	o.Children = 0
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // plain values
	}
	return string(text)
}

// ID is the kind and its version.
func (*External) ID() string { return ExternalName + "/1" }

// Close ends the children and waits for them.
func (x *External) Close() error {
	x.once.Do(func() {}) // none is started any more
	x.stop()
	x.tasks.Wait()
	return nil
}

// Reasons for no verdict.
const (
	verifierTimeout = "verifier_timeout" // the library did not end in time, and it was not for the answer's sake
	verifierDied    = "verifier_died"    // a child ended of itself, likewise
)

// ask is one question to a child; its answer goes to reply, which never blocks.
type ask struct {
	ctx         context.Context
	truth, text string
	reply       chan<- outcome
}

type outcome struct {
	said  reply
	err   error
	asked bool          // a child was asked; else none could be started
	used  time.Duration // CPU time of a child that was ended over it
}

// died says that a child ended of itself over a question.
func (o outcome) died() bool {
	var u *reward.Unjudged
	return o.asked && errors.As(o.err, &u) && u.Reason == verifierDied
}

// exhausted says that a question took all the time or memory that there is.
func (o outcome) exhausted(busy time.Duration) bool {
	var u *reward.Unjudged
	return errors.As(o.err, &u) && u.Reason == verifierTimeout && o.used >= busy || strings.HasPrefix(o.said.Error, "MemoryError")
}

// reply is what a child says.
type reply struct {
	Ready       string  `json:"ready"`
	Fatal       string  `json:"fatal"`
	Right       bool    `json:"right"`
	Read        string  `json:"read"`
	TruthUnread bool    `json:"truth_unread"`
	Error       string  `json:"error"`
	CPU         float64 `json:"cpu"` // seconds
}

func (r reply) cpu() time.Duration { return time.Duration(r.CPU * float64(time.Second)) }

// maxText is how much of the end of a text a child is given, bytes.
const maxText = 20_000

// Grade asks a child.
func (x *External) Grade(ctx context.Context, in reward.Input) (reward.Finding, error) {
	truth, err := x.truth.truth(in.Task)
	if err != nil {
		return reward.Finding{}, err
	}
	if strings.TrimSpace(in.Text) == "" {
		return reward.Finding{Evidence: "no final text"}, nil
	}
	x.once.Do(x.start)
	o := x.question(ctx, truth, in.Text)
	if o.died() { // of this answer, or of something else?
		o = x.question(ctx, truth, in.Text)
	}
	if (o.died() || o.exhausted(x.busy)) && x.question(ctx, truth, mathematics(truth)).fine() {
		return reward.Finding{Evidence: fmt.Sprintf("the library cannot cope with the answer, want %q", short(truth)), Cost: reward.Cost{CPU: o.used}}, nil
	}
	if o.err != nil {
		return reward.Finding{}, o.err
	}
	return x.finding(o.said, truth)
}

// fine says that there was a judgement.
func (o outcome) fine() bool { return o.err == nil && o.said.Error == "" && !o.said.TruthUnread }

// question has a child judge one text.
func (x *External) question(ctx context.Context, truth, text string) outcome {
	got := make(chan outcome, 1)
	select {
	case x.asks <- ask{ctx, mathematics(truth), text[max(0, len(text)-maxText):], got}:
	case <-ctx.Done():
		return outcome{err: ctx.Err()}
	case <-x.ctx.Done():
		return outcome{err: errors.New("math-verify: the grader is closed")}
	}
	return <-got // the child's goroutine always answers: it has a time limit
}

func (x *External) finding(r reply, truth string) (reward.Finding, error) {
	f := reward.Finding{
		Evidence: fmt.Sprintf("read %q, want %q", short(r.Read), short(truth)),
		Cost:     episode.Cost{CPU: r.cpu()},
	}
	switch {
	case r.TruthUnread:
		return f, &reward.Unjudged{Reason: reward.BadTruth, Detail: fmt.Sprintf("math-verify cannot read %q", short(truth))}
	case r.Error != "":
		return f, fmt.Errorf("math-verify: %s", r.Error)
	case r.Right:
		f.Score = 1
	}
	return f, nil
}

// mathematics puts a truth into dollar signs where none, nor a box, is in it: the library reads LaTeX only inside.
func mathematics(truth string) string {
	if strings.ContainsAny(truth, "$") || strings.Contains(truth, `\boxed`) || strings.Contains(truth, `\(`) || strings.Contains(truth, `\[`) {
		return truth
	}
	return "$" + truth + "$"
}

func (x *External) start() {
	for range x.opt.Children {
		x.tasks.Go(x.serve)
	}
}

// serve is the life of one child's owner: it starts the child when there is something to ask, and again when it has ended.
func (x *External) serve() {
	var c *child
	defer func() { c.end() }()
	for {
		select {
		case <-x.ctx.Done():
			return
		case a := <-x.asks:
			o := outcome{err: a.ctx.Err()}
			if o.err == nil && c == nil {
				c, o.err = x.open(a.ctx)
			}
			if o.err == nil {
				o.asked = true
				o.said, o.err = x.put(c, a)
			}
			if c != nil && c.broken {
				c.end()
				o.used = c.used()
				c = nil
			}
			a.reply <- o
		}
	}
}

// put asks a child one question within the time limit.
func (x *External) put(c *child, a ask) (reply, error) {
	line, err := json.Marshal(map[string]string{"truth": a.truth, "text": strings.ToValidUTF8(a.text, "\uFFFD")})
	if err != nil {
		return reply{}, err
	}
	ctx, cancel := context.WithTimeout(a.ctx, x.opt.Limit)
	defer cancel()
	r, err := c.exchange(ctx, line)
	switch {
	case err == nil:
		return r, nil
	case a.ctx.Err() != nil:
		return r, a.ctx.Err()
	case x.ctx.Err() != nil:
		return r, errors.New("math-verify: the grader is closed")
	case ctx.Err() != nil:
		return r, &reward.Unjudged{Reason: verifierTimeout, Detail: fmt.Sprintf("no judgement within %s", x.opt.Limit)}
	}
	return r, &reward.Unjudged{Reason: verifierDied, Detail: c.lastWords(err), Retry: true}
}

// child is a running interpreter. It belongs to the goroutine that opened it.
type child struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	said    *ends.Writer // on its error output
	kill    context.CancelFunc
	release func()
	broken  bool
	spent   time.Duration // CPU time of what it answered, loading the library included
}

// used is the CPU time of a child that has ended over the question that it did not answer.
func (c *child) used() time.Duration {
	return c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime() - c.spent
}

// openTime is how long a child may take to load the library; on a busy machine that is long.
const openTime = 2 * time.Minute

// open starts a child and waits until it is ready.
func (x *External) open(ctx context.Context) (*child, error) {
	life, kill := context.WithCancel(x.ctx)
	cmd := exec.CommandContext(life, x.opt.Python, "-u", "-c", script, strconv.Itoa(x.opt.Memory<<20))
	cmd.Env = append(os.Environ(), "PYTHONHASHSEED=0")
	c := &child{cmd: cmd, said: ends.KeepTail(2000), kill: kill}
	cmd.Stderr = c.said
	offspring.Bind(cmd)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		kill()
		return nil, fmt.Errorf("starting math-verify: %w", err)
	}
	c.in, c.out = in, bufio.NewReader(out)
	c.release = offspring.Leash(cmd)
	if err := cmd.Start(); err != nil {
		c.release()
		kill()
		return nil, fmt.Errorf("starting math-verify: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	r, err := c.exchange(ctx, nil)
	if err == nil && r.Ready != "" {
		return c, nil
	}
	why := cmp.Or(r.Fatal, "it did not get ready")
	if err != nil && r.Fatal == "" {
		why = c.lastWords(err)
	}
	c.end()
	if ctx.Err() != nil && r.Fatal == "" {
		return nil, &reward.Unjudged{Reason: verifierDied, Detail: "math-verify was not loaded in time", Retry: true}
	}
	return nil, fmt.Errorf("starting math-verify with %s: %s (pip install math-verify)", x.opt.Python, why)
}

// exchange writes a line, if there is one, and reads a line. When ctx ends first the child is killed; after an error it is broken.
func (c *child) exchange(ctx context.Context, line []byte) (r reply, err error) {
	defer context.AfterFunc(ctx, c.kill)()
	defer func() { c.broken = c.broken || err != nil || ctx.Err() != nil }()
	if line != nil {
		if _, err := c.in.Write(append(line, '\n')); err != nil {
			return r, err
		}
	}
	answer, err := c.out.ReadBytes('\n')
	if err != nil {
		return r, err
	}
	err = json.Unmarshal(answer, &r)
	c.spent += r.cpu()
	return r, err
}

func (c *child) lastWords(err error) string {
	lines := strings.Split(strings.TrimSpace(string(c.said.Bytes())), "\n")
	return fmt.Sprintf("%v: %s", err, lines[len(lines)-1])
}

// end kills a child and waits for it. There may be none.
func (c *child) end() {
	if c == nil {
		return
	}
	c.kill()
	_ = c.in.Close()
	_ = c.cmd.Wait() // it was killed
	offspring.End(c.cmd)
	c.release()
}
