package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tranche/storage"
	"tranche/storage/verify"
)

type verifyCmd struct {
	Dirs   []string `arg:"" optional:"" name:"dir" help:"Run directories; a run may be going on, or may have been killed."`
	Quick  bool     `help:"Look at the manifest, the sizes of files and their footers alone; no row is read."`
	Allow  []string `placeholder:"CHECK" help:"Check whose findings are told and do not decide the exit status; may be repeated."`
	Places int      `default:"5" placeholder:"N" help:"Places that are told of each finding. Default: ${default}."`
	Checks bool     `help:"List the checks, what a finding of each means and the exit status, and verify nothing."`
	Quiet  bool     `short:"q" help:"No notices and no progress line."`
	JSON   bool     `name:"json" help:"Print one JSON document: every finding with its places, notes, and what could not be checked."`
}

// Help is kong's long text of the command.
func (verifyCmd) Help() string {
	var b strings.Builder
	b.WriteString("Proves that a run holds what docs/format.md promises, and changes nothing: files are those that were published, each key is there once, groups are whole, token sequences are sound, text is text, rewards and sums follow from what they are made of. docs/verify.md tells every check.\n\nThe exit status is 0 where nothing was found, else that of the gravest class of findings: ")
	for i, c := range verify.Classes() {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d %s", classCode(c), c)
	}
	b.WriteString(".")
	return b.String()
}

// classCode is the exit status of a class of findings.
func classCode(c verify.Class) code { return codeBadFiles + code(c) }

// verifyDocument is what --json prints.
type verifyDocument struct {
	Runs []verify.Report `json:"runs"`
	Exit code            `json:"exit"`
}

func (c *verifyCmd) do(ctx context.Context, a *app) error {
	a.quiet = c.Quiet
	if c.Checks {
		return c.list(a)
	}
	if len(c.Dirs) == 0 {
		return withCode(codeUsage, errors.New("expected a run directory; --checks lists the checks"))
	}
	if err := (verify.Config{Dir: ".", Allow: c.Allow, Places: c.Places}).Validate(); err != nil {
		return withCode(codeUsage, err)
	}
	for _, dir := range c.Dirs {
		if err := isRun(a, dir); err != nil {
			return err
		}
	}
	ctx, stopped, release := cancelOnSignal(ctx, a)
	defer release()
	doc := verifyDocument{Runs: []verify.Report{}}
	var broken error // a disk that cannot be read; what was found until then is told
	for _, dir := range c.Dirs {
		r, err := c.one(ctx, a, dir)
		if errors.Is(context.Cause(ctx), errInterrupted) {
			a.notice("stopped before the end: nothing is proved")
			return outcome(stopped())
		}
		doc.add(r)
		if err != nil {
			broken = withCode(codeDisk, err)
			break
		}
	}
	end := broken
	if broken != nil {
		doc.Exit = codeDisk
	} else {
		end = outcome(doc.Exit)
	}
	if c.JSON {
		return errors.Join(a.printJSON(doc), end)
	}
	return errors.Join(a.print(doc.text(a)), end)
}

// isRun refuses what holds no run at all. One whose manifest is gone or cannot be read is a run, with a finding.
func isRun(a *app, dir string) error {
	if err := notAFile(dir, "expected a run directory"); err != nil {
		return withCode(codeRefused, err)
	}
	if _, err := storage.OpenRun(dir); !errors.Is(err, storage.ErrNotRun) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, runFileName)); err == nil {
		return nil
	}
	return noRun(a, dir)
}

func (d *verifyDocument) add(r verify.Report) {
	d.Runs = append(d.Runs, r)
	if r.Gravest == nil {
		return
	}
	if now := classCode(*r.Gravest); d.Exit == codeOK || now < d.Exit {
		d.Exit = now
	}
}

// one verifies one run.
func (c *verifyCmd) one(ctx context.Context, a *app, dir string) (verify.Report, error) {
	cfg := verify.Config{Dir: dir, Quick: c.Quick, Allow: c.Allow, Places: c.Places}
	settle(&cfg)
	v, err := verify.New(cfg)
	if err != nil {
		return verify.Report{}, err
	}
	var r verify.Report
	err = withLine(ctx, a, func() string { return verifying(dir, v) }, func() (err error) {
		r, err = v.Run(ctx)
		return err
	})
	if errors.Is(err, storage.ErrNotRun) && len(cfg.Broken) > 0 { // which is told
		err = nil
	}
	return r, err
}

func verifying(dir string, v *verify.Verifier) string {
	rows, done, all := v.Progress()
	share := 100.0
	if all > 0 {
		share = 100 * float64(done) / float64(all)
	}
	return fmt.Sprintf("verified %d rows of %s · %.0f%% of %.1f MiB", rows, dir, share, float64(all)/(1<<20))
}

