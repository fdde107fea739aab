//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"tranche/episode"
	"tranche/inference"
	"tranche/inference/enginesim"
	"tranche/scheduler"
	"tranche/storage"
)

// The fault matrix: what goes wrong at a server, streamed or not, against what it must become: the class and the number of attempts of the
// row when it happens each time, and whether the call is saved when it happens once. From the engine over TCP, the client and the
// scheduler to the stored row all is real; only the deadlines that a fault is to run into are short.

// fate is what a fault that happens each time must come to.
type fate struct {
	class    episode.Class // "" = the row is good
	attempts int           // in the row
	partial  bool          // part of the answer is kept aside
}

var (
	good    = fate{}
	never   = func(c episode.Class) fate { return fate{class: c, attempts: 1} } // not sent again
	always  = func(c episode.Class) fate { return fate{class: c, attempts: faultAttempts} }
	partly  = func(c episode.Class) fate { return fate{class: c, attempts: faultAttempts, partial: true} }
	waiting = fate{class: episode.ClassDeadline, attempts: -1} // asked for ever, and not the call's fault: its episode's time ends it
)

const faultAttempts = 2

var faultMatrix = []struct {
	fault         string
	whole, stream fate
	pause         time.Duration // of a dripped answer; 0 = 20 ms
}{
	{fault: enginesim.FaultReset, whole: always(episode.ClassReset), stream: always(episode.ClassReset)},
	{fault: enginesim.FaultClose, whole: always(episode.ClassReset), stream: always(episode.ClassReset)},
	{fault: enginesim.FaultResetHeaders, whole: always(episode.ClassTruncatedStream), stream: always(episode.ClassTruncatedStream)},
	{fault: enginesim.FaultCut, whole: always(episode.ClassTruncatedStream), stream: partly(episode.ClassTruncatedStream)},
	{fault: enginesim.FaultHalf, whole: always(episode.ClassMalformed), stream: partly(episode.ClassTruncatedStream)},
	{fault: enginesim.FaultHang, whole: always(episode.ClassTimeout), stream: always(episode.ClassTimeout)},
	{fault: enginesim.FaultHangHeaders, whole: always(episode.ClassTimeout), stream: always(episode.ClassTimeout)},
	{fault: enginesim.FaultHangMiddle, whole: always(episode.ClassIdle), stream: partly(episode.ClassIdle)},
	{fault: enginesim.FaultPings, whole: always(episode.ClassIdle), stream: partly(episode.ClassIdle)},
	{fault: enginesim.FaultDrip, whole: good, stream: good, pause: 50 * time.Microsecond},
	{fault: enginesim.FaultDrip, whole: always(episode.ClassTimeout), stream: always(episode.ClassTimeout), pause: 100 * time.Millisecond},
	{fault: enginesim.FaultRateLimit, whole: waiting, stream: waiting},
	{fault: enginesim.FaultRateLimitBare, whole: waiting, stream: waiting},
	{fault: enginesim.FaultInternal, whole: always(episode.ClassServerError), stream: always(episode.ClassServerError)},
	{fault: enginesim.FaultInternalFlat, whole: always(episode.ClassServerError), stream: always(episode.ClassServerError)},
	{fault: enginesim.FaultInternalString, whole: always(episode.ClassServerError), stream: always(episode.ClassServerError)},
	{fault: enginesim.FaultGateway, whole: always(episode.ClassServerError), stream: always(episode.ClassServerError)},
	{fault: enginesim.FaultUnavailable, whole: always(episode.ClassUnavailable), stream: always(episode.ClassUnavailable)},
	{fault: enginesim.FaultUnavailableBare, whole: always(episode.ClassUnavailable), stream: always(episode.ClassUnavailable)},
	{fault: enginesim.FaultBadRequest, whole: never(episode.ClassBadRequest), stream: never(episode.ClassBadRequest)},
	{fault: enginesim.FaultUnauthorized, whole: never(episode.ClassAuth), stream: never(episode.ClassAuth)},
	{fault: enginesim.FaultNotFound, whole: never(episode.ClassNotFound), stream: never(episode.ClassNotFound)},
	{fault: enginesim.FaultOverflow, whole: good, stream: good}, // a normal end: checked by itself below
	{fault: enginesim.FaultEmpty, whole: always(episode.ClassMalformed), stream: always(episode.ClassMalformed)},
	{fault: enginesim.FaultPage, whole: always(episode.ClassMalformed), stream: always(episode.ClassMalformed)},
	{fault: enginesim.FaultNoChoices, whole: always(episode.ClassMalformed), stream: always(episode.ClassMalformed)},
	{fault: enginesim.FaultMalformed, whole: always(episode.ClassMalformed), stream: always(episode.ClassMalformed)},
	{fault: enginesim.FaultError, whole: always(episode.ClassServerError), stream: partly(episode.ClassServerError)},
	{fault: enginesim.FaultTwice, whole: good, stream: good},
	{fault: enginesim.FaultEndless, whole: good, stream: good},
	{fault: enginesim.FaultBadText, whole: good, stream: good},
	{fault: enginesim.FaultHuge, whole: never(episode.ClassMalformed), stream: never(episode.ClassLineTooLong)},
	{fault: enginesim.FaultGone, whole: good, stream: good},
}

