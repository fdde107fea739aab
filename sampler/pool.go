package sampler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"tranche/episode"
)

// supply gives the tasks that are trained on, one after the other. It is called under the Plan's lock.
type supply interface {
	// next returns the next task; io.EOF when there is none any more, errBusy when there is none now but will be once an open group has ended.
	next(ctx context.Context) (supplied, error)
	// take is next where it is known already which task it was, and in which lap.
	take(ctx context.Context, id string, lap int) (supplied, error)
	// learn takes the rewards of a whole group.
	learn(id string, rewards []*float64)
	close() error
}

// supplied is a task that is drawn.
type supplied struct {
	task  *episode.Task
	round int // how often it was drawn before
	lap   int
}

var errBusy = errors.New("what comes next depends on groups that are open")

// stream is a supply that reads on and holds nothing: no domain, no band.
type stream struct{ *Source }

func (s stream) next(ctx context.Context) (supplied, error) {
	d, err := s.Source.Next(ctx)
	return supplied{task: d.Task, round: d.Round}, err
}

func (s stream) take(ctx context.Context, id string, lap int) (supplied, error) {
	got, err := s.next(ctx)
	switch {
	case err != nil:
		return got, err
	case got.task.ID != id:
		return got, fmt.Errorf("the input gave task %q where it gave %q before", got.task.ID, id)
	case lap != 0:
		return got, fmt.Errorf("task %q of lap %d, and nothing is gone through in laps", id, lap)
	}
	return got, nil
}

func (s stream) learn(string, []*float64) {}
func (s stream) close() error             { return s.Source.Close() }

// pool is a supply that holds all tasks: by domain, with what is known of each.
type pool struct {
	cfg     PlanConfig
	domains []*domain // by name
	byID    map[string]*entry
	pacer   *pacer
	drawn   int64
}

// entry is one task of a pool.
type entry struct {
	task   *episode.Task
	wish   wish
	domain *domain
	drawn  int     // groups so far
	lap    int     // the last one that it was drawn in; -1 = none
	open   bool    // a group of it has not ended
	likely float64 // the chance to take part in a lap, by what is known
	prior  Belief
	belief Belief
	passes float64 // of all trials of this run, for the record
	trials int64
}

// domain is the tasks of one data source. They are gone through in laps; in each, every task comes at most once. What is drawn next is decided by
// which tasks were drawn in this lap, which are open and what is known of each, and by nothing else: the record says as much.
type domain struct {
	name    string
	entries []*entry // in the order of the input
	seed    int64
	byLuck  bool // laps are in random order, else in that of the input
	choosy  bool // tasks take part in a lap by chance
	lap     int  // that the last draw was of; -1 = none
	this    *lap // it
	after   *lap // the one after it, made and not begun; nil = not made
	reward  trend
}

// lap is an order of a domain's tasks.
type lap struct {
	number int
	order  []*entry
	luck   []float64 // of each in the order: it takes part where it is likelier than this; nil = all do
	past   int       // so many of the order will not come any more in this lap
}

// newPool puts tasks into a pool. priors may be nil.
func newPool(cfg PlanConfig, tasks []*episode.Task, knobs *Knobs, priors map[string]Belief) (*pool, error) {
	p := &pool{cfg: cfg, byID: map[string]*entry{}}
	byName := map[string]*domain{}
	for _, t := range tasks {
		name := allTasks
		if cfg.Mix.on() {
			name = DomainName(t.DataSource)
		}
		d := byName[name]
		if d == nil {
			d = &domain{name: name, seed: cfg.Seed, byLuck: cfg.Order == OrderShuffle, choosy: cfg.Band.on(), lap: -1, this: &lap{number: -1}}
			byName[name] = d
			p.domains = append(p.domains, d)
		}
		w, err := knobs.wish(t)
		if err != nil {
			return nil, err
		}
		prior := priors[t.Hash].atMost(cfg.Band.Memory)
		e := &entry{task: t, wish: w, domain: d, lap: -1, prior: prior, belief: prior}
		e.likely = p.likely(prior)
		d.entries = append(d.entries, e)
		p.byID[t.ID] = e
	}
	slices.SortFunc(p.domains, func(a, b *domain) int { return cmp.Compare(a.name, b.name) })
	if cfg.Mix.on() {
		names := make([]string, len(p.domains))
		for i, d := range p.domains {
			names[i] = d.name
		}
		if err := cfg.Mix.fits(names); err != nil {
			return nil, err
		}
	}
	p.cfg.Mix = cfg.Mix.filled(max(len(p.domains), 1))
	p.pacer = newPacer(p.cfg.Mix.shares(p.domains))
	return p, nil
}

// allTasks is the one domain where domains are not told apart.
const allTasks = "all"

// DomainName is what a domain is called: the data source, "(none)" without one.
func DomainName(dataSource string) string { return cmp.Or(dataSource, "(none)") }

func (p *pool) next(context.Context) (supplied, error) {
	if len(p.byID) == 0 {
		return supplied{}, io.EOF
	}
	p.weigh()
	for _, i := range p.pacer.order() {
		if e, lap := p.domains[i].pick(); e != nil {
			return p.draw(i, e, lap), nil
		}
	}
	return supplied{}, errBusy
}

