package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"tranche/sampler"
)

// tableName is the longest name in the first column of a table, characters: the tables of `stats` and `diff` fit 100 columns.
const tableName = 24

// text is the statistics for people.
func (s *statistics) text(colour bool, limit int) string {
	p := &printer{colour: colour, width: 100}
	p.line("%s", p.paint(bold, fmt.Sprintf("%s: %d rows (%d good, %d failed%s) of %d tasks", short(joined(s.Dirs), 50), s.Rows, s.Rows-s.Failed, s.Failed-s.Cut, some(s.Cut, ", %d cut by the quorum"), s.Tasks)))
	if s.Choice != "" {
		p.labelled("choice", s.Choice)
	}
	p.line("  reward     %s", estimateText(s.Reward))
	p.line("             n=%d scored of %d rows (coverage %.1f%%)", s.mean.N, s.Rows, 100*s.Coverage)
	if len(s.Components) > 1 || s.mean.N == 0 {
		for i, name := range slices.Sorted(maps.Keys(s.Components)) {
			if i == limit {
				p.line("             … %d more components", len(s.Components)-i)
				break
			}
			c := s.Components[name]
			p.line("             %s: %s, n=%d of %d", short(name, tableName), estimateText(c.Reward), c.scores.N(), c.Of)
		}
	}
	s.spreadsText(p)
	s.passText(p)
	s.groupsText(p)
	for _, l := range []struct {
		name   string
		counts map[string]int64
	}{{"ended as", s.Status}, {"because", s.Stops}, {"faults", s.Faults}, {"flags", s.Flags}} {
		if len(l.counts) > 0 {
			p.labelled(l.name, counts(l.counts))
		}
	}
	s.versionsText(p)
	s.actionsText(p, limit)
	s.columnsText(p, limit)
	s.tableText(p, limit)
	return p.b.String()
}

// labelled writes a text that may need several lines behind a label.
func (p *printer) labelled(name, text string) {
	const indent = 13
	for i, piece := range wrap(visibleLine(text), p.width-indent) {
		if i > 0 {
			name = ""
		}
		p.line("  %-*s%s", indent-2, name, piece)
	}
}

// estimateText says how sure a mean is.
func estimateText(e *sampler.Estimate) string {
	switch {
	case e == nil:
		return "none: no verdict"
	case e.Low == nil:
		return fmt.Sprintf("mean %.4f (%s: too few for an interval)", e.Mean, tasksText(e.Clusters))
	}
	return fmt.Sprintf("mean %.4f, 95 %% interval %.4f to %.4f (over %s)", e.Mean, *e.Low, *e.High, tasksText(e.Clusters))
}

func tasksText(n int) string {
	if n == 1 {
		return "1 task"
	}
	return fmt.Sprintf("%d tasks", n)
}

func (s *statistics) spreadsText(p *printer) {
	rows := [][]string{{"of good rows", "n", "mean", "min", "p10", "p50", "p90", "p99", "max"}}
	worst := 0.0
	for _, name := range spreadNames() {
		d := s.Spreads[name]
		if d == nil || d.N == 0 {
			continue
		}
		q := d.Quantiles
		rows = append(rows, []string{name, fmt.Sprint(d.N), figure(*d.Mean), figure(q.Min), figure(q.P10), figure(q.P50), figure(q.P90), figure(q.P99), figure(q.Max)})
		worst = max(worst, d.Error)
	}
	if len(rows) == 1 {
		return
	}
	p.line("")
	p.table(rows)
	if worst > 0 {
		p.line("  quantiles are to within %.1f %% where there are more than 65,536 different values", 100*worst)
	}
}