// trial is one cell of the matrix.
type trial struct {
	name   string
	fault  string
	stream bool
	once   bool // the fault happens the first time only
	want   fate
	pause  time.Duration

	rows   []*storage.Row
	totals scheduler.Totals
	err    error
}

// trials are the cells: each fault streamed and not, each time and, where the call is to be saved then, once.
func trials() (all []*trial) {
	for _, m := range faultMatrix {
		for _, c := range []trial{{stream: false, want: m.whole}, {stream: true, want: m.stream}} {
			c.fault, c.pause = m.fault, m.pause
			c.name = fmt.Sprintf("%s stream=%v pause=%v", c.fault, c.stream, c.pause)
			all = append(all, &c)
			if c.want.attempts == faultAttempts || c.want.attempts < 0 {
				saved := c
				saved.name, saved.once = saved.name+" once", true
				all = append(all, &saved)
			}
		}
	}
	return all
}

// rule makes the trial's second prompt, or all of them, meet the fault.
func (c *trial) rule() enginesim.FaultRule {
	r := enginesim.FaultRule{Fault: c.fault, Rate: 1, Match: c.name + "!"}
	if c.once {
		r.First = 1
	}
	return r
}

func TestFaultMatrix(t *testing.T) {
	dir, all := t.TempDir(), trials()
	urls := map[time.Duration]string{}
	for _, pause := range []time.Duration{0, 50 * time.Microsecond, 100 * time.Millisecond} {
		cfg := enginesim.Config{LengthMean: 30, Faults: enginesim.Faults{DripPause: pause}}
		for _, c := range all {
			cfg.Faults.Rules = append(cfg.Faults.Rules, c.rule())
		}
		urls[pause] = "http://" + serving(t, cfg, "127.0.0.1:0").Addr()
	}
	var running sync.WaitGroup
	room := make(chan struct{}, 24)
	for i, c := range all {
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			c.run(t, fmt.Sprintf("%s/%d", dir, i), urls[c.pause])
		})
	}
	running.Wait()
	for _, c := range all {
		t.Run(c.name, c.check)
	}
}

// TestNoConnection: an endpoint that refuses connections, or takes none, is lost, and so is the run when there is no other; nothing becomes a failed row. With
// another one the work goes there.
func TestNoConnection(t *testing.T) {
	for _, c := range []struct {
		name   string
		breaks func(*testing.T, *relay)
	}{
		{"refused", func(_ *testing.T, r *relay) { r.refuse() }},
		{"hangs", func(t *testing.T, r *relay) { r.hang(t) }},
	} {
		for others := range 2 {
			t.Run(fmt.Sprint(c.name, " beside ", others), func(t *testing.T) {
				t.Parallel()
				r := newRelay(t, serving(t, enginesim.Config{LengthMean: 10}, "127.0.0.1:0").Addr())
				g := rig{dir: newRunDir(t), urls: []string{"http://" + r.addr}, limit: time.Minute, prompts: []string{"a", "b", "c"}, open: 3, hasty: true, rules: scheduler.Rules{Patience: time.Second}, opened: func() { c.breaks(t, r) }}
				for range others {
					g.urls = append(g.urls, "http://"+serving(t, enginesim.Config{LengthMean: 10}, "127.0.0.1:0").Addr())
				}
				_, totals, err := g.play(t)
				if others > 0 && (err != nil || totals.Done != 3) {
					t.Errorf("%+v, %v", totals, err)
				}
				if others == 0 && (!errors.Is(err, scheduler.ErrEndpointsDead) || totals.Failed != 0 || totals.Done != 0) {
					t.Errorf("%+v, %v", totals, err)
				}
			})
		}
	}
}

