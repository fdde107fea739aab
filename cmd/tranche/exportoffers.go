package main

import (
	"cmp"
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
	ctx    context.Context // of the export, for the servers of tools
	cancel context.CancelCauseFunc
	app    *app
	dir    string
	runs   map[string]*offer // by the id of a row's run
	only   *offer            // of a run directory, whatever its rows say; nil = its rows are of several runs, or there are no settings
}

// offer is what one run offered.
type offer struct {
	file    *runFile
	session *session
	actor   *action.Set // made when a row needs it; only its definitions are asked for
}

// newOffers reads the settings of a run, or of the runs whose rows a dataset has. cancel ends the export when they cannot be had and a row
// needs them.
func newOffers(ctx context.Context, a *app, dir string, cancel context.CancelCauseFunc) (*offers, error) {
	o := &offers{ctx: ctx, cancel: cancel, app: a, dir: dir, runs: map[string]*offer{}}
	file, ok, err := readRunFile(dir)
	if err != nil {
		return nil, err
	}
	if ok {
		o.only = &offer{file: file}
		return o, nil
	}
	runs, err := originsOf(dir)
	for id, one := range runs {
		o.runs[id] = &offer{file: one.file}
	}
	return o, err
}

// of is called for one row after the other.
func (o *offers) of(r *storage.Row) (json.RawMessage, error) {
	one := cmp.Or(o.only, o.runs[r.RunID])
	if one == nil || one.plain(r) { // without settings, what a row states is all there is
		return export.StatedTools(r)
	}
	if one.actor == nil {
		if err := o.open(one); err != nil {
			o.cancel(err)
			return nil, err
		}
	}
	t := &episode.Task{ID: r.TaskID}
	if r.Tools != nil {
		t.Tools = json.RawMessage(*r.Tools)
	}
	defs, _, err := one.actor.Tools(t)
	return defs, err
}

// plain says that the model was told what the row states: the run offered nothing of its own, and the row names none of its tools.
func (o *offer) plain(r *storage.Row) bool {
	set := &o.file.Settings
	if len(set.Tools) > 0 || len(set.Calls.Blocks) > 0 || set.Calls.Format != "" && set.Calls.Format != "api" {
		return false
	}
	_, err := export.StatedTools(r)
	return err == nil
}

// open makes the tools of the settings, and with them starts or reaches the run's MCP servers.
func (o *offers) open(one *offer) (err error) {
	quiet := o.app.quiet
	one.session = newSession(o.app, one.file.Settings)
	o.app.quiet = quiet
	if err = one.session.openTools(o.ctx); err == nil {
		one.actor, err = one.session.newActor()
	}
	if err != nil {
		return withCode(codeUsage, fmt.Errorf("the tools of %s cannot be had, and with them what the model was told it may call: %w\n--tools none does without", o.dir, err))
	}
	return nil
}

func (o *offers) close() {
	if o.only != nil {
		o.only.close()
	}
	for _, one := range o.runs {
		one.close()
	}
}

func (o *offer) close() {
	if o.actor != nil {
		_ = o.actor.Close() // nothing was run
	}
	if o.session != nil {
		o.session.closeTools()
	}
}
