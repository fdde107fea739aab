package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"tranche/action"
	"tranche/inference"
	"tranche/storage"
)

type auditCmd struct {
	Tasks  auditTasksCmd  `cmd:"" help:"Try the graders on every task, with answers whose worth is known, before a run."`
	Tokens auditTokensCmd `cmd:"" help:"Render stored conversations again through the server, and tell where the stored token ids are others."`
}

type auditTokensCmd struct {
	Dir       string        `arg:"" help:"Run directory; the run may be going on."`
	Endpoint  string        `placeholder:"URL" help:"Server that renders; it must have the run's model and chat template. Default: the run's own endpoints, the first that answers."`
	Model     string        `placeholder:"NAME" help:"Model to ask for. Default: the run's."`
	APIKeyEnv string        `name:"api-key-env" placeholder:"NAME" help:"NAME of the environment variable that holds the API key. Default: the run's."`
	Sample    int           `short:"n" default:"100" placeholder:"N" help:"Rows to look at, drawn at random; 0 = all. Default: ${default}."`
	Seed      uint64        `default:"1" placeholder:"N" help:"Which rows are drawn. Default: ${default}."`
	Timeout   time.Duration `default:"10m" placeholder:"TIME" help:"For the whole audit; what was looked at until then is told. Default: ${default}."`
	JSON      bool          `name:"json" help:"Print one JSON document: the counts, and every row that differs."`
}

// Help is kong's long text of the command.
func (auditTokensCmd) Help() string {
	return "Has the server render and tokenise the messages of each row, up to its last answer, and compares that with the ids stored. Stored ids are the server's own and stay the truth; what differs is what a trainer would get wrong who tokenises the text again. same: not one id differs. retokenised: the same text, cut into other tokens. rewritten: the chat template makes another text of the messages now, as templates do that drop earlier reasoning. prompt: already the ids before the first answer differ, so the server has another template, model or setting than the run had. Nothing is changed, and nothing generated."
}

func (c *auditCmd) do(ctx context.Context, a *app, verb string) error {
	if verb == "tasks" {
		return c.Tasks.do(ctx, a)
	}
	return c.Tokens.do(ctx, a)
}

func (c *auditTokensCmd) do(ctx context.Context, a *app) error {
	if c.Sample < 0 || c.Timeout <= 0 {
		return withCode(codeUsage, errors.New("--sample must be 0 or more, --timeout more than 0"))
	}
	run, err := (&viewCmd{Dir: c.Dir}).open(a)
	if err != nil {
		return err
	}
	file, ok, err := readRunFile(c.Dir)
	switch {
	case err != nil:
		return err
	case !ok:
		return noRun(a, c.Dir)
	}
	ctx, stopped, release := cancelOnSignal(ctx, a)
	defer release()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	report, err := c.audit(ctx, a, run, file)
	if errors.Is(context.Cause(ctx), errInterrupted) {
		err = outcome(stopped())
	}
	if report == nil {
		return err
	}
	if c.JSON {
		return errors.Join(a.printJSON(report), err)
	}
	return errors.Join(a.print(report.text(a.colour)), err)
}

// audit looks at a sample of the rows.
func (c *auditTokensCmd) audit(ctx context.Context, a *app, run *storage.Run, file *runFile) (*tokenAudit, error) {
	report := &tokenAudit{Dir: c.Dir, RunID: file.RunID}
	rows, err := c.draw(ctx, a, run, report)
	if err != nil {
		return nil, err
	}
	set := c.settings(file)
	fleet, err := openFleet(ctx, a, &set, nil)
	if err != nil {
		return nil, err
	}
	defer fleet.close()
	own := newSession(a, set)
	defer own.closeTools()
	if err := own.openTools(ctx); err != nil { // their definitions are part of the prompts
		return nil, err
	}
	tools, err := own.newActor()
	if err != nil {
		return nil, withCode(codeUsage, err)
	}
	defer tools.Close()
	e := fleet.members[0].endpoint
	report.Endpoint, report.Model = e.Name(), e.Model()
	for _, row := range rows {
		if err := report.look(ctx, e, tools, row); err != nil {
			return c.cutShort(report, err)
		}
	}
	return report, nil
}

// cutShort decides what an error leaves of the audit: what was looked at, where something was.
func (c *auditTokensCmd) cutShort(report *tokenAudit, err error) (*tokenAudit, error) {
	err = withCode(codeEndpoint, fmt.Errorf("after %d rows: %w", report.Rows, err))
	if report.Rows == 0 {
		return nil, err
	}
	return report, err
}

// settings are the run's, with what the command line says of the server.
func (c *auditTokensCmd) settings(file *runFile) Settings {
	set := file.Settings
	if c.Endpoint != "" {
		e := Endpoint{URL: c.Endpoint}
		for _, known := range set.Endpoint {
			if known.URL == c.Endpoint {
				e = known
			}
		}
		set.Endpoint = []Endpoint{e}
	}
	if c.Model != "" {
		set.Model = c.Model
		for i := range set.Endpoint {
			set.Endpoint[i].Model = ""
		}
	}
	if c.APIKeyEnv != "" {
		set.APIKeyEnv = c.APIKeyEnv
	}
	return set
}

// draw picks rows that hold token ids, each as likely as any other.
func (c *auditTokensCmd) draw(ctx context.Context, a *app, run *storage.Run, report *tokenAudit) ([]*storage.Row, error) {
	var rows []*storage.Row
	dice := rand.New(rand.NewPCG(c.Seed, 1))
	err := (&viewCmd{Dir: c.Dir}).eachRow(ctx, a, run, func(r *storage.Row) {
		report.Dataset++
		if len(r.TokenIDs) == 0 || r.PromptLen == 0 {
			report.WithoutIDs++
			return
		}
		n := report.Dataset - report.WithoutIDs
		switch at := dice.IntN(n); {
		case c.Sample == 0 || len(rows) < c.Sample:
			rows = append(rows, r)
		case at < c.Sample:
			rows[at] = r
		}
	})
	slices.SortFunc(rows, byTask)
	return rows, err
}

var _ promptServer = (*inference.Endpoint)(nil)
var _ toolOffers = (*action.Set)(nil)
