package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tranche/scheduler"
	"tranche/storage"
)

type explainCmd struct {
	Dir  string `arg:"" help:"Run directory; the run may be going on, or may have been killed."`
	JSON bool   `name:"json" help:"Print one JSON document: seconds and shares of the time by endpoint, and the advice."`
}

// Help is kong's long text of the command.
func (explainCmd) Help() string {
	return "Why did the run take so long? For each endpoint: the shares of the run's time in which nothing more went there because its KV memory was full (kv), because the server ran all the sequences it can (sequences), because of the client's limit of calls (calls) or because too few episodes were open (episodes), because episodes were in actions or being graded (actions), because only the last episodes were left (tail), because it was dead or refused (down), because nothing that waited could go there (no_work), because a padded batch had not ended (batch), or because calls waited in the server's own queue for what it does not tell (queue). And one sentence for each that mattered."
}

func (c *explainCmd) do(_ context.Context, a *app) error {
	if err := notAFile(c.Dir, "expected a run directory"); err != nil {
		return withCode(codeRefused, err)
	}
	file, ok, err := readRunFile(c.Dir)
	if err != nil {
		return err
	}
	if !ok {
		return noRun(a, c.Dir)
	}
	var sum account
	found, err := storage.ReadAccount(c.Dir, &sum)
	switch {
	case err != nil:
		return withCode(codeDisk, err)
	case !found || len(sum.Endpoints) == 0:
		return withCode(codeRefused, errors.New(c.Dir+": holds no account of its time yet: it is written from the first second of a run on, by versions that know `explain`"))
	}
	process, running := storage.Writing(c.Dir)
	state := sum.state(running)
	if c.JSON {
		return a.printJSON(struct {
			State   string `json:"state"`
			Process string `json:"process,omitempty"` // that plays it
			account
		}{state, process, sum})
	}
	return a.print(sum.text(file.RunID, c.Dir, state, sum.when(state, process), a.colour))
}

// States of an account.
const (
	accountRunning = "running"
	accountEnded   = "ended"
	accountKilled  = "stopped without an end"
)

// state says whether there will be more of it, from whether a process holds the run now.
func (a account) state(running bool) string {
	switch {
	case running:
		return accountRunning
	case a.Ended != "" || a.AsOf.IsZero(): // older versions did not write why
		return accountEnded
	}
	return accountKilled
}

// when says as of when the account is, and what that means; "" where it is not known.
func (a account) when(state, process string) string {
	if a.AsOf.IsZero() {
		return ""
	}
	at := "as of " + a.AsOf.Local().Format("2006-01-02 15:04:05")
	switch state {
	case accountRunning:
		return at + ": still running" + label(", process ", process)
	case accountKilled:
		return at + ": stopped without an end (killed, or the machine went down); what it did after that is not in it"
	}
	return at + ": " + a.Ended
}

// text is the account for people.
func (a account) text(runID, dir, state, when string, colour bool) string {
	p := &printer{colour: colour, width: 100}
	p.line("%s", p.paint(bold, fmt.Sprintf("Run %s in %s: what kept more work from its endpoints, %% of the time (%s, %s)", runID, dir, sessionsText(a.Sessions), seconds(a.WallSeconds))))
	if when != "" {
		shade := dim
		if state == accountKilled {
			shade = yellow
		}
		p.line("  %s", p.paint(shade, when))
	}
	rows := [][]string{{"endpoint"}}
	for _, b := range scheduler.AllBounds() {
		rows[0] = append(rows[0], b.String())
	}
	rows[0] = append(rows[0], "calls in flight")
	for i, e := range a.Endpoints {
		if i == maxListed {
			rows = append(rows, []string{fmt.Sprintf("… %d more", len(a.Endpoints)-i)})
			break
		}
		row := []string{e.Endpoint}
		for _, b := range scheduler.AllBounds() {
			row = append(row, fmt.Sprintf("%.0f", 100*e.core().Share(b)))
		}
		rows = append(rows, append(row, fmt.Sprintf("%.1f", e.core().MeanCalls())))
	}
	p.table(rows)
	for i, e := range a.Endpoints {
		if i == maxListed {
			break
		}
		for _, said := range e.core().Advice() {
			p.line("  %s: %s", e.Endpoint, said)
		}
	}
	if said := a.clientAdvice(); said != "" {
		p.line("  client: %s", said)
	}
	return p.b.String()
}

func sessionsText(n int) string {
	if n == 1 {
		return "1 session"
	}
	return fmt.Sprintf("%d sessions", n)
}

// boundsText is the summary's line on each endpoint: what bounded it most.
func (r *report) boundsText(p *printer) {
	if r.Account == nil {
		return
	}
	for i, e := range r.Account.Endpoints {
		if i == maxListed {
			p.line("  bound      … %d more endpoints: `%s explain %s` has them all", len(r.Account.Endpoints)-i, r.program, quoted(r.Dir))
			break
		}
		if said := e.core().Advice(); len(said) > 0 && r.Account.WallSeconds >= briefRun.Seconds() {
			p.line("  bound      %s: %s", e.Endpoint, said[0])
		}
	}
	if said := r.Account.clientAdvice(); said != "" && r.Account.WallSeconds >= briefRun.Seconds() {
		p.line("  bound      client: %s", said)
	}
}

// briefRun is the time under which the summary does not say what bounded a run: nobody asks.
const briefRun = 5 * time.Second
