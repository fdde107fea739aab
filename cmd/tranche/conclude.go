package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"tranche/scheduler"
	"tranche/storage"
)

// conclude writes the summary, seals the dataset and turns how the run ended into the exit status.
func (s *session) conclude(runErr error) error {
	why := s.ending(runErr)
	if s.account != nil {
		s.account.Ended = cmp.Or(why.text, "finished")
	}
	if s.groups != nil || s.set.Useful > 0 {
		_ = s.writer.Flush() // the summary counts group verdicts, and groups whose rewards are all the same; what fails here, closing reports
	}
	s.draws.done = why.text == ""
	r := s.report(why.text)
	err := errors.Join(s.writeAccount(), s.writer.WriteSummary(r))
	if err = errors.Join(s.closeStorage(), err); err != nil && why.err == nil {
		why = ending{codeDisk, "the dataset could not be sealed", s.diskTrouble(err)}
	}
	r.Notes = append(r.Notes, s.closingNotes(r.Notes)...)
	if err := s.finishPublishing(r); err != nil && why.err == nil && (why.code == codeOK || why.code == codePartial) {
		why = ending{codeOf(err), why.text, err}
	}
	if err := s.show(r); err != nil {
		return err
	}
	if why.err != nil {
		return &coded{why.code, why.err}
	}
	return outcome(why.code)
}

// writeAccount stores what kept more work from the endpoints; a session that played nothing leaves the last one.
func (s *session) writeAccount() error {
	if s.account == nil {
		return nil
	}
	return s.writer.WriteAccount(s.account)
}

// ending is why a session ended and with which status.
type ending struct {
	code code
	text string // "" = it played everything
	err  error  // to be shown; nil = the summary says enough
}

func (s *session) ending(runErr error) ending {
	if err := s.draws.command.failure(); runErr == nil && err != nil {
		return ending{codeTasks, "the tasks command failed; what it gave was played", fmt.Errorf("%w; `%s resume %s` starts it again", err, s.a.program, quoted(s.dir))}
	}
	switch {
	case runErr == nil && s.writer.Summary().Failed > 0:
		return ending{code: codePartial}
	case runErr == nil:
		return ending{}
	case errors.Is(runErr, scheduler.ErrTooManyFailed):
		return ending{codeGaveUp, "too many episodes failed", fmt.Errorf("%w (--stop-on-failed-share %g); `%s view %s --failed` shows them", runErr, s.set.StopOnFailedShare, s.a.program, quoted(s.dir))}
	case errors.Is(runErr, scheduler.ErrTooManyUnscored):
		return ending{codeGaveUp, "graders failed on too many episodes", fmt.Errorf("%w (--stop-on-unscored-share %g); `%s view %s --unscored` shows them", runErr, s.set.StopOnUnscoredShare, s.a.program, quoted(s.dir))}
	case errors.Is(runErr, scheduler.ErrEndpointsDead):
		return ending{codeEndpoint, "no endpoint answers any more", runErr}
	case codeOf(runErr) == codeDisk:
		return ending{codeDisk, "the dataset could not be written", s.diskTrouble(runErr)}
	case errors.Is(runErr, scheduler.ErrStopped):
		return ending{codeOfSignal(s.signal()), "stopped by " + signalName(s), nil}
	case errors.Is(runErr, context.Canceled):
		return ending{codeInternal, "cancelled", runErr}
	}
	return ending{codeTasks, "the tasks could not be read on", runErr}
}

func signalName(s *session) string {
	switch codeOfSignal(s.signal()) {
	case codeTerm:
		return "SIGTERM"
	case codeHup:
		return "SIGHUP"
	}
	return "ctrl-c"
}

// settled counts the keys that are not to be played again.
func settled(c storage.Counts) int64 { return c.Good + c.Failed - c.Retry }

func (s *session) finished() bool { return s.draws.known(s) && s.before >= s.total() }

// alreadyFinished reports a run with nothing left to do.
func (s *session) alreadyFinished() error {
	s.a.notice("%s: finished already: all %d episodes are stored; nothing was sent", s.dir, s.total())
	s.totals = scheduler.Totals{Drawn: s.before, Skipped: s.before}
	return s.conclude(nil)
}

func (s *session) report(ended string) *report {
	d := s.writer.Summary()
	r := &report{
		State: stateComplete, Ended: ended, RunID: s.file.RunID, Dir: s.dir, Model: joined(modelsOf(&s.set)), Made: "endpoints",
		Dataset: d, StdErr: stdError(d.Reward), Files: filesIn(s.dir),
		Skipped: skippedRows{s.tasks.Tasks, s.tasks.Bad.Rows, s.tasks.Duplicates}, Session: s.sessionReport(), TailRules: s.set.tailRules(), program: s.a.program,
	}
	s.draws.report(s, r)
	if r.Total = s.total(); r.Total == 0 {
		r.Total, r.OpenEnd = d.Rows, !s.draws.known(s)
	}
	r.Left = max(r.Total-settled(s.writer.Counts()), 0)
	if r.Left > 0 || r.OpenEnd {
		r.State, r.Command = stateIncomplete, s.a.program+" resume "+quoted(s.dir)
	}
	if s.file.Embedded {
		r.Made = embeddedText
	}
	if s.fleet != nil {
		r.Notes = append(r.Notes, s.fleet.notes()...)
	}
	r.Notes = slices.Concat(r.Notes, s.toolNotes(), s.scorerNotes(), s.damageNotes(), s.goneOn.notes(s.writer))
	if r.Account = s.account; r.Account == nil { // nothing was played this time
		var sums account
		if ok, err := storage.ReadAccount(s.dir, &sums); ok && err == nil {
			r.Account = &sums
		}
	}
	return r
}

