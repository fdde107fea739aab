package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"tranche/storage"
	"tranche/storage/export"
)

type exportCmd struct {
	Dir string `arg:"" help:"Run directory; the run may be going on, or may have been killed."`

	To     string `placeholder:"SHAPE" help:"What is written; the shapes are listed above."`
	Out    string `short:"o" placeholder:"FILE" help:"File to write, made in one step; - = stdout, as jsonl or arrow only. What it holds goes by its ending, .jsonl or .parquet, unless --format says it."`
	Format string `placeholder:"NAME" help:"jsonl or parquet; without --to arrow or parquet. Default: by the ending of FILE, else the first that the shape has."`
	Force  bool   `help:"Replace FILE."`
	JSON   bool   `name:"json" help:"Print what was written, and what was left out by reason, as one JSON document; on stderr with -o -."`

	ToolArguments string  `placeholder:"FORM" help:"Arguments of tool calls: text, as the model wrote them, or object (jsonl only), as templates want them that write them again; rows with arguments that are no JSON object are left out then. Default: text."`
	Tools         string  `placeholder:"FORM" help:"Tools that the model was told of: text = JSON text, list = a list of objects (in Parquet only where all have the same keys), union = in Parquet with a null for keys that only others have, none. Default: the shape's."`
	MaxLength     int     `default:"0" placeholder:"TOKENS" help:"Leave out rows that are longer, in tokens; none is cut. Default: no limit."`
	WholeGroups   bool    `help:"Leave out groups of which not every sample is taken."`
	DropBroken    bool    `help:"Leave out rows whose prompts did not go on from the turn before, where the shape else makes several sequences of them."`
	NoLogprobs    bool    `name:"no-logprobs" help:"Write no logprobs, and take rows that lack them."`
	Pairs         string  `default:"best-worst" enum:"best-worst,all" help:"Pairs of a group (dpo): best-worst or all that differ. Default: best-worst."`
	MinGap        float64 `default:"0" placeholder:"R" help:"Least difference of the rewards of a pair (dpo). Default: any."`

	Rows rowFlags `embed:""`
}

// Help is kong's long text of the command.
func (exportCmd) Help() string {
	var b strings.Builder
	b.WriteString("Rows are written as what a trainer loads. What a shape needs and a row does not hold leaves the row out, and is counted; nothing is cut or invented. docs/export.md tells how each is loaded.\n")
	for _, s := range export.Shapes() {
		fmt.Fprintf(&b, "\n  %-18s%s (%s)", s.Name, s.Help, strings.Join(s.Formats, ", "))
	}
	fmt.Fprintf(&b, "\n  %-18s%s", "(no --to)", "with --format arrow or parquet: the rows as they are, in the schema of the dataset; arrow with -o - is an IPC stream")
	return b.String()
}

func (c *exportCmd) do(ctx context.Context, a *app, given map[string]bool) error {
	if err := outsideRuns("-o", c.Out); c.Out != "" && c.Out != "-" && err != nil {
		return withCode(codeUsage, err)
	}
	if c.ownRows() {
		return c.exportRows(ctx, a, given)
	}
	cfg, err := c.config()
	if err != nil {
		return withCode(codeUsage, err)
	}
	run, err := (&viewCmd{Dir: c.Dir}).open(a)
	if err != nil {
		return err
	}
	ctx, stopped, release := cancelOnSignal(ctx, a)
	defer release()
	err = c.export(ctx, a, run, cfg)
	if err != nil && errors.Is(context.Cause(ctx), errInterrupted) {
		return outcome(stopped())
	}
	return c.coded(a, err)
}

// config is what the flags ask for, checked.
func (c *exportCmd) config() (export.Config, error) {
	cfg := export.Config{
		Shape: c.To, Format: c.Format, Filter: c.Rows.filter(), Arguments: c.ToolArguments, Tools: c.Tools, MaxLength: c.MaxLength,
		WholeGroups: c.WholeGroups, DropBroken: c.DropBroken, NoLogprobs: c.NoLogprobs, AllPairs: c.Pairs == "all", MinGap: c.MinGap,
		Program: "tranche", Version: buildVersion().Version,
	}
	if c.To == "" {
		return cfg, fmt.Errorf("--to: expected a shape: %s", strings.Join(shapeNames(), ", "))
	}
	if c.Out == "" {
		return cfg, errors.New("-o: expected a file, or - for stdout")
	}
	ending, known := map[string]string{".jsonl": export.JSONL, ".json": export.JSONL, ".parquet": export.Parquet}[filepath.Ext(c.Out)]
	if cfg.Format == "" && c.Out == "-" {
		cfg.Format = export.JSONL
	}
	if cfg.Format == "" && known {
		cfg.Format = ending
	}
	if err := cfg.Validate(); err != nil {
		return cfg, err
	}
	switch {
	case c.Out == "-" && cfg.Format == export.Parquet:
		return cfg, errors.New("-o -: Parquet goes into a file")
	case known && cfg.Format != ending:
		return cfg, fmt.Errorf("-o %s: the ending says %s and --format %s: loaders go by the ending", c.Out, ending, cfg.Format)
	}
	return cfg, nil
}

