package codegrade

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"tranche/action/sandbox"
	"tranche/episode"
	"tranche/reward"
)

// KindName is what a settings file calls this grader.
const KindName = "code"

// Kind is the grader of programs. open returns the back end, made at the first need and closed by its owner, and gives up when its context is
// done; spec is every sandbox.
func Kind(open func(context.Context) (sandbox.Executor, error), spec sandbox.Spec) reward.Kind {
	return reward.Kind{Name: KindName, Make: func(s reward.Spec) (reward.Grader, error) {
		var o Options
		if err := reward.ReadOptions(s, &o); err != nil {
			return nil, err
		}
		return New(open, spec, o)
	}}
}

// Grader judges programs. Make one with New; Grade may be called at once.
type Grader struct {
	opt  Options
	open func(context.Context) (sandbox.Executor, error)
	spec sandbox.Spec
	kept *shelf
}

var _ reward.Grader = (*Grader)(nil)

// New makes a grader.
func New(open func(context.Context) (sandbox.Executor, error), spec sandbox.Spec, o Options) (*Grader, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Grader{opt: o.withDefaults(), open: open, spec: spec, kept: newShelf(mostKept)}, nil
}

// Check opens a sandbox and has it compile a program: what this back end cannot do, or has not got (python3), is known before anything is
// graded.
func (g *Grader) Check(ctx context.Context) error {
	return g.inBox(ctx, func(box sandbox.Sandbox) error {
		p := &player{box: box, opt: g.opt, until: time.Now().Add(time.Minute), load: loadJob{Source: "pass"}}
		ok, err := p.compiles(ctx)
		if err == nil && !ok {
			err = errors.New("python3 in the sandbox does not compile a program")
		}
		return err
	})
}

// ID implements reward.Grader.
func (*Grader) ID() string { return KindName + "/1" }

// margin is the time that a verdict takes besides the tests: starting and ending processes, the tests' own code.
const margin = trialCPU + 2*time.Second

// Longest is the time that a verdict may take. The reward timeout has to be as long.
func (g *Grader) Longest() time.Duration {
	if g.opt.Reference != "" && g.opt.Form != FormRepo {
		return 2*g.opt.Wall + margin // the reference is played too
	}
	return g.opt.Wall + margin
}

// EnoughTime tells what is wrong with a reward timeout.
func (g *Grader) EnoughTime(timeout time.Duration) error {
	if timeout >= g.Longest() {
		return nil
	}
	return fmt.Errorf("the reward timeout is %s, and a verdict may take %s with wall %s: raise it, or lower wall", timeout, g.Longest(), g.opt.Wall)
}

// Fits tells whether a task has the columns that this grader judges by; the error says which it lacks.
func (g *Grader) Fits(t *episode.Task) error {
	var err error
	if g.opt.Form == FormRepo {
		_, err = g.opt.Repo.yard(readRow(t))
	} else {
		_, err = g.opt.sourceOf(t)
	}
	var u *reward.Unjudged
	if errors.As(err, &u) && u.Reason == reward.MissingTruth {
		return err
	}
	return nil // what is there and broken is said where it is graded
}

// Grade implements reward.Grader.
func (g *Grader) Grade(ctx context.Context, in reward.Input) (reward.Finding, error) {
	if until, ok := ctx.Deadline(); ok {
		if err := g.EnoughTime(time.Until(until).Round(time.Second)); err != nil { // some of it has gone by on the way here
			return reward.Finding{}, err
		}
	}
	if g.opt.Form == FormRepo {
		return g.gradeRepo(ctx, in)
	}
	began := time.Now()
	s, err := g.suite(ctx, in)
	if err != nil {
		return reward.Finding{}, err
	}
	source, ok := g.opt.program(in.Text, s)
	if !ok {
		return g.finding(marks{why: "there is no program in the answer"}, s, g.chosen(in.Task.ID, s)), nil
	}
	chosen := g.chosen(in.Task.ID, s)
	m, err := g.play(ctx, s, source, chosen)
	if err != nil {
		return reward.Finding{}, err
	}
	f := g.finding(m, s, chosen)
	if err := g.measure(ctx, in, s, chosen, m, &f); err != nil {
		return reward.Finding{}, err
	}
	f.Cost.Wall = time.Since(began)
	return f, nil
}

