package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kong"

	"tranche/episode"
	"tranche/scheduler"
)

type batchCmd struct {
	In           string `arg:"" optional:"" name:"in" help:"Batch file: JSON Lines of {custom_id, method, url, body}, plain or gzip."`
	Input        string `short:"i" name:"input-file" placeholder:"FILE" group:"where" help:"The same as IN, as vllm run-batch spells it."`
	Errors       string `name:"errors" placeholder:"FILE" group:"where" help:"Where the lines that failed go. Default: into the output, as those of vllm run-batch."`
	ReplaceModel bool   `name:"replace-model" group:"servers" help:"Send the endpoint's model in the place of the one a line names. Off: bodies go out byte for byte."`
	RetryFailed  bool   `name:"retry-failed" group:"where" help:"Ask the lines that failed so far again, of a finished batch too; a new result takes the place of the failure."`
	Config       string `short:"c" placeholder:"FILE" help:"YAML file with the same keys as the flags; flags win."`
	Settings     `embed:""`
}

// Help is kong's long text of the command.
func (batchCmd) Help() string {
	return "Sends every request of an OpenAI batch file and writes the answers in OpenAI's output shape, in the order of the input. Bodies go out and come back as they are. The files appear when every line has its result, good or failed; a temporary error is tried again first, as in a run.\n\nStopped or killed, the same command again goes on: what was answered is in OUT.journal and is not asked again. With --retry-failed the lines that failed are: what was answered stays, and the files are replaced when every line has its result again.\n\nA line has 64 MiB at most; a file has as many lines as you like (OpenAI takes 50,000 and 200 MB).\n\nIn the place of `vllm run-batch -i IN -o OUT --model M`: tranche batch -i IN -o OUT --model M --endpoint URL"
}

// batchKeys are the settings a batch knows; the rest would say what its lines say themselves, or shape a dataset it does not write.
func batchKeys() []string {
	return []string{
		"out", "json", "quiet", "progress", "endpoint", "model", "api-key-env", "ca-file", "concurrency", "open-episodes", "kv-budget", "padded", "classes",
		"early-yield", "hedge", "server-idle", "max-attempts", "attempt-timeout", "idle-timeout",
		"episode-timeout", "drain-timeout",
	}
}

// shapeBatch makes the flags that batch shares with run its own.
func shapeBatch(parser *kong.Kong) {
	var hidden []string
	for _, k := range keys() {
		if !slices.Contains(batchKeys(), k.name) {
			hidden = append(hidden, k.name)
		}
	}
	hideFlags(parser, "batch", hidden...)
	for _, node := range parser.Model.Children {
		for _, flag := range node.Flags {
			switch {
			case node.Name != "batch":
			case flag.Name == "out":
				flag.Aliases, flag.PlaceHolder = append(flag.Aliases, "output-file"), "FILE"
				flag.Help = "Output file. It appears when every line has its result. Also: --output-file."
			case flag.Name == "endpoint":
				flag.Help = "OpenAI-compatible server, e.g. http://host:8000/v1; may be repeated. Needed."
			}
		}
	}
}

func (c *batchCmd) do(ctx context.Context, a *app, given map[string]bool) error {
	b, err := c.batch(a, given)
	if err != nil {
		return withCode(codeUsage, err)
	}
	return b.start(ctx)
}

// batch merges defaults, file and flags, and checks the result.
func (c *batchCmd) batch(a *app, given map[string]bool) (*batch, error) {
	set := c.Settings
	var at places
	if c.Config != "" {
		var err error
		if at, err = readSettings(c.Config, &set, given); err != nil {
			return nil, err
		}
	}
	f := &faults{}
	in := c.In
	switch {
	case in == "":
		in = c.Input
	case c.Input != "":
		f.add("input-file: the input was named already: %s", in)
	}
	if in == "" {
		f.add("in: no batch file given")
	}
	if set.Out == "" {
		f.add("out: is missing; expected the file the answers go to: -o OUT.jsonl")
	}
	if len(set.Endpoint) == 0 {
		f.add("endpoint: is missing; expected a server, e.g. --endpoint http://host:8000/v1 (tranche engine serves a simulated one)")
	}
	checkBatchSettings(f, &set)
	set.Tasks = []string{in}
	f.list = append(f.list, set.check())
	b := &batch{session: newSession(a, set), in: in, files: batchOutput{set.Out, c.Errors}, ownModel: c.ReplaceModel, retryFailed: c.RetryFailed}
	if in != "" && set.Out != "" {
		f.list = append(f.list, b.files.check(in))
	}
	return b, at.locate(f.err())
}

