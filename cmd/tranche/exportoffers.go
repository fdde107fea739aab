package main

import (
	"context"
	"encoding/json"
	"fmt"

	"tranche/action"
	"tranche/episode"
	"tranche/storage"
	"tranche/storage/export"
)

// offers know what the model of a row was told it may call: the tools that the run offered are in its settings, those of a task in its rows.
type offers struct {
	ctx     context.Context // of the export, for the servers of tools
	cancel  context.CancelCauseFunc
	app     *app
	dir     string
	file    *runFile // nil = there are no settings, and what a row states is all there is
	session *session
	actor   *action.Set // made when a row needs it; only its definitions are asked for
}

// newOffers reads the settings of a run. cancel ends the export when they cannot be had and a row needs them.
func newOffers(ctx context.Context, a *app, dir string, cancel context.CancelCauseFunc) (*offers, error) {
	file, ok, err := readRunFile(dir)
	if err != nil {
		return nil, err
	}
	if !ok {
		file = nil
	}
	return &offers{ctx: ctx, cancel: cancel, app: a, dir: dir, file: file}, nil
}

// of is called for one row after the other.
func (o *offers) of(r *storage.Row) (json.RawMessage, error) {
	if o.file == nil || o.plain(r) {
		return export.StatedTools(r)
	}
	if o.actor == nil {
		if err := o.open(); err != nil {
			o.cancel(err)
			return nil, err
		}
	}
	t := &episode.Task{ID: r.TaskID}
	if r.Tools != nil {
		t.Tools = json.RawMessage(*r.Tools)
	}
	defs, _, err := o.actor.Tools(t)
	return defs, err
}

// plain says that the model was told what the row states: the run offered nothing of its own, and the row names none of its tools.
func (o *offers) plain(r *storage.Row) bool {
	set := &o.file.Settings
	if len(set.Tools) > 0 || len(set.Calls.Blocks) > 0 || set.Calls.Format != "" && set.Calls.Format != "api" {
		return false
	}
	_, err := export.StatedTools(r)
	return err == nil
}

// open makes the tools of the settings, and with them starts or reaches the run's MCP servers.
func (o *offers) open() (err error) {
	quiet := o.app.quiet
	o.session = newSession(o.app, o.file.Settings)
	o.app.quiet = quiet
	if err = o.session.openTools(o.ctx); err == nil {
		o.actor, err = o.session.newActor()
	}
	if err != nil {
		return withCode(codeUsage, fmt.Errorf("the tools of %s cannot be had, and with them what the model was told it may call: %w\n--tools none does without", o.dir, err))
	}
	return nil
}

func (o *offers) close() {
	if o.actor != nil {
		_ = o.actor.Close() // nothing was run
	}
	if o.session != nil {
		o.session.closeTools()
	}
}
