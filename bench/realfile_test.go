package bench

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/episode"
	"tranche/scheduler"
)

// aMeasurement is what the files of these tests are of.
func aMeasurement() Measured {
	return Measured{
		Workload: "vllm-a", Seed: 1, Episodes: 40, Calls: 200, TimeScale: 1, Digest: "d", GaugeSeconds: 5, Policies: PoliciesVersion,
		Server: ServerIdentity{Kind: "vllm", Version: "0.11", Model: "tiny", ContextTokens: 8192, KVTokens: 16512, BlockTokens: 128, Sequences: 64},
	}
}

// aRun has a different figure in every field that is kept.
func aRun(policy string, repeat int) RealRun {
	return RealRun{Policy: policy, Repeat: repeat, Ended: time.Date(2026, 1, 2, 3, 4, repeat, 0, time.UTC), Build: "b1", Result: Result{
		Makespan: 123456789123, T90: 100000000001, LatencyP50: 1500000003, LatencyP99: 9876543210, Completed: 40, Calls: 200, Attempts: 201,
		Useful: 7000, Generated: 7000, Queried: 90000, Hits: 40000, Computed: 50000, Unique: 30000, Preemptions: 3,
	}}
}

func fileOf(t *testing.T, runs ...RealRun) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runs.jsonl")
	f, err := OpenRealFile(path, aMeasurement())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, r := range runs {
		if err := f.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestRealFileGivesBackWhatItWasGiven(t *testing.T) {
	want := []RealRun{aRun("tranche", 1), aRun("flood", 1), aRun("tranche", 2)}
	m, runs, err := ReadRealFile(fileOf(t, want...))
	if err != nil || m != aMeasurement() || !reflect.DeepEqual(runs, want) {
		t.Errorf("%v\n%+v\n%+v, want\n%+v\n%+v", err, m, runs, aMeasurement(), want)
	}
}

// Wherever the writer dies, no run before is lost, and what is written next stands on a line of its own.
func TestRealFileSurvivesATornLastLine(t *testing.T) {
	whole, err := os.ReadFile(fileOf(t, aRun("tranche", 1), aRun("flood", 1)))
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.IndexByte(whole, '\n') + 1
	second := first + bytes.IndexByte(whole[first:], '\n') + 1
	for cut := second; cut < len(whole); cut += 7 {
		path := write(t, whole[:cut])
		if _, runs, err := ReadRealFile(path); err != nil || len(runs) != 1 {
			t.Fatalf("cut after %d bytes: %d runs, %v; want the first", cut, len(runs), err)
		}
		f, err := OpenRealFile(path, aMeasurement())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Add(aRun("flood", 1)), f.Close()); err != nil {
			t.Fatal(err)
		}
		if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, whole) {
			t.Fatalf("cut after %d bytes, then gone on: %v\n%s\nwant\n%s", cut, err, again, whole)
		}
	}
}

func write(t *testing.T, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runs.jsonl")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRealFileSetsRunsAside(t *testing.T) {
	path := fileOf(t, aRun("tranche", 1), aRun("flood", 1), aRun("tranche", 2))
	f, err := OpenRealFile(path, aMeasurement())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.Again("tranche"); n != 2 || err != nil {
		t.Errorf("%d set aside, %v; want 2", n, err)
	}
	if n, err := f.Again("tranche"); n != 0 || err != nil {
		t.Errorf("%d set aside the second time, %v; want none", n, err)
	}
	anew := aRun("tranche", 1)
	anew.Build = "b2"
	want := []RealRun{aRun("flood", 1), anew}
	if err := errors.Join(f.Add(anew), f.Close()); err != nil || !reflect.DeepEqual(f.Runs(), want) {
		t.Errorf("%v, %+v, want %+v", err, f.Runs(), want)
	}
	_, runs, err := ReadRealFile(path)
	if err != nil || !reflect.DeepEqual(runs, want) {
		t.Errorf("read back %v, %+v, want %+v", err, runs, want)
	}
	var table strings.Builder
	if err := ReportOf(aMeasurement(), runs).Table(&table); err != nil || !strings.Contains(table.String(), "at different times: flood by b1; tranche by b2") {
		t.Errorf("%v\n%s\nwant it to say that the builds differ", err, table.String())
	}
}