func shapeNames() []string {
	var names []string
	for _, s := range export.Shapes() {
		names = append(names, s.Name)
	}
	return names
}

func (c *exportCmd) export(ctx context.Context, a *app, run *storage.Run, cfg export.Config) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	offers, err := newOffers(ctx, a, c.Dir, cancel)
	if err != nil {
		return err
	}
	defer offers.close()
	cfg.Offer = offers.of
	e, err := export.New(cfg)
	if err != nil {
		return withCode(codeUsage, err)
	}
	write := func(w io.Writer) error { // what ended the context at the last row ends the export too
		return cmp.Or(e.Write(ctx, run, w), context.Cause(ctx))
	}
	if c.Out == "-" {
		out := bufio.NewWriterSize(a.stdout, 64<<10)
		err = cmp.Or(write(out), out.Flush())
	} else {
		err = storage.PublishFile(c.Out, c.Force, write, e.Check)
	}
	if err != nil {
		return err
	}
	return c.tell(a, exportReport{e.Report(), c.Out})
}

func (c *exportCmd) coded(a *app, err error) error {
	switch {
	case errors.Is(err, storage.ErrExists):
		return withCode(codeRefused, fmt.Errorf("%w; --force replaces it", err))
	case errors.Is(err, export.ErrTools):
		return withCode(codeUsage, fmt.Errorf("%w\n--tools text writes them as JSON text, --tools union with nulls for the keys that only others have", err))
	case errors.Is(err, storage.ErrDamaged):
		return (&viewCmd{Dir: c.Dir}).damaged(a, err)
	}
	return withCode(codeDisk, err)
}

// exportReport is what was written.
type exportReport struct {
	export.Report
	Path string `json:"path"`
}

func (c *exportCmd) tell(a *app, r exportReport) error {
	if why := r.mostLeft(); r.RowsTaken == 0 && why != "" {
		a.notice("no row was taken, most of them for %s; %s", why, helpFor(why))
	}
	switch {
	case c.Out == "-" && c.JSON:
		text, err := json.Marshal(r)
		a.notice("%s", text)
		return err
	case c.Out == "-":
		a.notice("%s", strings.TrimSuffix(r.text(), "\n"))
		return nil
	case c.JSON:
		return a.printJSON(r)
	}
	return a.print(r.text())
}

// mostLeft is the commonest reason to leave rows out; "" = none was.
func (r exportReport) mostLeft() (why string) {
	for _, name := range slices.Sorted(maps.Keys(r.LeftOut)) {
		if why == "" || r.LeftOut[name] > r.LeftOut[why] {
			why = name
		}
	}
	return why
}

// helpFor says what to do where rows are left out for that reason.
func helpFor(why string) string {
	if field, ok := strings.CutPrefix(why, "filter:"); ok {
		return "ask for other rows: the flags refuse their " + field
	}
	if help := map[string]string{
		"tools_not_known":      "--tools none writes them without tools",
		"no_token_ids":         "the server gave no ids: a shape of messages needs none, such as --to messages",
		"incomplete_token_ids": "a shape of messages needs no ids, such as --to messages",
		"prompt_cut":           "a shape of messages needs no ids, such as --to messages",
		"no_logprobs":          "--no-logprobs does without",
		"no_verdict":           "`tranche rescore` gives rows their rewards",
		"broken_prefix":        "leave --drop-broken away, or take another shape",
		"too_long":             "a larger --max-length takes them",
		"length_not_known":     "leave --max-length away",
		"arguments_no_object":  "--tool-arguments text takes them as the model wrote them",
		"alone_in_group":       "a pair needs several samples a task (-n)",
		"tie":                  "a pair needs different rewards, and those of every group are equal",
		"gap_too_small":        "a smaller --min-gap takes them",
		"group_not_whole":      "leave --whole-groups away",
	}[why]; help != "" {
		return help
	}
	return "docs/export.md tells the reasons"
}

func (r exportReport) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "wrote   %s: %d records of %s (%s)\n", r.Path, r.Records, r.Shape, r.Format)
	fmt.Fprintf(&b, "rows    %d read, %d taken, %d left out\n", r.RowsRead, r.RowsTaken, r.RowsRead-r.RowsTaken)
	for _, why := range slices.Sorted(maps.Keys(r.LeftOut)) {
		fmt.Fprintf(&b, "        %d %s\n", r.LeftOut[why], why)
	}
	if r.Tokens > 0 {
		fmt.Fprintf(&b, "tokens  %d, of which %d are trained\n", r.Tokens, r.TrainedTokens)
	}
	return b.String()
}
