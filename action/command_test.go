package action

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tranche/episode"
)

// shell is a command tool that runs a script.
func shell(t *testing.T, script string, change func(*CommandConfig)) *Command {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("needs sh")
	}
	cfg := CommandConfig{Name: "sh", Description: "runs", Run: []string{"sh", "-c", script}}
	if change != nil {
		change(&cfg)
	}
	c, err := NewCommand(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// called runs one call of a tool through a Set.
func called(t *testing.T, cfg Config, tool Tool, args string) episode.Observation {
	t.Helper()
	cfg.Tools = []string{tool.Name()}
	s, err := New(cfg, tool)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e := &episode.Episode{ID: "e1", Task: &episode.Task{ID: "t"}, Turns: make([]episode.Turn, 1)}
	act := episode.Action{ID: "e1/0/0", Call: episode.ToolCall{ID: "c", Function: episode.Function{Name: tool.Name(), Arguments: args}}}
	return s.Do(context.Background(), e, []episode.Action{act})[0]
}

func TestCommandOutcomes(t *testing.T) {
	for _, c := range []struct {
		name, script, output string
		status, text         string
		exit                 int32
		class                episode.Class
	}{
		{name: "arguments come in, text goes out", script: `cat; echo " in $TRANCHE_ACTION turn $TRANCHE_TURN"`, status: episode.ActionOK, text: "{\"x\":1}\n in e1/0/0 turn 0"},
		{name: "it need not read them", script: `echo hi`, status: episode.ActionOK, text: "hi"},
		{name: "an exit status is the model's, with the end of stderr", script: `echo part; echo "no such city" >&2; exit 3`, status: episode.ActionError, exit: 3,
			text: "part\nerror: the program ended with exit status 3; it wrote to standard error:\nno such city\n"},
		{name: "75 is nobody's answer", script: `echo down >&2; exit 75`, status: episode.ActionHarness, exit: 75, class: episode.ClassHarness},
		{name: "a signal is nobody's answer", script: `kill -SEGV $$`, status: episode.ActionHarness, class: episode.ClassHarness},
		{name: "json: a text", output: OutputJSON, script: `echo '{"text":"sunny"}'`, status: episode.ActionOK, text: "sunny"},
		{name: "json: an error", output: OutputJSON, script: `echo '{"error":"which city?"}'`, status: episode.ActionError, text: "error: which city?"},
		{name: "json: the end", output: OutputJSON, script: `echo '{"text":"won","done":true,"submitted":"7"}'`, status: episode.ActionOK, text: "won"},
		{name: "json: the end, by what is handed in", output: OutputJSON, script: `echo '{"text":"won","submitted":"7"}'`, status: episode.ActionOK, text: "won"},
		{name: "json: two objects", output: OutputJSON, script: `echo '{"text":"x"}{"text":"y"}'`, status: episode.ActionHarness, class: episode.ClassHarness},
		{name: "json: null", output: OutputJSON, script: `echo null`, status: episode.ActionHarness, class: episode.ClassHarness},
		{name: "json: nothing of the kind", output: OutputJSON, script: `echo sunny`, status: episode.ActionHarness, class: episode.ClassHarness},
		{name: "json: a key nobody knows", output: OutputJSON, script: `echo '{"txt":"x"}'`, status: episode.ActionHarness, class: episode.ClassHarness},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := called(t, Config{}, shell(t, c.script, func(cfg *CommandConfig) { cfg.Output = c.output }), `{"x":1}`)
			if o.Status != c.status || c.class == "" && o.Text != c.text {
				t.Errorf("observed %s %q (%v), want %s %q", o.Status, o.Text, o.Fault, c.status, c.text)
			}
			if (o.Fault == nil) != (c.class == "") || o.Fault != nil && o.Fault.Class != c.class {
				t.Errorf("fault %v, want class %q", o.Fault, c.class)
			}
			if c.exit != 0 && (o.ExitCode == nil || *o.ExitCode != c.exit) {
				t.Errorf("exit code %v, want %d", o.ExitCode, c.exit)
			}
			if strings.HasPrefix(c.name, "json: the end") && (!o.Done || o.Submitted == nil || *o.Submitted != "7") {
				t.Errorf("done %v, submitted %v; want the end with 7", o.Done, o.Submitted)
			}
		})
	}
}

// alive reports whether a process is there and no zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || !strings.Contains(string(stat), ") Z")
}

func pidIn(t *testing.T, file string) int {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func gone(t *testing.T, pid int) {
	t.Helper()
	for range 6000 { // half a minute
		if !alive(pid) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("process %d goes on", pid)
}

// A program that hangs is ended with all it started, and what it had said is shown; so is one that ends and leaves another behind.
func TestCaseSBo1CommandTreeIsEnded(t *testing.T) {
	for name, script := range map[string]string{"timeout": `sleep 300 & echo $! > "$0"; echo hi; sleep 300`, "left behind": `sleep 300 & echo $! > "$0"; echo hi`} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pid")
			began := time.Now()
			o := called(t, Config{}, shell(t, script, func(cfg *CommandConfig) { cfg.Run, cfg.Timeout = append(cfg.Run, file), 2*time.Second }), `{}`)
			if name == "timeout" && o.Status != episode.ActionTimeout || name != "timeout" && o.Status != episode.ActionOK || !strings.HasPrefix(o.Text, "hi") {
				t.Errorf("observed %s %q", o.Status, o.Text)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %s", took)
			}
			if name == "timeout" && !strings.Contains(o.Text, "more than 2s") {
				t.Errorf("%q does not tell the tool's own time limit", o.Text)
			}
			gone(t, pidIn(t, file))
		})
	}
}