func (p *pool) take(_ context.Context, id string, lap int) (supplied, error) {
	e := p.byID[id]
	if e == nil {
		return supplied{}, fmt.Errorf("task %q is not in the input any more", id)
	}
	if d := e.domain; lap < max(d.lap, 0) || lap > d.lap+1 || lap <= e.lap {
		return supplied{}, fmt.Errorf("task %q in lap %d; expected one that it was not drawn in, %d or %d", id, lap, max(d.lap, 0), d.lap+1)
	}
	p.weigh()
	return p.draw(slices.Index(p.domains, e.domain), e, e.domain.lapOf(lap)), nil
}

// weigh finds the shares anew when it is time.
func (p *pool) weigh() {
	if p.cfg.Mix.By == MixProgress && p.drawn%p.cfg.Mix.Every == 0 {
		p.pacer.shares = p.cfg.Mix.shares(p.domains)
	}
}

func (p *pool) draw(i int, e *entry, in *lap) supplied {
	p.pacer.take(i)
	p.drawn++
	d := e.domain
	if d.lap != in.number {
		d.lap, d.this, d.after = in.number, in, nil
	}
	e.drawn++
	e.lap = in.number
	e.open = p.cfg.Band.on()
	return supplied{e.task, e.drawn - 1, e.lap}
}

// likely is the chance that a task takes part in a lap: in a band, one that is surely outside mostly does not.
func (p *pool) likely(known Belief) float64 {
	b := p.cfg.Band
	if !b.on() {
		return 1
	}
	return max(known.Inside(b.Low, b.High)/Belief{}.Inside(b.Low, b.High), b.Revisit)
}

func (p *pool) learn(id string, rewards []*float64) {
	e := p.byID[id]
	e.open = false
	sum, n := 0.0, 0
	for _, r := range rewards {
		if r != nil {
			sum += *r
			n++
		}
	}
	if n == 0 { // nothing was learned, so nothing that is known gets older either
		return
	}
	e.belief = e.belief.After(rewards, p.cfg.Band.keep())
	e.likely = p.likely(e.belief)
	e.passes += sum
	e.trials += int64(n)
	e.domain.reward.add(sum / float64(n))
}

func (p *pool) close() error { return nil }

// begin reads the deadlines anew: some count from the run's beginning.
func (p *pool) begin(knobs *Knobs) error {
	for _, e := range p.byID {
		w, err := knobs.wish(e.task)
		if err != nil {
			return err
		}
		e.wish = w
	}
	return nil
}

// pick is the task that comes next and its lap; nil while that depends on open groups. It begins no lap while a task that takes part in the one
// before is open and has not had its turn: else tasks outside the band would come in the place of those that are open, lap after lap. A task that
// is open from the lap before is waited for at the end of a lap only, so that two laps may overlap.
func (d *domain) pick() (*entry, *lap) {
	e, waits := d.this.pick()
	if e != nil || waits {
		return e, d.this
	}
	next := d.lapOf(d.lap + 1)
	if e, waits = next.pick(); e == nil && !waits {
		e = next.nearest()
	}
	return e, next
}

// pick is the first task of a lap that takes part and has not come; without one, waits says whether one is open that takes part.
func (l *lap) pick() (e *entry, waits bool) {
	for i := l.past; i < len(l.order); i++ {
		e := l.order[i]
		done := e.lap >= l.number || !e.open && !l.joins(i)
		switch {
		case done && i == l.past: // what is known of a task changes only while it is open
			l.past++
		case done || !l.joins(i):
		case e.open:
			waits = true
		default:
			return e, false
		}
	}
	return nil, waits
}

func (l *lap) joins(i int) bool { return l.luck == nil || l.luck[i] < l.order[i].likely }

// nearest is the task that is nearest to taking part in a lap that none takes part in; nil when it is open.
func (l *lap) nearest() (nearest *entry) {
	least := math.Inf(1)
	for i, e := range l.order {
		if far := l.luck[i] / e.likely; far < least {
			nearest, least = e, far
		}
	}
	if nearest.open {
		return nil
	}
	return nearest
}

// lapOf is the lap of a number: this one or the one after it. It is made once.
func (d *domain) lapOf(number int) *lap {
	switch {
	case number == d.lap:
		return d.this
	case d.after == nil:
		d.after = d.newLap(number)
	}
	return d.after
}

func (d *domain) newLap(number int) *lap {
	l := &lap{number: number, order: slices.Clone(d.entries)}
	if d.byLuck {
		rng := rand.New(rand.NewPCG(uint64(d.seed), hash64("lap", d.name, strconv.Itoa(number))))
		rng.Shuffle(len(l.order), func(i, j int) { l.order[i], l.order[j] = l.order[j], l.order[i] })
	}
	// The urgent ones first.
	slices.SortStableFunc(l.order, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(b.wish.priority, a.wish.priority), sooner(a.wish, b.wish))
	})
	if d.choosy {
		l.luck = make([]float64, len(l.order))
		for i, e := range l.order { // a hash, so that who takes part depends on what is known and on nothing else
			l.luck[i] = chance("band", strconv.FormatInt(d.seed, 10), e.task.ID, strconv.Itoa(number))
		}
	}
	return l
}

// sooner compares deadlines; none is later than any.
func sooner(a, b wish) int {
	switch {
	case a.due.IsZero() || b.due.IsZero():
		return sign(!a.due.IsZero(), !b.due.IsZero())
	default:
		return a.due.Compare(b.due)
	}
}
