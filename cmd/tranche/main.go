// Command tranche is the one binary: it turns task files into datasets of episodes (run, resume), shows them (view, explain), judges them
// anew (rescore), writes them for trainers (export) and serves them while a run goes on (feed), sends batch files (batch), finds out what servers can do (probe), runs programs in sandboxes (sandbox), serves the simulated engine
// (engine), compares scheduling policies (bench) and fits the engine to a real server (calibrate).
// It brings runs into object stores and back (push, pull).
//
// It is the only place that names concrete parts: session.go builds them from the settings and nothing else does. It holds no
// policy of its own: which call goes where is scheduler's, what a row looks like is storage's. Open main.go for how a command
// line becomes a command, settings.go for every key, run.go for the life of a run.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"tranche/action"
	"tranche/reward"
)

// gcPercent makes Go collect when garbage reaches this share of what is live, where its default is 100: peak memory then follows the
// size of what a run holds (docs/decisions/0014).
const gcPercent = 40

// collectOften applies gcPercent unless the user tunes Go's collector by its own variables. Only main calls it: it is a setting of
// the whole process.
func collectOften(env func(string) string) {
	if env("GOGC") == "" && env("GOMEMLIMIT") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

func main() {
	sandboxInit() // this process may be the first of a sandbox: then this is all it does
	collectOften(os.Getenv)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signal.Notify(signals, syscall.SIGHUP)
	}
	a := &app{
		stdout: os.Stdout, stderr: survivor(os.Stderr), signals: signals, exit: os.Exit, started: time.Now(),
		terminal: term.IsTerminal(int(os.Stderr.Fd())), colour: colourWanted(os.Stdout),
		width: terminalWidth, program: programName(os.Args[0]),
		typed: typedBy(os.Stdin, term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))),
	}
	os.Exit(int(a.main(context.Background(), os.Args[1:])))
}

// survivor is stderr under another number: a write to 2 whose reader has gone ends the process, and a run is worth more than its progress line.
func survivor(stderr *os.File) io.Writer {
	fd, err := syscall.Dup(int(stderr.Fd()))
	if err != nil {
		return stderr
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), stderr.Name())
}

// programName is how this program was called, so that "what to type next" can be typed.
func programName(arg0 string) string {
	if strings.Contains(arg0, "go-build") { // go run's temporary file
		return "go run ./cmd/tranche"
	}
	return quoted(arg0)
}

// colourWanted follows no-color.org: colours on a terminal only, and not where NO_COLOR is set.
func colourWanted(f *os.File) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

func terminalWidth() int {
	for _, f := range []*os.File{os.Stderr, os.Stdout} {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 20 {
			return w
		}
	}
	return 100
}

// app is what a command may touch of the outside world. Tests give it buffers and a signal channel of their own.
type app struct {
	stdout, stderr io.Writer
	signals        <-chan os.Signal
	exit           func(int) // at once, for the second ctrl-c
	started        time.Time
	terminal       bool       // stderr is one
	colour         bool       // stdout takes colours
	width          func() int // columns
	program        string     // how to call it again
	quiet          bool       // no notices
	typed          io.Reader  // what a person types; nil = nobody is there

	tools   []action.Tool // offered besides the built-in ones; none in the binary
	graders []reward.Kind // known besides those of the binary
}