// suite is the tests of a task: taken apart once, for all answers to it.
func (g *Grader) suite(ctx context.Context, in reward.Input) (*suite, error) {
	src, err := g.opt.sourceOf(in.Task)
	if err != nil {
		return nil, err
	}
	if src.tests == "" {
		return &suite{form: src.form, entry: src.entry, checks: src.checks, prompt: src.prelude, setup: src.setup, checker: src.checker}, nil
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", src.tests, src.setup, src.prelude, src.entry))
	if s := g.kept.take(key); s != nil {
		return s, nil
	}
	var s *suite
	err = g.inBox(ctx, func(box sandbox.Sandbox) (err error) {
		s, err = takeApart(ctx, box, src, g.opt.Seed)
		return err
	})
	if err == nil {
		g.kept.put(key, s)
	}
	return s, err
}

// inBox does something in a sandbox of its own.
func (g *Grader) inBox(ctx context.Context, do func(sandbox.Sandbox) error) error {
	x, err := g.open(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return died("the back end", err)
	}
	box, err := x.Open(ctx, g.spec)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return died("open a sandbox", err)
	}
	err = do(box)
	if cerr := box.Close(); cerr != nil && err == nil {
		err = died("close the sandbox", cerr)
	}
	return plainError(ctx, err)
}

// chosen are the tests that are run: all, or a sample that only the task and the seed decide.
func (g *Grader) chosen(task string, s *suite) []int {
	n := len(s.checks)
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	if g.opt.Sample == 0 || g.opt.Sample >= n {
		return all
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(task)) // never fails
	rng := rand.New(rand.NewPCG(g.opt.Seed, h.Sum64()))
	some := rng.Perm(n)[:g.opt.Sample]
	slices.Sort(some)
	return some
}

// marks is what an answer reached.
type marks struct {
	compiled, ran bool
	passed        []bool // of the chosen tests
	why           string // why the first that failed did so
	cpu           time.Duration
	peak          int64 // bytes
	tier          sandbox.Tier
}

// play runs the chosen tests on a program.
func (g *Grader) play(ctx context.Context, s *suite, source string, chosen []int) (marks, error) {
	var m marks
	err := g.inBox(ctx, func(box sandbox.Sandbox) error {
		p := &player{box: box, opt: g.opt, until: time.Now().Add(g.opt.Wall), load: s.load(source)}
		err := g.run(ctx, p, s, chosen, &m)
		cerr := p.close()
		m.cpu, m.peak, m.tier = p.cpu, p.peak, p.tier
		return errors.Join(err, cerr)
	})
	return m, err
}

