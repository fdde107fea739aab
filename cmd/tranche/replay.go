package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"tranche/episode"
	"tranche/storage"
)

type replayCmd struct {
	Dir     string   `arg:"" help:"Run directory; the run may be going on, or may have been killed."`
	Episode string   `required:"" placeholder:"ID" help:"The episode whose id begins so."`
	Turn    int      `short:"t" default:"0" placeholder:"N" help:"That turn alone, from 1; with --actions, its actions are compared, and those before it are run for what they leave. 0 = all. Default: ${default}."`
	Step    bool     `help:"On a terminal: wait after each turn. Enter or n = the next one, p = the one before, a number = that one, q = the end."`
	Actions bool     `help:"Run the recorded actions again, in order, with the run's own tools and sandbox, and compare status, exit code and what the model saw."`
	Ignore  []string `sep:"none" placeholder:"REGEX" help:"With --actions: what matches is left out of both texts before they are compared, such as times; may be repeated."`
	Outside bool     `help:"With --actions: run again also what has effects outside of a sandbox: tools of MCP servers and web services, programs that are not idempotent, code with a network."`
	Quiet   bool     `short:"q" help:"No notices."`
	JSON    bool     `name:"json" help:"Print one JSON document: the turns, and with --actions what came of each action."`
}

// Help is kong's long text of the command.
func (replayCmd) Help() string {
	return "Shows an episode turn by turn: what the model was told, what it said, what each action gave and how long it took. With --actions the recorded calls are carried out again, and what differs is shown; the exit status is 0 where all that was run again gave the same, else 27. Nothing of the run is changed, and no model is asked."
}

func (c *replayCmd) do(ctx context.Context, a *app) error {
	a.quiet = c.Quiet
	ignore, err := c.check()
	if err != nil {
		return withCode(codeUsage, err)
	}
	shown := viewCmd{Dir: c.Dir, Episode: c.Episode}
	run, err := shown.open(a)
	if err != nil {
		return err
	}
	rows, err := shown.pick(ctx, a, run)
	if err != nil {
		return err
	}
	e := replayOf(rows[0])
	if c.Turn > len(e.Turns) {
		return withCode(codeUsage, fmt.Errorf("--turn: the episode has %d turns, found %d", len(e.Turns), c.Turn))
	}
	ctx, stopped, release := cancelOnSignal(ctx, a)
	defer release()
	if c.Actions {
		err = c.again(ctx, a, e, ignore)
	}
	if err == nil {
		err = c.show(ctx, a, e)
	}
	if errors.Is(context.Cause(ctx), errInterrupted) {
		return outcome(stopped())
	}
	if err == nil && e.differs() {
		return outcome(codeReplay)
	}
	return err
}

func (c *replayCmd) check() (ignore []*regexp.Regexp, err error) {
	f := &faults{}
	if c.Turn < 0 {
		f.add("--turn: expected the number of a turn, from 1, found %d", c.Turn)
	}
	if !c.Actions && (len(c.Ignore) > 0 || c.Outside) {
		f.add("--ignore and --outside go with --actions")
	}
	if c.Step && c.JSON {
		f.add("--step is for people, --json for programs: one of them")
	}
	for _, text := range c.Ignore {
		x, err := regexp.Compile(text)
		if err != nil {
			f.add("--ignore: %v", err)
		}
		ignore = append(ignore, x)
	}
	return ignore, f.err()
}

// replayed is an episode in turns.
type replayed struct {
	Episode string            `json:"episode_id"`
	Task    string            `json:"task_id"`
	Sample  int32             `json:"sample_index"`
	Status  string            `json:"status"`
	Stop    string            `json:"stop_reason"`
	Prompt  []storage.Message `json:"prompt"`
	Turns   []*replayTurn     `json:"turns"`
	Actions *actionsReplay    `json:"actions,omitempty"` // what came of running them again

	row *storage.Row
}

// replayTurn is one call of the model and what followed from it.
type replayTurn struct {
	Number  int               `json:"turn"`    // from 1
	Said    *storage.Message  `json:"message"` // nil where the row does not have it
	Call    storage.Turn      `json:"call"`
	Answers []storage.Message `json:"answers"` // to its actions, in order
	Actions []storage.Action  `json:"actions"`
	Again   []*actionAgain    `json:"again,omitempty"`
	upTo    int               // how many of the row's messages there are when it has been said
}

