package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"tranche/storage"
)

// printer lays out one trajectory for a terminal. It writes into a buffer and knows no file.
type printer struct {
	b      strings.Builder
	width  int
	colour bool
}

// Colours of the roles, ANSI.
const (
	dim     = "2"
	bold    = "1"
	red     = "31"
	green   = "32"
	yellow  = "33"
	blue    = "34"
	magenta = "35"
	cyan    = "36"
)

// painted is text made by paint: cleaned, and with none but our own colours in it.
type painted string

// paint is the only place that makes escape sequences; what it is given may come from anywhere.
func (p *printer) paint(colour, s string) painted {
	if s = visibleLine(s); !p.colour || s == "" {
		return painted(s)
	}
	return painted("\x1b[" + colour + "m" + s + "\x1b[0m")
}

// line writes one line and is the edge of the renderer: whatever text goes into it is cleaned, because task ids, names of tools and
// endpoints, finish reasons and faults come from servers and files as messages do. Only painted text passes as it is.
func (p *printer) line(format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = visibleLine(s)
		}
	}
	fmt.Fprintf(&p.b, format+"\n", args...)
}

// block writes text wrapped and indented.
func (p *printer) block(indent, text string) {
	for line := range strings.SplitSeq(strings.TrimRight(visible(text), "\n"), "\n") {
		for _, piece := range wrap(line, p.width-len(indent)) {
			p.line("%s%s", indent, piece)
		}
	}
}

// visible replaces control characters other than newline and tab: they are shown, not sent, so that no text from a server or a
// task file steers the terminal.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\t':
			return ' '
		case steers(r):
			return '\uFFFD'
		}
		return r
	}, s)
}