// plainError is ctx's error where that is the cause: what a cancelled grading says of its sandbox means nothing.
func plainError(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (s *suite) load(source string) loadJob {
	names := map[string]bool{}
	for _, c := range s.checks {
		if c.kind == kindCall && c.call.Call != "" {
			names[c.call.Call] = true
		}
	}
	if s.entry != "" {
		names[s.entry] = true
	}
	return loadJob{Source: source, Setup: s.setup, Modules: s.modules, Aliases: s.aliases, Names: sortedKeys(names)}
}

func (g *Grader) run(ctx context.Context, p *player, s *suite, chosen []int, m *marks) error {
	if s.form == FormStdin {
		return g.runStdin(ctx, p, s, chosen, m)
	}
	if err := p.ready(ctx); err != nil {
		return err
	}
	m.compiled = p.stage != "" && p.stage != "compile"
	m.ran = p.stage == "ready"
	m.passed = make([]bool, len(chosen))
	if p.broken != "" {
		m.why = p.broken
		return nil
	}
	whys, err := g.here(ctx, p, s, chosen)
	if err != nil {
		return err
	}
	for i, at := range chosen {
		why, ok := whys[at]
		if !ok {
			if why, err = g.call(ctx, p, s.checks[at]); err != nil {
				return err
			}
		}
		m.mark(i, at, why)
	}
	return nil
}

// mark notes how a test ended.
func (m *marks) mark(i, at int, why string) {
	m.passed[i] = why == ""
	if why != "" && m.why == "" {
		m.why = fmt.Sprintf("test %d: %s", at+1, why)
	}
}

// here runs the chosen tests that are run beside their own code.
func (g *Grader) here(ctx context.Context, p *player, s *suite, chosen []int) (map[int]string, error) {
	if s.here == nil {
		return nil, nil
	}
	job, at := *s.here, []int{}
	for _, i := range chosen {
		if s.checks[i].kind == kindHere {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return nil, nil
	}
	job.Steps = slices.DeleteFunc(slices.Clone(job.Steps), func(t trialStep) bool {
		return t.Kind == kindHere && !slices.ContainsFunc(at, func(i int) bool { return s.checks[i].at == t.At })
	})
	var results []string
	err := g.inBox(ctx, func(box sandbox.Sandbox) (err error) {
		results, err = runHere(ctx, box, job, p)
		return err
	})
	if err == nil && len(results) != len(at) {
		err = died("run the tests", fmt.Errorf("%d results of %d tests", len(results), len(at)))
	}
	if err != nil {
		return nil, err
	}
	whys := map[int]string{}
	for k, i := range at {
		whys[i] = clip(results[k])
	}
	return whys, nil
}

// call runs one test that is a call. "" = passed.
func (g *Grader) call(ctx context.Context, p *player, c check) (string, error) {
	o, err := p.ask(ctx, c.call)
	if err != nil || o.value == nil {
		return o.why, err
	}
	if !g.alike(c).meets(c, *o.value) {
		return "another value", nil
	}
	return "", nil
}

func (g *Grader) alike(c check) alike {
	how := g.opt.Compare
	if how == "" {
		how = CompareJSON
		if c.fromCode {
			how = ComparePython
		}
	}
	return alike{how, g.opt.Tolerance}
}

// meets tells whether a value is what a test wants.
func (a alike) meets(c check, got value) bool {
	switch c.rule {
	case "true":
		return got.truth()
	case "false":
		return !got.truth()
	case "is":
		return got.is(c.want)
	case "near":
		want, ok1 := c.want.float()
		have, ok2 := got.float()
		off := have - want
		if off < 0 {
			off = -off
		}
		return ok1 && ok2 && (off < c.within || c.reached && off == c.within)
	}
	return a.equal(c.want, got)
}

func (g *Grader) runStdin(ctx context.Context, p *player, s *suite, chosen []int, m *marks) (err error) {
	m.passed = make([]bool, len(chosen))
	if m.compiled, err = p.compiles(ctx); err != nil || !m.compiled {
		m.why = "it does not compile"
		return err
	}
	return g.judged(ctx, p, s, func() error {
		for i, at := range chosen {
			why, err := p.runMain(ctx, s.checks[at])
			if err != nil {
				return err
			}
			m.ran = m.ran || why == "" || strings.HasPrefix(why, otherOutput)
			m.mark(i, at, why)
		}
		return nil
	})
}

// finding makes a score of what an answer reached: the mean of the tiers by their weights.
func (g *Grader) finding(m marks, s *suite, chosen []int) reward.Finding {
	n := 0
	for _, ok := range m.passed {
		if ok {
			n++
		}
	}
	reached := map[string]float64{"compiles": one(m.compiled), "runs": one(m.ran), "share": float64(n) / float64(len(chosen)), "all": one(n == len(chosen))}
	sum, weight := 0.0, 0.0
	for _, name := range tierNames() {
		sum += g.opt.Tiers[name] * reached[name]
		weight += g.opt.Tiers[name]
	}
	f := reward.Finding{Score: sum / weight, Raw: ptr(float64(n)), Tier: string(m.tier), Cost: reward.Cost{CPU: m.cpu}}
	f.Evidence = fmt.Sprintf("%d of %d tests%s", n, len(chosen), sampled(s, chosen))
	if m.why != "" {
		f.Evidence += "; " + m.why
	}
	for _, name := range tierNames() {
		f.Parts = append(f.Parts, reward.Part{Name: name, Score: ptr(reached[name])})
	}
	return f
}

// sampled names the tests of a sample; "" where all were run.
func sampled(s *suite, chosen []int) string {
	if len(chosen) == len(s.checks) {
		return ""
	}
	words := make([]string, len(chosen))
	for i, at := range chosen {
		words[i] = fmt.Sprint(at + 1)
	}
	return fmt.Sprintf(" (numbers %s of %d)", strings.Join(words, ","), len(s.checks))
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func ptr[T any](v T) *T { return &v }

// measure compares the CPU time of an answer that passed all with a reference's in the same kind of slot, where a column with one is named.
func (g *Grader) measure(ctx context.Context, in reward.Input, s *suite, chosen []int, m marks, f *reward.Finding) error {
	if g.opt.Reference == "" {
		return nil
	}
	f.Parts = append(f.Parts, reward.Part{Name: "memory", Raw: ptr(float64(m.peak)), Evidence: "peak, bytes"})
	if slices.Contains(m.passed, false) {
		return nil
	}
	speed := reward.Part{Name: "speed"}
	var err error
	if speed.Raw, speed.Evidence, err = g.speed(ctx, in, s, chosen, m); err != nil {
		return err
	}
	f.Parts = append(f.Parts, speed)
	return nil
}

// speed is the CPU time over that of the reference, or why there is no such figure: an answer that passed keeps its score then. The error is
// ctx's.
func (g *Grader) speed(ctx context.Context, in reward.Input, s *suite, chosen []int, m marks) (*float64, string, error) {
	source, ok := g.opt.program(readRow(in.Task).text(g.opt.Reference), s)
	if !ok {
		return nil, fmt.Sprintf("no column %s with a reference", g.opt.Reference), nil
	}
	ref, err := g.play(ctx, s, source, chosen)
	switch {
	case ctx.Err() != nil:
		return nil, "", ctx.Err()
	case err != nil:
		return nil, "the reference was not measured: " + err.Error(), nil
	case slices.Contains(ref.passed, false):
		return nil, "the reference does not pass: " + ref.why, nil
	case ref.cpu == 0:
		return nil, "the reference took no CPU time to speak of", nil
	}
	return ptr(float64(m.cpu) / float64(ref.cpu)), "CPU time over that of the reference", nil
}
