package bench

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"tranche/episode"
	"tranche/inference/enginesim"
	"tranche/scheduler"
)

// Fleet is what a workload is played on, and how.
type Fleet struct {
	// Replicas are the engines; they may differ in size, context limit and speed. At least one.
	Replicas []enginesim.Config
	// MaxOpen is how many episodes are open at once. 0 = all of the workload.
	MaxOpen int
	// MetricsEvery is how often the policy is shown each replica's gauges. 0 = never: a fleet without metrics.
	MetricsEvery time.Duration
	// Told says what the policy is told of a replica's capacity, given the truth; nil = the truth.
	Told func(replica int, truth episode.Capacity) episode.Capacity
	// Incidents happen to replicas during the run. Default none.
	Incidents []Incident
	// Quorum ends episodes before they are done. Default: all are played to their end.
	Quorum Quorum
	// Seed is handed to the policy.
	Seed uint64
	// Stop, when closed, makes Play return ErrStopped. nil = played to the end.
	Stop <-chan struct{}

	eager bool // step every machine one step at a time; for the test of the lazy way
}

// ErrStopped is the error of a run that was stopped from outside.
var ErrStopped = errors.New("stopped")

// Quorum is when enough is enough. What is cut off is aborted on the engines and counted as aborted.
type Quorum struct {
	// Group is the share of a group's episodes after which its others are cut off; 0 = all are waited for.
	Group float64
	// Run is the share of all episodes after which the run ends; 0 = all are waited for.
	Run float64
}

// Incident is something that happens to a replica.
type Incident struct {
	Replica int
	At      time.Duration
	What    IncidentKind
}

// IncidentKind is what happens.
type IncidentKind string

// Incidents.
const (
	Dies   IncidentKind = "dies"   // running calls break off, its cache is lost, new calls find no connection
	Drains IncidentKind = "drains" // running calls go on, new calls get 503
	Heals  IncidentKind = "heals"  // takes calls again
)

// Validate reports every fault of the fleet at once.
func (f Fleet) Validate() error {
	var errs []error
	if len(f.Replicas) == 0 {
		errs = append(errs, errors.New("fleet: no replicas"))
	}
	for i, c := range f.Replicas {
		if err := c.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("fleet: replica %d: %w", i, err))
		}
		if c.KVTokens == 0 || c.ContextTokens == 0 || c.MaxSeqs == 0 || c.StepBudget == 0 {
			errs = append(errs, fmt.Errorf("fleet: replica %d: KVTokens, ContextTokens, MaxSeqs and StepBudget must be given: no defaults here", i))
		}
		if c.Step.Base+c.Step.Floor < 1e-9 {
			errs = append(errs, fmt.Errorf("fleet: replica %d: a step takes %g s at least, must be a nanosecond or more", i, c.Step.Base+c.Step.Floor))
		}
	}
	for i, x := range f.Incidents {
		if x.Replica < 0 || x.Replica >= len(f.Replicas) || x.At < 0 || !slices.Contains([]IncidentKind{Dies, Drains, Heals}, x.What) {
			errs = append(errs, fmt.Errorf("fleet: incident %d: replica %d %q at %v: expected one of %d replicas, dies, drains or heals, at no negative time", i, x.Replica, x.What, x.At, len(f.Replicas)))
		}
	}
	if f.MaxOpen < 0 || f.MetricsEvery < 0 {
		errs = append(errs, fmt.Errorf("fleet: %d open at most, metrics every %v: must not be negative", f.MaxOpen, f.MetricsEvery))
	}
	for _, q := range []float64{f.Quorum.Group, f.Quorum.Run} {
		if q < 0 || q > 1 {
			errs = append(errs, fmt.Errorf("fleet: quorum %g: must be within 0 … 1", q))
		}
	}
	return errors.Join(errs...)
}

// Tell is what a policy is told before a run on the fleet.
func (f Fleet) Tell(w Workload) Told {
	t := Told{Seed: f.Seed, Wall: wallOf(w, float64(shortReplicas(len(f.Replicas)))/float64(max(len(f.Replicas), 1))), Played: w}
	for i, c := range f.Replicas {
		know := episode.Capacity{ContextTokens: c.ContextTokens, KVTokens: c.KVTokens, Sequences: c.MaxSeqs, BlockTokens: c.BlockTokens, Source: "simulation"}
		if f.Told != nil {
			know = f.Told(i, know)
		}
		told := scheduler.ReplicaConfig{Name: "r" + strconv.Itoa(i), Capacity: know}
		if c.Batching == enginesim.Static || c.Batching == enginesim.Shaped {
			told.Rows, told.Continues = c.MaxSeqs, true
			if c.Batching == enginesim.Shaped {
				told.Shapes = c.PadsTo()
			}
		}
		t.Replicas = append(t.Replicas, told)
	}
	return t
}