// A flood is read to its end and not kept.
func TestCaseSBo2CommandFloods(t *testing.T) {
	const mib = 64
	o := called(t, Config{MaxObservationBytes: 1000}, shell(t, `echo first; head -c `+strconv.Itoa(mib<<20)+` /dev/zero | tr '\0' x; echo last`, nil), `{}`)
	if o.Status != episode.ActionOK || !o.Truncated || o.OutBytes != mib<<20+len64("first\nlast\n") || len(o.Text) > 1000 {
		t.Errorf("observed %s, truncated %v, %d bytes of %d", o.Status, o.Truncated, len(o.Text), o.OutBytes)
	}
	if !strings.HasPrefix(o.Text, "first") || !strings.HasSuffix(o.Text, "last") {
		t.Errorf("head and tail are not kept: %.40q", o.Text)
	}
}

func len64(s string) int64 { return int64(len(s)) }

// A program sees what every program needs and what it was given by name, and no key of ours.
func TestCommandSeesNoOtherVariables(t *testing.T) {
	t.Setenv("OUR_KEY", "hunter2")
	t.Setenv("ITS_KEY", "yes")
	o := called(t, Config{}, shell(t, "env", func(cfg *CommandConfig) { cfg.Env = []string{"ITS_KEY"} }), `{}`)
	if strings.Contains(o.Text, "hunter2") || !strings.Contains(o.Text, "ITS_KEY=yes") || !strings.Contains(o.Text, "TRANCHE_EPISODE=e1") {
		t.Errorf("it sees:\n%s", o.Text)
	}
}

// What could not be done is done once more where the tool says that this is safe, and no tool is run twice otherwise.
func TestActionsAreRepeatedOnlyWhereThatIsSafe(t *testing.T) {
	for name, want := range map[string]int{"safe": 2, "not safe": 1} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "runs")
			o := called(t, Config{}, shell(t, `echo run >> "$0"; exit 75`, func(cfg *CommandConfig) { cfg.Run, cfg.Idempotent = append(cfg.Run, file), name == "safe" }), `{}`)
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(string(raw), "run"); got != want || o.Status != episode.ActionHarness {
				t.Errorf("%d runs, %s; want %d, %s", got, o.Status, want, episode.ActionHarness)
			}
		})
	}
}

// failing is a tool that fails so many times, then works.
type failing struct {
	err  error
	runs int
}

func (*failing) Name() string { return "f" }
func (*failing) Definition() json.RawMessage {
	return json.RawMessage(`{"type":"function","function":{"name":"f"}}`)
}

func (f *failing) Run(context.Context, json.RawMessage, Env) (Result, error) {
	if f.runs++; f.runs == 1 {
		return Result{}, f.err
	}
	return Result{Text: "done"}, nil
}

func TestWhatWasNotBegunIsBegunAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		runs   int
		status string
	}{
		{"never begun", errors.Join(ErrNotRun, errors.New("refused")), 2, episode.ActionOK},
		{"begun", errors.New("broke"), 1, episode.ActionHarness},
		{"the model's own mistake", Reject("no"), 1, episode.ActionError},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &failing{err: c.err}
			if o := called(t, Config{}, f, "{}"); o.Status != c.status || f.runs != c.runs {
				t.Errorf("%d runs, %s; want %d, %s", f.runs, o.Status, c.runs, c.status)
			}
		})
	}
}

func TestCommandConfigSaysEveryFault(t *testing.T) {
	_, err := NewCommand(CommandConfig{Name: "x", Run: []string{"/no/such/program"}, Env: []string{"NOT_SET_AT_ALL", "A=secretvalue"}, Output: "xml", Timeout: -1, Parameters: json.RawMessage(`[1]`)})
	if err == nil {
		t.Fatal("all that was taken")
	}
	for _, want := range []string{"run: expected a program", "NOT_SET_AT_ALL is not set", "output: expected text or json", "timeout: expected", "parameters: expected a JSON schema", "NAMES of environment variables"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secretvalue") {
		t.Errorf("the error shows a value:\n%v", err)
	}
}

// A spool keeps the head and the tail, however the bytes come.
func TestSpoolKeepsHeadAndTail(t *testing.T) {
	for _, step := range []int{1, 3, 7, 100} {
		all := make([]byte, 95)
		for i := range all {
			all[i] = byte('a' + i%26)
		}
		s := NewSpool(20)
		for part := range slices.Chunk(all, step) {
			if n, err := s.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		if want := string(all[:10]) + marker(75) + string(all[85:]); s.Text(Secrets{}) != want || s.Total() != 95 || !s.Cut() {
			t.Errorf("in steps of %d: %q (%d), want %q", step, s.Text(Secrets{}), s.Total(), want)
		}
	}
	s := NewSpool(20)
	s.Write([]byte("all of it"))
	if s.Text(Secrets{}) != "all of it" || s.Cut() {
		t.Errorf("%q, cut %v", s.Text(Secrets{}), s.Cut())
	}
}
