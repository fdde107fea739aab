package sampler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"tranche/episode"
)

// Plan draws tasks by domain, by how hard they are, by what came of earlier draws, and evaluates on tasks that it keeps apart. It
// implements episode.Source and episode.Learner.
//
// Where nothing that it decides depends on results (PlanConfig.Decides), the seed and the tasks alone say what it draws. Else the order in which
// results come has a say: then every decision is in the Record before it is carried out, and Restore goes on from there.
type Plan struct {
	Knobs
	cfg     PlanConfig
	rec     Record
	ended   func(taskID string, round, samples int)
	wake    chan struct{} // an outcome came; buffered, never blocks
	heldOut []*episode.Task
	decides bool
	limit   int64 // training groups at most; 0 = until the tasks end

	reading sync.Mutex // guards the supply where it reads on; never taken under mu

	mu      sync.Mutex // guards everything below
	supply  supply
	open    map[groupKey]*openGroup // training groups that have not ended; only where the plan decides
	due     []episode.Draw          // to be handed out before anything new
	ahead   *read                   // what was read on and is not drawn; nil = nothing is
	spread  populations
	drawn   int64 // training groups
	useful  int64
	evals   int   // evaluations
	nextAt  int64 // training groups before the next one
	dry     bool  // the supply has ended
	over    bool  // nothing more is drawn but what is due
	err     error // sticky
	told    bool  // Next has returned err
	replays bool  // decisions are played back: none is written down
}

type groupKey struct {
	task  string
	round int
}

// openGroup is a group that has not ended.
type openGroup struct {
	draw    episode.Draw
	rewards []*float64 // by sample
	told    []bool     // which of them came
	left    int        // of those drawn
}

// read is what a supply that reads on gave.
type read struct {
	supplied
	err error
}

// PlanParts are what a Plan works with.
type PlanParts struct {
	Open   func(context.Context) (Tasks, error) // one pass over the tasks
	Record Record                               // where decisions go; needed where there are any
	Priors map[string]Belief                    // by task hash: what earlier runs know; may be nil
	// Ended is told of each group that ends with fewer samples than it might have had. It must not call the Plan. nil = nobody is told.
	Ended func(taskID string, round, samples int)
}

// NewPlan reads the tasks where they have to be held (PlanConfig.Holds).
func NewPlan(ctx context.Context, cfg PlanConfig, with PlanParts) (*Plan, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("sampling settings: %w", err)
	}
	cfg = cfg.filled()
	p := &Plan{Knobs: Knobs{cfg.Config}, cfg: cfg, rec: with.Record, ended: with.Ended, wake: make(chan struct{}, 1), decides: cfg.Decides(),
		open: map[groupKey]*openGroup{}, spread: newPopulations()}
	if p.decides && p.rec == nil {
		return nil, errors.New("a plan that decides by results needs a record")
	}
	if p.ended == nil {
		p.ended = func(string, int, int) {}
	}
	if !cfg.Holds() {
		src, err := New(cfg.Config, with.Open)
		p.supply, p.limit = stream{src}, cfg.MaxDraws
		return p, err
	}
	return p, p.hold(ctx, with)
}

// hold reads all tasks and parts those that are evaluated on from the others.
func (p *Plan) hold(ctx context.Context, with PlanParts) error {
	all, err := with.Open(ctx)
	if err != nil {
		return fmt.Errorf("open the tasks: %w", err)
	}
	var train []*episode.Task
	for {
		t, err := all.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = p.sound(t)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("read the tasks: %w", err), all.Close())
		}
		if p.cfg.Held.holds(t.ID, t.Split) {
			own := *t
			own.Split = p.cfg.Held.Label()
			p.heldOut = append(p.heldOut, &own)
			continue
		}
		train = append(train, t)
	}
	if err := all.Close(); err != nil {
		return fmt.Errorf("close the tasks: %w", err)
	}
	if p.cfg.Held.On() && len(p.heldOut) == 0 {
		return fmt.Errorf("held-out: no task has the split %q", p.cfg.Held.Label())
	}
	if len(train) == 0 {
		return errors.New("held-out: no task is left to train on")
	}
	p.supply, err = newPool(p.cfg, train, &p.Knobs, with.Priors)
	p.limit = p.cfg.Draws
	switch {
	case p.cfg.Useful > 0:
		p.limit = p.cfg.MaxDraws
	case p.limit == 0:
		p.limit = int64(len(train)) * int64(p.cfg.Rounds)
	}
	return err
}

