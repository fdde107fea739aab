package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"tranche/episode"
	"tranche/reward"
	"tranche/reward/judge"
	"tranche/sampler/taskfile"
	"tranche/scheduler"
)

// judges is who judges for graders that ask a model: the run's own servers, through the run's own scheduler, or servers of the judge's, through a
// scheduler and clients of the same make. Its calls are admitted, retried and counted as all are.
type judges struct {
	mu      sync.Mutex
	run     *scheduler.Scheduler   // of the run's servers; nil = none goes on. Guarded by mu
	benches map[string]*judgeBench // by their endpoints, as JSON; "" = the run's, where nothing is played. Guarded by mu
}

// judgeBench is servers of a judge's own.
type judgeBench struct {
	fleet *fleet
	sched *scheduler.Scheduler
}

// lend says whose scheduler takes the calls of judges that have no server of their own; nil = nobody's any more.
func (j *judges) lend(sched *scheduler.Scheduler) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.run = sched
}

// at is the scheduler for those endpoints, "" = the run's; nil where it is not there.
func (j *judges) at(key string) *scheduler.Scheduler {
	j.mu.Lock()
	defer j.mu.Unlock()
	if b := j.benches[key]; b != nil {
		return b.sched
	}
	if key == "" {
		return j.run
	}
	return nil
}

func (j *judges) bench(key string) *judgeBench {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.benches[key]
}

func (j *judges) close() {
	j.mu.Lock()
	benches := j.benches
	j.benches = nil
	j.mu.Unlock()
	for _, b := range benches {
		b.sched.Close()
		b.fleet.close()
	}
}

// judgeKind is the grader.
func (s *session) judgeKind() reward.Kind { return judge.Kind(s.judgeSeat) }

// judgeSeat finds who judges. The model's name is known once its servers are open; when settings are only checked they are not.
func (s *session) judgeSeat(own []judge.Endpoint) (judge.Seat, error) {
	key := ""
	if len(own) > 0 {
		key = string(encode(own))
	}
	seat := judge.Seat{Model: judgeCaller{s, key}}
	switch bench := s.judges.bench(key); {
	case bench != nil:
		seat.Name = joined(distinct(bench.fleet.models()))
	case key == "" && s.fleet != nil:
		seat.Name = joined(distinct(s.fleet.models()))
	}
	return seat, nil
}

func distinct(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }

// judgeEndpoints reads the servers that a spec names; nil for any other kind.
func judgeEndpoints(r RewardSpec) []judge.Endpoint {
	if r.Kind != judge.KindName {
		return nil
	}
	opt, err := judge.ReadOptions(r.spec())
	if err != nil {
		return nil // checkGraders says it
	}
	return opt.Endpoints
}

// openJudges opens the servers of judges that have their own.
func (s *session) openJudges(ctx context.Context) error {
	for _, r := range s.set.Reward {
		own := judgeEndpoints(r)
		key := string(encode(own))
		if len(own) == 0 || s.judges.bench(key) != nil {
			continue
		}
		b, err := s.openBench(ctx, own)
		if err != nil {
			return fmt.Errorf("reward: judge: %w", err)
		}
		s.judges.mu.Lock()
		if s.judges.benches == nil {
			s.judges.benches = map[string]*judgeBench{}
		}
		s.judges.benches[key] = b
		s.judges.mu.Unlock()
	}
	return nil
}

func (s *session) openBench(ctx context.Context, own []judge.Endpoint) (*judgeBench, error) {
	set := s.set // timeouts and the like are the run's
	set.Endpoint, set.Model, set.Padded, set.KVBudget, set.Concurrency, set.ExtraBody = nil, "", 0, 0, 0, nil
	for _, e := range own {
		set.Endpoint = append(set.Endpoint, Endpoint{URL: e.URL, Model: e.Model, APIKeyEnv: e.APIKeyEnv, Concurrency: e.Concurrency})
	}
	return s.seatBench(ctx, &set)
}

// seatBench opens the servers of settings, with a scheduler of their own.
func (s *session) seatBench(ctx context.Context, set *Settings) (*judgeBench, error) {
	f, err := openFleet(ctx, s.a, set, nil)
	if err != nil {
		return nil, err
	}
	f.describe(s.a)
	sched, err := scheduler.New(scheduler.Config{Endpoints: f.endpoints(), Rules: s.rules(), Trace: scheduler.Trace{Down: s.tellDown, Up: s.tellUp}})
	if err != nil {
		f.close()
		return nil, withCode(codeUsage, err)
	}
	return &judgeBench{f, sched}, nil
}

// openJudgesAlone opens who judges where nothing is played: also the run's servers, if a judge has none of its own. closeTools ends them.
func (s *session) openJudgesAlone(ctx context.Context) error {
	if err := s.openJudges(ctx); err != nil {
		return err
	}
	if !slices.ContainsFunc(s.set.Reward, func(r RewardSpec) bool { return r.Kind == judge.KindName && len(judgeEndpoints(r)) == 0 }) {
		return nil
	}
	b, err := s.seatBench(ctx, &s.set)
	if err != nil {
		return fmt.Errorf("reward: judge: %w", err)
	}
	s.judges.mu.Lock()
	defer s.judges.mu.Unlock()
	if s.judges.benches == nil {
		s.judges.benches = map[string]*judgeBench{}
	}
	s.judges.benches[""] = b
	return nil
}