// checkBatchSettings refuses by name what has no meaning in a batch.
func checkBatchSettings(f *faults, set *Settings) {
	usual := defaults()
	for _, k := range keys() {
		if k.name != "tasks" && !slices.Contains(batchKeys(), k.name) && !reflect.DeepEqual(set.field(k).Interface(), usual.field(k).Interface()) {
			f.add("%s: has no meaning in a batch: its lines say themselves what is asked", k.name)
		}
	}
	for i, e := range set.Endpoint {
		if len(e.ExtraBody) > 0 {
			f.add("endpoint[%d]: extra-body: has no meaning in a batch: bodies go out as they are", i)
		}
	}
}

// batch is one invocation of the command, with the parts of a session that a run has too.
type batch struct {
	*session
	in          string
	files       batchOutput
	ownModel    bool // the endpoint's model takes the place of the lines' own
	retryFailed bool // lines that failed before are asked again

	lines   *batchFile
	journal *batchJournal
	sink    *batchSink
}

// start is the whole of `tranche batch`.
func (b *batch) start(ctx context.Context) error {
	ctx, stop := b.watchSignals(ctx)
	defer stop()
	var err error
	if b.lines, err = checkBatch(ctx, b.in, b.ownModel); err != nil {
		return withCode(codeTasks, err)
	}
	b.tasks.Tasks = int64(b.lines.lines)
	if done, err := b.found(); done || err != nil {
		return err
	}
	if err := b.openJournal(); err != nil {
		return err
	}
	if err := b.openEndpoints(ctx); err != nil {
		return errors.Join(err, b.closeJournal(false))
	}
	defer b.closeFleet()
	return b.conclude(b.play(ctx))
}

// found looks at what is there already: a finished batch is reported, and files that are not this batch's are never replaced.
func (b *batch) found() (done bool, err error) {
	begun, err := journalBegun(batchJournalPath(b.files.out))
	if begun || err != nil {
		return false, withCode(codeDisk, err) // begun, not ended
	}
	there, err := b.files.exists()
	if there == "" || err != nil {
		return false, withCode(codeDisk, err)
	}
	have, err := b.files.look(b.lines, nil)
	if err != nil {
		return false, withCode(codeDisk, err)
	}
	if err := b.unfit(have, there); err != nil {
		return false, withCode(codeRefused, err)
	}
	if b.retryFailed && have.failed > 0 {
		return false, nil
	}
	if err := b.files.emptyErrors(); err != nil {
		return false, withCode(codeDisk, err)
	}
	failed := have.failed
	b.a.notice("%s: finished already: it holds a result for every line of %s; nothing was sent", b.files.out, b.in)
	r := b.report("")
	r.State, r.Answered, r.Failed, r.Left, r.Command = stateComplete, r.Lines-failed, failed, 0, ""
	r.Session.Skipped = r.Lines
	if err := b.show(r); err != nil || failed == 0 {
		return true, err
	}
	return true, outcome(codePartial)
}

// unfit says why what is there is not the whole result under the names given; nil = it is.
func (b *batch) unfit(have batchFound, there string) error {
	if _, err := os.Lstat(b.files.errors); err != nil && have.missing > 0 && !have.foreign && !have.mixed { // an output beside error lines
		return fmt.Errorf("%s: is there already, with %d of the %d results of %s; the lines that failed are missing: give --errors FILE with the file that holds them, or remove it to ask all again",
			b.files.out, b.lines.lines-have.missing, b.lines.lines, b.in)
	}
	if have.foreign || have.missing > 0 {
		return fmt.Errorf("%s: is there already, and is not the result of %s; remove it, or give another name", there, b.in)
	}
	if b.files.errors != "" && have.mixed {
		return fmt.Errorf("%s: is there already, and holds the lines that failed itself: leave --errors out, or remove it to ask all again", b.files.out)
	}
	return nil
}