// Size is how many training groups there are at most, how many tasks an evaluation has, and how many evaluations those groups make. Groups
// are 0 where it is not known.
func (p *Plan) Size() (groups int64, heldOut, evals int64) {
	groups, heldOut = p.limit, int64(len(p.heldOut))
	if heldOut > 0 {
		evals = 1 + (groups+p.cfg.Held.Every-1)/p.cfg.Held.Every // the last one is at the end
	}
	return groups, heldOut, evals
}

// Next returns the next draw, episode.ErrEnd after the last one. It waits for outcomes where what comes next depends on them.
func (p *Plan) Next(ctx context.Context) (episode.Draw, error) {
	for {
		d, wait, err := p.decide(ctx)
		if err != nil || !wait {
			return d, err
		}
		select {
		case <-p.wake:
		case <-ctx.Done():
			return episode.Draw{}, fmt.Errorf("draw a task: %w", ctx.Err())
		}
	}
}

// decide is Next without the waiting for outcomes. Its one caller reads tasks on outside the lock: a program that gives them may be slow, and
// outcomes must not wait for it.
func (p *Plan) decide(ctx context.Context) (d episode.Draw, wait bool, err error) {
	for {
		d, then, err := p.step(ctx)
		if err != nil || then != moveRead {
			return d, then == moveWait, err
		}
		p.readOn(ctx)
	}
}

// move says what is to be done next.
type move int

const (
	moveDraw move = iota
	moveWait      // for an outcome
	moveRead      // the next task
)

// step decides, as far as that goes without reading on.
func (p *Plan) step(ctx context.Context) (d episode.Draw, then move, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil {
		switch {
		case len(p.due) > 0:
			d, p.due = p.due[0], p.due[1:]
			return d, moveDraw, nil
		case p.over:
			return d, moveDraw, episode.ErrEnd
		case p.evaluationDue():
			p.err = p.evaluate(false)
		case p.enough():
			if p.mayGoOn() {
				return d, moveWait, nil
			}
			p.err = p.finish()
		case p.cfg.Useful > 0 && p.useful+int64(len(p.open)) >= p.cfg.Useful:
			return d, moveWait, nil
		case p.reads() && p.ahead == nil:
			return d, moveRead, nil
		default:
			err := p.drawNew(ctx)
			if errors.Is(err, errBusy) {
				return d, moveWait, nil
			}
			p.err = err
		}
	}
	p.told = true
	return d, moveDraw, p.err
}

// reads says whether the supply reads on.
func (p *Plan) reads() bool {
	_, ok := p.supply.(stream)
	return ok
}

// readOn reads the next task.
func (p *Plan) readOn(ctx context.Context) {
	p.reading.Lock()
	got, err := p.supply.next(ctx)
	p.reading.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead = &read{got, err}
}

// enough says that no further group is begun.
func (p *Plan) enough() bool {
	return p.dry || p.limit > 0 && p.drawn >= p.limit || p.cfg.Useful > 0 && p.useful >= p.cfg.Useful
}

// mayGoOn says that what is open may still lead to draws: groups that grow.
func (p *Plan) mayGoOn() bool { return p.cfg.Grow.From > 0 && len(p.open) > 0 }

func (p *Plan) evaluationDue() bool {
	return len(p.heldOut) > 0 && p.drawn >= p.nextAt && !p.enough()
}

// evaluate plays the tasks that are kept apart. The last evaluation and the end are one line: whatever happens between them, there is no second
// last one.
func (p *Plan) evaluate(last bool) error {
	n := p.evals
	p.evals++
	p.nextAt = p.drawn + p.cfg.Held.Every
	for _, t := range p.heldOut {
		p.due = append(p.due, episode.Draw{Task: t, Round: n, Samples: p.cfg.Held.Samples, Number: p.drawn, HeldOut: true})
	}
	p.over = p.over || last
	return p.note(event{Eval: &n, End: last}, true)
}