// settle puts in what the settings and the record of draws say of a run; what cannot be read of them is a finding.
func settle(cfg *verify.Config) {
	broken := func(check, file string, err error) {
		cfg.Broken = append(cfg.Broken, verify.Broken{Check: check, Place: verify.Place{File: file, What: err.Error()}})
	}
	cfg.TotalOfSet = func(rule json.RawMessage) verify.Total { return readRule(rule).total() }
	file, ok, err := readRunFile(cfg.Dir)
	if err != nil {
		broken("records", runFileName, err)
	}
	if _, gone := storage.OpenRun(cfg.Dir); errors.Is(gone, storage.ErrNotRun) {
		broken("manifest", "manifest.json", gone)
	}
	if !ok {
		runs, err := originsOf(cfg.Dir)
		if err != nil {
			broken("records", "sources", err)
		}
		cfg.TotalOf = runs.totalOf
		return
	}
	cfg.RunID = file.RunID
	cfg.Total = ruleOf(file.Settings).total()
	cfg.Ended = map[storage.Key]int32{}
	err = readDrawSums(cfg.Dir).eachEnded(file.RunID, func(group string, samples int) { cfg.Ended[storage.KeyOf(group)] = int32(samples) })
	if err != nil {
		broken("records", storage.DrawsName, err)
	}
}

func (o origins) totalOf(run string) verify.Total {
	if one := o[run]; one != nil {
		return one.rule.total()
	}
	return nil
}

// list prints the catalogue.
func (c *verifyCmd) list(a *app) error {
	if c.JSON {
		return a.printJSON(map[string]any{"checks": verify.Checks()})
	}
	p := &printer{colour: a.colour, width: min(a.width(), 120)}
	for _, class := range verify.Classes() {
		p.line("%s", p.paint(bold, fmt.Sprintf("%s (exit status %d)", class, classCode(class))))
		for _, check := range verify.Checks() {
			if check.Class == class {
				p.line("  %-16s %s", check.Name, check.Means)
			}
		}
	}
	return a.print(p.b.String())
}

// text is the report for people.
func (d *verifyDocument) text(a *app) string {
	p := &printer{colour: a.colour, width: min(a.width(), 120)}
	for _, r := range d.Runs {
		p.verified(r)
	}
	if len(d.Runs) > 1 || d.Exit != codeOK {
		p.line("exit status %d: %s", d.Exit, codeName(d.Exit))
	}
	return p.b.String()
}

func codeName(c code) string {
	for _, l := range exitCodes() {
		if l.code == c {
			return l.name
		}
	}
	return "unknown"
}

// verified is one run's part of the report.
func (p *printer) verified(r verify.Report) {
	read := fmt.Sprintf("%d files of %.1f MiB, %d rows%s", r.Files, float64(r.Bytes)/(1<<20), r.Rows, some(r.Journal, ", %d of them in the journal"))
	if r.Quick {
		read = fmt.Sprintf("%d files of %.1f MiB, manifest and footers alone", r.Files, float64(r.Bytes)/(1<<20))
	}
	if r.Live {
		read += "; the run is being written: this is what it held when it began"
	}
	p.line("%s", p.paint(bold, r.Dir+": "+read))
	for _, f := range r.Findings {
		p.finding(f)
	}
	switch {
	case r.Unread != "":
		p.line("  %s", p.paint(red, "it could not be read to its end, and what is above is not all: "+r.Unread))
	case r.Gravest == nil:
		p.line("  %s", p.paint(green, "nothing was found that counts"))
	}
	for _, n := range r.Notes {
		p.line("  note: %s: %d", n.What, n.Count)
		p.places(n.Places, n.Count)
	}
	for _, u := range r.Unchecked {
		p.line("  not checked: %s%s: %s", u.Check, some(u.Rows, " of %d rows"), u.Why)
	}
}

func (p *printer) finding(f verify.Finding) {
	colour, allowed := red, ""
	if f.Allowed {
		colour, allowed = yellow, " (allowed)"
	}
	p.line("  %s", p.paint(colour, fmt.Sprintf("%s · %s · %d%s", f.Class, f.Name, f.Count, allowed)))
	p.block("    ", f.Means)
	p.places(f.Places, f.Count)
}

func (p *printer) places(list []verify.Place, of int64) {
	for _, at := range list {
		p.block("    - ", placeText(at))
	}
	if more := of - int64(len(list)); more > 0 && len(list) > 0 {
		p.line("    - and %d more", more)
	}
}

// placeText names a place and what is there.
func placeText(at verify.Place) string {
	var list []string
	add := func(format string, v any) { list = append(list, fmt.Sprintf(format, v)) }
	if at.File != "" {
		add("%s", at.File)
	}
	if at.RowGroup != nil {
		add("row group %d", *at.RowGroup)
	}
	if at.Row != nil {
		add("row %d", *at.Row)
	}
	if at.Offset != nil {
		add("byte %d", *at.Offset)
	}
	if at.Episode != "" {
		add("episode %s", at.Episode)
	}
	if at.Column != "" {
		add("%s", at.Column)
	}
	return strings.Join(list, ", ") + label(": ", cmp.Or(short(at.What, 400), ""))
}
