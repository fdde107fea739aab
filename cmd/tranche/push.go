package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"tranche/storage"
	"tranche/storage/objectstore"
)

type pushCmd struct {
	Dir   string `arg:"" help:"Run directory; the run may be going on. Nothing in it is changed."`
	URL   string `arg:"" name:"url" help:"Where it goes: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///PATH; an empty place, or that of this run."`
	Width int    `default:"4" placeholder:"N" help:"Objects on their way at once. Default: ${default}."`
	Quiet bool   `short:"q" help:"No notices and no progress line."`
	JSON  bool   `name:"json" help:"Print the result as one JSON document."`
}

// Help is kong's long text of the command.
func (pushCmd) Help() string {
	return "Sends what the place lacks, or holds with another checksum, the manifest last, so that whoever reads by the manifest sees whole states of the run only; then removes what the manifest lists no more. It can be stopped at any time; the same command goes on. Credentials are taken from the environment and the profiles of the service (AWS_*, GOOGLE_*, AZURE_*), and the endpoint from AWS_ENDPOINT_URL, STORAGE_EMULATOR_HOST or AZURE_STORAGE_SERVICE_ENDPOINT; see docs/object-stores.md."
}

func (c *pushCmd) do(ctx context.Context, a *app) error {
	a.quiet = c.Quiet
	if _, err := (&viewCmd{Dir: c.Dir}).open(a); err != nil {
		return err
	}
	ctx, stopped, release := cancelOnSignal(ctx, a)
	defer release()
	store, err := objectstore.Open(ctx, objectstore.Config{URL: c.URL})
	if err != nil {
		return storeFault(err, codeEndpoint)
	}
	pusher, err := objectstore.NewPusher(objectstore.Push{Dir: c.Dir, Store: store, Width: c.Width, Compare: true})
	if err != nil {
		return withCode(codeUsage, err)
	}
	err = c.push(ctx, a, pusher)
	err = errors.Join(err, pusher.Close())
	if err != nil && errors.Is(context.Cause(ctx), errInterrupted) {
		a.notice("stopped; what was sent stays, and the same command goes on")
		return outcome(stopped())
	}
	if err != nil {
		return err
	}
	return c.report(a, pusher.Progress())
}

func (c *pushCmd) push(ctx context.Context, a *app, p *objectstore.Pusher) error {
	if err := p.Prepare(ctx); err != nil {
		return storeFault(err, startCode(err))
	}
	err := withLine(ctx, a, func() string {
		r := p.Progress()
		return fmt.Sprintf("pushed %d of %d files · %s of %s", r.Files, r.Of, roughBytes(r.Bytes), roughBytes(r.OfBytes))
	}, func() error {
		if err := p.Pass(ctx); err != nil {
			return err
		}
		return p.Verify(ctx)
	})
	return storeFault(err, codeDisk)
}

// withLine shows how far something is while it is done.
func withLine(ctx context.Context, a *app, text func() string, do func() error) error {
	show, hide := context.WithCancel(ctx)
	var display sync.WaitGroup
	display.Go(func() { countLine{a, text}.run(show) })
	err := do()
	hide()
	display.Wait()
	return err
}

func (c *pushCmd) report(a *app, r objectstore.Pushed) error {
	open, err := storage.JournalRows(c.Dir)
	if err != nil {
		return withCode(codeDisk, err)
	}
	if c.JSON {
		return a.printJSON(struct {
			objectstore.Pushed
			Dir     string `json:"dir"`
			Journal int64  `json:"rows_in_journal"` // not pushed
		}{r, c.Dir, open})
	}
	text := fmt.Sprintf("%s is in %s: %s\n", c.Dir, r.URL, pushedText(r))
	if open > 0 {
		text += fmt.Sprintf("%d rows are in the journal only and not pushed: their groups are not complete; `%s resume %s`, then this again\n", open, a.program, quoted(c.Dir))
	}
	return a.print(text)
}

// pushedText is the state of a place for people.
func pushedText(r objectstore.Pushed) string {
	return fmt.Sprintf("%d rows%s in %d files of %s; %d files of %s sent%s%s", r.Rows, some(r.Failures, " and %d failed ones"), r.Files, roughBytes(r.Bytes),
		r.Sent, roughBytes(r.SentBytes), some(int64(r.Removed), ", %d old ones removed"), some(int64(r.Unremoved), ", %d old ones left: deleting is not allowed there"))
}

// roughBytes is a size for people.
func roughBytes(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

// startCode is the exit status of what went wrong before anything was sent or fetched: it was the store, or the disk here.
func startCode(err error) code {
	if asked := (*objectstore.Error)(nil); errors.As(err, &asked) {
		return codeEndpoint
	}
	return codeDisk
}

// storeFault gives what a store, or a run directory, said its exit status: otherwise is that of all else.
func storeFault(err error, otherwise code) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, objectstore.ErrURL), errors.Is(err, objectstore.ErrOverlap):
		return withCode(codeUsage, err)
	case errors.Is(err, objectstore.ErrOtherRun), errors.Is(err, objectstore.ErrStray):
		return withCode(codeRefused, fmt.Errorf("%w; take another place", err))
	case errors.Is(err, objectstore.ErrAhead), errors.Is(err, objectstore.ErrConflict), errors.Is(err, objectstore.ErrNoRun),
		errors.Is(err, storage.ErrLocked), errors.Is(err, storage.ErrNotRun):
		return withCode(codeRefused, err)
	case errors.Is(err, storage.ErrDamaged):
		return withCode(codeDisk, err)
	}
	return withCode(otherwise, err)
}
