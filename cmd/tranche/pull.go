package main

import (
	"context"
	"errors"
	"fmt"

	"tranche/storage/objectstore"
)

type pullCmd struct {
	URL   string `arg:"" name:"url" help:"Where the run is: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///PATH."`
	Dir   string `arg:"" help:"Run directory it becomes: a new or empty one, one that an earlier pull began, or an earlier state of the same run."`
	Width int    `default:"4" placeholder:"N" help:"Objects on their way at once. Default: ${default}."`
	Quiet bool   `short:"q" help:"No notices and no progress line."`
	JSON  bool   `name:"json" help:"Print the result as one JSON document."`
}

// Help is kong's long text of the command.
func (pullCmd) Help() string {
	return "Fetches a run that `tranche push` or `--publish` brought there. Every file is compared with its SHA-256 in the manifest, which is written last: before that the directory is no run. What is there already is not fetched again, so the same command goes on where it was stopped. The result is a run directory like any other: view, rescore, resume. Credentials as for push; see docs/object-stores.md."
}

func (c *pullCmd) do(ctx context.Context, a *app) error {
	a.quiet = c.Quiet
	if objectstore.IsURL(c.Dir) {
		return withCode(codeUsage, fmt.Errorf("%s: expected a local directory; the order is: pull URL DIR", c.Dir))
	}
	if err := notAFile(c.Dir, "expected a directory, a new one or that of an earlier pull"); err != nil {
		return withCode(codeRefused, err)
	}
	ctx, stopped, release := cancelOnSignal(ctx, a)
	defer release()
	store, err := objectstore.Open(ctx, objectstore.Config{URL: c.URL})
	if err != nil {
		return storeFault(err, codeEndpoint)
	}
	puller, err := objectstore.NewPuller(objectstore.Pull{Store: store, Dir: c.Dir, Width: c.Width})
	if err != nil {
		return withCode(codeUsage, err)
	}
	err = withLine(ctx, a, func() string {
		r := puller.Progress()
		return fmt.Sprintf("pulled %d of %d files · %s of %s", r.Files, r.Of, roughBytes(r.Bytes), roughBytes(r.OfBytes))
	}, func() error { return puller.Run(ctx) })
	if err != nil && errors.Is(context.Cause(ctx), errInterrupted) {
		a.notice("stopped; what was fetched stays, and the same command goes on")
		return outcome(stopped())
	}
	r := puller.Progress()
	if err != nil {
		otherwise := codeDisk
		if r.Of == 0 { // nothing was begun
			otherwise = startCode(err)
		}
		return storeFault(err, otherwise)
	}
	if c.JSON {
		return a.printJSON(r)
	}
	return a.print(fmt.Sprintf("%s is in %s: %d rows%s in %d files of %s; %d files of %s fetched\nnext:\n  %s view %s\n", r.URL, r.Dir, r.Rows, some(r.Failures, " and %d failed ones"),
		r.Files, roughBytes(r.Bytes), r.Fetched, roughBytes(r.FetchedBytes), a.program, quoted(r.Dir)))
}