// openJournal begins the journal or goes on with it. With --retry-failed one that is complete, which a crash left, is published first.
func (b *batch) openJournal() (err error) {
	var from *batchEnded
	if b.retryFailed {
		from = &batchEnded{b.files, b.lines}
	}
	head := batchHead{Input: b.lines.digest, Lines: b.lines.lines}
	if b.ownModel {
		head.OwnModel = or(nonEmpty(b.set.Model), "the endpoints'")
	}
	var dropped int64
	if b.journal, dropped, err = openBatchJournal(batchJournalPath(b.files.out), head, from); err != nil {
		return err
	}
	if dropped > 0 {
		b.a.notice("recovered: the last %d bytes of %s were not whole and are taken off", dropped, b.journal.path)
	}
	if b.retryFailed && b.left() == 0 && !b.journal.fresh {
		return b.publishLeft()
	}
	if b.retryFailed {
		if n := b.journal.askAgain(); n > 0 {
			b.a.notice("asking %d lines that failed again", n)
		}
	}
	if there, err := b.files.strange(b.journal.replaces); b.left() > 0 && (there != "" || err != nil) { // ours appear at the end only
		if err == nil {
			err = withCode(codeRefused, fmt.Errorf("%s: is there already, though lines of %s are left: it is not this batch's; remove it, or give another name", there, b.in))
		}
		return errors.Join(withCode(codeDisk, err), b.closeJournal(false))
	}
	good, failed := b.journal.counts()
	if b.before = int64(good + failed); b.before > 0 {
		b.a.notice("going on: %d of %d lines have their result already", b.before, b.lines.lines)
	}
	b.sink = &batchSink{journal: b.journal, tally: &b.tally, by: map[string]int64{}}
	return nil
}

// openEndpoints opens the endpoints, where there is anything to ask.
func (b *batch) openEndpoints(ctx context.Context) (err error) {
	if b.left() == 0 {
		return nil
	}
	named := slices.Sorted(maps.Keys(b.lines.models))
	if b.set.Model == "" && !b.ownModel { // the endpoints are asked for what most lines ask for
		b.set.Model = slices.MaxFunc(named, func(x, y string) int { return b.lines.models[x] - b.lines.models[y] })
	}
	if b.fleet, err = openFleet(ctx, b.a, &b.set, nil); err != nil {
		return err
	}
	b.fleet.describe(b.a)
	if b.ownModel {
		return nil
	}
	var others []string
	n := 0
	for _, m := range named {
		if m != "" && !slices.Contains(b.fleet.models(), m) {
			others, n = append(others, m), n+b.lines.models[m]
		}
	}
	if n > 0 {
		b.a.notice("%d lines name another model (%s) than the endpoints serve (%s), and go out as they are; --replace-model sends the endpoint's", n, short(joined(others), 120),
			joined(slices.Compact(slices.Sorted(slices.Values(b.fleet.models())))))
	}
	return nil
}

func (b *batch) closeFleet() {
	if b.fleet != nil {
		b.fleet.close()
	}
}

// left is how many lines have no durable result.
func (b *batch) left() int {
	good, failed := b.journal.counts()
	return b.lines.lines - good - failed
}

// play sends what has no result yet, through the scheduler and the feeder that runs have.
func (b *batch) play(ctx context.Context) error {
	if b.left() == 0 {
		return nil
	}
	if !b.begin() {
		return errInterrupted
	}
	cfg := b.schedulerConfig()
	for i := range cfg.Endpoints {
		cfg.Endpoints[i].Capacity.ContextTokens = 0 // whether a request fits is the server's to say: its refusal is the line's result
	}
	sched, err := scheduler.New(cfg)
	if err != nil {
		return withCode(codeUsage, err)
	}
	defer sched.Close()
	reader, err := openBatch(b.in)
	if err != nil {
		return withCode(codeTasks, err)
	}
	defer reader.close()
	b.began = time.Now()
	show, hide := context.WithCancel(ctx)
	var display sync.WaitGroup
	display.Go(func() { newProgress(b.a, &b.set, b.snapshot).run(show) })
	defer display.Wait()
	defer hide()
	b.totals, err = scheduler.Run(ctx, scheduler.RunConfig{
		Source: &batchSource{file: b.lines, reader: reader, done: b.journal.done, ownModel: b.ownModel}, Open: b.openLine, MaxOpen: b.openEpisodes(),
		Rollout: &scheduler.Rollout{Sched: sched, EpisodeTimeout: b.set.EpisodeTimeout}, Sink: b.sink, Stop: b.stopped.stop, Drain: b.set.DrainTimeout,
		Trace: scheduler.Trace{
			Opened: func(*episode.Episode) { b.session.open.Add(1) },
			Closed: func(*episode.Episode) { b.session.open.Add(-1) },
		},
	})
	return err
}