// cli is the grammar.
type cli struct {
	Run       runCmd       `cmd:"" help:"Play task files through a model and write a dataset."`
	Resume    resumeCmd    `cmd:"" help:"Go on with a run that was stopped."`
	Batch     batchCmd     `cmd:"" help:"Send an OpenAI batch file, in the place of vllm run-batch."`
	View      viewCmd      `cmd:"" help:"Show a run: its summary, or whole trajectories."`
	Verify    verifyCmd    `cmd:"" help:"Prove that a run holds what it promises: files, keys, tokens, text, rewards, sums."`
	Replay    replayCmd    `cmd:"" help:"Go through an episode turn by turn, and run its actions again."`
	Explain   explainCmd   `cmd:"" help:"Tell what bounded a run: for each endpoint, why no more work went there."`
	Feed      feedCmd      `cmd:"" help:"Serve the rows of a run over HTTP as Arrow streams, while it goes on or after."`
	Probe     probeCmd     `cmd:"" help:"Find out what a server can do, and how that is known."`
	Compact   compactCmd   `cmd:"" help:"Make the small files of a run into larger ones."`
	Push      pushCmd      `cmd:"" help:"Bring a run into an object store: what it lacks, the manifest last."`
	Pull      pullCmd      `cmd:"" help:"Fetch a run from an object store into a directory."`
	Stats     statsCmd     `cmd:"" help:"Tell how rewards, lengths, actions and times of runs are distributed."`
	Diff      diffCmd      `cmd:"" help:"Hold two runs against each other: rewards with intervals, lengths, tools; or row by row."`
	Merge     mergeCmd     `cmd:"" help:"Make one dataset of several."`
	Sample    sampleCmd    `cmd:"" help:"Make a smaller dataset of a run, drawn by chance."`
	Rescore   rescoreCmd   `cmd:"" help:"Judge the stored episodes of a run anew, with other graders, and play nothing."`
	Export    exportCmd    `cmd:"" help:"Write the rows of a run as what a trainer loads."`
	Audit     auditCmd     `cmd:"" help:"Try the graders on every task before a run, or hold what a run stored against what a server says of it now."`
	Sandbox   sandboxCmd   `cmd:"" help:"Run a program in a sandbox, or tell what a sandbox holds here."`
	Engine    engineCmd    `cmd:"" help:"Serve the simulated inference server on TCP."`
	Bench     benchCmd     `cmd:"" help:"Measure scheduling against baselines and a lower bound."`
	Calibrate calibrateCmd `cmd:"" help:"Fit the simulated engine to a real server."`
	Version   versionCmd   `cmd:"" help:"Tell version, commit, Go version and platform."`
}

// invocation is a parsed command line.
type invocation struct {
	cli   *cli
	name  string          // run, resume, …
	verb  string          // of a command that has several, such as bench
	given map[string]bool // keys given as flags
}

// command is one verb. given holds the names of the flags on the command line.
func (i *invocation) do(ctx context.Context, a *app) error {
	switch i.name {
	case "run":
		return i.cli.Run.do(ctx, a, i.given)
	case "resume":
		return i.cli.Resume.do(ctx, a, i.given)
	case "batch":
		return i.cli.Batch.do(ctx, a, i.given)
	case "view":
		return i.cli.View.do(ctx, a)
	case "verify":
		return i.cli.Verify.do(ctx, a)
	case "replay":
		return i.cli.Replay.do(ctx, a)
	case "explain":
		return i.cli.Explain.do(ctx, a)
	case "feed":
		return i.cli.Feed.do(ctx, a)
	case "probe":
		return i.cli.Probe.do(ctx, a, i.given)
	case "compact":
		return i.cli.Compact.do(ctx, a, i.given)
	case "push":
		return i.cli.Push.do(ctx, a)
	case "pull":
		return i.cli.Pull.do(ctx, a)
	case "stats":
		return i.cli.Stats.do(ctx, a, i.given)
	case "diff":
		return i.cli.Diff.do(ctx, a)
	case "merge":
		return i.cli.Merge.do(ctx, a)
	case "sample":
		return i.cli.Sample.do(ctx, a, i.given)
	case "rescore":
		return i.cli.Rescore.do(ctx, a)
	case "export":
		return i.cli.Export.do(ctx, a, i.given)
	case "audit":
		return i.cli.Audit.do(ctx, a, i.verb)
	case "sandbox":
		return i.cli.Sandbox.do(ctx, a, i.verb, i.given)
	case "engine":
		return i.cli.Engine.do(ctx, a)
	case "bench":
		return i.cli.Bench.do(ctx, a, i.verb)
	case "calibrate":
		return i.cli.Calibrate.do(ctx, a)
	case "version":
		return i.cli.Version.do(a)
	}
	return fmt.Errorf("no such command: %s", i.name)
}