// What is not comparable is refused by name, and nothing of it is touched.
func TestRealFileRefusesWhatIsNotItsOwn(t *testing.T) {
	ours := func(change func(*Measured)) Measured {
		m := aMeasurement()
		change(&m)
		return m
	}
	path := fileOf(t, aRun("flood", 1))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	cases := []struct {
		name, text string
		now        Measured
		want       error
		says       string
	}{
		{"workload", string(text), ours(func(m *Measured) { m.Workload = "vllm-b" }), ErrOtherMeasurement, "workload: vllm-a there, vllm-b now"},
		{"two things", string(text), ours(func(m *Measured) { m.Seed, m.Server.KVTokens = 2, 5 }), ErrOtherMeasurement, "seed: 1 there, 2 now; KV tokens: 16512 there, 5 now"},
		{"version", string(text), ours(func(m *Measured) { m.Server.Version = "0.12" }), ErrOtherMeasurement, "server version: 0.11 there, 0.12 now"},
		{"time scale", string(text), ours(func(m *Measured) { m.TimeScale = 0.5 }), ErrOtherMeasurement, "time scale: 1 there, 0.5 now"},
		{"baselines", string(text), ours(func(m *Measured) { m.Policies++ }), ErrOtherMeasurement, "version of the baselines"},
		{"the same name, other lengths", string(text), ours(func(m *Measured) { m.Digest = "e" }), ErrOtherMeasurement, "draws the workload otherwise"},
		{"a later format", strings.Replace(string(text), `_real":1`, `_real":2`, 1), aMeasurement(), ErrOtherMeasurement, "format 2, this version knows 1"},
		{"no header", lines[1], aMeasurement(), ErrNoRealFile, ""},
		{"something else", "policy,makespan\n", aMeasurement(), ErrNoRealFile, ""},
		{"something else on one line", `{"a":1}`, aMeasurement(), ErrNoRealFile, ""},
		{"a line that is none", lines[0] + "{}\n" + lines[1], aMeasurement(), ErrRealFileDamaged, "line 2: neither a run"},
		{"broken in the middle", lines[0] + lines[1][:20] + "\n" + lines[1], aMeasurement(), ErrRealFileDamaged, "line 2"},
		{"twice", lines[0] + lines[1] + lines[1], aMeasurement(), ErrRealFileDamaged, "line 3: a second run of flood, repeat 1"},
		{"impossible", lines[0] + strings.Replace(lines[1], `"repeat":1`, `"repeat":0`, 1), aMeasurement(), ErrRealFileDamaged, "repeat 0"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, []byte(c.text))
			_, err := OpenRealFile(path, c.now)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want %v that names the file and says %q", err, c.want, c.says)
			}
			if now, err := os.ReadFile(path); err != nil || string(now) != c.text {
				t.Errorf("the file was changed: %v\n%s", err, now)
			}
		})
	}
}

// A device or a directory is refused before it is read, and no file is read without a bound.
func TestRealFileRefusesWhatIsNoRegularFile(t *testing.T) {
	huge := write(t, nil)
	if err := os.Truncate(huge, mostRealFile+1); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path string
		want error
	}{
		"a device":      {"/dev/zero", ErrIrregular},
		"a directory":   {t.TempDir(), ErrIrregular},
		"a file of 64M": {huge, ErrNoRealFile},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat(c.path); err != nil {
				t.Skip(err)
			}
			if _, _, err := ReadRealFile(c.path); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.path) {
				t.Errorf("read: %v, want %v", err, c.want)
			}
			if _, err := OpenRealFile(c.path, aMeasurement()); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.path) {
				t.Errorf("open: %v, want %v", err, c.want)
			}
		})
	}
}

func TestRealFileIsWrittenByOne(t *testing.T) {
	path := fileOf(t)
	f, err := OpenRealFile(path, aMeasurement())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := OpenRealFile(path, aMeasurement()); !errors.Is(err, ErrRealFileHeld) {
		t.Errorf("error %v, want ErrRealFileHeld", err)
	}
	if _, _, err := ReadRealFile(path); err != nil {
		t.Errorf("it cannot be read meanwhile: %v", err)
	}
}

// TestRealGoesOnWhereItStopped plays no run twice, whatever was there, and all that is missing.
func TestRealGoesOnWhereItStopped(t *testing.T) {
	p := newPerfect()
	r := onPerfect(t, p, "flood", "cap-2")
	r.Had = []RealRun{aRun("cap-2", 1), aRun("cap-4", 1)}
	r.Repeats = 2
	var played []string
	r.Done = func(run RealRun) error {
		played = append(played, run.Policy+" "+string(rune('0'+run.Repeat)))
		return nil
	}
	report, err := r.Play(t.Context())
	if want := []string{"flood 1", "cap-2 2", "flood 2"}; err != nil || !reflect.DeepEqual(played, want) {
		t.Errorf("%v, played %v, want %v", err, played, want)
	}
	if x := report.row("cap-4"); x == nil || x.Runs != 1 || report.row("cap-2").Runs != 2 || report.row("flood").Runs != 2 {
		t.Errorf("%+v, want what was there in the report", report.Rows)
	}
}