// replayOf cuts a row into its turns: behind the prompt, a message of the assistant begins one.
func replayOf(r *storage.Row) *replayed {
	n := min(max(int(r.NumPromptMessages), 0), len(r.Messages))
	e := &replayed{Episode: r.EpisodeID, Task: r.TaskID, Sample: r.SampleIndex, Status: or(r.Status, ""), Stop: or(r.StopReason, ""), Prompt: r.Messages[:n], Turns: []*replayTurn{}, row: r}
	for i, t := range r.Turns {
		e.Turns = append(e.Turns, &replayTurn{Number: i + 1, Call: t, Answers: []storage.Message{}, Actions: []storage.Action{}})
	}
	turn := -1
	for i := n; i < len(r.Messages); i++ {
		m := r.Messages[i]
		switch {
		case or(m.Role, "") == episode.RoleAssistant && turn+1 < len(e.Turns):
			turn++
			e.Turns[turn].Said, e.Turns[turn].upTo = &m, i+1
		case turn >= 0:
			e.Turns[turn].Answers = append(e.Turns[turn].Answers, m)
		}
	}
	for _, act := range r.Actions {
		if i := int(act.Turn); i >= 0 && i < len(e.Turns) {
			e.Turns[i].Actions = append(e.Turns[i].Actions, act)
		}
	}
	return e
}

func (e *replayed) differs() bool { return e.Actions != nil && e.Actions.Differ > 0 }

// show prints all there is, or waits between the turns.
func (c *replayCmd) show(ctx context.Context, a *app, e *replayed) error {
	turns := e.Turns
	if c.Turn > 0 {
		turns = turns[c.Turn-1 : c.Turn]
	}
	if c.JSON {
		doc := *e
		doc.Turns = turns
		return a.printJSON(doc)
	}
	pages := c.pages(a, e, turns)
	if c.Step && a.typed != nil {
		return step(ctx, a, pages)
	}
	return a.print(strings.Join(pages, ""))
}

// pages are the heading with the prompt, each turn, and the end; of one turn alone, that.
func (c *replayCmd) pages(a *app, e *replayed, turns []*replayTurn) (list []string) {
	page := func(fill func(p *printer)) {
		p := &printer{width: min(a.width(), 120), colour: a.colour}
		fill(p)
		list = append(list, p.b.String())
	}
	if c.Turn == 0 {
		page(func(p *printer) {
			p.heading(e.row)
			for _, m := range e.Prompt {
				p.message(m, true)
			}
		})
	}
	for _, t := range turns {
		page(func(p *printer) { p.replayTurn(t) })
	}
	if c.Turn == 0 {
		page(func(p *printer) { p.ending(e.row) })
	}
	if e.Actions != nil {
		page(func(p *printer) {
			p.line("")
			p.line("%s", e.Actions.text())
		})
	}
	return list
}

func (p *printer) replayTurn(t *replayTurn) {
	p.line("")
	p.line("%s", p.paint(bold, fmt.Sprintf("── turn %d ──", t.Number)))
	if t.Said != nil {
		p.message(*t.Said, false)
	}
	p.turn(t.Number-1, t.Call)
	for i, m := range t.Answers {
		p.message(m, false)
		if i < len(t.Actions) {
			act := t.Actions[i]
			p.action(storage.Message{ToolCallID: act.CallID}, []storage.Action{act})
		}
		if i < len(t.Again) {
			p.actionAgain(t.Again[i])
		}
	}
	for _, again := range t.Again[min(len(t.Answers), len(t.Again)):] { // of actions whose answer is not there
		p.actionAgain(again)
	}
}

// step shows a page at a time. What a person types is read by a goroutine that ends with the process: nothing can call it back from a terminal.
func step(ctx context.Context, a *app, pages []string) error {
	lines := make(chan string) // closed where nothing more is typed
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(a.typed); in.Scan(); {
			select {
			case lines <- in.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	at := 0
	for {
		if err := a.print(pages[at]); err != nil {
			return err
		}
		if at == len(pages)-1 {
			return nil
		}
		fmt.Fprintf(a.stderr, "[%d of %d] enter = next, p = before, number = turn, q = end: ", at+1, len(pages))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case line, ok := <-lines:
			if at = turnTo(at, strings.TrimSpace(line), len(pages)); !ok || at < 0 {
				return nil
			}
		}
	}
}

// turnTo is the page that an answer leads to; below 0 = the end.
func turnTo(at int, answer string, pages int) int {
	switch answer {
	case "q":
		return -1
	case "p":
		return max(at-1, 0)
	case "", "n":
		return at + 1
	}
	if n, err := strconv.Atoi(answer); err == nil && n >= 0 && n < pages {
		return n
	}
	return at
}

// typedBy is where people type, where somebody is there; nil = nobody is.
func typedBy(in io.Reader, terminal bool) io.Reader {
	if !terminal {
		return nil
	}
	return in
}
