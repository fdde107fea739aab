//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"tranche/action"
	"tranche/storage"
)

const plainTools = "sandbox:\n  backend: plain\n  trust-every-model-with-everything-i-have: true\n"

// playedBy plays one task with the model that runs the codes, and returns the run and the episode's id.
func playedBy(t *testing.T, s *shell, settings, tool, argument string, codes ...string) (dir, id string) {
	t.Helper()
	dir = newRunDir(t)
	s.do(codeOK, "run", taskFile(t, 1, ""), "-c", write(t, "run.yaml", settings), "--endpoint", coding(t, tool, argument, codes...).URL(), "--reward", "none", "-o", dir, "-q")
	row := rowsIn(t, dir)["t0/0"]
	if len(row.Actions) != len(codes) {
		t.Fatalf("%d actions, want %d", len(row.Actions), len(codes))
	}
	return dir, row.EpisodeID
}

// again is what replay --actions says of each action.
func (s *shell) again(want code, args ...string) (list []actionAgain, sum actionsReplay) {
	s.t.Helper()
	s.out.Reset()
	s.do(want, append([]string{"replay", "--actions", "--json", "-q"}, args...)...)
	var doc struct {
		Turns   []struct{ Again []actionAgain }
		Actions actionsReplay
	}
	if err := json.Unmarshal(s.out.Bytes(), &doc); err != nil {
		s.t.Fatalf("%v\n%s", err, s.out.String())
	}
	for _, turn := range doc.Turns {
		list = append(list, turn.Again...)
	}
	return list, doc.Actions
}

// Calls that depend on what earlier ones left give the same again, errors and exit codes too.
func TestReplayedActionsAreTheSame(t *testing.T) {
	s := newShell(t)
	dir, id := playedBy(t, s, "tools: [bash]\n"+plainTools, "bash", "command", "x=6; echo made >f", "cat f; echo $((x+1))", "echo no >&2; exit 3", "echo ${x:-gone}")
	list, sum := s.again(codeOK, dir, "--episode", id[:8])
	if sum != (actionsReplay{Same: 4}) || list[1].Was.Text != "made\n7\n" || list[1].Now != list[1].Was && list[1].Now.Text != list[1].Was.Text || *list[2].Now.ExitCode != 3 {
		t.Fatalf("%+v %+v", sum, list)
	}
	// One turn alone: those before it are run, and not told.
	list, sum = s.again(codeOK, dir, "--episode", id, "--turn", "2")
	if sum != (actionsReplay{Same: 1}) || len(list) != 1 || list[0].Now.Text != "made\n7\n" {
		t.Fatalf("%+v %+v", sum, list)
	}
	if rows := rowsIn(t, dir); len(rows["t0/0"].Actions) != 4 {
		t.Error("the run was changed")
	}
}

// What differs is shown, and what a person says to ignore does not count.
func TestReplayShowsWhatDiffers(t *testing.T) {
	s := newShell(t)
	dir, id := playedBy(t, s, "tools: [bash]\n"+plainTools, "bash", "command", "echo first; date +%s%N; echo last", "echo $$", "echo same")
	s.out.Reset()
	s.do(codeReplay, "replay", dir, "--episode", id, "--actions", "-q")
	for _, want := range []string{"run again: text differ", "    from line 2 on:", "run again: the same", "1 gave the same, 2 gave something else, 0 were not run", "── turn 1 ──"} {
		if !strings.Contains(s.out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, s.out.String())
		}
	}
	if _, sum := s.again(codeOK, dir, "--episode", id, "--ignore", `[0-9]+`); sum != (actionsReplay{Same: 3}) {
		t.Errorf("%+v", sum)
	}
}

// drifting is a tool whose answers change: in status, in exit code, or in very many lines.
type drifting struct{ calls atomic.Int32 }

func (*drifting) Name() string { return "drifting" }

func (*drifting) Definition() json.RawMessage {
	return json.RawMessage(`{"type":"function","function":{"name":"drifting","description":"x","parameters":{"type":"object","properties":{"how":{"type":"string"}}}}}`)
}

