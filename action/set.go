package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"tranche/episode"
	"tranche/internal/workpool"
)

// Set is the tools of a run and the pool that runs them. It is an episode.Actor; all its methods may be called at once.
type Set struct {
	cfg  Config
	all  map[string]registered
	pool *workpool.Pool

	mu     sync.Mutex
	offers map[string]*offer   // by the task's own tools; guarded by mu
	going  map[string]struct{} // ids of actions that have not ended, abandoned ones included; guarded by mu
	books  map[string]*Trouble // by tool, of those that had any; guarded by mu
}

var (
	_ episode.Actor  = (*Set)(nil)
	_ episode.Ender  = (*Set)(nil)
	_ episode.Reader = (*Set)(nil)
	_ episode.Keeper = (*Set)(nil)
)

// maxOffers bounds the cache of offers. Sets in use have few kinds of task or one a task; the latter gain nothing from it.
const maxOffers = 1024

// New makes a Set of the given tools (Builtins, and any others). It starts no goroutine before the first action.
func New(cfg Config, tools ...Tool) (*Set, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	all := make(map[string]registered, len(tools))
	var errs []error
	for _, t := range tools {
		r, err := register(t)
		if _, twice := all[t.Name()]; err == nil && twice {
			err = fmt.Errorf("tool %q: registered twice", t.Name())
		}
		errs = append(errs, err)
		all[t.Name()] = r
	}
	for i, name := range cfg.Tools {
		if _, ok := all[name]; !ok {
			errs = append(errs, fmt.Errorf("tools[%d]: no tool %q; there are: %s", i, name, strings.Join(names(all), ", ")))
		}
	}
	if err := errors.Join(append(errs, cfg.Calls.check(all))...); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Set{
		cfg: cfg, all: all, pool: workpool.New(cfg.Workers, cfg.Queue),
		offers: make(map[string]*offer), going: make(map[string]struct{}), books: make(map[string]*Trouble),
	}, nil
}

// Tools returns the OpenAI tool list that episodes of this task are offered, nil for none or where they are told of them in the prompt, and
// whether all of them are run here. The error names the task's place in its file and what was expected. The list is shared: do not change it.
func (s *Set) Tools(t *episode.Task) (defs []byte, runnable bool, err error) {
	o, err := s.offer(t)
	if err != nil {
		return nil, false, err
	}
	if o.text != nil {
		return nil, o.runnable, nil
	}
	return o.defs, o.runnable, nil
}

func (s *Set) offer(t *episode.Task) (*offer, error) {
	key := string(t.Tools)
	s.mu.Lock()
	o := s.offers[key]
	s.mu.Unlock()
	if o != nil {
		return o, nil
	}
	o, err := decideOffer(s.all, s.cfg.Tools, t.Tools)
	if err == nil {
		o.text, err = newTextCalls(s.cfg.Calls, o.defs)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: tools: %w", place(t), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.offers) >= maxOffers {
		clear(s.offers)
	}
	s.offers[key] = o
	return o, nil
}

// Do carries out the actions of one reply at once, as far as the pool has room, and returns an observation for each, in
// order. It returns soon after ctx is done: what has not ended by then is observed as cancelled.
func (s *Set) Do(ctx context.Context, e *episode.Episode, acts []episode.Action) []episode.Observation {
	offered, err := s.offer(e.Task)
	obs := make([]episode.Observation, len(acts))
	jobs := make([]*watched, len(acts))
	for i, act := range acts {
		if err != nil {
			obs[i] = harness(act, err)
			continue
		}
		if repeats(acts[:i], act.ID) {
			obs[i] = harness(act, fmt.Errorf("action %q is listed twice: an action is never run twice", act.ID))
			continue
		}
		if refusal := s.refuse(offered, e, act); refusal != nil {
			obs[i] = *refusal
			continue
		}
		b := offered.tools[act.Call.Function.Name]
		done, refusal := s.await(ctx, b.tool, e, act)
		if refusal != nil {
			obs[i] = *refusal
			continue
		}
		jobs[i] = s.begin(ctx, b, e, act, done)
	}
	for i, j := range jobs {
		if j != nil {
			obs[i] = s.observe(acts[i], j, s.wait(j))
		}
		if acts[i].Written {
			obs[i].Told = s.cfg.Calls.told(obs[i].Text)
		}
	}
	return obs
}

