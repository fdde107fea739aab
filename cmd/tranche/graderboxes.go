package main

import (
	"context"
	"errors"
	"fmt"

	"tranche/action/sandbox"
	"tranche/reward"
	"tranche/reward/codegrade"
)

// graderBoxes is the back end of graders that run code: made at the first need, apart from that of the tools, so that what graders do never
// waits for an episode's sandbox.
type graderBoxes struct {
	turn chan struct{}    // holds one token, that of who may look at made: a mutex that can be given up on
	made sandbox.Executor // nil = not yet
}

func newGraderBoxes() *graderBoxes {
	b := &graderBoxes{turn: make(chan struct{}, 1)}
	b.turn <- struct{}{}
	return b
}

// open makes the back end, or waits for another who does, until ctx is done.
func (b *graderBoxes) open(ctx context.Context, make func(context.Context) (sandbox.Executor, error)) (sandbox.Executor, error) {
	select {
	case <-b.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { b.turn <- struct{}{} }()
	if b.made != nil {
		return b.made, nil
	}
	x, err := make(ctx)
	if err == nil {
		b.made = x
	}
	return x, err
}

// close ends every sandbox that a grader has. Nothing is graded any more.
func (b *graderBoxes) close() error {
	<-b.turn // whoever has it gives it back soon: what it was asked for is over
	defer func() { b.turn <- struct{}{} }()
	if b.made == nil {
		return nil
	}
	return b.made.Close()
}

// openBoxes makes the run's back end. What it cannot hold is said once, whoever asks first.
func (s *session) openBoxes(ctx context.Context) (sandbox.Executor, error) {
	spec := s.set.Sandbox
	ctx, cancel := context.WithTimeout(ctx, checkPatience) // a far side that never answers must not hold the start, or the end
	defer cancel()
	x, err := openExecutor(ctx, spec.backend(), spec.Options)
	if err != nil {
		return nil, err
	}
	s.kit.told.Do(func() {
		if spec.backend() == backendPlain {
			s.a.notice("warning: sandbox: backend plain: what the model writes runs on this machine as you, without any isolation; its rows have tier none")
			return
		}
		s.a.noteWeak(x.Capabilities())
	})
	return x, nil
}

// gradingSpec is a sandbox for graders: as the run's, but never with a network.
func (s *session) gradingSpec() sandbox.Spec {
	spec := s.set.Sandbox.spec()
	spec.Rootfs, spec.RootfsDigest, spec.Net = s.kit.rootfs.Dir, s.set.Sandbox.RootfsDigest, false
	return spec
}

func (s *session) openGradingBoxes(ctx context.Context) (sandbox.Executor, error) {
	return s.kit.boxes.open(ctx, s.openBoxes)
}

// holdsExploits tells whether programs that kill, fill and hoard may be played here: only where each stays among its own. Without a grader of
// programs nothing is opened.
func (s *session) holdsExploits(ctx context.Context) bool {
	if len(s.codeGraders()) == 0 {
		return false
	}
	x, err := s.openGradingBoxes(ctx)
	if err != nil {
		return false // what is wrong with it is said by the first grading
	}
	caps := x.Capabilities()
	if caps.Promises[sandbox.PromiseKill] == sandbox.Enforced && caps.Promises[sandbox.PromiseMemory] != sandbox.Absent {
		return true
	}
	s.a.notice("programs are held by %s, which does not keep them from killing and filling: of the exploits only the gentle ones are tried", caps.HeldBy())
	return false
}

// codeKind is the grader of programs.
func (s *session) codeKind() reward.Kind { return codegrade.Kind(s.openGradingBoxes, s.gradingSpec()) }

// namedCode is a grader of programs, and what the settings call it.
type namedCode struct {
	*codegrade.Grader
	name string
}

// codeGraders are the graders of programs, made for a check before the run.
func (s *session) codeGraders() (list []namedCode) {
	for _, r := range s.set.Reward {
		if r.Kind != codegrade.KindName {
			continue
		}
		made, err := s.codeKind().Make(r.spec())
		if err != nil {
			continue // checkGraders tells what is wrong with its options
		}
		list = append(list, namedCode{made.(*codegrade.Grader), r.Name})
	}
	return list
}

// mostFitted is of how many tasks it is looked at whether graders of programs find their tests.
const mostFitted = 200

// checkTests tells where tasks lack the columns that a grader of programs needs: it is an error where every task was looked at and none has any. A
// sample is not enough for one: a mixture may hold few programs.
func (s *session) checkTests(ctx context.Context) error {
	graders := s.codeGraders()
	if len(graders) == 0 {
		return nil
	}
	tasks, err := s.someTasks(ctx, mostFitted)
	if err != nil {
		return withCode(codeTasks, err)
	}
	var errs []error
	for _, g := range graders {
		misfits, why := 0, error(nil)
		for _, t := range tasks {
			if err := g.Fits(t); err != nil {
				misfits, why = misfits+1, err
			}
		}
		said := fmt.Sprintf("reward: %s: %d of %d tasks that were looked at have no tests for it", g.name, misfits, len(tasks))
		switch {
		case misfits == 0:
		case int64(misfits) == s.tasks.Tasks:
			errs = append(errs, withCode(codeUsage, fmt.Errorf("%s: %w", said, why)))
		default:
			s.a.notice("%s (%v): they will have no verdict", said, why)
		}
	}
	return errors.Join(errs...)
}

// checkGradingSandbox tries a sandbox where a grader needs one: what this host cannot do is known before the first episode, and so is a
// reward timeout that is too short.
func (s *session) checkGradingSandbox(ctx context.Context) error {
	var errs []error
	graders := s.codeGraders()
	if len(graders) == 0 {
		return nil
	}
	for _, g := range graders {
		if err := g.EnoughTime(s.set.ScoreTimeout); err != nil {
			errs = append(errs, withCode(codeUsage, fmt.Errorf("reward: %s: %w", g.name, err)))
		}
	}
	if err := graders[0].Check(ctx); err != nil {
		errs = append(errs, withCode(codeUsage, fmt.Errorf("reward: sandbox: %w; `%s sandbox check` tells what this machine can hold", err, s.a.program)))
	}
	return errors.Join(errs...)
}