// serving is an engine on a port until the test ends.
func serving(t *testing.T, cfg enginesim.Config, addr string) *enginesim.Server {
	t.Helper()
	engine, err := enginesim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server, err := engine.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeNow(server) })
	return server
}

// closeNow cuts what hangs.
func closeNow(s *enginesim.Server) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Close(ctx)
}

// run plays three prompts one after the other, of which the second meets the fault.
func (c *trial) run(t *testing.T, dir, url string) {
	limit := 2 * time.Minute
	if c.want.attempts < 0 && !c.once {
		limit = 5 * time.Second
	}
	play := rig{dir: dir, urls: []string{url}, stream: c.stream, limit: limit, prompts: []string{"What is 3 + 4?", c.name + "! What is 4 + 5?", "What is 5 + 6?"}, open: 1, hasty: c.want.class == episode.ClassTimeout || c.want.class == episode.ClassIdle}
	if c.fault == enginesim.FaultGone {
		play.prompts[0] = c.name + "! " + play.prompts[0]
	}
	c.rows, c.totals, c.err = play.play(t)
}

func (c *trial) check(t *testing.T) {
	if c.err != nil || len(c.rows) != 3 {
		t.Fatalf("%d rows, %+v, %v", len(c.rows), c.totals, c.err)
	}
	for _, i := range []int{0, 2} {
		if or(c.rows[i].Status, "") != string(episode.StatusCompleted) {
			t.Errorf("row %d, which met no fault: %s, %s: %s", i, or(c.rows[i].Status, ""), or(c.rows[i].FaultClass, ""), or(c.rows[i].FaultDetail, ""))
		}
	}
	row, want := c.rows[1], c.want
	class := episode.Class(or(row.FaultClass, ""))
	switch {
	case c.fault == enginesim.FaultOverflow:
		if or(row.Status, "") != string(episode.StatusTruncated) || or(row.StopReason, "") != string(episode.StopContextFull) {
			t.Errorf("status %s, stop %s, %s", or(row.Status, ""), or(row.StopReason, ""), or(row.FaultDetail, ""))
		}
	case c.once || want == good:
		if or(row.Status, "") != string(episode.StatusCompleted) || len(row.Turns) != 1 {
			t.Fatalf("status %s, %d turns, %s: %s", or(row.Status, ""), len(row.Turns), class, or(row.FaultDetail, ""))
		}
		if n := row.Turns[0].Retries; (n > 0) != c.once && c.fault != enginesim.FaultGone {
			t.Errorf("%d attempts failed before the good one", n)
		}
		if repaired := slices.Contains(row.Flags, episode.FlagTextRepaired); repaired != (c.fault == enginesim.FaultBadText) {
			t.Errorf("flags %v", row.Flags)
		}
	default:
		c.checkFailure(t, row, class)
	}
}

func (c *trial) checkFailure(t *testing.T, row *storage.Row, class episode.Class) {
	if or(row.Status, "") != string(episode.StatusFailed) || class != c.want.class {
		t.Fatalf("status %s, class %s, want %s: %s", or(row.Status, ""), class, c.want.class, or(row.FaultDetail, ""))
	}
	if n := len(row.FaultAttempts); n != c.want.attempts && (c.want.attempts > 0 || n < 2) {
		t.Errorf("%d attempts, want %d: %s", n, c.want.attempts, or(row.FaultDetail, ""))
	}
	for i, a := range row.FaultAttempts {
		if got := episode.Class(or(a.Class, "")); got != class && c.want.attempts > 0 {
			t.Errorf("attempt %d is %s, the row %s", i+1, got, class)
		}
		if or(a.Cause, "") == "" || a.Began == nil || a.Ended == nil {
			t.Errorf("attempt %d tells too little: %+v", i+1, a)
		}
	}
	if (or(row.Partial, "") != "") != c.want.partial {
		t.Errorf("partial text %q, want some: %v", or(row.Partial, ""), c.want.partial)
	}
}