// judgeCaller makes a judge's calls.
type judgeCaller struct {
	s   *session
	key string // of judges.at
}

// judgeCell is where the lengths of judges' calls are learned: apart from those of the tasks.
const judgeCell = "(judge)"

// Ask has the scheduler make one call, which belongs to no episode.
func (j judgeCaller) Ask(ctx context.Context, q judge.Question) (judge.Answer, error) {
	sched := j.s.judges.at(j.key)
	if sched == nil {
		return judge.Answer{}, &reward.Unjudged{Reason: judge.Failed, Detail: "no server of the judge is open"}
	}
	call := &episode.Call{
		ID: q.ID, Episode: q.ID, Group: q.ID, GroupSize: 1, Cell: episode.Cell{DataSource: judgeCell}, Want: q.MaxTokens,
		Messages: []episode.Message{{Role: episode.RoleUser, Content: &q.Prompt}},
		Sampling: episode.Sampling{Temperature: &q.Temperature, Seed: q.Seed},
	}
	defer sched.Leave(q.ID)
	reply, _, err := sched.Generate(ctx, call, episode.Budget{TurnTokens: q.MaxTokens})
	if err != nil {
		return judge.Answer{}, unjudged(err)
	}
	a := judge.Answer{Cut: reply.Finish == episode.FinishLength}
	if reply.Message.Content != nil {
		a.Text = *reply.Message.Content
	}
	for n, into := range map[*int32]*int{reply.Usage.Prompt: &a.PromptTokens, reply.Usage.Completion: &a.CompletionTokens} {
		if n != nil {
			*into = int(*n)
		}
	}
	return a, nil
}

// unjudged is a call that failed as a grader says it. The scheduler has retried what it may; asking again later may still help.
func unjudged(err error) error {
	var f *episode.Fault
	switch {
	case errors.Is(err, scheduler.ErrContextFull), errors.As(err, &f) && f.Class == episode.ClassOverflow:
		return &reward.Unjudged{Reason: judge.NoRoom, Detail: err.Error()}
	case f != nil:
		return &reward.Unjudged{Reason: judge.Failed, Detail: f.Error(), Retry: f.Retry}
	}
	return &reward.Unjudged{Reason: judge.Failed, Detail: err.Error()}
}

// tryJudges has the judges of a new run tried on some of its tasks, before anything is written.
func (s *session) tryJudges(ctx context.Context) error {
	if s.resumed || !slices.ContainsFunc(s.set.Reward, func(r RewardSpec) bool { return r.Kind == judge.KindName }) {
		return nil
	}
	scorer, err := s.newScorer()
	if err != nil {
		return withCode(codeUsage, err)
	}
	defer scorer.Close()
	n := scorer.ProbeTasks()
	if n == 0 {
		return nil
	}
	if s.set.TasksCommand != "" {
		s.a.notice("warning: the judge is not tried before the run: its tasks come from a command")
		return nil
	}
	tasks, err := s.someTasks(ctx, n)
	if err != nil {
		return withCode(codeTasks, err)
	}
	cfg := s.schedulerConfig()
	cfg.Trace = scheduler.Trace{Down: s.tellDown, Up: s.tellUp} // the run's counts begin with the run
	sched, err := scheduler.New(cfg)
	if err != nil {
		return withCode(codeUsage, err)
	}
	defer sched.Close()
	s.judges.lend(sched)
	defer s.judges.lend(nil)
	return s.probe(ctx, scorer, tasks)
}

func (s *session) probe(ctx context.Context, scorer *reward.Scorer, tasks []*episode.Task) error {
	began := time.Now()
	said, err := scorer.Probe(ctx, tasks)
	for _, line := range said {
		s.a.notice("%s, tried for %s", line, time.Since(began).Round(100*time.Millisecond))
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var wrong *reward.ProbeError
	switch {
	case errors.As(err, &wrong):
		return withCode(codeUsage, fmt.Errorf("reward: %w\nno run was begun; another judge, template or form may help, or probe: {most: …} allows more", err))
	case err != nil:
		return withCode(codeEndpoint, fmt.Errorf("reward: %w", err))
	}
	return nil
}

// someTasks reads n tasks that lie evenly over the files.
func (s *session) someTasks(ctx context.Context, n int) (list []*episode.Task, err error) {
	tasks, err := taskfile.Open(ctx, s.taskConfig())
	if err != nil {
		return nil, err
	}
	defer tasks.Close()
	step := max((s.tasks.Tasks+int64(n)-1)/int64(n), 1)
	for i := int64(0); len(list) < n; i++ {
		t, err := tasks.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if i%step == 0 {
			list = append(list, t)
		}
	}
	return list, nil
}

// judgeModels is what of a judge's servers decides its verdicts: the models they were asked for.
func judgeModels(own []judge.Endpoint) json.RawMessage {
	var models []string
	for _, e := range own {
		models = append(models, e.Model)
	}
	return encode(distinct(models))
}
