package main

import (
	"context"
	"errors"
	"io"

	"tranche/action"
	"tranche/sampler/taskfile"
	"tranche/storage"
)

// This file is the tasks of a session: how they are read, what is checked of them before the first request, what is told of them.

// taskConfig is how the task files are read, at the check and at the run alike.
func (s *session) taskConfig() taskfile.Config {
	return taskfile.Config{
		Paths: s.set.Tasks, Format: taskfile.Format(s.set.Format), SkipBad: s.set.SkipBad, Limit: int64(s.set.Limit), Offset: int64(s.set.Offset),
		Templates: taskfile.Templates{
			ID: s.set.ID, Prompt: s.set.Prompt, System: s.set.System, Answer: s.set.Answer, DataSource: s.set.DataSource, EnvClass: s.set.EnvClass,
		},
		OpenRows: storage.ReadObjects, Sound: s.samplerConfig().Sound,
	}
}

// checkTasks reads every row once: whatever is wrong is said before the first request.
func (s *session) checkTasks(ctx context.Context) error {
	cfg := s.taskConfig()
	err := errors.Join(s.checkTaskConfig(cfg), s.samplerConfig().Validate(), s.checkGraders(), s.checkGroupGraders())
	if terr := s.openTools(ctx); terr != nil {
		return withCode(codeUsage, errors.Join(err, terr))
	}
	if serr := errors.Join(s.checkSandbox(ctx), s.checkGradingSandbox(ctx), s.checkPythonGraders(ctx)); serr != nil {
		return errors.Join(err, serr)
	}
	actor, aerr := s.newActor()
	if err = errors.Join(err, aerr); err != nil {
		return withCode(codeUsage, err)
	}
	defer actor.Close()
	if s.set.TasksCommand != "" { // what it gives is checked as it comes
		s.tasks.SHA256 = digestOf(map[string]string{"tasks-command": s.set.TasksCommand})
		return s.planDraws(ctx)
	}
	var wanted wantedColumns
	wanted.want("priority-column", s.set.PriorityColumn)
	wanted.want("deadline-column", s.set.DeadlineColumn)
	cfg.Sound = wanted.watch(cfg.Sound)
	if s.tasks, err = taskfile.Check(ctx, cfg); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return withCode(codeTasks, err)
	}
	if err := wanted.missing(s.tasks.First); err != nil {
		return withCode(codeUsage, err)
	}
	s.tellTasks()
	return errors.Join(s.checkTools(ctx, actor), s.checkTests(ctx), s.planDraws(ctx))
}

// checkTaskConfig checks how the tasks are read; a command names no files.
func (s *session) checkTaskConfig(cfg taskfile.Config) error {
	if s.set.TasksCommand != "" {
		cfg.Paths = []string{"tasks command"}
	}
	return cfg.Validate()
}

func (s *session) checkGraders() error {
	scorer, err := s.newScorer()
	if err != nil {
		return err
	}
	return scorer.Close()
}

// maxToolFaults bounds the faults that are listed.
const maxToolFaults = 20

// checkTools asks for every task whether its tools are known. It is a second pass over the files, made only when one of them
// names tools.
func (s *session) checkTools(ctx context.Context, actor *action.Set) error {
	if s.tasks.WithTools == 0 {
		return nil
	}
	tasks, err := taskfile.Open(ctx, s.taskConfig())
	if err != nil {
		return withCode(codeTasks, err)
	}
	f := &faults{}
	for len(f.list) < maxToolFaults {
		t, err := tasks.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			f.list = append(f.list, err)
			break
		}
		if _, _, err := actor.Tools(t); err != nil {
			f.list = append(f.list, err)
		}
	}
	f.list = append(f.list, tasks.Close())
	return withCode(codeTasks, f.err())
}

// tellTasks names what was left out, so that nothing is lost silently.
func (s *session) tellTasks() {
	if n := s.tasks.Bad.Rows; n > 0 {
		s.a.notice("skipped %d bad rows (--skip-bad):", n)
		for i, b := range s.tasks.Bad.Listed {
			if i == 20 {
				s.a.notice("  … and more")
				break
			}
			s.a.notice("  %v", b)
		}
	}
	if n := s.tasks.Duplicates; n > 0 {
		s.a.notice("dropped %d rows that repeat an earlier one (same id, same content)", n)
	}
	if n := s.tasks.NoAnswer; n > 0 && s.wantsAnswers() {
		s.a.notice("%d of %d tasks state no answer: their reward will be null (--reward none says that this is meant)", n, s.tasks.Tasks)
	}
	if said := s.set.oversampled(s.tasks.Tasks); said != "" {
		s.a.notice("%s", said)
	}
	for name, n := range s.tasks.Ignored {
		s.a.notice("field %q in %d rows has no meaning here and is not sent", name, n)
	}
}

// maxAnswers bounds the questions the embedded engine is told the answers of, bytes.
const maxAnswers = 64 << 20

// answers gives the embedded engine the ground truths of the tasks, so that it solves some and rewards vary; nil with real
// endpoints.
func (s *session) answers(ctx context.Context) (func(string) (string, bool), error) {
	if len(s.set.Endpoint) > 0 || s.set.TasksCommand != "" {
		return nil, nil
	}
	if s.tasks.PromptBytes.Total > maxAnswers {
		s.a.notice("the embedded engine is not told the answers of so many tasks: most will be answered wrong")
		return nil, nil
	}
	return answersOf(ctx, s.taskConfig())
}