// rig is a run of some prompts against some servers.
type rig struct {
	dir     string
	urls    []string
	stream  bool
	limit   time.Duration // of an episode
	hasty   bool          // short deadlines of an attempt; else a busy machine keeps them
	prompts []string
	open    int // episodes at once
	rules   scheduler.Rules
	opened  func() // called when the endpoints are open
	trace   scheduler.Trace
}

// play runs it and returns the stored rows, in the order of the prompts; nil where there is none.
func (g rig) play(t *testing.T) ([]*storage.Row, scheduler.Totals, error) {
	writer, err := storage.Open(storage.Config{Dir: g.dir, RunFile: []byte("test: true\n")})
	if err != nil {
		return nil, scheduler.Totals{}, err
	}
	connect, attempt, idle := 30*time.Second, time.Minute, 30*time.Second
	if g.hasty {
		connect, attempt, idle = time.Second, 2500*time.Millisecond, time.Second
	}
	var endpoints []scheduler.Endpoint
	for i, url := range g.urls {
		e, err := inference.Open(t.Context(), inference.Config{
			Name: fmt.Sprint("e", i), BaseURL: url, Concurrency: g.open, ConnectTimeout: connect, AttemptTimeout: attempt, IdleTimeout: idle,
			Stream: g.stream, MaxLineBytes: 512 << 10, MaxReplyBytes: 768 << 10,
		})
		if err != nil {
			return nil, scheduler.Totals{}, err
		}
		defer e.Close()
		endpoints = append(endpoints, scheduler.Endpoint{Name: e.Name(), Model: e, Capacity: e.Capacity()})
	}
	if g.opened != nil {
		g.opened()
	}
	def := g.rules
	if def.BackoffBase == 0 {
		def.BackoffBase, def.BackoffMax = 4*time.Millisecond, 20*time.Millisecond
	}
	if def.MaxAttempts == 0 {
		def.MaxAttempts = faultAttempts
	}
	if def.Cooldown == 0 {
		def.Cooldown = 20 * time.Millisecond
	}
	sched, err := scheduler.New(scheduler.Config{Endpoints: endpoints, Rules: def, Concurrency: g.open, Trace: g.trace})
	if err != nil {
		return nil, scheduler.Totals{}, err
	}
	totals, runErr := scheduler.Run(t.Context(), scheduler.RunConfig{
		Source: &promptList{prompts: g.prompts}, Done: writer.Done, MaxOpen: g.open, Sink: writer, Rollout: &scheduler.Rollout{Sched: sched, EpisodeTimeout: g.limit},
		Open: func(d episode.Draw, sample int) *episode.Episode {
			return episode.New("run", d, sample, episode.Sampling{}, episode.Budget{TurnTokens: 64, Turns: 1, MinUseful: 1}, time.Now())
		},
	})
	sched.Close()
	if err := writer.Close(); err != nil {
		return nil, totals, errors.Join(runErr, err)
	}
	rows, err := g.stored()
	return rows, totals, errors.Join(runErr, err)
}

func (g rig) stored() ([]*storage.Row, error) {
	run, err := storage.OpenRun(g.dir)
	if err != nil {
		return nil, err
	}
	rows := make([]*storage.Row, len(g.prompts))
	for row, err := range run.Rows() {
		if err != nil {
			return nil, err
		}
		var i int
		if _, err := fmt.Sscanf(row.TaskID, "t%d", &i); err != nil || rows[i] != nil {
			return nil, fmt.Errorf("task %s is there twice, or no task of ours: %v", row.TaskID, err)
		}
		rows[i] = row
	}
	return rows, nil
}

// promptList is a source of tasks t0, t1, …
type promptList struct {
	prompts []string
	at      int
}

func (p *promptList) Next(context.Context) (episode.Draw, error) {
	if p.at == len(p.prompts) {
		return episode.Draw{}, io.EOF
	}
	p.at++
	task := &episode.Task{ID: fmt.Sprint("t", p.at-1), Messages: []episode.Message{{Role: episode.RoleUser, Content: &p.prompts[p.at-1]}}}
	return episode.Draw{Task: task, Samples: 1}, nil
}