// figure is a number in few characters.
func figure(v float64) string {
	switch a := math.Abs(v); {
	case v == math.Trunc(v) && a < 1e9:
		return fmt.Sprintf("%.0f", v)
	case a >= 1e9 || a < 1e-4:
		return fmt.Sprintf("%.2e", v)
	case a >= 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.4f", v)
}

func (s *statistics) passText(p *printer) {
	if len(s.Pass) > 1 { // else groups of one
		p.line("")
		p.line("  of k samples at least one passes (pass@k), all do (pass^k); a reward of 1 passes")
		p.passTable(s.Pass)
	}
	if len(s.HeldOut) > 0 {
		p.line("")
		p.line("  the same of held-out tasks, which are not in the figures of groups")
		p.passTable(s.HeldOut)
	}
}

func (p *printer) passTable(pass []sampler.KChance) {
	rows := [][]string{{"k", "pass@k", "pass^k", "groups"}}
	for _, k := range pass {
		rows = append(rows, []string{fmt.Sprint(k.K), fmt.Sprintf("%.4f", k.Any), fmt.Sprintf("%.4f", k.All), fmt.Sprint(k.Groups)})
	}
	p.table(rows)
}

func (s *statistics) groupsText(p *printer) {
	p.line("")
	g := s.Groups
	if g.Groups == 0 {
		return
	}
	p.labelled("groups", fmt.Sprintf("%d of two samples or more; %d with two verdicts or more, of %s of them all verdicts are the same", g.Groups, g.Told, shareText(g.ZeroVariance, g.Told)))
	if s.Answers && g.Answered > 0 {
		p.labelled("answers", fmt.Sprintf("%d in %d groups, %s distinct; an answer comes twice in %s of the groups", g.Answers, g.Answered, shareText(g.Distinct, g.Answers), shareText(g.Twins, g.Answered)))
	}
}

// shareText is a number with its share of a whole.
func shareText(n, of int64) string {
	if of == 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d (%s)", n, percent(n, of))
}

func (s *statistics) versionsText(p *printer) {
	good := s.Rows - s.Failed
	switch v := s.Versions; {
	case v.Low == nil && good > 0:
		p.line("  versions   no server named its weights")
	case v.Low != nil:
		p.line("  versions   %d to %d; %s rows have several%s", *v.Low, *v.High, shareText(v.Mixed, good), some(v.Unknown, ", %d name none"))
	}
	if s.Breaks > 0 {
		p.line("  breaks     in %s good rows a turn's prompt did not extend the turn before (prefix_break)", shareText(s.Breaks, good))
	}
}

func (s *statistics) actionsText(p *printer, limit int) {
	if len(s.Actions) == 0 {
		return
	}
	rows := [][]string{{"action", "calls", "episodes", "ok", "not ok", "mean ms", "p99 ms"}}
	var notes []string
	for i, name := range s.shownActions() {
		if i == limit {
			rows = append(rows, more(len(s.Actions)-i))
			break
		}
		act := s.Actions[name]
		ok := act.Status["ok"]
		row := []string{short(visibleLine(name), tableName), fmt.Sprint(act.Calls), fmt.Sprint(act.Episodes), percent(ok, act.Calls), fmt.Sprint(act.Calls - ok), "–", "–"}
		if w := act.Wall; w.N > 0 {
			row[5], row[6] = figure(*w.Mean), figure(w.Quantiles.P99)
		}
		rows = append(rows, row)
		if ok < act.Calls {
			failed := maps.Clone(act.Status)
			delete(failed, "ok")
			notes = append(notes, short(name, tableName)+": "+counts(failed))
		}
	}
	p.line("")
	p.table(rows)
	for _, n := range notes {
		p.labelled("", n)
	}
}

// more is the last line of a table that is cut.
func more(n int) []string { return []string{fmt.Sprintf("… %d more", n)} }

func (s *statistics) columnsText(p *printer, limit int) {
	if s.Disk == 0 {
		return
	}
	p.line("")
	rows := [][]string{{"column on disk", "bytes", "share", "encoded", "ratio"}}
	for i, c := range s.Columns {
		if i == min(limit, 8) {
			rows = append(rows, more(len(s.Columns)-i))
			break
		}
		rows = append(rows, []string{c.Name, fmt.Sprint(c.Bytes), percent(c.Bytes, s.Disk), fmt.Sprint(c.Raw), ratioText(c.Raw, c.Bytes)})
	}
	rows = append(rows, []string{"all", fmt.Sprint(s.Disk), "100.0%", fmt.Sprint(s.Encoded), ratioText(s.Encoded, s.Disk)})
	p.table(rows)
}

func ratioText(raw, bytes int64) string {
	if bytes == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", float64(raw)/float64(bytes))
}

func (s *statistics) tableText(p *printer, limit int) {
	if s.By == "" {
		return
	}
	p.line("")
	rows := [][]string{{s.By, "rows", "failed", "n", "reward", "95 %", "tokens out", "turns", "wall s"}}
	for i, t := range s.Table {
		if i == limit {
			rows = append(rows, more(len(s.Table)-i))
			break
		}
		row := []string{short(visibleLine(t.Name), tableName), fmt.Sprint(t.Rows), fmt.Sprint(t.Failed), fmt.Sprint(t.mean.N), "none", "–", optional(t.TokensOut), optional(t.Turns), optional(t.Wall)}
		if e := t.Reward; e != nil {
			row[4] = fmt.Sprintf("%.4f", e.Mean)
			if e.Low != nil {
				row[5] = strings.ReplaceAll(fmt.Sprintf("%.3f…%.3f", *e.Low, *e.High), "-0.000", "0.000")
			}
		}
		rows = append(rows, row)
	}
	p.table(rows)
}

func optional(v *float64) string {
	if v == nil {
		return "–"
	}
	return figure(*v)
}
