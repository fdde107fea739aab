package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tranche/sampler"
)

// drawsReport is what was drawn where results decide what is drawn.
type drawsReport struct {
	Groups  int64 `json:"groups"`  // for training
	Useful  int64 `json:"useful"`  // groups with rewards that differ
	Equal   int64 `json:"equal"`   // groups with rewards all the same
	Target  int64 `json:"target"`  // useful groups that are wanted; 0 = all groups count
	Stopped int64 `json:"stopped"` // groups that were not played to their whole size
	Saved   int64 `json:"saved"`   // samples that were not played because of that
	Ended   bool  `json:"ended"`   // nothing more is to be drawn
	Short   bool  `json:"short"`   // it ended with fewer useful groups than are wanted
}

// recorded reads the record of a run into the report; one without a record leaves it as it is.
func (r *report) recorded(dir string, sum drawSums) {
	if !sum.there {
		return
	}
	d := &drawsReport{Groups: sum.Groups, Useful: sum.Useful, Equal: sum.Equal, Stopped: int64(len(sum.Short)), Saved: sum.Saved, Ended: sum.Ended}
	if file, ok, err := readRunFile(dir); ok && err == nil {
		d.Target = int64(file.Settings.Useful)
	}
	d.Short = d.Ended && d.Useful < d.Target
	r.Draws = d
}

// expect says how many episodes a run has, as far as its files tell.
func (r *report) expect(file *runFile, sums drawSums) error {
	if sums.err != nil {
		return sums.err
	}
	set := &file.Settings
	r.recorded(r.Dir, sums)
	ended := r.Account != nil && r.Account.Ended == "finished"
	switch {
	case file.Episodes > 0:
		r.Total = file.Episodes
	case set.openEnded():
		r.Total, r.OpenEnd = r.Dataset.Rows, !ended
	default: // it was begun before run.yaml told
		r.Total = file.TasksCount * int64(set.drawn()) * int64(set.Rounds)
	}
	return nil
}

func (r *report) drawsText(p *printer) {
	d := r.Draws
	if d == nil {
		return
	}
	text := fmt.Sprintf("%d groups: %d with rewards that differ, %d with rewards all the same", d.Groups, d.Useful, d.Equal)
	if d.Target > 0 {
		text += fmt.Sprintf("; %d of %d useful ones that are wanted", d.Useful, d.Target)
	}
	if d.Stopped > 0 {
		text += fmt.Sprintf("; %d were sure before their last sample: %d samples saved", d.Stopped, d.Saved)
	}
	p.line("  draws      %s", text)
	if d.Short {
		p.line("  %s", p.paint(yellow, "there were not as many useful groups as wanted (--max-draws, or the tasks ran out); the run is complete all the same, with no exit code of its own for that"))
	}
}

// shownK are the k of pass@k in a table; the JSON has them all.
func shownK(all []sampler.KChance) []sampler.KChance {
	var out []sampler.KChance
	for _, c := range all {
		if c.K == 1 || c.K == 2 || c.K%4 == 0 || c.K == all[len(all)-1].K {
			out = append(out, c)
		}
	}
	return out
}

// groupsText is a table by domain: what a group-relative trainer gets, and what k tries come to.
func (r *report) groupsText(p *printer) {
	all, ok := r.Groups[sampler.Overall]
	if !ok {
		return
	}
	head := []string{"domain", "groups", "useful", "mean (95 %)"}
	for _, c := range shownK(all.Pass) {
		head = append(head, fmt.Sprintf("pass@%d", c.K))
	}
	rows := [][]string{head}
	names := slices.Sorted(maps.Keys(r.Groups))
	names = append(slices.DeleteFunc(names, func(n string) bool { return n == sampler.Overall }), sampler.Overall)
	for i, name := range names {
		if i == maxListed && i < len(names)-1 {
			rows = append(rows, more(len(names)-1-i), groupsRow(sampler.Overall, all, shownK(all.Pass)))
			break
		}
		rows = append(rows, groupsRow(name, r.Groups[name], shownK(all.Pass)))
	}
	p.table(rows)
}

func groupsRow(name string, g sampler.GroupStats, columns []sampler.KChance) []string {
	row := []string{name, fmt.Sprint(g.Groups), fmt.Sprintf("%.0f%%", 100*float64(g.Useful)/float64(g.Groups)), fmt.Sprintf("%.3f%s", g.Mean, between("", "%.3f", g.Low, g.High))}
	for _, c := range columns {
		cell := "–"
		for _, own := range g.Pass {
			if own.K == c.K {
				cell = fmt.Sprintf("%.3f", own.Any)
			}
		}
		row = append(row, cell)
	}
	return row
}

// between is an interval in brackets; nothing where there were too few tasks for one.
func between(what, number string, low, high *float64) string {
	if low == nil || high == nil {
		return ""
	}
	return fmt.Sprintf(" (%s"+number+" to "+number+")", what, *low, *high)
}

// evaluationsText lists the evaluations, the last ones where there are many.
func (r *report) evaluationsText(p *printer) {
	list := r.Evaluations
	if len(list) > maxListed {
		list = list[len(list)-maxListed:]
	}
	for _, v := range list {
		if v.Dropped {
			p.line("  %s", p.paint(red, evaluationText(v)))
			continue
		}
		p.line("  %s", evaluationText(v))
	}
}

// evaluationText is one evaluation in words.
func evaluationText(v sampler.Evaluation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "evaluation %d: mean %.3f%s on %d held-out tasks", v.Number, v.Mean, between("95 %: ", "%.3f", v.Low, v.High), v.Tasks)
	if c := v.Change; c != nil {
		fmt.Fprintf(&b, "; %+.3f%s against evaluation %d, the best before", c.Mean, between("", "%+.3f", c.Low, c.High), c.Since)
	}
	if v.Dropped {
		b.WriteString("; it has DROPPED")
	}
	return b.String()
}
