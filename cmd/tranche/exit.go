package main

import (
	"errors"
	"fmt"
	"strings"
)

// code is the exit status of the program. The list is one: exitCodes feeds --help, and a test holds docs/exit-codes.md to it.
type code int

const (
	codeOK       code = 0
	codeInternal code = 1
	codeUsage    code = 2
	codeTasks    code = 3
	codeEndpoint code = 4
	codePartial  code = 5
	codeRefused  code = 6
	codeDisk     code = 7
	codeGaveUp   code = 8
	codeAddress  code = 9
	codeAudit    code = 10
	codeBadFiles code = 20 // those of verify.Class follow in order
	codeReplay   code = 27
	codeWorse    code = 30
	codeDiffers  code = 31
	codeHup      code = 129
	codeInt      code = 130
	codeTerm     code = 143
)

type codeLine struct {
	code          code
	name, meaning string
}

func exitCodes() []codeLine {
	return []codeLine{
		{codeOK, "ok", "everything asked for was done; no episode failed"},
		{codeInternal, "internal", "a bug here, or a condition nothing else in this list names"},
		{codeUsage, "usage", "a flag, a key of the YAML file or a combination of them is wrong; nothing was started"},
		{codeTasks, "tasks", "a task file is missing, broken or holds a bad row; no request was sent"},
		{codeEndpoint, "endpoint", "no endpoint is usable: none answered, or the model is not there"},
		{codePartial, "partial", "the run finished, and some episodes failed: their rows and faults are in failures/"},
		{codeRefused, "refused", "the run directory, or the file of a measurement, is in use, belongs to other settings or tasks, or is no run at all"},
		{codeDisk, "disk", "the dataset could not be read or written; what was written before stays valid"},
		{codeGaveUp, "gave-up", "stopped because too many episodes failed (--stop-on-failed-share), or graders on too many of them (--stop-on-unscored-share); resume goes on"},
		{codeAddress, "address", "the address to serve on is taken or cannot be had"},
		{codeAudit, "audit", "tranche audit tasks found weak, impossible or flaky tasks that --allow does not name"},
		{20, "bad-files", "tranche verify: files, or the journal, are not as they were published (of several classes of findings the gravest decides: 20 before 26)"},
		{21, "bad-keys", "tranche verify: rows are missing, twice, of another run, or groups are not whole"},
		{22, "bad-tokens", "tranche verify: token sequences, masks, logprobs or weight versions are not sound"},
		{23, "bad-talk", "tranche verify: messages, turns, actions and how an episode ended contradict one another"},
		{24, "bad-text", "tranche verify: text that is no UTF-8, or no JSON where it should be"},
		{25, "bad-verdicts", "tranche verify: rewards do not follow from their components"},
		{26, "bad-sums", "tranche verify: counts, times or summary.json do not add up"},
		{codeReplay, "replay", "tranche replay --actions: an action that was run again gave something else than what was recorded"},
		{codeWorse, "worse", "tranche diff --fail-on-worse: the whole interval of the reward's difference is below 0"},
		{codeDiffers, "differs", "tranche diff --exact: the two runs do not hold the same rows"},
		{codeHup, "hung-up", "stopped by SIGHUP: its terminal was closed; resume goes on"},
		{codeInt, "interrupted", "stopped by ctrl-c (SIGINT); resume goes on"},
		{codeTerm, "terminated", "stopped by SIGTERM; resume goes on"},
	}
}

// coded is an error that knows its exit status.
type coded struct {
	code code
	err  error
}

func (c *coded) Error() string { return c.err.Error() }
func (c *coded) Unwrap() error { return c.err }

// withCode gives err an exit status unless it already carries one. nil stays nil.
func withCode(c code, err error) error {
	if err == nil {
		return nil
	}
	var have *coded
	if errors.As(err, &have) {
		return err
	}
	return &coded{c, err}
}

func codeOf(err error) code {
	var c *coded
	switch {
	case err == nil:
		return codeOK
	case errors.As(err, &c):
		return c.code
	}
	return codeInternal
}

// silent is an outcome that is no error message: the exit status says it and the summary explained it.
var errOutcome = errors.New("")

func outcome(c code) error {
	if c == codeOK {
		return nil
	}
	return &coded{c, errOutcome}
}

func exitCodesText() string {
	var b strings.Builder
	for _, l := range exitCodes() {
		fmt.Fprintf(&b, "  %3d  %-12s %s\n", l.code, l.name, l.meaning)
	}
	return b.String()
}