// main runs one command line and returns the exit status.
func (a *app) main(ctx context.Context, args []string) code {
	inv, done, err := a.parse(args)
	if err != nil {
		return a.report(withCode(codeUsage, err))
	}
	if done {
		return codeOK
	}
	return a.report(inv.do(ctx, a))
}

// report writes an error for people and turns it into the exit status.
func (a *app) report(err error) code {
	if err != nil && !errors.Is(err, errOutcome) {
		for i, line := range strings.Split(strings.TrimRight(visible(err.Error()), "\n"), "\n") {
			if i == 0 {
				line = "tranche: " + line
			}
			fmt.Fprintln(a.stderr, line)
		}
	}
	return codeOf(err)
}

// helpShown ends parsing after --help, where kong would exit the process.
type helpShown struct{}

// parse returns done when --help was answered.
func (a *app) parse(args []string) (inv *invocation, done bool, err error) {
	c := &cli{}
	parser, err := a.parser(c)
	if err == nil {
		hideFlags(parser, "resume", "out", "dry-run", "name")
		shapeBatch(parser)
	}
	if err != nil {
		return nil, false, fmt.Errorf("build the command line: %w", err)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	for i, arg := range args {
		if !utf8.ValidString(arg) { // kong would put another character in the place of what is none
			return nil, false, fmt.Errorf("argument %d, %q, is no text in UTF-8", i+1, arg)
		}
	}
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(helpShown); !ok {
				panic(p)
			}
			inv, done, err = nil, true, nil
		}
	}()
	kctx, err := parser.Parse(args)
	if err != nil {
		return nil, false, a.usageError(args, err)
	}
	given := map[string]bool{}
	for _, p := range kctx.Path {
		if p.Flag != nil {
			given[p.Flag.Name] = true
		}
	}
	name, verb, _ := strings.Cut(kctx.Command(), " ")
	verb, _, _ = strings.Cut(verb, " ") // of "real-report <file>"
	return &invocation{c, name, verb, given}, false, nil
}

// usageError rewords what kong says where the value must not be repeated.
func (a *app) usageError(args []string, err error) error {
	for _, arg := range args {
		if arg == "--api-key" || strings.HasPrefix(arg, "--api-key=") {
			return errors.New("--api-key: a key on the command line is seen by everyone on the machine; put it into an environment variable and name that: --api-key-env NAME")
		}
	}
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil && parse.Context.Selected() != nil {
		if all := unknownFlags(parse.Context.Selected(), args); len(all) > 1 { // kong stops at the first
			err = errors.Join(all...)
		}
		return fmt.Errorf("%w\n`tranche %s --help` explains every flag", err, parse.Context.Selected().Path())
	}
	return fmt.Errorf("%w\n`tranche --help` lists the commands", err)
}

// unknownFlags names every long flag among args that a command does not know.
func unknownFlags(command *kong.Node, args []string) []error {
	var known []string
	for _, group := range command.AllFlags(false) {
		for _, flag := range group {
			known = append(append(known, flag.Name), flag.Aliases...)
			if flag.Tag.Negatable != "" {
				known = append(known, "no-"+flag.Name)
			}
		}
	}
	var all []error
	for _, arg := range args {
		if arg == "--" {
			break
		}
		name, _, _ := strings.Cut(arg, "=")
		name, long := strings.CutPrefix(name, "--")
		if !long || slices.Contains(known, name) {
			continue
		}
		said := "unknown flag --" + name
		if near := nearest(name, known); near != "" {
			said += fmt.Sprintf(", did you mean %q?", "--"+near)
		}
		all = append(all, errors.New(said))
	}
	return all
}

