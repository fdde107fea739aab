package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"tranche/internal/mock"
	"tranche/sampler"
	"tranche/storage"
)

// binary is this test's program under the name that makes it the command.
func binary(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "tranche")
	if err := os.Symlink(self, link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	return link
}

// TestKilledRunsThatLearn: a run that decides by results is killed three times and gone on with. Its rows are those that its record of decisions
// names, each once; it has as many useful groups as were wanted; and what is held out was never trained on.
func TestKilledRunsThatLearn(t *testing.T) {
	program, dir := binary(t), newRunDir(t)
	var tasks strings.Builder
	for i := range 60 {
		fmt.Fprintf(&tasks, "{\"id\":\"t%d\",\"prompt\":\"How much is %d+1?\",\"answer\":\"%d\",\"data_source\":\"d%d\"}\n", i, i, i+1, i%3)
	}
	file := write(t, "tasks.jsonl", tasks.String())
	args := []string{"run", file, "-o", dir, "-n", "4", "--useful", "25", "--grow", "2,error=0.45", "--mix", "progress", "--band", "0.1-0.9",
		"--held-out", "share=0.15,every=8,samples=2", "--engine-speed", "3", "--open-episodes", "12", "--progress", "none"}
	for kills := 0; ; kills++ {
		cmd := exec.Command(program, args...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if kills < 3 {
			awaitDraws(t, dir, 5*(kills+1))
			if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Wait(); err == nil {
			break
		} else if kills >= 3 {
			t.Fatalf("%v\n%s", err, out.String())
		}
		args = []string{"resume", dir, "--progress", "none", "--engine-speed", "3"}
		if kills == 2 {
			args[len(args)-1] = "0"
		}
	}
	checkDrawn(t, dir, 25)
}

// awaitDraws waits until a run's record has so many lines more of what has ended, or has ended itself.
func awaitDraws(t *testing.T, dir string, done int) {
	t.Helper()
	for range 1200 {
		text, _ := os.ReadFile(filepath.Join(dir, storage.DrawsName))
		if bytes.Count(text, []byte(`{"done":`)) >= done || bytes.Contains(text, []byte(`{"end":`)) {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Fatal("the run draws nothing")
}

// checkDrawn holds the rows of a finished run against its record.
func checkDrawn(t *testing.T, dir string, useful int64) {
	t.Helper()
	_, sum, err := readDrawRecord(dir)
	if err != nil {
		t.Fatal(err)
	}
	run, err := storage.OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	var groups sampler.Groups
	seen, sides, flagged := map[string]bool{}, map[string]string{}, 0
	heldOut, trained := map[string]bool{}, int64(0)
	for r, err := range run.Rows() {
		if err != nil {
			t.Fatal(err)
		}
		k := fmt.Sprintf("%s/%d/%d", r.TaskID, r.Round, r.SampleIndex)
		if seen[k] {
			t.Errorf("%s is there twice", k)
		}
		seen[k] = true
		if was, ok := sides[r.TaskID]; ok && was != r.Split {
			t.Errorf("task %s is of split %q and %q", r.TaskID, was, r.Split)
		}
		sides[r.TaskID] = r.Split
		if r.Split == "held_out" {
			heldOut[r.TaskID] = true
			continue
		}
		trained++
		groups.Add(r.GroupID, r.TaskID, "d", int(r.GroupSize), r.Reward)
		for _, f := range r.Flags {
			if f == storage.FlagZeroVariance {
				flagged++
			}
		}
	}
	if m, err := run.Manifest(); err != nil || m.Rows+m.FailureRows != int64(len(seen)) {
		t.Errorf("%d rows are published of %d, %v", m.Rows+m.FailureRows, len(seen), err)
	}
	all := groups.Stats(1)["d"]
	if !sum.Ended || trained != sum.Episodes || int64(len(seen))-trained != int64(2*len(heldOut)*sum.Evals) || len(heldOut) == 0 {
		t.Errorf("%d rows, %d of them for training, %d tasks held out; the record says %+v", len(seen), trained, len(heldOut), sum)
	}
	if sum.Useful != useful || int64(all.Useful) != useful || int64(all.Groups) != sum.Groups || (sum.Equal > 0) != (flagged > 0) {
		t.Errorf("%d useful of %d groups, %d rows flagged; the record says %+v, wanted %d", all.Useful, all.Groups, flagged, sum, useful)
	}
}

// TestStatsAndViewTellTheSame: of a run with groups that ended early and tasks held out, stats tells the pass@k that view does, and of its rows in
// another dataset too.
func TestStatsAndViewTellTheSame(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) { mock.Text("1").Send(r, w) }})
	var tasks strings.Builder
	for i := range 12 {
		fmt.Fprintf(&tasks, "{\"id\":\"t%d\",\"prompt\":\"Task %d\",\"answer\":\"%d\"}\n", i, i, i%2)
	}
	for i := range 3 {
		fmt.Fprintf(&tasks, "{\"id\":\"v%d\",\"prompt\":\"Val %d\",\"answer\":\"1\",\"split\":\"val\"}\n", i, i)
	}
	s, dir := newShell(t), newRunDir(t)
	s.do(codeOK, "run", write(t, "tasks.jsonl", tasks.String()), "-o", dir, "-n", "8", "--useful", "1", "--grow", "2,error=0.4", "--held-out", "val,every=6,samples=2", "--reward", "exact", "--endpoint", server.URL(), "--progress", "none")
	if _, sum, err := readDrawRecord(dir); err != nil || len(sum.Short) == 0 {
		t.Fatalf("no group ended early: the test tells nothing; %v", err)
	}
	viewed := newShell(t)
	viewed.do(codeOK, "view", dir, "--json")
	want := viewed.document().Run.Groups[sampler.Overall].Pass
	merged := filepath.Join(t.TempDir(), "m")
	s.do(codeOK, "merge", dir, "-o", merged, "-q")
	for _, dir := range []string{dir, merged} {
		got := jsonOf[statistics](t, "stats", dir)
		if len(want) == 0 || want[len(want)-1].K != 8 || !reflect.DeepEqual(got.Pass, want) {
			t.Errorf("stats %s: %+v\nview: %+v", dir, got.Pass, want)
		}
		if len(got.HeldOut) != 2 || got.HeldOut[0].Any != 1 {
			t.Errorf("held out: %+v", got.HeldOut)
		}
	}
}

// TestEvaluationsSendTheirOwnParameters: what is held out goes out with the temperature of evaluations, what is trained on with the schedule's.
func TestEvaluationsSendTheirOwnParameters(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		mock.Text("t="+string(r.Field("temperature"))).Send(r, w)
	}})
	file := write(t, "tasks.jsonl", `{"id":"a","prompt":"A","answer":"1"}
{"id":"b","prompt":"B","answer":"1"}
{"id":"c","prompt":"C","answer":"1","split":"val"}
`)
	s, dir := newShell(t), newRunDir(t)
	s.do(codeOK, "run", file, "-o", dir, "--endpoint", server.URL(), "--held-out", "val,every=1,temperature=0.25", "--temperature-schedule", "linear:1:0.5:1", "--reward", "exact")
	got := map[string]string{}
	run, err := storage.OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range run.Rows() {
		if err != nil {
			t.Fatal(err)
		}
		got[fmt.Sprintf("%s/%d %s", r.TaskID, r.Round, r.Split)] = *r.Messages[len(r.Messages)-1].Content
	}
	want := map[string]string{"a/0 ": "t=1", "b/0 ": "t=0.5", "c/0 val": "t=0.25", "c/1 val": "t=0.25", "c/2 val": "t=0.25"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("sent %v, want %v", got, want)
	}
}