// refuse answers an action that is not to be run at all; nil means that it is.
func (s *Set) refuse(offered *offer, e *episode.Episode, act episode.Action) *episode.Observation {
	name := act.Call.Function.Name
	if act.Unread != "" {
		return s.refused(act, episode.ActionBadArgs, act.Unread)
	}
	if name == "" {
		return s.refused(act, episode.ActionBadArgs, "the tool call has no function name; "+choices(offered))
	}
	if _, ok := offered.tools[name]; !ok {
		return s.refused(act, episode.ActionNoTool, fmt.Sprintf("there is no tool %q; %s", clip(name, 64), choices(offered)))
	}
	if answered(e, act) || !s.claim(act.ID) {
		o := harness(act, fmt.Errorf("action %q was already begun: an action is never run twice", act.ID))
		return &o
	}
	return nil
}

func choices(o *offer) string {
	if len(o.names) == 0 {
		return "no tools can be called here"
	}
	return "the tools are: " + strings.Join(o.names, ", ")
}

func repeats(before []episode.Action, id string) bool {
	return id != "" && slices.ContainsFunc(before, func(a episode.Action) bool { return a.ID == id })
}

// answered reports whether the episode holds the observations of this action's turn already.
func answered(e *episode.Episode, act episode.Action) bool {
	n := len(e.Actions)
	return n > 0 && int(e.Actions[n-1].Turn) >= act.Turn && len(e.Turns) > 0
}

// claim marks an action as begun; false when one of its id has not ended yet.
func (s *Set) claim(id string) bool {
	if id == "" {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.going[id]; ok {
		return false
	}
	s.going[id] = struct{}{}
	return true
}

// begin queues one action; done is called when it is over. What it looks at is copied first: an abandoned run outlives the call of Do.
func (s *Set) begin(ctx context.Context, b bound, e *episode.Episode, act episode.Action, done func()) *watched {
	env := envOf(e, act)
	raw := act.Call.Function.Arguments
	w := &watched{tool: b.tool.Name(), limit: s.limit(b.tool)}
	w.job = workpool.Start(ctx, s.pool, w.limit, func() { done(); s.over(w, act.ID) }, func(ctx context.Context) (Result, error) {
		args, err := checkArgs(raw, b.schemas)
		if err != nil {
			return Result{}, err
		}
		return run(ctx, b.tool, args, env)
	})
	return w
}

// limit is how long one run of a tool may take.
func (s *Set) limit(t Tool) time.Duration {
	if own, ok := t.(Timed); ok && own.Timeout() > 0 {
		return own.Timeout()
	}
	return s.cfg.Timeout
}

// repeatPause is what a tool that could not do its job is given before it is asked again.
const repeatPause = 250 * time.Millisecond

// run carries out a call, once more where that is safe and the tool could not do its job.
func run(ctx context.Context, t Tool, args json.RawMessage, env Env) (Result, error) {
	r, err := t.Run(ctx, args, env)
	var mistake *ToolError
	if err == nil || errors.As(err, &mistake) || !repeatable(t, err) {
		return r, err
	}
	wait := repeatPause
	if later := (*laterError)(nil); errors.As(err, &later) {
		wait = max(wait, later.after)
		if end, ok := ctx.Deadline(); ok && time.Until(end) <= wait {
			return r, fmt.Errorf("%w; it asks to be left alone for %v, which is longer than the call may take", err, later.after)
		}
	}
	pause := time.NewTimer(wait)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return r, err
	case <-pause.C:
	}
	return t.Run(ctx, args, env)
}

// repeatable says whether a run that failed may be repeated.
func repeatable(t Tool, err error) bool {
	declared, ok := t.(Repeatable)
	return ok && declared.Repeatable() || errors.Is(err, ErrNotRun)
}

// Stats says what the pool is doing.
type Stats struct {
	Workers   int   // runs that can go on at once
	Running   int64 // runs watched by a worker
	Waiting   int64 // runs in the queue
	Abandoned int64 // runs given up that still go on; they hold no worker
}

// Stats returns the present load.
func (s *Set) Stats() Stats {
	running := s.pool.Running()
	return Stats{
		Workers: s.cfg.Workers, Running: running,
		Waiting: s.pool.Waiting(), Abandoned: s.pool.Abandoned(),
	}
}

// Close tells what runs to stop and waits for it, a quarter of a second at most. Actions that come later are observed as
// cancelled. The error says how many runs never returned, and of which tools; their goroutines last as long as the process.
func (s *Set) Close() error {
	if n := s.pool.Close(); n > 0 {
		return fmt.Errorf("closing the tools: %d abandoned runs have not returned (%s; each got %s to stop)", n, s.stillGoing(), workpool.Grace.Round(time.Millisecond))
	}
	return nil
}
