package bench

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Match compares policies on one workload and fleet, at several loads and over several seeds.
type Match struct {
	// Workload makes the workload of a seed.
	Workload func(seed uint64) (Workload, error)
	// Fleet is what it is played on; MaxOpen and Seed are set by the match.
	Fleet Fleet
	// Loads are the episodes open at once, per replica. 0 = the whole workload at once. Default: only that.
	Loads []int
	// Policies to compare. Flood is played in any case: speed-ups are over it.
	Policies []Contestant
	// Seeds is how many seeds, from First on. Default 1.
	Seeds int
	// First is the first seed.
	First uint64
	// Workers is how many runs go on at once. Default 1.
	Workers int
	// Done is told of each run that ended, by one goroutine at a time. May be nil.
	Done func(load int, policy string, seed uint64, r Result)
}

// Mean is a mean over seeds with half the width of its 95 % confidence interval (Student's t; 0 with one seed).
type Mean struct {
	Mean float64 `json:"mean"`
	Half float64 `json:"half"`
}

// MeanOf sums up a sample.
func MeanOf(sample []float64) Mean {
	n := float64(len(sample))
	if n < 2 {
		if n == 1 {
			return Mean{Mean: sample[0]}
		}
		return Mean{}
	}
	mean, dev := stat.MeanStdDev(sample, nil)
	return Mean{mean, distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975) * dev / math.Sqrt(n)}
}

// Report is what a match came to.
type Report struct {
	Workload string  `json:"workload"`
	Episodes int     `json:"episodes"`
	Calls    int     `json:"calls"` // of the first seed
	Replicas int     `json:"replicas"`
	KVTokens []int   `json:"kv_tokens"` // per replica
	Seeds    int     `json:"seeds"`
	First    uint64  `json:"first_seed"`
	Levels   []Level `json:"levels"`
}

// Level is one load.
type Level struct {
	Load    int    `json:"episodes_open_per_replica"` // 0 = all
	Bound   Mean   `json:"lower_bound_s"`
	BestCap string `json:"best_cap,omitempty"` // the static cap with the least mean makespan among those played
	Rows    []Row  `json:"policies"`
}

// Row is one policy at one load. Ratios are taken seed by seed and then averaged.
type Row struct {
	Policy          string    `json:"policy"`
	Failed          string    `json:"failed,omitempty"` // why it could not play; the rest is zero then
	Makespan        Mean      `json:"makespan_s"`
	T90             Mean      `json:"t90_s"`
	OfBound         Mean      `json:"lower_bound_share"`  // lower bound / makespan
	Speedup         Mean      `json:"speedup_over_flood"` // flood's makespan / makespan
	OverBestCap     Mean      `json:"speedup_over_best_cap"`
	TokensPerSecond Mean      `json:"tokens_per_s"`
	LatencyP50      Mean      `json:"turn_latency_p50_s"`
	LatencyP99      Mean      `json:"turn_latency_p99_s"`
	Preemptions     Mean      `json:"preemptions"`
	Recomputed      Mean      `json:"computed_over_unique_prompt_tokens"`
	HitRate         Mean      `json:"prefix_hit_rate"`
	Busy            Mean      `json:"replicas_busy"`
	Attempts        Mean      `json:"attempts"`
	Failures        Mean      `json:"failed_attempts"`
	Rejected        Mean      `json:"rejected_episodes"`
	Cuts            Mean      `json:"answers_cut_and_gone_on_with"`
	Truncated       Mean      `json:"answers_cut_by_policy"`
	Bounds          []Bounded `json:"bounds,omitempty"` // per replica, where the policy tells

	results []Result // by seed
	errs    []error  // by seed
}

// job is one run of a match.
type job struct {
	level, row int
	seed       int
	fleet      Fleet
	w          Workload
	policy     Contestant
}

// Run plays the match. The error is the first of a workload, or ErrStopped; what goes wrong with one policy is in its rows.
func (m Match) Run() (Report, error) {
	m.Seeds, m.Workers = max(m.Seeds, 1), max(m.Workers, 1)
	if len(m.Loads) == 0 {
		m.Loads = []int{0}
	}
	var err error
	if m.Policies, err = withFlood(m.Policies); err != nil {
		return Report{}, err
	}
	var workloads []Workload
	for s := range m.Seeds {
		w, err := m.Workload(m.First + uint64(s))
		if err == nil {
			err = errors.Join(w.Validate(), m.Fleet.Validate())
		}
		if err != nil {
			return Report{}, err
		}
		workloads = append(workloads, w)
	}
	r, jobs := m.plan(workloads)
	if err := m.play(&r, jobs); err != nil {
		return Report{}, err
	}
	r.conclude(jobs)
	return r, nil
}

// withFlood adds flood to policies where it is missing.
func withFlood(policies []Contestant) ([]Contestant, error) {
	flood, err := Named([]string{"flood"})
	if err == nil && !slices.ContainsFunc(policies, func(c Contestant) bool { return c.Name == "flood" }) {
		policies = append(slices.Clone(policies), flood...)
	}
	return policies, err
}

func (m Match) plan(workloads []Workload) (Report, []job) {
	r := Report{
		Workload: workloads[0].Name, Episodes: len(workloads[0].Episodes), Calls: workloads[0].Calls(), Replicas: len(m.Fleet.Replicas), Seeds: m.Seeds, First: m.First,
	}
	for _, c := range m.Fleet.Replicas {
		r.KVTokens = append(r.KVTokens, c.KVTokens)
	}
	var jobs []job
	for l, load := range m.Loads {
		level := Level{Load: load}
		for p, c := range m.Policies {
			level.Rows = append(level.Rows, Row{Policy: c.Name, results: make([]Result, m.Seeds), errs: make([]error, m.Seeds)})
			for s, w := range workloads {
				f := m.Fleet
				f.MaxOpen, f.Seed = load*len(f.Replicas), m.First+uint64(s)
				jobs = append(jobs, job{l, p, s, f, w, c})
			}
		}
		r.Levels = append(r.Levels, level)
	}
	return r, jobs
}

