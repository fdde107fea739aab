package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"tranche/action"
	"tranche/episode"
	"tranche/storage"
)

// What came of running an action again.
const (
	againSame    = "same"
	againDiffers = "differs"
	againSkipped = "skipped"
)

// actionsReplay counts them.
type actionsReplay struct {
	Same    int `json:"same"`
	Differ  int `json:"differ"`
	Skipped int `json:"skipped"`
}

func (r *actionsReplay) add(outcome string) {
	switch outcome {
	case againSame:
		r.Same++
	case againDiffers:
		r.Differ++
	default:
		r.Skipped++
	}
}

func (r *actionsReplay) text() string {
	return fmt.Sprintf("actions run again: %d gave the same, %d gave something else, %d were not run", r.Same, r.Differ, r.Skipped)
}

// actionAgain is one recorded action, run again or not.
type actionAgain struct {
	CallID  string   `json:"call_id"`
	Name    string   `json:"name"`
	Outcome string   `json:"outcome"`
	Why     string   `json:"why,omitempty"` // it was not run
	Differ  []string `json:"differ,omitempty"`
	Was     observed `json:"recorded"`
	Now     observed `json:"now"`

	diff []string
}

// observed is what an action gave, as far as it is compared.
type observed struct {
	Status   string `json:"status"`
	ExitCode *int32 `json:"exit_code"`
	Text     string `json:"text"`
}

// again carries out the recorded actions of an episode, turn by turn, as the run did.
func (c *replayCmd) again(ctx context.Context, a *app, e *replayed, ignore []*regexp.Regexp) error {
	file, ok, err := readRunFile(c.Dir)
	switch {
	case err != nil:
		return err
	case !ok:
		return withCode(codeRefused, fmt.Errorf("%s: there is no %s, and so it is not known which tools the run had", c.Dir, runFileName))
	}
	inside := *a // with stand-ins beside the tools
	set := file.Settings
	outside := map[string]string{}
	if !c.Outside {
		outside = c.standIn(&inside, &set)
	}
	s := newSession(&inside, set)
	s.a.quiet = c.Quiet
	defer s.closeTools()
	if err := s.openTools(ctx); err != nil {
		return withCode(codeUsage, err)
	}
	if err := s.checkReplay(ctx, e, outside); err != nil {
		return err
	}
	actor, err := s.newActor()
	if err != nil {
		return withCode(codeUsage, err)
	}
	player := &actionPlayer{actor: actor, outside: outside, ignore: ignore}
	e.Actions = &actionsReplay{}
	err = player.all(ctx, e, c.Turn)
	return errors.Join(err, actor.Close())
}

// standIn takes what has effects outside of a sandbox out of the settings, puts tools that are never run in its place, and says of each why. So the
// offer is the run's: what a model is told of a tool that there is not names them all.
func (c *replayCmd) standIn(a *app, set *Settings) map[string]string {
	outside := map[string]string{}
	leave := func(name, why string) {
		if _, twice := outside[name]; !twice {
			a.tools = append(slices.Clone(a.tools), standIn{name})
			outside[name] = why
		}
	}
	groups := map[string][]string{}
	for _, m := range set.MCPServer {
		for _, found := range m.ToolsFound {
			name, _, _ := strings.Cut(found, " ")
			groups[m.Name] = append(groups[m.Name], name)
			leave(name, "it is a tool of the MCP server "+m.Name)
		}
	}
	for _, h := range set.HTTPTool {
		leave(h.Name, "it is a web service")
	}
	kept := CommandTools{}
	for _, t := range set.CommandTool {
		if t.Idempotent {
			kept = append(kept, t)
			continue
		}
		leave(t.Name, "it is a program on this machine that is not said to be idempotent")
	}
	set.Tools = expanded(set.Tools, groups)
	set.MCPServer, set.HTTPTool, set.CommandTool = nil, nil, kept
	if set.Sandbox.Net {
		for _, name := range []string{"python", "bash"} {
			if _, own := outside[name]; !own && !slices.ContainsFunc(kept, func(t CommandTool) bool { return t.Name == name }) {
				outside[name] = "its sandbox has a network"
			}
		}
	}
	return outside
}

// standIn is a tool that is offered and not run.
type standIn struct{ name string }

func (t standIn) Name() string { return t.name }

func (t standIn) Definition() json.RawMessage {
	return encode(map[string]any{"type": "function", "function": map[string]any{"name": t.name, "description": "Not run here.", "parameters": map[string]any{"type": "object"}}})
}

func (t standIn) Run(context.Context, json.RawMessage, action.Env) (action.Result, error) {
	return action.Result{}, fmt.Errorf("tool %s is not run here", t.name) // and never asked to
}

// checkReplay opens a sandbox where an action will need one, so that a machine that cannot is told once.
func (s *session) checkReplay(ctx context.Context, e *replayed, outside map[string]string) error {
	needs := func(act storage.Action) bool {
		name := or(act.Name, "")
		return outside[name] == "" && slices.Contains(s.kit.coding, name)
	}
	if !slices.ContainsFunc(e.row.Actions, needs) {
		return nil
	}
	if err := s.kit.desk.Check(ctx); err != nil {
		return withCode(codeUsage, fmt.Errorf("sandbox: %w; `%s sandbox check` tells what this machine can hold", err, s.a.program))
	}
	return nil
}

// actionPlayer carries out the actions of one episode.
type actionPlayer struct {
	actor   *action.Set
	outside map[string]string // tools that are not run again, and why
	ignore  []*regexp.Regexp
}