// finish evaluates once more and ends.
func (p *Plan) finish() error {
	if len(p.heldOut) > 0 {
		return p.evaluate(true)
	}
	p.over = true
	return p.note(event{End: true}, true)
}

// drawNew begins a group.
func (p *Plan) drawNew(ctx context.Context) error {
	next := p.ahead
	if p.ahead = nil; next == nil {
		got, err := p.supply.next(ctx)
		next = &read{got, err}
	}
	switch {
	case next.err == io.EOF:
		p.dry = true
		return nil
	case next.err != nil:
		return next.err
	}
	return p.begin(next.supplied)
}

// begin makes a draw due and writes it down.
func (p *Plan) begin(s supplied) error {
	d := episode.Draw{Task: s.task, Round: s.round, Samples: p.cfg.Samples, Number: p.drawn}
	if from := p.cfg.Grow.From; from > 0 && from < d.Samples {
		d.To = from
	}
	p.drawn++
	p.due = append(p.due, d)
	if !p.decides {
		return nil
	}
	_, to := d.Span()
	p.open[groupKey{s.task.ID, s.round}] = &openGroup{draw: d, rewards: make([]*float64, to), told: make([]bool, to), left: to}
	e := drawn(d)
	e.Draw.Lap = s.lap
	return p.note(e, true)
}

func drawn(d episode.Draw) event {
	from, to := d.Span()
	return event{Draw: &drawEvent{Number: d.Number, Task: d.Task.ID, Hash: d.Task.Hash, Round: d.Round, Size: d.Samples, From: from, To: to}}
}