// play runs the jobs, some at once; each writes only its own place in the report.
func (m Match) play(r *Report, jobs []job) error {
	var (
		next  = make(chan job)
		wg    sync.WaitGroup
		mu    sync.Mutex // guards fatal, the rows, and calls of Done
		fatal error
	)
	for range m.Workers {
		wg.Go(func() {
			for j := range next {
				result, err := j.play()
				mu.Lock()
				row := &r.Levels[j.level].Rows[j.row]
				row.results[j.seed], row.errs[j.seed] = result, err
				switch {
				case errors.Is(err, ErrStopped):
					fatal = err
				case err == nil && m.Done != nil:
					m.Done(m.Loads[j.level], j.policy.Name, j.fleet.Seed, result)
				}
				mu.Unlock()
			}
		})
	}
	for _, j := range jobs {
		next <- j
	}
	close(next)
	wg.Wait()
	return fatal
}

func (j job) play() (Result, error) {
	p, err := j.policy.New(j.fleet.Tell(j.w))
	if err != nil {
		return Result{}, err
	}
	return j.fleet.Play(j.w, p)
}

// conclude turns the runs into rows.
func (r *Report) conclude(jobs []job) {
	for l := range r.Levels {
		level := &r.Levels[l]
		var bounds []float64
		for _, j := range jobs {
			if j.level == l && j.row == 0 {
				bounds = append(bounds, j.fleet.LowerBound(j.w).Seconds())
			}
		}
		level.Bound = MeanOf(bounds)
		for i := range level.Rows {
			row := &level.Rows[i]
			if bad := slices.IndexFunc(row.errs, func(err error) bool { return err != nil }); bad >= 0 {
				row.Failed = fmt.Sprintf("seed %d: %v", r.First+uint64(bad), row.errs[bad])
			}
		}
		best := level.bestCap()
		flood := level.row("flood")
		for i := range level.Rows {
			if row := &level.Rows[i]; row.Failed == "" {
				row.conclude(bounds, flood, best)
			}
		}
		if best != nil {
			level.BestCap = best.Policy
		}
	}
}

func (l Level) row(policy string) *Row {
	for i := range l.Rows {
		if l.Rows[i].Policy == policy {
			return &l.Rows[i]
		}
	}
	return nil
}

// bestCap is the static cap with the least mean makespan; nil when none was played.
func (l Level) bestCap() *Row {
	var best *Row
	for i := range l.Rows {
		if r := &l.Rows[i]; strings.HasPrefix(r.Policy, "cap-") && r.Failed == "" && (best == nil || r.seconds() < best.seconds()) {
			best = r
		}
	}
	return best
}

func (r *Row) seconds() float64 {
	sum := 0.0
	for _, x := range r.results {
		sum += x.Makespan.Seconds()
	}
	return sum
}

func (r *Row) conclude(bounds []float64, flood, best *Row) {
	mean := func(of func(i int, x *Result) float64) Mean {
		var sample []float64
		for i := range r.results {
			sample = append(sample, of(i, &r.results[i]))
		}
		return MeanOf(sample)
	}
	over := func(other *Row) Mean {
		if other == nil || other.Failed != "" {
			return Mean{}
		}
		return mean(func(i int, x *Result) float64 {
			return ratio(other.results[i].Makespan.Seconds(), x.Makespan.Seconds())
		})
	}
	seconds := func(of func(*Result) time.Duration) Mean {
		return mean(func(_ int, x *Result) float64 { return of(x).Seconds() })
	}
	count := func(of func(*Result) int) Mean { return mean(func(_ int, x *Result) float64 { return float64(of(x)) }) }
	r.Makespan = seconds(func(x *Result) time.Duration { return x.Makespan })
	r.T90 = seconds(func(x *Result) time.Duration { return x.T90 })
	r.OfBound = mean(func(i int, x *Result) float64 { return ratio(bounds[i], x.Makespan.Seconds()) })
	r.Speedup, r.OverBestCap = over(flood), over(best)
	r.TokensPerSecond = mean(func(_ int, x *Result) float64 { return x.TokensPerSecond() })
	r.LatencyP50 = seconds(func(x *Result) time.Duration { return x.LatencyP50 })
	r.LatencyP99 = seconds(func(x *Result) time.Duration { return x.LatencyP99 })
	r.Preemptions = count(func(x *Result) int { return int(x.Preemptions) })
	r.Recomputed = mean(func(_ int, x *Result) float64 { return x.Recomputed() })
	r.HitRate = mean(func(_ int, x *Result) float64 { return x.HitRate() })
	r.Busy = mean(func(_ int, x *Result) float64 {
		sum := 0.0
		for _, u := range x.Replicas {
			sum += u.Busy
		}
		return sum / float64(len(x.Replicas))
	})
	r.Attempts = count(func(x *Result) int { return x.Attempts })
	r.Failures = count(func(x *Result) int { return x.Failures })
	r.Rejected = count(func(x *Result) int { return x.Rejected })
	r.Cuts = count(func(x *Result) int { return x.Cuts })
	r.Truncated = count(func(x *Result) int { return x.Truncated })
	r.Bounds = boundsOf(r.results)
}