// steers tells the characters that a terminal acts on: C0, DEL, C1, and the bidirectional overrides, which hide what is there.
func steers(r rune) bool {
	return r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// visibleLine is visible for text that has to stay on its line.
func visibleLine(s string) string { return strings.ReplaceAll(visible(s), "\n", " ") }

// wrap breaks a line at spaces; a word longer than the width is cut.
func wrap(line string, width int) []string {
	width = max(width, 20)
	if utf8.RuneCountInString(line) <= width {
		return []string{line}
	}
	var out []string
	rest := []rune(line)
	for len(rest) > width {
		at := width
		for i := width; i > width/2; i-- {
			if rest[i] == ' ' {
				at = i
				break
			}
		}
		out = append(out, string(rest[:at]))
		rest = rest[at:]
		if len(rest) > 0 && rest[0] == ' ' {
			rest = rest[1:]
		}
	}
	if len(rest) > 0 {
		out = append(out, string(rest))
	}
	return out
}

// trajectory writes one row whole.
func (p *printer) trajectory(r *storage.Row) {
	p.heading(r)
	turn := 0
	for i, m := range r.Messages {
		p.message(m, i < int(r.NumPromptMessages))
		if i >= int(r.NumPromptMessages) && or(m.Role, "") == "assistant" {
			if turn < len(r.Turns) {
				p.turn(turn, r.Turns[turn])
			}
			turn++
		}
		if or(m.Role, "") == "tool" {
			p.action(m, r.Actions)
		}
	}
	p.ending(r)
	p.line("")
}

func (p *printer) heading(r *storage.Row) {
	p.line("%s", p.paint(bold, "episode "+r.EpisodeID))
	p.line("  task %s%s · sample %d of %d · %s", r.TaskID, label(" · ", r.DataSource), r.SampleIndex+1, max(r.GroupSize, 1), or(r.Model, "model unknown"))
	p.line("  %s · reward %s · %d turns · tokens in %s, out %s · %.2fs", p.status(r), p.reward(r.Reward), r.NumTurns, count(r.NumInputTokens), count(r.NumOutputTokens), r.Timing.Total)
}

func label(before, s string) string {
	if s == "" {
		return ""
	}
	return before + s
}

func (p *printer) status(r *storage.Row) painted {
	s, colour := or(r.Status, "unknown"), green
	switch s {
	case "failed":
		colour = red
	case "truncated":
		colour = yellow
	}
	if why := or(r.StopReason, ""); why != "" && why != "fault" {
		s += " (" + why + ")"
	}
	return p.paint(colour, s)
}

func (p *printer) reward(v *float64) painted {
	if v == nil {
		return p.paint(yellow, "none (no verdict)")
	}
	colour := red
	if *v > 0 {
		colour = green
	}
	return p.paint(colour, fmt.Sprintf("%.3f", *v))
}

func (p *printer) message(m storage.Message, prompt bool) {
	role := or(m.Role, "?")
	title := role
	if n := or(m.Name, ""); n != "" {
		title += " " + n
	}
	if prompt {
		title += " (prompt)"
	}
	p.line("")
	p.line("%s", p.paint(roleColour(role), "▌ "+title))
	if m.ReasoningContent != nil {
		p.line("  %s", p.paint(dim, "thinking:"))
		p.block("    ", *m.ReasoningContent)
	}
	switch {
	case m.Content == nil && len(m.ToolCalls) == 0 && m.ReasoningContent == nil:
		p.line("  %s", p.paint(dim, "(no content)"))
	case m.Content != nil && *m.Content == "":
		p.line("  %s", p.paint(dim, "(empty)"))
	case m.Content != nil:
		p.block("  ", *m.Content)
	}
	for _, c := range m.ToolCalls {
		p.line("  %s", p.paint(magenta, "→ "+c.Function.Name+"("+label("id ", c.ID)+")"))
		p.block("    ", c.Function.Arguments)
	}
}

func roleColour(role string) string {
	switch role {
	case "system":
		return dim
	case "user":
		return blue
	case "assistant":
		return green
	case "tool":
		return magenta
	}
	return bold
}

// turn is the line under an assistant message: what the call cost.
func (p *printer) turn(i int, t storage.Turn) {
	text := fmt.Sprintf("turn %d · %s in, %s out", i+1, count(t.PromptTokens), count(t.CompletionTokens))
	if t.CachedTokens != nil {
		text += fmt.Sprintf(", %d cached", *t.CachedTokens)
	}
	text += " · finish " + or(t.FinishReason, "unknown") + " · " + or(t.Endpoint, "endpoint unknown")
	text += fmt.Sprintf(" · queue %s, first token %s, service %s", millis(t.QueueMS), millis(t.TTFTMS), millis(t.ServiceMS))
	if t.Retries > 0 {
		text += fmt.Sprintf(" · after %d failed attempts", t.Retries)
	}
	p.line("  %s", p.paint(dim, text))
}

// action is the line under a tool message.
func (p *printer) action(m storage.Message, actions []storage.Action) {
	for _, a := range actions {
		if a.CallID == nil || m.ToolCallID == nil || *a.CallID != *m.ToolCallID {
			continue
		}
		text := fmt.Sprintf("%s · %s · %d bytes", or(a.Status, "unknown"), millis(a.WallMS), a.OutBytes)
		if a.Truncated {
			text += ", cut"
		}
		if a.ExitCode != nil {
			text += fmt.Sprintf(" · exit %d", *a.ExitCode)
		}
		text += sandboxed(a)
		p.line("  %s", p.paint(dim, text))
		return
	}
}

// sandboxed is what an action in a sandbox waited for, needed and left: what is usual is not told.
func sandboxed(a storage.Action) string {
	if a.SetupMS == nil {
		return ""
	}
	text := ""
	if orZero(a.QueueMS) >= 1 || *a.SetupMS >= 1 {
		text = fmt.Sprintf(" · queue %s, set-up %s", millis(a.QueueMS), millis(a.SetupMS))
	}
	if a.PeakMemory != nil {
		text += fmt.Sprintf(" · peak %.1f MiB", float64(*a.PeakMemory)/(1<<20))
	}
	for _, n := range []struct {
		of   *int32
		what string
	}{{a.OOMKills, "killed for memory"}, {a.RefusedForks, "forks refused"}, {a.LeftBehind, "left behind"}} {
		if orZero(n.of) > 0 {
			text += fmt.Sprintf(" · %d %s", *n.of, n.what)
		}
	}
	return text
}

// ending is what came of it: the submitted answer, the fault with its attempts, the rewards with their evidence.
func (p *printer) ending(r *storage.Row) {
	p.line("")
	if r.Submitted != nil {
		p.line("submitted: %s", *r.Submitted)
	}
	if g := r.RewardModel.GroundTruth; g != nil {
		p.line("expected:  %s", short(*g, 200))
	}
	for _, w := range r.Rewards {
		p.component(w)
	}
	p.credits(r)
	p.fault(r)
	if len(r.Flags) > 0 {
		p.line("flags: %s", strings.Join(r.Flags, ", "))
	}
}

// component is one grader's judgement: the score and its place in the total, then who judged and what that cost, then the evidence.
func (p *printer) component(w storage.Reward) {
	text := fmt.Sprintf("reward %s: %s · weight %g · %s", or(w.Name, "?"), p.reward(w.Score), w.Weight, or(w.Outcome, "?"))
	if w.Raw != nil {
		text += fmt.Sprintf(" · raw %g", *w.Raw)
	}
	p.line("%s", text+" · "+or(w.Grader, "?"))
	if cost := judging(w); cost != "" {
		p.line("    %s", p.paint(dim, cost))
	}
	if e := or(w.Evidence, ""); e != "" {
		p.block("    ", e)
	}
}

// judging tells how a component came about, as far as the row knows.
func judging(w storage.Reward) string {
	var list []string
	if w.Tries != nil && *w.Tries > 1 {
		list = append(list, fmt.Sprintf("asked %d times", *w.Tries))
	}
	if w.WallMS != nil {
		list = append(list, "took "+millis(w.WallMS))
	}
	if w.CPUMS != nil {
		list = append(list, "CPU "+millis(w.CPUMS))
	}
	if w.PromptTokens != nil || w.CompletionTokens != nil {
		list = append(list, fmt.Sprintf("judge's tokens in %s, out %s", count(w.PromptTokens), count(w.CompletionTokens)))
	}
	if w.Tier != nil {
		list = append(list, "code held by "+*w.Tier)
	}
	if w.Config != nil {
		list = append(list, "settings "+*w.Config)
	}
	return strings.Join(list, " · ")
}

// credits are those of process graders, turn by turn.
func (p *printer) credits(r *storage.Row) {
	for _, c := range r.Credits {
		turns := make([]string, len(c.Credit))
		for i, v := range c.Credit {
			if turns[i] = "–"; v != nil {
				turns[i] = fmt.Sprintf("%.3g", *v)
			}
		}
		p.line("credit %s by turn: %s", or(c.Name, "?"), strings.Join(turns, ", "))
	}
}

func (p *printer) fault(r *storage.Row) {
	if r.FaultClass == nil {
		return
	}
	p.line("%s", p.paint(red, fmt.Sprintf("fault: %s at stage %s", *r.FaultClass, or(r.FaultStage, "unknown"))))
	if d := or(r.FaultDetail, ""); d != "" {
		p.block("    ", d)
	}
	for i, a := range r.FaultAttempts {
		p.line("  attempt %d: %s at %s, %s", i+1, or(a.Class, "?"), or(a.Endpoint, "?"), period(a.Began, a.Ended))
		if c := or(a.Cause, ""); c != "" {
			p.block("    ", c)
		}
	}
	if r.Partial != nil {
		p.line("  text received before the failure:")
		p.block("    ", *r.Partial)
	}
}

// period tells when an attempt was made, as far as it is known.
func period(began, ended *time.Time) string {
	if began == nil || ended == nil {
		return "times unknown"
	}
	return fmt.Sprintf("began %s, took %s", began.UTC().Format("15:04:05.000"), ended.Sub(*began).Round(time.Millisecond))
}

func or(s *string, none string) string {
	if s == nil {
		return none
	}
	return *s
}

func count(n *int32) string {
	if n == nil {
		return "unknown"
	}
	return fmt.Sprint(*n)
}

func millis(ms *float32) string {
	switch {
	case ms == nil:
		return "unknown"
	case *ms < 1000:
		return fmt.Sprintf("%.0fms", *ms)
	}
	return fmt.Sprintf("%.2fs", *ms/1000)
}