// Learn takes what came of one episode. What is not of an open group is passed over: evaluations, and what is known already.
func (p *Plan) Learn(o episode.Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.open[groupKey{o.TaskID, o.Round}]
	if g == nil || o.Sample >= len(g.told) || g.told[o.Sample] || p.err != nil {
		return
	}
	g.told[o.Sample], g.rewards[o.Sample] = true, o.Reward
	if g.left--; g.left > 0 {
		return
	}
	p.err = p.settle(g)
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// settle decides what comes of a group whose drawn samples have all ended: it grows, or it is over.
func (p *Plan) settle(g *openGroup) error {
	if size := g.draw.Samples; len(g.told) < size && !p.sure(g) {
		d := g.draw
		d.From, d.To = len(g.told), size
		p.grow(g)
		p.due = append(p.due, d)
		return p.note(drawn(d), true)
	}
	short := len(g.rewards) < g.draw.Samples // it is published as such, for good
	if err := p.note(event{Done: &doneEvent{g.draw.Task.ID, g.draw.Round, g.rewards}}, short); err != nil {
		return err
	}
	p.conclude(g.draw, g.rewards)
	return nil
}

// grow makes room for the rest of a group.
func (p *Plan) grow(g *openGroup) {
	more := g.draw.Samples - len(g.told)
	g.rewards = append(g.rewards, make([]*float64, more)...)
	g.told = append(g.told, make([]bool, more)...)
	g.left += more
}

// sure says whether the other samples of a group would be like those that came.
func (p *Plan) sure(g *openGroup) bool {
	passed := g.rewards[0] != nil && *g.rewards[0] >= 1
	for _, r := range g.rewards {
		if r == nil || passed && *r < 1 || !passed && *r != 0 {
			return false
		}
	}
	known := Belief{}
	if pl, ok := p.supply.(*pool); ok {
		known = pl.byID[g.draw.Task.ID].belief
	}
	n := len(g.rewards)
	return p.spread.differs(known, n, g.draw.Samples-n, passed) <= p.cfg.Grow.Error
}

// conclude takes a whole group.
func (p *Plan) conclude(d episode.Draw, rewards []*float64) {
	delete(p.open, groupKey{d.Task.ID, d.Round})
	if useful, _ := differ(rewards); useful {
		p.useful++
	}
	p.spread.add(rewards)
	p.supply.learn(d.Task.ID, rewards)
	if len(rewards) < d.Samples {
		p.ended(d.Task.ID, d.Round, len(rewards))
	}
}

// note writes a decision down.
func (p *Plan) note(e event, durable bool) error {
	if !p.decides || p.replays {
		return nil
	}
	line, err := json.Marshal(e)
	if err == nil {
		err = p.rec.Append(append(line, '\n'), durable)
	}
	if err != nil {
		return fmt.Errorf("write down what was decided: %w", err)
	}
	return nil
}

// Restore plays a record back, before the first Next. Everything in it is drawn again, for the run to skip what is done; what is stored of
// groups that are still open is to be told with Learn.
func (p *Plan) Restore(ctx context.Context, record []byte) error {
	list, _, err := events(record)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replays = true
	defer func() { p.replays = false }()
	for i, e := range list {
		if err := p.replay(ctx, e); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return nil
}

func (p *Plan) replay(ctx context.Context, e event) error {
	switch {
	case e.Eval != nil:
		if *e.Eval != p.evals {
			return fmt.Errorf("evaluation %d, expected %d", *e.Eval, p.evals)
		}
		return p.evaluate(e.End)
	case e.End:
		p.over = true
	case e.Done != nil:
		g := p.open[groupKey{e.Done.Task, e.Done.Round}]
		if g == nil {
			return fmt.Errorf("the end of a group of task %q that was not drawn", e.Done.Task)
		}
		p.conclude(g.draw, e.Done.Rewards)
	case e.Draw.From > 0:
		g := p.open[groupKey{e.Draw.Task, e.Draw.Round}]
		if g == nil || len(g.told) != e.Draw.From || e.Draw.To != g.draw.Samples {
			return fmt.Errorf("the rest of a group of task %q that was not drawn so", e.Draw.Task)
		}
		d := g.draw
		d.From, d.To = e.Draw.From, e.Draw.To
		p.grow(g)
		p.due = append(p.due, d)
	default:
		return p.replayDraw(ctx, e.Draw)
	}
	return nil
}

func (p *Plan) replayDraw(ctx context.Context, e *drawEvent) error {
	got, err := p.supply.take(ctx, e.Task, e.Lap)
	switch {
	case err != nil:
		return err
	case got.task.Hash != e.Hash:
		return fmt.Errorf("task %q is another one than it was", e.Task)
	case got.round != e.Round || e.Size != p.cfg.Samples || e.Number != p.drawn:
		return fmt.Errorf("draw %d of task %q, round %d, %d samples; expected draw %d, round %d, %d samples", e.Number, e.Task, e.Round, e.Size, p.drawn, got.round, p.cfg.Samples)
	}
	return p.begin(got)
}

// Begin says when the run began, before the first draw and before Restore: deadlines count from it.
func (p *Plan) Begin(at time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Knobs.Begin(at)
	if pl, ok := p.supply.(*pool); ok {
		return pl.begin(&p.Knobs)
	}
	return nil
}

// Close ends the pass over the tasks. It returns what failed after the last Next as well.
func (p *Plan) Close() error {
	p.mu.Lock()
	var untold error
	if p.err == nil {
		p.err = errors.New("the plan is closed")
	} else if !p.told {
		untold = p.err
	}
	p.told = true
	p.mu.Unlock()
	p.reading.Lock()
	defer p.reading.Unlock()
	return errors.Join(untold, p.supply.close())
}

// TaskState is what is known of one task.
type TaskState struct {
	ID     string  `json:"id"`
	Domain string  `json:"domain"`
	Groups int     `json:"groups"` // drawn in this run
	Trials int64   `json:"trials"` // samples of this run with a verdict
	Passed float64 `json:"passed"` // their rewards, sum
	Prior  Belief  `json:"prior"`  // what earlier runs knew
	Belief Belief  `json:"belief"` // all that is known, with what is old counted less
}

// Decides says whether what is drawn depends on results.
func (p *Plan) Decides() bool { return p.decides }

// States tells what is known of each task, by its hash; nil where no tasks are held.
func (p *Plan) States() map[string]TaskState {
	p.mu.Lock()
	defer p.mu.Unlock()
	pl, ok := p.supply.(*pool)
	if !ok {
		return nil
	}
	states := make(map[string]TaskState, len(pl.byID))
	for id, e := range pl.byID {
		states[e.task.Hash] = TaskState{id, DomainName(e.task.DataSource), e.drawn, e.trials, e.passes, e.prior, e.belief}
	}
	return states
}