func (a *app) parser(c *cli) (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("tranche"),
		kong.Description("Tranche drives OpenAI-compatible inference servers with whole episodes (model call, action, observation), scores them and writes trajectories to Parquet.\n\nNo server at hand: tranche run examples/arithmetic/tasks.jsonl"),
		kong.Writers(a.stdout, a.stderr),
		kong.Exit(func(int) { panic(helpShown{}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 140}),
		kong.Help(helpWithCodes),
		kong.ExplicitGroups([]kong.Group{
			{Key: "where", Title: "Where the result goes"},
			{Key: "tasks", Title: "Which tasks"},
			{Key: "sampling", Title: "What a call and an episode may do"},
			{Key: "tools", Title: "Tools and rewards"},
			{Key: "draws", Title: "Which tasks how often, and what is learned on the way"},
			{Key: "servers", Title: "Which servers, and how hard"},
			{Key: "engine", Title: "Embedded engine (only without --endpoint)"},
			{Key: "limits", Title: "Retries, deadlines, giving up"},
			{Key: "files", Title: "How the dataset is written"},
			{Key: "rows", Title: "Which rows"},
			{Key: "serve", Title: "Where and how it serves"},
			{Key: "answers", Title: "What it says"},
			{Key: "memory", Title: "Its memory"},
			{Key: "batching", Title: "How it batches"},
			{Key: "pace", Title: "How long its steps take"},
			{Key: "wrong", Title: "What goes wrong, and what it is particular about"},
		}),
	)
}

// hideFlags keeps flags that a command shares with another, and refuses, out of its help.
func hideFlags(parser *kong.Kong, command string, names ...string) {
	for _, node := range parser.Model.Children {
		for _, flag := range node.Flags {
			if node.Name == command && slices.Contains(names, flag.Name) {
				flag.Hidden = true
			}
		}
	}
}

// helpWithCodes is kong's help with the exit codes below it on the top page.
func helpWithCodes(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil {
		return err
	}
	if ctx.Selected() == nil {
		_, err := fmt.Fprintf(ctx.Stdout, "\nExit codes:\n%s", exitCodesText())
		return err
	}
	return nil
}

// defaults are the settings nobody touched.
func defaults() Settings {
	var c cli
	a := &app{stdout: io.Discard, stderr: io.Discard}
	parser, err := a.parser(&c)
	if err == nil {
		_, err = parser.Parse([]string{"run"})
	}
	if err != nil {
		panic(fmt.Sprintf("the defaults of the settings do not parse: %v", err)) // a bug in a struct tag
	}
	return c.Run.Settings
}

// overlay copies the keys in given from one Settings to another.
func overlay(into, from *Settings, given map[string]bool) {
	for _, k := range keys() {
		if given[k.name] {
			into.field(k).Set(from.field(k))
		}
	}
}

func (a *app) print(text string) error {
	if _, err := io.WriteString(a.stdout, text); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

func (a *app) printJSON(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return a.print(escapeControls(b.String()))
}

// escapeControls writes the control characters that encoding/json leaves as they are (DEL, C1 and the bidirectional overrides) as
// \u escapes: the same document, and nothing for a terminal to act on.
func escapeControls(document string) string {
	hidden := func(r rune) bool { return r != '\n' && steers(r) }
	if strings.IndexFunc(document, hidden) < 0 {
		return document
	}
	var b strings.Builder
	for _, r := range document {
		if hidden(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// notice tells a person something that is no result and no error. On a terminal it takes the line where a progress bar may stand,
// which is drawn again below it.
func (a *app) notice(format string, args ...any) {
	if a.quiet {
		return
	}
	text := visible(fmt.Sprintf(format, args...)) + "\n"
	if a.terminal {
		text = clearLine + text
	}
	_, _ = io.WriteString(a.stderr, text) // one write, so that nothing of another goroutine comes between

}