// all goes through the turns up to the one that is asked for, 0 = all; earlier ones are run for what they leave, and are not told.
func (p *actionPlayer) all(ctx context.Context, e *replayed, only int) error {
	ep := e.row.Episode()
	whole := *ep
	ep.Status, ep.Stop, ep.Fault, ep.Actions, ep.Submitted = episode.StatusOpen, "", nil, nil, nil
	defer p.actor.End(ep)
	for i, t := range e.Turns {
		if only > 0 && i >= only {
			break
		}
		told := unread(t.Actions)
		if t.Said != nil {
			var err error
			ep.Messages, ep.Turns = whole.Messages[:t.upTo], whole.Turns[:i+1]
			if told, err = p.turn(ctx, ep, t); err != nil {
				return err
			}
		}
		for _, again := range told {
			if only == 0 || i == only-1 {
				e.Actions.add(again.Outcome)
				t.Again = append(t.Again, again)
			}
		}
		ep.Actions = whole.Actions[:len(ep.Actions)+len(t.Actions)]
	}
	return nil
}

// turn carries out the actions of one turn that were recorded, all at once as the run did.
func (p *actionPlayer) turn(ctx context.Context, ep *episode.Episode, t *replayTurn) ([]*actionAgain, error) {
	acts := ep.PendingActions()
	acts = acts[:min(len(acts), len(t.Actions), len(t.Answers))]
	list := make([]*actionAgain, len(acts))
	var run []episode.Action
	var at []int
	for i, act := range acts {
		recorded := t.Actions[i]
		list[i] = &actionAgain{CallID: act.Call.ID, Name: act.Call.Function.Name, Outcome: againSkipped,
			Was: observed{or(recorded.Status, ""), recorded.ExitCode, or(t.Answers[i].Content, "")}}
		if why, skip := p.outside[act.Call.Function.Name]; skip {
			list[i].Why = "it has effects outside: " + why + " (--outside runs it)"
			continue
		}
		run, at = append(run, act), append(at, i)
	}
	obs := p.actor.Do(ctx, ep, run)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for k, o := range obs {
		p.compare(list[at[k]], o)
	}
	return append(list, unread(t.Actions[len(acts):])...), nil
}

// unread are recorded actions that have no call to run: they count all the same.
func unread(acts []storage.Action) (list []*actionAgain) {
	for _, act := range acts {
		list = append(list, &actionAgain{CallID: or(act.CallID, ""), Name: or(act.Name, ""), Outcome: againSkipped,
			Why: "its call cannot be read out of the row again", Was: observed{Status: or(act.Status, ""), ExitCode: act.ExitCode}})
	}
	return list
}

// compare puts what an action gave now beside what was recorded.
func (p *actionPlayer) compare(a *actionAgain, o episode.Observation) {
	a.Now = observed{o.Status, o.ExitCode, o.Text}
	if o.Told != nil {
		a.Now.Text = o.Told.Text()
	}
	if a.Was.Status != a.Now.Status {
		a.Differ = append(a.Differ, "status")
	}
	if !sameExit(a.Was.ExitCode, a.Now.ExitCode) {
		a.Differ = append(a.Differ, "exit_code")
	}
	if was, now := p.plain(a.Was.Text), p.plain(a.Now.Text); was != now {
		a.Differ = append(a.Differ, "text")
		a.diff = lineDiff(was, now)
	}
	a.Outcome = againSame
	if len(a.Differ) > 0 {
		a.Outcome = againDiffers
	}
}

// plain is a text without what is to be ignored.
func (p *actionPlayer) plain(text string) string {
	for _, x := range p.ignore {
		text = x.ReplaceAllString(text, "…")
	}
	return text
}

func sameExit(a, b *int32) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

// Bounds of a difference that is shown.
const (
	diffLines = 12  // of each side
	diffWidth = 200 // characters of a line
)

// lineDiff is what stands between the lines that two texts have in common at both ends, and how much of that is not shown.
func lineDiff(was, now string) []string {
	a, b := strings.Split(was, "\n"), strings.Split(now, "\n")
	from := 0
	for from < len(a) && from < len(b) && a[from] == b[from] {
		from++
	}
	to := 0
	for to < len(a)-from && to < len(b)-from && a[len(a)-1-to] == b[len(b)-1-to] {
		to++
	}
	list := []string{fmt.Sprintf("from line %d on:", from+1)}
	list = append(list, changedSide("- ", a[from:len(a)-to])...)
	return append(list, changedSide("+ ", b[from:len(b)-to])...)
}

func changedSide(sign string, lines []string) (list []string) {
	for i, l := range lines {
		if i == diffLines {
			return append(list, fmt.Sprintf("%s… %d more lines", sign, len(lines)-i))
		}
		list = append(list, sign+short(l, diffWidth))
	}
	return list
}

// actionAgain is the line under an action that was run again.
func (p *printer) actionAgain(a *actionAgain) {
	switch a.Outcome {
	case againSame:
		p.line("  %s", p.paint(green, "run again: the same"))
	case againSkipped:
		p.line("  %s", p.paint(yellow, "not run again: "+a.Why))
	default:
		p.line("  %s", p.paint(red, "run again: "+strings.Join(a.Differ, ", ")+" differ"))
		if a.Was.Status != a.Now.Status || !sameExit(a.Was.ExitCode, a.Now.ExitCode) {
			p.line("    recorded %s, exit %s; now %s, exit %s", a.Was.Status, count(a.Was.ExitCode), a.Now.Status, count(a.Now.ExitCode))
		}
		for _, l := range a.diff {
			p.line("    %s", l)
		}
	}
}