// TestZerosAreNotTakenForDefaults: an option that would silently have its default is refused by name.
func TestZerosAreNotTakenForDefaults(t *testing.T) {
	read := map[string]func(p Pairs) error{
		"band":     func(p Pairs) error { _, err := p.band(); return err },
		"grow":     func(p Pairs) error { _, err := p.grow(); return err },
		"mix":      func(p Pairs) error { _, err := p.mix(); return err },
		"held-out": func(p Pairs) error { _, _, err := p.heldOut(); return err },
	}
	for _, c := range []struct{ key, value, names string }{
		{"band", "0.2-0.8,keep=0", "keep"}, {"band", "0.2-0.8,memory=0.0", "memory"}, {"band", "0.2-0.8,revisit=0", "revisit"}, {"grow", "2,error=0", "error"},
		{"mix", "progress,every=0", "every"}, {"mix", "progress,floor=0", "floor"}, {"mix", "size,cap=0", "cap"}, {"mix", "temperature=0", "temperature"},
		{"held-out", "val,every=0", "every"}, {"held-out", "val,samples=0", "samples"}, {"held-out", "share=0", "share"},
	} {
		if err := read[c.key](Pairs(c.value)); err == nil || !strings.HasPrefix(err.Error(), c.names+": ") {
			t.Errorf("%s %s: %v, want the name of %s", c.key, c.value, err, c.names)
		}
	}
	for key, value := range map[string]Pairs{"band": "0-0.8", "mix": "size,floor=0", "held-out": "val,temperature=0"} { // here 0 is what it says
		if err := read[key](value); err != nil {
			t.Errorf("%s %s: %v", key, value, err)
		}
	}
}

// TestARunShortOfUsefulGroupsSaysSo: it is complete, with exit code 0, and its summary says what it lacks.
func TestARunShortOfUsefulGroupsSaysSo(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) { mock.Text("always").Send(r, w) }})
	s, dir := newShell(t), newRunDir(t)
	file := write(t, "tasks.jsonl", `{"id":"a","prompt":"A","answer":"never"}`+"\n"+`{"id":"b","prompt":"B","answer":"never"}`+"\n")
	s.do(codeOK, "run", file, "-o", dir, "-n", "2", "--useful", "1", "--reward", "exact", "--endpoint", server.URL(), "--progress", "none")
	if out := s.out.String() + s.err.String(); !strings.Contains(out, "not as many useful groups as wanted") || !strings.Contains(out, "complete all the same") {
		t.Errorf("the summary does not say that groups are lacking:\n%s", out)
	}
}

// TestACommandThatIsSilentEndsWithTheRun: ctrl-c ends a run that waits for the next task, and the program with it.
func TestACommandThatIsSilentEndsWithTheRun(t *testing.T) {
	s, dir := newShell(t), newRunDir(t)
	pid := filepath.Join(t.TempDir(), "pid")
	go func() { // ends with the loop: the file comes, or the test fails below
		for range 1200 {
			text, _ := os.ReadFile(filepath.Join(dir, storage.StreamName))
			if len(text) > 0 {
				time.Sleep(200 * time.Millisecond)
				s.signals <- os.Interrupt
				return
			}
			time.Sleep(25 * time.Millisecond)
		}
	}()
	s.do(codeInt, "run", "-o", dir, "--reward", "none", "--progress", "none", "--tasks-command",
		fmt.Sprintf(`echo $$ > %s; echo '{"id":"a","prompt":"A"}'; exec sleep 1000`, quoted(pid)))
	text, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	var id int
	fmt.Sscan(string(text), &id)
	if err := syscall.Kill(id, 0); err == nil {
		t.Errorf("process %d still runs", id)
	}
	if rows := rowsIn(t, dir); len(rows) != 1 {
		t.Errorf("%d rows, want the one that was given", len(rows))
	}
}