func (d *drifting) Run(_ context.Context, args json.RawMessage, _ action.Env) (action.Result, error) {
	n := d.calls.Add(1)
	exit := int32(0)
	switch {
	case strings.Contains(string(args), "lines"):
		return action.Result{Text: strings.Repeat(fmt.Sprintf("%d %s\n", n, strings.Repeat("x", 300)), 40)}, nil
	case n > 3 && strings.Contains(string(args), "status"):
		return action.Result{Text: "it"}, action.Reject("no more")
	case n > 3:
		exit = 4
	}
	return action.Result{Text: "it", ExitCode: &exit}, nil
}

func TestReplayComparesStatusAndExitCode(t *testing.T) {
	s := newShell(t)
	s.app.tools = []action.Tool{&drifting{}}
	dir, id := playedBy(t, s, "tools: [drifting]\n", "drifting", "how", "status", "exit", "lines")
	list, sum := s.again(codeReplay, dir, "--episode", id)
	if sum != (actionsReplay{Differ: 3}) || fmt.Sprint(list[0].Differ) != "[status exit_code text]" || fmt.Sprint(list[1].Differ) != "[exit_code]" || fmt.Sprint(list[2].Differ) != "[text]" {
		t.Fatalf("%+v %+v", sum, list)
	}
	s.out.Reset()
	s.do(codeReplay, "replay", dir, "--episode", id, "--actions", "-q", "--turn", "3")
	_, shown, _ := strings.Cut(s.out.String(), "run again: text differ")
	if n := strings.Count(shown, "\n"); n > 2*diffLines+8 || !strings.Contains(shown, "- … 28 more lines") || len(shown) > 2*diffLines*(diffWidth+16)+400 {
		t.Errorf("%d lines of %d bytes:\n%s", n, len(shown), shown)
	}
}

func contentOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A recorded action whose call, answer or turn is not there counts as one that was not run.
func TestReplayCountsActionsItCannotRead(t *testing.T) {
	actor, err := action.New(action.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer actor.Close()
	said := func(role string) storage.Message { return storage.Message{Role: &role, Content: &role} }
	act := func(turn int16, call string) storage.Action { return storage.Action{Turn: turn, CallID: &call} }
	row := &storage.Row{EpisodeID: "e", NumPromptMessages: 1, Messages: []storage.Message{said("user"), said("assistant"), said("tool")},
		Turns: make([]storage.Turn, 2), Actions: []storage.Action{act(0, "a"), act(0, "b"), act(1, "c")}}
	e := replayOf(row)
	e.Actions = &actionsReplay{}
	if err := (&actionPlayer{actor: actor}).all(t.Context(), e, 0); err != nil || *e.Actions != (actionsReplay{Skipped: 3}) {
		t.Fatalf("%+v, %v", e.Actions, err)
	}
	p := &printer{width: 120}
	p.replayTurn(e.Turns[0])
	if n := strings.Count(p.b.String(), "not run again: its call cannot be read"); n != 2 {
		t.Errorf("told %d times:\n%s", n, p.b.String())
	}
}

// What has effects outside is not run again but on request, and is offered all the same.
func TestReplayLeavesTheOutsideAlone(t *testing.T) {
	s := newShell(t)
	log := write(t, "log", "")
	settings := "tools: [noted, pure]\ncommand-tool:\n" +
		"- {name: noted, description: x, parameters: {type: object, properties: {how: {type: string}}}, run: [sh, -c, 'echo run >>" + log + "; echo done']}\n" +
		"- {name: pure, description: x, parameters: {type: object, properties: {how: {type: string}}}, run: [sh, -c, 'echo pure'], idempotent: true}\n"
	dir, id := playedBy(t, s, settings, "noted", "how", "a", "b")
	list, sum := s.again(codeOK, dir, "--episode", id)
	if sum != (actionsReplay{Skipped: 2}) || !strings.Contains(list[0].Why, "effects outside: it is a program on this machine") || contentOf(t, log) != "run\nrun\n" {
		t.Fatalf("%+v %+v %q", sum, list, contentOf(t, log))
	}
	if _, sum = s.again(codeOK, dir, "--episode", id, "--outside"); sum != (actionsReplay{Same: 2}) || contentOf(t, log) != "run\nrun\nrun\nrun\n" {
		t.Errorf("%+v %q", sum, contentOf(t, log))
	}
	dir, id = playedBy(t, s, settings, "pure", "how", "a")
	if _, sum = s.again(codeOK, dir, "--episode", id); sum != (actionsReplay{Same: 1}) {
		t.Errorf("%+v", sum)
	}
	dir, id = playedBy(t, s, settings, "nothing", "how", "a") // which names the tools there are
	if _, sum = s.again(codeOK, dir, "--episode", id); sum != (actionsReplay{Same: 1}) {
		t.Errorf("%+v", sum)
	}
}

// Calls that stand in the text are read and told in the run's own form.
func TestReplayOfWrittenCalls(t *testing.T) {
	s := newShell(t)
	dir := newRunDir(t)
	s.do(codeOK, "run", "-c", "../../examples/text-calls/run.yaml", "--limit", "4", "-o", dir, "-q")
	played := 0
	for _, row := range rowsIn(t, dir) {
		if len(row.Actions) == 0 {
			continue
		}
		_, sum := s.again(codeOK, dir, "--episode", row.EpisodeID)
		if played += sum.Same; sum.Same != len(row.Actions) {
			t.Errorf("%+v of %d actions", sum, len(row.Actions))
		}
	}
	if played == 0 {
		t.Error("no action was run")
	}
}

// A person goes from turn to turn; where nobody is there, everything is shown.
func TestReplayStepByStep(t *testing.T) {
	s := newShell(t)
	dir, id := playedBy(t, s, "tools: [bash]\n"+plainTools, "bash", "command", "echo one", "echo two")
	shown := func(typed string) string {
		s.out.Reset()
		if s.app.typed = nil; typed != "" {
			s.app.typed = strings.NewReader(typed)
		}
		s.do(codeOK, "replay", dir, "--episode", id, "--step", "-q")
		return s.out.String()
	}
	for _, c := range []struct {
		typed    string
		one, two int // how often the turns are shown
	}{{"q\n", 0, 0}, {"\nq\n", 1, 0}, {"n\n\nq\n", 1, 1}, {"2\np\nn\nq\n", 1, 2}, {"99\n\n", 1, 0}, {"\n\n\n\n", 1, 1}, {"", 1, 1}} {
		out := shown(c.typed)
		if one, two := strings.Count(out, "── turn 1 ──"), strings.Count(out, "── turn 2 ──"); one != c.one || two != c.two {
			t.Errorf("%q: turn 1 is shown %d times, turn 2 %d times; want %d and %d", c.typed, one, two, c.one, c.two)
		}
	}
}

func TestReplayRefuses(t *testing.T) {
	s := newShell(t)
	dir, id := playedBy(t, s, "tools: [bash]\n"+plainTools, "bash", "command", "echo one")
	for _, c := range []struct {
		want code
		says string
		args []string
	}{
		{codeUsage, "the episode has 2 turns, found 9", []string{dir, "--episode", id, "--turn", "9"}},
		{codeUsage, "from 1, found -1", []string{dir, "--episode", id, "--turn=-1"}},
		{codeUsage, "go with --actions", []string{dir, "--episode", id, "--outside"}},
		{codeUsage, "--ignore: error parsing regexp", []string{dir, "--episode", id, "--actions", "--ignore", "("}},
		{codeUsage, "one of them", []string{dir, "--episode", id, "--step", "--json"}},
		{codeUsage, "no such episode", []string{dir, "--episode", "zz"}},
		{codeUsage, "missing flags: --episode", []string{dir}},
		{codeRefused, "there is no such directory", []string{dir + "x", "--episode", id}},
	} {
		s.err.b.Reset()
		s.do(c.want, append([]string{"replay"}, c.args...)...)
		if !strings.Contains(s.err.String(), c.says) {
			t.Errorf("%v: %q, want %q", c.args, s.err.String(), c.says)
		}
	}
}

func TestLineDiff(t *testing.T) {
	for _, c := range []struct{ was, now, want string }{
		{"a\nb\nc", "a\nx\nc", "from line 2 on:|- b|+ x"},
		{"a", "a\nb", "from line 2 on:|+ b"},
		{"a\nb", "b", "from line 1 on:|- a"},
		{"", "x", "from line 1 on:|- |+ x"},
		{"a\na", "a\na\na", "from line 3 on:|+ a"},
	} {
		if got := strings.Join(lineDiff(c.was, c.now), "|"); got != c.want {
			t.Errorf("%q to %q: %s, want %s", c.was, c.now, got, c.want)
		}
	}
}
