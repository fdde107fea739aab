//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"tranche/action/codetools"
	"tranche/action/sandbox"
	"tranche/internal/mock"
)

// coding is a server whose model runs the codes given, one a turn, and then answers.
func coding(t *testing.T, tool, argument string, codes ...string) *mock.Server {
	return mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		turn := strings.Count(string(r.Field("messages")), `"role":"tool"`)
		if turn >= len(codes) {
			mock.Text("#### 7").Send(r, w)
			return
		}
		args, err := json.Marshal(map[string]string{argument: codes[turn]})
		if err != nil {
			t.Error(err)
		}
		mock.Tool(fmt.Sprint("c", turn), tool, string(args)).Send(r, w)
	}})
}

// someFail is a back end that cannot start the 2nd, 5th and 8th sandbox.
type someFail struct {
	sandbox.Executor
	opened atomic.Int64
}

func (x *someFail) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if n := x.opened.Add(1); n < 9 && n%3 == 2 {
		return nil, errors.New("no slot could be built")
	}
	return x.Executor.Open(ctx, spec)
}

// Case SB-o3: a sandbox cannot start for 3 of 10 episodes: 3 rows harness_error with reward null, 7 as if nothing had been.
func TestCaseSBo3SandboxThatDoesNotStart(t *testing.T) {
	desk, err := codetools.New(func() (sandbox.Executor, error) {
		x, err := openExecutor(context.Background(), backendPlain, nil)
		return &someFail{Executor: x}, err
	}, codetools.Config{Spec: sandbox.Spec{Trusted: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer desk.Close()
	s := newShell(t)
	s.app.tools = desk.Tools()
	dir := newRunDir(t)
	server := coding(t, "python", "code", "x = 6", "x + 1")
	s.do(codePartial, "run", taskFile(t, 10, `,"answer":"7"`), "--endpoint", server.URL(), "--tools", "python", "-o", dir, "-q", "--stop-on-failed-share", "0", "--json")
	d := s.document()
	if d.Dataset.Good != 7 || d.Dataset.Failed != 3 || d.Dataset.Failures["harness_error"] != 3 || d.Dataset.Reward.N != 7 {
		t.Errorf("%d good, %d failed (%v), %d scored; want 7, 3 harness_error, 7", d.Dataset.Good, d.Dataset.Failed, d.Dataset.Failures, d.Dataset.Reward.N)
	}
	for key, row := range rowsIn(t, dir) {
		good := row.Reward != nil && *row.Reward == 1 && len(row.Actions) == 2
		failed := row.Reward == nil && row.FaultClass != nil && *row.FaultClass == "harness_error" && strings.Contains(*row.FaultDetail, "no slot could be built")
		if !good && !failed {
			t.Errorf("%s: reward %v after %d actions, fault %v", key, row.Reward, len(row.Actions), row.FaultDetail)
		}
	}
}

// The back end plain works when it is named and trusted, and its rows say that nothing held them.
func TestPlainRunsAreMarked(t *testing.T) {
	file := write(t, "run.yaml", "tools: [bash]\nsandbox:\n  backend: plain\n  trust-every-model-with-everything-i-have: true\n")
	s := newShell(t)
	dir := newRunDir(t)
	s.do(codeOK, "run", taskFile(t, 1, ""), "-c", file, "--endpoint", coding(t, "bash", "command", "x=hi", "echo $x", "sleep 60 & exit 3").URL(), "--reward", "none", "-o", dir)
	if !strings.Contains(s.err.String(), "without any isolation") {
		t.Errorf("there was no warning:\n%s", s.err.String())
	}
	row := rowsIn(t, dir)["t0/0"]
	var got []string
	for _, a := range row.Actions {
		got = append(got, fmt.Sprintf("%s %d %s", *a.Status, *a.ExitCode, *a.Tier))
	}
	if want := "[ok 0 none ok 0 none error 3 none]"; fmt.Sprint(got) != want {
		t.Errorf("actions %v, want %s", got, want)
	}
	if a := row.Actions[2]; a.QueueMS == nil || a.SetupMS == nil || a.OOMKills == nil || a.RefusedForks == nil || a.LeftBehind == nil || *a.LeftBehind != 1 {
		t.Errorf("what the last one needed and left: %+v", a)
	}
	s.do(codeOK, "view", dir, "-n", "1")
	if shown := s.out.String(); !strings.Contains(shown, "exit 3") || !strings.Contains(shown, " · 1 left behind") || !strings.Contains(shown, ", set-up ") {
		t.Errorf("it is not shown:\n%s", shown)
	}
}

// What is wrong in the block is said with file, line and key, and a host that cannot hold what is required stops the run before a request.
func TestSandboxSettingsAreChecked(t *testing.T) {
	for _, c := range []struct {
		name, yaml string
		want       []string
	}{
		{"plain without trust", "sandbox: {backend: plain}", []string{"sandbox: backend: plain runs what a model wrote on this machine", "trust-every-model-with-everything-i-have: true"}},
		{"trust without plain", "sandbox: {trust-every-model-with-everything-i-have: true}", []string{"is for the backend plain; ns trusts nobody"}},
		{"unknown back end", "sandbox: {backend: podman}", []string{`sandbox: backend: expected one of bwrap, docker, http, landlock, ns, plain, found "podman"`}},
		{"option of another back end", "sandbox: {backend: bwrap, options: {image: x}}", []string{`sandbox: options: the back end bwrap takes program, found "image"`}},
		{"options that are missing", "sandbox: {backend: http, options: {dialect: swerex}}", []string{`sandbox: options: the back end http needs url`}},
		{"unknown key", "sandbox:\n  memroy: 1GiB", []string{`run.yaml:2:3: sandbox: unknown key "memroy"; did you mean "memory"?`}},
		{"no map", "sandbox: ns", []string{"run.yaml:1:10: sandbox: expected a map {backend, memory, pids, …}, found the text \"ns\""}},
		{"less memory than a program needs", "sandbox: {memory: 1KiB, disk: 1, file-size: 2000000TiB}", []string{"sandbox: memory: expected 1MiB to ", "sandbox: disk: expected 4KiB to ", "sandbox: file-size: expected 1 to "}},
		{"another python", "sandbox: {python: always}", []string{`sandbox: python: expected session or once, found "always"`}},
		{"a digest that is none", "sandbox: {rootfs: x, rootfs-digest: abc}", []string{`sandbox: rootfs-digest: expected sha256: and 64 hex digits, found "abc"`}},
		{"bad size", "sandbox: {memory: lots}", []string{"run.yaml:1:19: sandbox: memory: "}},
		{"promise", "sandbox: {require: [memroy]}", []string{"sandbox: require: expected some of [memory pids", `found "memroy"`}},
		{"several", "sandbox: {pids: -1, max-runs: -1, max-memory: 1MiB}", []string{"sandbox: pids: expected 1 to", "sandbox: max-runs: expected", "sandbox: max-memory: expected at least the 512MiB of one sandbox, found 1MiB"}},
		{"promise that plain cannot hold", "tools: python\nsandbox: {backend: plain, trust-every-model-with-everything-i-have: true, require: [net]}", []string{"sandbox: sandbox plain cannot enforce what is required here: net (plain runs programs without isolation", "sandbox check"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShell(t)
			s.do(codeUsage, "run", taskFile(t, 1, ""), "-c", write(t, "run.yaml", c.yaml+"\n"), "-o", newRunDir(t), "-q")
			for _, want := range c.want {
				if !strings.Contains(s.err.String(), want) {
					t.Errorf("got %s\nwant %s", s.err.String(), want)
				}
			}
		})
	}
}

// What decides results is part of a run's identity, what does not is not, and nothing said is as before there was such a key.
func TestSandboxInTheIdentity(t *testing.T) {
	id := func(s SandboxSpec) string { return identity(&Settings{Sandbox: s}, "", nil)["sandbox"] }
	if said := id(SandboxSpec{}) + id(SandboxSpec{MaxRuns: 2, MaxMemory: 1 << 30}); said != "" {
		t.Errorf("identity %s, want nothing", said)
	}
	if id(SandboxSpec{Memory: 1 << 30}) == "" || id(SandboxSpec{Net: true}) == id(SandboxSpec{Memory: 1 << 30}) {
		t.Error("the memory of a sandbox is not part of the identity")
	}
}

// A rootfs is the same folder wherever a run, its resume or the sandbox's first process stand, and the run has the same identity.
func TestRootfsIsAbsolute(t *testing.T) {
	want, err := filepath.Abs("images/py")
	if err != nil {
		t.Fatal(err)
	}
	said := SandboxSpec{Rootfs: "images/py"}
	spec, _, err := (&sandboxRunCmd{Command: []string{"true"}, Rootfs: new("images/py"), Backend: backendNS}).read()
	if err != nil {
		t.Fatal(err)
	}
	kept := absolute(Settings{Sandbox: said}).Sandbox
	for where, got := range map[string]string{"sandbox of a run": said.spec().Rootfs, "sandbox run": spec.Rootfs, "run.yaml": kept.Rootfs} {
		if got != want {
			t.Errorf("%s: %s, want %s", where, got, want)
		}
	}
	if fmt.Sprint(kept.decides()) != fmt.Sprint(said.decides()) || said.none() || !(SandboxSpec{}).decides().none() {
		t.Error("a run and its resume have another identity")
	}
}

// What this machine does not enforce is said before anything runs, each promise with its reason.
func TestWeakPromisesAreSaid(t *testing.T) {
	s := newShell(t)
	s.app.noteWeak(sandbox.Capabilities{Tier: sandbox.TierRlimit, Promises: map[sandbox.Promise]sandbox.Strength{
		sandbox.PromiseMemory: sandbox.BestEffort, sandbox.PromisePids: sandbox.Enforced, sandbox.PromiseCPU: sandbox.Enforced, sandbox.PromiseNet: sandbox.Enforced,
		sandbox.PromiseFiles: sandbox.Enforced, sandbox.PromiseDisk: sandbox.Enforced, sandbox.PromiseSyscalls: sandbox.Enforced, sandbox.PromiseKill: sandbox.Enforced,
	}, Why: map[sandbox.Promise]string{sandbox.PromiseMemory: "no control groups"}})
	want := "warning: sandbox: memory is held best effort only (tier rlimit): no control groups\nwarning: sandbox: snapshot is absent (tier rlimit)\n"
	if s.err.String() != want {
		t.Errorf("got %q, want %q", s.err.String(), want)
	}
}

// The example runs on the embedded engine, in sandboxes that isolate; its model works with python over several turns.
func TestPythonToolExample(t *testing.T) {
	x, err := openExecutor(context.Background(), backendNS, nil)
	if err == nil {
		_, err = x.Open(t.Context(), sandbox.Spec{})
		err = errors.Join(err, x.Close())
	}
	if err != nil {
		t.Skipf("this host cannot run the back end ns: %v", err)
	}
	s := newShell(t)
	dir := newRunDir(t)
	s.do(codeOK, "run", "-c", "../../examples/python-tool/run.yaml", "-n", "1", "-o", dir, "-q", "--json")
	if d := s.document(); d.Dataset.Good != 24 || d.Dataset.Reward.Mean == nil || *d.Dataset.Reward.Mean < 0.3 {
		t.Errorf("%+v", d.Dataset)
	}
	ran := 0
	for key, row := range rowsIn(t, dir) {
		for _, a := range row.Actions {
			if *a.Name != "python" {
				continue
			}
			ran++
			if *a.Status != "ok" || *a.ExitCode != 0 || a.Tier == nil || *a.Tier == "none" {
				t.Errorf("%s: %s, exit %d, tier %v", key, *a.Status, *a.ExitCode, a.Tier)
			}
		}
	}
	if ran < 12 {
		t.Errorf("python was run %d times in 24 episodes", ran)
	}
}
