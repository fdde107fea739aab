package main

import (
	"fmt"
	"maps"
	"slices"

	"tranche/sampler"
)

// text is the comparison for people.
func (d *difference) text(colour bool, program string) string {
	p := &printer{colour: colour, width: 100}
	p.line("%s", p.paint(bold, fmt.Sprintf("B %s held against A %s", short(d.B.Dir, 40), short(d.A.Dir, 40))))
	d.settingsText(p)
	p.line("  A          %d rows, %d failed, %d scored (coverage %.1f%%)", d.A.Rows, d.A.Failed, d.A.Scored.N, 100*d.A.Scored.Coverage())
	p.line("  B          %d rows, %d failed, %d scored (coverage %.1f%%)", d.B.Rows, d.B.Failed, d.B.Scored.N, 100*d.B.Scored.Coverage())
	p.line("  tasks      %d in both, %d in A alone, %d in B alone", d.Tasks.Both, d.Tasks.OnlyA, d.Tasks.OnlyB)
	if d.Tasks.Other > 0 {
		p.labelled("note", fmt.Sprintf("%d tasks have the same id and another content: %s", d.Tasks.Other, shortList(d.Tasks.IDs, 5)))
	}
	p.line("")
	p.table(d.rewardTable())
	w := d.ByTask
	p.labelled("by task", w.String())
	if s := d.Samples; s != nil {
		p.labelled("by sample", s.String()+", of the same task, sample and seed")
	}
	p.line("  interval   95 %%, Student's t over the tasks in both, each held against itself")
	d.toolsText(p)
	d.countsText(p)
	d.topText(p, program)
	return p.b.String()
}

// String is the count for people.
func (w wins) String() string {
	return fmt.Sprintf("B is higher in %s, equal in %s, lower in %s", shareText(w.Wins, w.Pairs), shareText(w.Ties, w.Pairs), shareText(w.Loses, w.Pairs))
}

func shortList(list []string, most int) string {
	if len(list) <= most {
		return joined(list)
	}
	return fmt.Sprintf("%s and %d more", joined(list[:most]), len(list)-most)
}

func (d *difference) settingsText(p *printer) {
	for _, n := range d.Notes {
		p.labelled("note", n)
	}
	if len(d.Settings) == 0 && d.A.RunID == d.B.RunID {
		p.line("  settings   the same run: %s", d.A.RunID)
		return
	}
	for i, s := range d.Settings {
		if i == maxListed {
			p.line("             … %d more", len(d.Settings)-i)
			return
		}
		name, mark := "", ""
		if i == 0 {
			name = "settings"
		}
		if !s.Result {
			mark = " (changes no result)"
		}
		p.labelled(name, fmt.Sprintf("%s: A %s, B %s%s", s.Key, short(s.A, 60), short(s.B, 60), mark))
	}
}

// rewardTable has a line for the reward, for each component and for each measure.
func (d *difference) rewardTable() [][]string {
	rows := [][]string{{"mean of tasks", "A", "B", "B − A", "95 % from", "to", "tasks"}, pairedRow("reward", d.Reward)}
	names := slices.Sorted(maps.Keys(d.Components))
	if len(names) > 1 {
		for _, name := range names {
			rows = append(rows, pairedRow("  "+name, d.Components[name]))
		}
	}
	for _, m := range d.Measures {
		rows = append(rows, pairedRow(m.Name, m.Pair))
	}
	return rows
}

func pairedRow(name string, q *sampler.Paired) []string {
	row := []string{short(visibleLine(name), tableName), "–", "–", "–", "–", "–", "0"}
	if q == nil {
		return row
	}
	row[1], row[2], row[3], row[6] = fmt.Sprintf("%.4f", q.A), fmt.Sprintf("%.4f", q.B), fmt.Sprintf("%+.4f", q.Difference.Mean), fmt.Sprint(q.Difference.Clusters)
	if q.Difference.Low != nil {
		row[4], row[5] = fmt.Sprintf("%+.4f", *q.Difference.Low), fmt.Sprintf("%+.4f", *q.Difference.High)
	}
	return row
}

func (d *difference) toolsText(p *printer) {
	if len(d.Tools) == 0 {
		return
	}
	rows := [][]string{{"calls an episode", "A", "B", "B − A", "95 % from", "to", "not ok A", "not ok B"}}
	for i, t := range d.Tools {
		if i == maxListed {
			rows = append(rows, more(len(d.Tools)-i))
			break
		}
		row := append(pairedRow(t.Name, t.Episode)[:6], percent(t.NotOK[0], t.Calls[0]), percent(t.NotOK[1], t.Calls[1]))
		rows = append(rows, row)
	}
	p.line("")
	p.table(rows)
}

func percent(n, of int64) string {
	if of == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(of))
}

func (d *difference) countsText(p *printer) {
	rows := [][]string{{"rows by", "", "A", "share", "B", "share"}}
	for _, c := range d.Counts {
		rows = append(rows, []string{c.Kind, short(visibleLine(c.Name), 32), fmt.Sprint(c.Count[0]), percent(c.Count[0], d.A.Rows), fmt.Sprint(c.Count[1]), percent(c.Count[1], d.B.Rows)})
	}
	p.line("")
	p.table(rows)
}

func (d *difference) topText(p *printer, program string) {
	if len(d.Top) == 0 {
		return
	}
	p.line("")
	rows := [][]string{{"largest changes", "A", "B", "B − A", "episode in A", "in B"}}
	for _, t := range d.Top {
		rows = append(rows, []string{short(visibleLine(t.TaskID), tableName), fmt.Sprintf("%.3f", t.A), fmt.Sprintf("%.3f", t.B), fmt.Sprintf("%+.3f", t.Difference), prefix(t.EpisodeA), prefix(t.EpisodeB)})
	}
	p.table(rows)
	p.line("  %s view %s --episode %s", program, quoted(d.B.Dir), prefix(d.Top[0].EpisodeB))
}

// prefix is enough of an id to find its episode.
func prefix(id string) string {
	const most = 12
	if r := []rune(id); len(r) > most {
		return string(r[:most])
	}
	return id
}

func (d *exactly) text(colour bool) string {
	p := &printer{colour: colour, width: 100}
	p.line("%s", p.paint(bold, fmt.Sprintf("B %s held against A %s, row by row", short(d.B, 35), short(d.A, 35))))
	if d.Other+d.OnlyA+d.OnlyB == 0 {
		p.line("  the same   all %d rows, but for what tells how it went that time", d.Same)
		return p.b.String()
	}
	p.line("  rows       %d the same, %d different, %d in A alone, %d in B alone", d.Same, d.Other, d.OnlyA, d.OnlyB)
	for _, n := range d.Notes {
		p.labelled("note", n)
	}
	if len(d.IDs) > 0 {
		p.labelled("alone", joined(d.IDs))
	}
	for _, r := range d.First {
		p.line("  %s  task %s", r.EpisodeID, short(r.TaskID, 50))
		for _, f := range r.Fields {
			p.labelled("", fmt.Sprintf("%s: A %s, B %s", f.Field, f.A, f.B))
		}
	}
	return p.b.String()
}