// damageNotes tells of a damaged journal with --quiet too; the notice of it stands above all that followed.
func (s *session) damageNotes() (notes []string) {
	for _, d := range s.writer.Recovery().Damage {
		if !d.Torn {
			notes = append(notes, d.String())
		}
	}
	return notes
}

// closingNotes tells what is known only when the dataset is closed: small parts that could not be made into larger ones, and turns that could not be made durable.
func (s *session) closingNotes(said []string) (notes []string) {
	for _, err := range s.writer.Compacted().Left {
		notes = append(notes, err.Error())
	}
	for _, n := range s.goneOn.notes(s.writer) {
		if !slices.Contains(said, n) {
			notes = append(notes, n)
		}
	}
	return notes
}

// toolNotes names the tools that did not stop when they were told to, or could not let go of an episode.
func (s *session) toolNotes() []string {
	if s.actor == nil {
		return nil
	}
	var notes []string
	for _, t := range s.actor.Troubles() {
		if t.Abandoned > 0 {
			notes = append(notes, fmt.Sprintf("tool %s: %d runs did not stop when told to and were abandoned%s", t.Tool, t.Abandoned, some(t.Going, "; %d of them had not ended by then")))
		}
		if t.Unended > 0 {
			notes = append(notes, fmt.Sprintf("tool %s: could not let go of %d episodes; the first: %s", t.Tool, t.Unended, short(visibleLine(t.Why), 300)))
		}
	}
	return notes
}

func (s *session) sessionReport() *sessionReport {
	t := s.totals
	v := &sessionReport{Done: t.Done, Failed: t.Failed, Cancelled: t.Cancelled, Skipped: t.Skipped, Cut: t.Cut, Resumed: s.goneOn.on.Load(),
		Sum: t.Done + t.Failed + t.Cancelled + t.Skipped + t.Cut, Tail: s.tailSums().report(), Cutting: s.cutting.report()}
	if !s.began.IsZero() {
		v.WallSeconds = time.Since(s.began).Seconds()
	}
	var n snapshot
	s.tally.read(&n)
	v.GoodTokensOut, v.UnknownRows = n.tokens, n.unknown
	if n.done > 0 && v.WallSeconds > 0 && (n.tokens > 0 || n.unknown == 0) {
		rate := float64(n.tokens) / v.WallSeconds
		v.TokensPerSecond = &rate
	}
	if s.fleet == nil {
		return v
	}
	v.Endpoints = s.endpointReports()
	return v
}

func (s *session) endpointReports() []endpointReport {
	var list []endpointReport
	for _, m := range s.fleet.members {
		e := endpointReport{Name: m.meter.name, Model: m.endpoint.Model(), Kind: string(m.endpoint.Kind()), Calls: m.meter.good.Load(), Failed: m.meter.bad.Load(),
			Lost: time.Duration(m.meter.lost.Load()).Seconds(), Wasted: m.meter.wasted.Load(), AtOnce: m.calls}
		if e.Calls > 0 {
			e.MeanCall = time.Duration(m.meter.service.Load() / e.Calls).Seconds()
		}
		list = append(list, e)
	}
	return list
}

// show prints the result: one JSON document, or the summary for people.
func (s *session) show(r *report) error {
	if s.set.JSON {
		return s.a.printJSON(document{r.Dataset, r})
	}
	return s.a.print(r.text(s.a.colour))
}

// absolutePath is the path as it is where it cannot be made absolute; "" stays "".
func absolutePath(path string) string {
	if abs, err := filepath.Abs(path); err == nil && path != "" {
		return abs
	}
	return path
}

// absolute returns the settings with paths that hold wherever resume is called from.
func absolute(s Settings) Settings {
	paths := make([]string, len(s.Tasks))
	for i, p := range s.Tasks {
		paths[i] = absolutePath(p)
	}
	s.Tasks = paths
	s.CAFile = absolutePath(s.CAFile)
	s.History = slices.Clone(s.History)
	for i, dir := range s.History {
		s.History[i] = absolutePath(dir)
	}
	s.Sandbox.Rootfs = absolutePath(s.Sandbox.Rootfs)
	s.Endpoint = slices.Clone(s.Endpoint)
	for i := range s.Endpoint {
		s.Endpoint[i].CAFile = absolutePath(s.Endpoint[i].CAFile)
	}
	s.Reward = s.Reward.from(absolutePath("."))
	s.CommandTool, s.MCPServer = slices.Clone(s.CommandTool), slices.Clone(s.MCPServer)
	for i := range s.CommandTool {
		s.CommandTool[i].Dir = absolutePath(s.CommandTool[i].Dir)
	}
	for i := range s.MCPServer {
		s.MCPServer[i].Dir = absolutePath(s.MCPServer[i].Dir)
	}
	return s
}
