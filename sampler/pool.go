package sampler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"

	"tranche/episode"
)

// supply gives the tasks that are trained on, one after the other. It is called under the Plan's lock.
type supply interface {
	// next returns the next task and how often it was drawn before; io.EOF when there is none any more, errBusy when there is none now but
	// will be once an open group has ended.
	next(ctx context.Context) (*episode.Task, int, error)
	// take is next where it is known already which task it was.
	take(ctx context.Context, id string) (*episode.Task, int, error)
	// learn takes the rewards of a whole group.
	learn(id string, rewards []*float64)
	close() error
}

var errBusy = errors.New("every task that could be drawn has an open group")

// stream is a supply that reads on and holds nothing: no domain, no band.
type stream struct{ *Source }

func (s stream) next(ctx context.Context) (*episode.Task, int, error) {
	d, err := s.Source.Next(ctx)
	return d.Task, d.Round, err
}

func (s stream) take(ctx context.Context, id string) (*episode.Task, int, error) {
	t, round, err := s.next(ctx)
	if err == nil && t.ID != id {
		err = fmt.Errorf("the input gave task %q where it gave %q before", t.ID, id)
	}
	return t, round, err
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
	drawn  int  // groups so far
	open   bool // one of them has not ended
	prior  Belief
	belief Belief
	passes float64 // of all trials of this run, for the record
	trials int64
}

// domain is the tasks of one data source. They are gone through in laps; in each, every task comes at most once.
type domain struct {
	name    string
	entries []*entry // in the order of the input
	seed    int64
	byLuck  bool // laps are in random order, else in that of the input
	lap     int
	order   []*entry // of this lap
	at      int
	picked  bool // something was drawn in this lap
	barren  bool // nothing was in the last one: whatever comes is taken
	reward  trend
	groups  int64 // drawn
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
			d = &domain{name: name, seed: cfg.Seed, byLuck: cfg.Order == OrderShuffle, lap: -1}
			byName[name] = d
			p.domains = append(p.domains, d)
		}
		w, err := knobs.wish(t)
		if err != nil {
			return nil, err
		}
		prior := priors[t.Hash].atMost(cfg.Band.Memory)
		e := &entry{task: t, wish: w, domain: d, prior: prior, belief: prior}
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

func (p *pool) next(context.Context) (*episode.Task, int, error) {
	if len(p.byID) == 0 {
		return nil, 0, io.EOF
	}
	p.weigh()
	for _, i := range p.pacer.order() {
		if e := p.domains[i].pick(p.accepts); e != nil {
			return p.draw(i, e)
		}
	}
	return nil, 0, errBusy
}

func (p *pool) take(_ context.Context, id string) (*episode.Task, int, error) {
	e := p.byID[id]
	if e == nil {
		return nil, 0, fmt.Errorf("task %q is not in the input any more", id)
	}
	p.weigh()
	e.domain.skipTo(e)
	return p.draw(slices.Index(p.domains, e.domain), e)
}

// weigh finds the shares anew when it is time.
func (p *pool) weigh() {
	if p.cfg.Mix.By == MixProgress && p.drawn%p.cfg.Mix.Every == 0 {
		p.pacer.shares = p.cfg.Mix.shares(p.domains)
	}
}

func (p *pool) draw(i int, e *entry) (*episode.Task, int, error) {
	p.pacer.take(i)
	p.drawn++
	e.domain.groups++
	e.drawn++
	e.open = p.cfg.Band.on()
	return e.task, e.drawn - 1, nil
}

// accepts decides whether a task takes part in a lap. In a band, tasks that are surely outside mostly do not; the chance is a hash, so that the
// decision depends on what is known and on nothing else.
func (p *pool) accepts(e *entry, lap int) bool {
	b := p.cfg.Band
	if !b.on() {
		return true
	}
	if e.open { // what it gives should be known first
		return false
	}
	unknown := Belief{}.Inside(b.Low, b.High)
	likely := max(e.belief.Inside(b.Low, b.High)/unknown, b.Revisit)
	return chance("band", strconv.FormatInt(p.cfg.Seed, 10), e.task.ID, strconv.Itoa(lap)) < likely
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
	e.passes += sum
	e.trials += int64(n)
	e.domain.reward.add(sum / float64(n))
}

func (p *pool) close() error { return nil }

// pick goes on in the lap to the next task that is accepted; nil when every one has an open group, and then nothing has changed. After a lap
// without any, the next one is taken as it comes.
func (d *domain) pick(accept func(*entry, int) bool) *entry {
	if !slices.ContainsFunc(d.entries, func(e *entry) bool { return !e.open }) {
		return nil
	}
	for range 3*len(d.entries) + 1 {
		e := d.step()
		if accept(e, d.lap) || d.barren && !d.picked && !e.open {
			d.picked = true
			return e
		}
	}
	return nil
}

// skipTo brings the lap to where it was when e was picked.
func (d *domain) skipTo(e *entry) {
	for range 3*len(d.entries) + 1 {
		if d.step() == e {
			d.picked = true
			return
		}
	}
}

// step is the next task of the lap, or of the next lap.
func (d *domain) step() *entry {
	if d.at == len(d.order) {
		d.newLap()
	}
	d.at++
	return d.order[d.at-1]
}

func (d *domain) newLap() {
	d.barren = d.lap >= 0 && !d.picked
	d.lap++
	d.at, d.picked = 0, false
	d.order = slices.Clone(d.entries)
	if d.byLuck {
		rng := rand.New(rand.NewPCG(uint64(d.seed), hash64("lap", d.name, strconv.Itoa(d.lap))))
		rng.Shuffle(len(d.order), func(i, j int) { d.order[i], d.order[j] = d.order[j], d.order[i] })
	}
	// The urgent ones first.
	slices.SortStableFunc(d.order, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(b.wish.priority, a.wish.priority), sooner(a.wish, b.wish))
	})
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
