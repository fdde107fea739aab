//go:build linux && (amd64 || arm64)

package ns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"tranche/action/sandbox"
)

// probe finds out what holds on this host: it tries the tiers from the strongest on, each by running `true` in a slot, until one works or has no answer in time. That the slot
// could be made as it was asked for is what is known then; what its limits do to a program that runs into them is for the tests.
func (e *Executor) probe(ctx context.Context) {
	e.can = sandbox.Capabilities{Backend: e.config.backend(), Tier: sandbox.TierNone, Promises: map[sandbox.Promise]sandbox.Strength{}, Why: map[sandbox.Promise]string{}}
	if l := e.config.Launch; os.Geteuid() == 0 && (l == nil || l.Start == nil) {
		ids, err := identities(e.config)
		if err != nil {
			e.nothing(err)
			return
		}
		e.ids = &ids
	}
	if err := e.ownProgram(); err != nil {
		e.nothing(err)
		return
	}
	var tried []error
	for _, t := range e.tiers() {
		made, err := t.make()
		if err == nil {
			err = e.try(ctx, made)
		}
		if err == nil {
			e.tier = made
			e.promise(tried)
			return
		}
		tried = append(tried, fmt.Errorf("%s: %w", t.name, err))
		if late(err) {
			break
		}
	}
	e.nothing(errors.Join(tried...))
}

// late tells a trial that ran out of time from one that failed: a busy host is no reason to hold programs by less than it can.
func late(err error) bool {
	var silent *silentError
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &silent) && silent.late
}

// candidate is a tier that may work.
type candidate struct {
	name sandbox.Tier
	make func() (*tier, error)
}

func (e *Executor) tiers() []candidate {
	all := []candidate{
		{sandbox.TierCgroup2, func() (*tier, error) { return tier2(e.config.Cgroup) }},
		{sandbox.TierCgroup1, tier1},
		{sandbox.TierRlimit, func() (*tier, error) { return &tier{name: sandbox.TierRlimit}, nil }},
	}
	if l := e.config.Launch; l != nil && l.Held != nil {
		return []candidate{{l.Tier, func() (*tier, error) { return &tier{name: l.Tier}, nil }}}
	}
	for _, c := range all {
		if c.name == e.config.Tier {
			return []candidate{c}
		}
	}
	return all
}

// try runs a program in a slot of a tier. The slot is kept: the first Open may want it.
func (e *Executor) try(ctx context.Context, t *tier) error {
	const patience = 2 * time.Minute // as long as a program that waits for a processor may take
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	spec := sandbox.Spec{Limits: sandbox.DefaultLimits()}
	s, err := e.build(ctx, spec, t)
	if err == nil {
		before := e.tier
		e.tier = t
		if err = e.tryRun(ctx, s, spec); err != nil {
			e.tier = before
		}
	}
	if err != nil && t.remove != nil {
		t.remove()
	}
	return err
}

func (e *Executor) tryRun(ctx context.Context, s *slot, spec sandbox.Spec) error {
	b := newBox(e, s, spec)
	b.unlisted = true
	p, err := b.Start(ctx, sandbox.Cmd{Args: []string{"true"}})
	if err == nil {
		var res sandbox.Result
		if res, err = p.Wait(ctx); err == nil && res.Status != sandbox.StatusOK {
			err = fmt.Errorf("the program `true` ended with %s", res.Status)
		}
	}
	if err != nil {
		return errors.Join(err, e.discard(s))
	}
	return b.Close()
}

// nothing says that no sandbox can be opened, and why.
func (e *Executor) nothing(err error) {
	verdict := "does not work on this host"
	if late(err) {
		verdict = "could not be tried on this host, which is busy; try again"
	}
	e.broken = fmt.Errorf("sandbox %s %s: %w", e.config.backend(), verdict, err)
	for _, p := range sandbox.Promises() {
		e.can.Promises[p], e.can.Why[p] = sandbox.Absent, oneLine(err)
	}
}

// promise says what the tier in force holds; tried are the stronger ones that do not work.
func (e *Executor) promise(tried []error) {
	e.can.Tier = e.tier.name
	for _, p := range sandbox.Promises() {
		e.can.Promises[p] = sandbox.Enforced
	}
	if e.tier.group != nil {
		return
	}
	if l := e.config.Launch; l != nil && l.Held != nil {
		for p, strength := range l.Held {
			e.can.Promises[p], e.can.Why[p] = strength, l.Why[p]
		}
		return
	}
	why := "no control group can be made"
	if len(tried) > 0 {
		why += " (" + oneLine(errors.Join(tried...)) + ")"
	}
	if e.config.Tier == sandbox.TierRlimit {
		why = "the tier without control groups was asked for"
	}
	help := "; run as root, or in a group that is delegated: systemd-run --user --scope -p Delegate=yes"
	e.can.Promises[sandbox.PromiseMemory] = sandbox.BestEffort
	e.can.Why[sandbox.PromiseMemory] = "the limit is one of each process, not of all together, and files in memory (memfd_create, System V) are refused: " + why + help
	if e.config.Launch != nil {
		e.can.Promises[sandbox.PromiseFiles] = sandbox.BestEffort
		e.can.Why[sandbox.PromiseFiles] = "the disk is bounded in bytes, not in files, and nothing counts the memory that those take: " + why + help
	}
	e.can.Promises[sandbox.PromiseCPU] = sandbox.BestEffort
	e.can.Why[sandbox.PromiseCPU] = "the time of children that nobody waits for is seen only while they run: " + why + help
}