// openLine makes the episode of one line: a single call.
func (b *batch) openLine(d episode.Draw, sample int) *episode.Episode {
	return episode.New(b.lines.digest, d, sample, episode.Sampling{}, episode.Budget{TurnTokens: d.Task.Request.Most, Turns: 1}, time.Now())
}

// closeJournal ends the journal. It is removed when its results stand in the output, and when there are none.
func (b *batch) closeJournal(published bool) error {
	b.journal.close()
	if err := b.journal.release(published || b.journal.empty()); err != nil {
		return withCode(codeDisk, fmt.Errorf("close the journal: %w", err))
	}
	return nil
}

// conclude publishes a complete batch, reports, and turns how it ended into the exit status.
func (b *batch) conclude(runErr error) error {
	complete := b.left() == 0
	var err error
	if complete {
		err = b.files.publish(b.journal)
	}
	good, failed := b.journal.counts()
	err = errors.Join(err, b.closeJournal(complete && err == nil))
	why := b.ending(runErr, complete, failed)
	if err != nil {
		why = ending{codeOf(withCode(codeDisk, err)), "the output could not be written: " + err.Error(), err}
	}
	r := b.report(why.text)
	r.Answered, r.Failed, r.Left = good, failed, b.lines.lines-good-failed
	if complete && err == nil {
		r.State, r.Command = stateComplete, ""
	}
	if err := b.show(r); err != nil {
		return err
	}
	if why.err != nil {
		return &coded{why.code, why.err}
	}
	return outcome(why.code)
}

func (b *batch) ending(runErr error, complete bool, failed int) ending {
	switch {
	case complete && failed > 0:
		return ending{code: codePartial}
	case complete:
		return ending{}
	case errors.Is(runErr, scheduler.ErrEndpointsDead):
		return ending{codeEndpoint, "no endpoint answers any more", runErr}
	case errors.Is(runErr, scheduler.ErrStopped), errors.Is(runErr, errInterrupted):
		return ending{codeOfSignal(b.signal()), "stopped by " + signalName(b.session), nil}
	case runErr == nil:
		return ending{codeInternal, "lines were left", errors.New("a bug here: the batch ended with lines left")}
	}
	var told *coded
	if errors.As(runErr, &told) { // without what the parts of a run say around it, which know episodes and no lines
		runErr = told.err
		return ending{told.code, "it could not go on: " + runErr.Error(), runErr}
	}
	return ending{codeInternal, "it could not go on: " + runErr.Error(), runErr}
}

// batchSink passes results on and counts them.
type batchSink struct {
	journal *batchJournal
	tally   *tally

	mu     sync.Mutex       // guards what is below
	by     map[string]int64 // failed lines of this session by class
	prompt int64            // tokens of the answered requests, where the servers told
}