func TestRealEndsWhenARunCannotBeKept(t *testing.T) {
	full := errors.New("the disk is full")
	r := onPerfect(t, newPerfect(), "flood", "cap-2")
	r.Done = func(RealRun) error { return full }
	report, err := r.Play(t.Context())
	if !errors.Is(err, full) || len(report.Rows) != 1 {
		t.Errorf("error %v, rows %+v; want the error and the run that was played", err, report.Rows)
	}
}

func FuzzRealFile(f *testing.F) {
	f.Add([]byte(`{"tranche_bench_real":1,"workload":"w"}` + "\n" + `{"again":"x"}` + "\n" + `{"run":{"policy":"x","repeat":1,"makespan_s":1}}` + "\n"))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, runs, whole, err := parseRealFile(text)
		if err != nil {
			return
		}
		if whole > len(text) || whole == 0 {
			t.Fatalf("%d whole bytes of %d", whole, len(text))
		}
		again, same, _, err := parseRealFile(text[:whole])
		if err != nil || again != m || !reflect.DeepEqual(same, runs) {
			t.Fatalf("the whole lines read otherwise: %v", err)
		}
		var table strings.Builder
		if err := ReportOf(m, runs).Table(&table); err != nil {
			t.Fatal(err)
		}
	})
}

// decisions tells when a policy sends which call of a small load, on a server where a call takes a millisecond a token whatever else runs.
func decisions(t *testing.T, name string) string {
	t.Helper()
	named, err := Named([]string{name})
	if err != nil {
		t.Fatal(err)
	}
	w := VLLMA().Draw(12, 1)
	p, err := named[0].New(Told{Seed: 1, Replicas: []scheduler.ReplicaConfig{{Name: "r0", Capacity: episode.Capacity{ContextTokens: 8192, KVTokens: 16512, BlockTokens: 128}}}, Played: w})
	if err != nil {
		t.Fatal(err)
	}
	type event struct {
		at time.Duration
		do func(now time.Duration)
	}
	var events []event
	var sent strings.Builder
	running := map[scheduler.Ticket]func(now time.Duration){} // by ticket: how its call ends
	tickets := scheduler.Ticket(0)
	var offer func(id string, e Episode, turn int, spans []span, now time.Duration)
	offer = func(id string, e Episode, turn int, spans []span, now time.Duration) {
		tickets++
		ticket, at := tickets, spans[turn]
		p.Offer(scheduler.Request{Ticket: ticket, Episode: id, Group: e.Group, Prompt: at.prompt, Exact: true, Want: w.MaxNew, MinUseful: 1, GroupSize: 1}, now)
		running[ticket] = func(now time.Duration) {
			fmt.Fprintln(&sent, now, id, turn)
			events = append(events, event{now + time.Duration(at.prompt+at.out)*time.Millisecond, func(now time.Duration) {
				p.Settle(ticket, Outcome{Generated: at.out, Prompt: at.prompt}, now)
				if turn == len(spans)-1 {
					p.Leave(id, now)
					return
				}
				p.Act(id, "tool", now)
				events = append(events, event{now + e.Turns[turn].Tool, func(now time.Duration) { offer(id, e, turn+1, spans, now) }})
			}})
		}
	}
	for i, e := range w.Episodes {
		var spans []span
		e.calls(func(c span) { spans = append(spans, c) })
		offer(fmt.Sprint(i), e, 0, spans, 0)
	}
	for now := time.Duration(0); ; {
		launches, _, _ := p.Next(now)
		for _, l := range launches {
			running[l.Ticket](now)
		}
		if len(events) == 0 {
			return sent.String()
		}
		slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
		next := events[0]
		events = events[1:]
		now = next.at
		next.do(now)
	}
}

// Runs of the baselines are kept for later comparison: when one decides otherwise than it did, PoliciesVersion is to be raised and its new
// decisions noted here.
func TestPoliciesVersionStandsForWhatBaselinesDecide(t *testing.T) {
	noted := map[int]map[string]string{
		1: {"flood": "463634e215a2", "cap-4": "d6a0542b12e5", "cap-8": "cdeb89d52657"},
	}
	for name, want := range noted[PoliciesVersion] {
		made := decisions(t, name)
		sum := sha256.Sum256([]byte(made))
		if got := hex.EncodeToString(sum[:6]); got != want {
			t.Errorf("%s decides otherwise than noted for version %d: %s, not %s\n%s", name, PoliciesVersion, got, want, made[:min(len(made), 400)])
		}
	}
	if len(noted[PoliciesVersion]) == 0 {
		t.Errorf("nothing is noted for version %d", PoliciesVersion)
	}
}