// Write is episode.Sink.
func (s *batchSink) Write(ctx context.Context, e *episode.Episode) error {
	if err := s.journal.Write(ctx, e); err != nil {
		return &coded{codeOf(err), fmt.Errorf("keep the result of custom_id %q: %w", e.Task.ID, err)}
	}
	class := ""
	switch {
	case e.Fault != nil:
		class = string(e.Fault.Class)
	case e.Status != episode.StatusCompleted:
		class = codeContextFull
		e.Status = episode.StatusFailed // for the count
	}
	s.tally.add(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	if class != "" {
		s.by[class]++
	}
	for _, t := range e.Turns {
		if t.PromptTokens != nil {
			s.prompt += int64(*t.PromptTokens)
		}
	}
	return nil
}

// batchReport is the result of a batch; its counts are of the whole batch, those of the session of this invocation alone.
type batchReport struct {
	State    string        `json:"state"` // complete, incomplete
	Ended    string        `json:"ended"` // why the session ended; "" when every line has its result
	Input    string        `json:"input"`
	Output   string        `json:"output"`
	Errors   string        `json:"errors"` // "" = failed lines stand in the output
	Lines    int           `json:"lines"`
	Answered int           `json:"answered"`
	Failed   int           `json:"failed"`
	Left     int           `json:"left"` // lines without a result
	Command  string        `json:"go_on_with,omitempty"`
	Session  *batchSession `json:"session"`
	Notes    []string      `json:"notes,omitempty"`
}

// batchSession is what one invocation did.
type batchSession struct {
	Answered  int64            `json:"answered"`
	Failed    int64            `json:"failed"`
	Skipped   int              `json:"skipped"` // had their result before
	FailedBy  map[string]int64 `json:"failed_by"`
	TokensIn  int64            `json:"tokens_in"`  // of answered requests, where the servers tell
	TokensOut int64            `json:"tokens_out"` // the same
	Seconds   float64          `json:"wall_s"`
	Endpoints []endpointReport `json:"endpoints"`
}

func (b *batch) report(ended string) *batchReport {
	r := &batchReport{
		State: stateIncomplete, Ended: ended, Input: b.in, Output: b.files.out, Errors: b.files.errors, Lines: b.lines.lines,
		Command: "the same command again", Session: &batchSession{Skipped: int(b.before), FailedBy: map[string]int64{}, Endpoints: []endpointReport{}},
	}
	if b.sink != nil {
		var n snapshot
		b.tally.read(&n)
		r.Session.Answered, r.Session.Failed, r.Session.TokensOut = n.done, n.failed, n.tokens
		b.sink.mu.Lock()
		r.Session.FailedBy, r.Session.TokensIn = b.sink.by, b.sink.prompt
		b.sink.mu.Unlock()
	}
	if !b.began.IsZero() {
		r.Session.Seconds = time.Since(b.began).Seconds()
	}
	if b.fleet != nil {
		r.Session.Endpoints, r.Notes = b.endpointReports(), b.fleet.notes()
	}
	if b.journal != nil && b.journal.damaged > 0 { // here, and no notice: it is told with --quiet too
		r.Notes = slices.Insert(r.Notes, 0, fmt.Sprintf("%d damaged records in %s were passed over; what they held was dropped, and those lines are asked again", b.journal.damaged, b.journal.path))
	}
	return r
}

// text is the summary for people.
func (r *batchReport) text() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: %d of %d lines answered, %d failed", r.State, r.Answered, r.Lines, r.Failed)
	if r.Left > 0 {
		fmt.Fprintf(&s, ", %d left", r.Left)
	}
	if r.Ended != "" {
		fmt.Fprintf(&s, " (%s)", r.Ended)
	}
	s.WriteString("\n")
	if len(r.Session.FailedBy) > 0 {
		var list []string
		for _, class := range slices.Sorted(maps.Keys(r.Session.FailedBy)) {
			list = append(list, fmt.Sprintf("%s %d", class, r.Session.FailedBy[class]))
		}
		fmt.Fprintf(&s, "failed this time: %s\n", joined(list))
	}
	if r.Session.Seconds > 0 {
		fmt.Fprintf(&s, "this time: %d answered in %.1fs, %d tokens in, %d out; %d had their result before\n", r.Session.Answered, r.Session.Seconds, r.Session.TokensIn,
			r.Session.TokensOut, r.Session.Skipped)
	}
	if r.Command != "" {
		fmt.Fprintf(&s, "go on with: %s\n", r.Command)
	} else {
		fmt.Fprintf(&s, "output: %s\n", r.Output)
		if r.Errors != "" {
			fmt.Fprintf(&s, "errors: %s\n", r.Errors)
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&s, "note: %s\n", n)
	}
	return s.String()
}

// show prints the result: one JSON document, or the summary for people.
func (b *batch) show(r *batchReport) error {
	if b.set.JSON {
		return b.a.printJSON(r)
	}
	return b.a.print(visible(r.text()))
}
