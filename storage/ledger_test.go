package storage

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tranche/episode"
)

// Laws of the layout of parts: every row that is kept is in it once; a group is in one row group, its rows side by side in
// sample order; a task's groups follow one another by round; no row group and no part passes its size unless one group does.
func TestArrangeLaws(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		groupBytes, partBytes := int64(50+rng.IntN(400)), int64(100+rng.IntN(2000))
		var groups []*group
		want := 0
		size := map[key]int64{}
		for g := range 1 + rng.IntN(40) {
			gr := &group{}
			id, task := keyOf(fmt.Sprint("g", g)), keyOf(fmt.Sprint("t", g%5))
			for s := range 1 + rng.IntN(4) {
				r := record{key: keyOf(fmt.Sprint(g, s)), group: id, task: task, seq: rng.Uint64() % 1000, round: int32(g / 5), sample: int32(s),
					failed: rng.IntN(4) == 0, raw: int64(1 + rng.IntN(100))}
				gr.put(r)
				if !r.failed {
					want++
					size[id] += r.raw
				}
			}
			groups = append(groups, gr)
		}
		rng.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
		parts := arrange(groups, record.good, groupBytes, partBytes)
		seen, place, lastRound, closed := map[key]bool{}, map[key][2]int{}, map[key]int32{}, map[key]bool{}
		var prev record
		for p, l := range parts {
			partSum := int64(0)
			for g, rows := range l {
				sum, ids := int64(0), map[key]bool{}
				for i, r := range rows {
					if seen[r.key] || r.failed {
						t.Fatalf("seed %d: a row twice, or one that was not wanted", seed)
					}
					seen[r.key] = true
					if at, ok := place[r.group]; ok && at != [2]int{p, g} {
						t.Fatalf("seed %d: a group in two row groups", seed)
					}
					place[r.group] = [2]int{p, g}
					if i > 0 && prev.group == r.group && prev.sample >= r.sample {
						t.Fatalf("seed %d: samples out of order", seed)
					}
					if prev.task != r.task {
						if closed[r.task] {
							t.Fatalf("seed %d: rows of a task are not adjacent", seed)
						}
						closed[prev.task] = true
					} else if r.round < lastRound[r.task] {
						t.Fatalf("seed %d: rounds out of order", seed)
					}
					lastRound[r.task] = r.round
					sum += r.raw
					ids[r.group] = true
					prev = *r
				}
				if sum > groupBytes && len(ids) > 1 {
					t.Fatalf("seed %d: a row group of %d bytes, limit %d", seed, sum, groupBytes)
				}
				partSum += sum
			}
			if partSum > partBytes && len(l) > 1 && len(l[0]) > 0 && partSum-size[l[0][0].group] > partBytes {
				t.Fatalf("seed %d: a part of %d bytes, limit %d", seed, partSum, partBytes)
			}
		}
		if len(seen) != want {
			t.Fatalf("seed %d: %d rows laid out, want %d", seed, len(seen), want)
		}
	}
}

func TestSealWait(t *testing.T) {
	cfg := Config{Dir: "x", PartBytes: 1000}.withDefaults()
	for name, c := range map[string]struct {
		seals int
		ready int64
		age   time.Duration
		want  time.Duration
	}{
		"the first part after 1 s": {0, 1, 0, time.Second},
		"some of it has passed":    {0, 1, 400 * time.Millisecond, 600 * time.Millisecond},
		"then 2 s":                 {1, 1, 0, 2 * time.Second},
		"then 4 s":                 {2, 1, 0, 4 * time.Second},
		"at most 5 min":            {9, 1, 0, 5 * time.Minute},
		"however often":            {1 << 20, 1, 0, 5 * time.Minute},
		"a full part at once":      {9, 1000, 0, 0},
		"never negative":           {0, 1, time.Hour, 0},
	} {
		if got := sealWait(cfg, c.seals, c.ready, c.age); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The visibility schedule in fake time: parts appear 1, 3, 7, 15 … seconds after steady writing began. Also SH-o1's "readable
// on disk before second 3".
//
// It runs in a process of its own: the Parquet reader keeps decompressors for the whole process, with channels that may not
// cross the border of a synctest bubble.
func TestRowsAreReadableSoon(t *testing.T) {
	if os.Getenv("TRANCHE_STORAGE_BUBBLE") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRowsAreReadableSoon$")
		cmd.Env = append(os.Environ(), "TRANCHE_STORAGE_BUBBLE=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	synctest.Test(t, func(t *testing.T) {
		dir := fastDir(t)
		w, err := Open(Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		var at []string
		parts := 0
		m := made{run: "r"}
		for i := 0; time.Since(begin) < 40*time.Second; i++ {
			mustWrite(t, w, m.episode(i, 0))
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if n := len(w.Manifest().Parts); n > parts {
				parts = n
				at = append(at, time.Since(begin).Round(time.Second).String())
			}
		}
		if got := strings.Join(at, " "); got != "1s 3s 7s 15s 31s" {
			t.Errorf("parts appeared after %s", got)
		}
		mustClose(t, w)
	})
}

func TestOneFsyncServesManyWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFaultyDisk(0, false)
		w, err := openOn(d, Config{Dir: fastDir(t), MinPartAge: time.Hour, MaxPartAge: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		m := made{run: "r", group: 2}
		mustWrite(t, w, m.episode(0, 0)) // opens the segment; no group is ever complete, so that nothing is sealed
		before := d.ops
		done := make(chan error)
		for i := range 200 {
			go func() { done <- w.Write(context.Background(), m.episode(1+i, 0)) }()
		}
		begin := time.Now()
		for range 200 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if n := d.ops - before; n > 4 {
			t.Errorf("%d disk operations for 200 rows, want one write and one fsync", n)
		}
		if wait := time.Since(begin); wait > 6*time.Millisecond {
			t.Errorf("Write waited %v, SyncInterval is 5ms", wait)
		}
		mustClose(t, w)
	})
}

// Writers wait when publishing falls behind, a cancelled one leaves, and nobody waits for incomplete groups.
func TestBackPressure(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.PartBytes = 1
	slow := &slowDisk{fileSystem: disk{}, gate: make(chan struct{})}
	w, err := openOn(slow, cfg)
	if err != nil {
		t.Fatal(err)
	}
	m := made{run: "r"}
	mustWrite(t, w, m.episode(0, 0)) // more than twice PartBytes: the sealer begins and hangs at the gate
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := w.Write(ctx, m.episode(1, 0)); err == nil || ctx.Err() == nil {
		t.Errorf("Write did not wait: %v", err)
	}
	if w.Done(m.episode(1, 0).ID) {
		t.Error("an episode that was not written is done")
	}
	waiting := make(chan error)
	go func() { waiting <- w.Write(context.Background(), m.episode(2, 0)) }()
	close(slow.gate)
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	pairs := made{run: "r", group: 2}
	for i := range 20 { // incomplete groups: no room is taken
		mustWrite(t, w, pairs.episode(100+i, 0))
	}
	mustClose(t, w)
}

// slowDisk lets no part begin before its gate is open.
type slowDisk struct {
	fileSystem
	gate chan struct{}
}

func (d *slowDisk) Create(path string) (file, error) {
	if filepath.Base(filepath.Dir(path)) == partsDir {
		<-d.gate
	}
	return d.fileSystem.Create(path)
}

// Components are counted by name over the rows that have them, with the reasons of there being no verdict; the same from rows and from files.
func TestSummaryOfComponents(t *testing.T) {
	var s Summary
	for range 3 {
		r := RowOf(judged())
		s.Add(&r)
	}
	bare := RowOf(made{run: "r", failing: func(int, int) bool { return true }}.episode(1, 0))
	bare.Rewards = nil
	s.Add(&bare)
	tests, judge := s.Components["tests"], s.Components["judge"]
	if tests.Score.N != 3 || tests.Score.Of != 3 || tests.Score.Average != 0.5 || tests.Tokens.In != 30 || tests.Tokens.Out != 9 || tests.Wall != 4.5 || tests.Again != 3 || tests.Reasons != nil {
		t.Errorf("tests: %+v", tests)
	}
	if judge.Score.N != 0 || judge.Score.Of != 3 || judge.Reasons["judge_unavailable"] != 3 || len(s.Components) != 3 {
		t.Errorf("judge: %+v of %d", judge, len(s.Components))
	}
	c := s.clone()
	c.Components["judge"].Reasons["judge_unavailable"]++
	if judge.Reasons["judge_unavailable"] != 3 {
		t.Error("a copy shares its counts")
	}
}

// OB-o1, the part that storage counts; cancelled and skipped episodes are the caller's to count.
func TestSummary(t *testing.T) {
	var s Summary
	score := func(v float64) *float64 { return &v }
	for i := range 10 {
		r := RowOf(made{run: "r"}.episode(i, 0))
		r.NumInputTokens, r.NumOutputTokens = episode.Ptr[int32](100), episode.Ptr[int32](5)
		r.Reward = []*float64{score(0), score(1), nil}[i%3]
		if i == 9 {
			r.NumOutputTokens = nil
		}
		r.Timing = Timing{Model: 2}
		s.Add(&r)
	}
	for i := range 3 {
		r := RowOf(made{run: "r", failing: func(int, int) bool { return true }}.episode(20+i, 0))
		r.NumOutputTokens = episode.Ptr[int32](1000)
		s.Add(&r)
	}
	if s.Rows != 13 || s.Good != 10 || s.Failed != 3 || s.Failures["timeout"] != 3 || s.Status["completed"] != 10 || s.Stops["fault"] != 3 {
		t.Errorf("%+v", s)
	}
	if s.Tokens != (Tokens{In: 1000, Out: 45, UnknownOut: 1}) {
		t.Errorf("tokens of good rows only: %+v", s.Tokens)
	}
	// scores of the ten: 0 1 - 0 1 - 0 1 - 0
	if s.Reward.N != 7 || s.Reward.Of != 13 || math.Abs(s.Reward.Average-3.0/7) > 1e-12 || math.Abs(s.Reward.Coverage()-7.0/13) > 1e-12 {
		t.Errorf("reward %+v", s.Reward)
	}
	if sd, ok := s.Reward.StdDev(); !ok || math.Abs(sd-0.5345224838248488) > 1e-12 {
		t.Errorf("standard deviation %v", sd)
	}
	if s.Time.Model < 20 {
		t.Errorf("time %+v", s.Time)
	}
	n := int64(0)
	for _, d := range s.DataSources {
		n += d.Rows
	}
	if n != 13 || len(s.DataSources) != 3 || len(s.Classes) != 4 {
		t.Errorf("shares: %v, %v", s.DataSources, s.Classes)
	}
	b, err := json.Marshal((&Summary{}).clone())
	if err != nil || !strings.Contains(string(b), `"reward":{"n":0,"rows":0,"coverage":0,"mean":null,"std_dev":null}`) || strings.Contains(string(b), `:null,"failures"`) {
		t.Errorf("an empty summary: %s, %v", b, err)
	}
}

func TestSummaryFileAndRebuild(t *testing.T) {
	dir := t.TempDir()
	m := made{run: "r", group: 2, failing: killFailing}
	w := mustOpen(t, testConfig(dir))
	for i := range 60 {
		mustWrite(t, w, m.episode(i/2, i%2))
		if i == 30 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := w.Summary()
	if err := w.WriteSummary(map[string]int{"skipped": 1}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, w)
	var file struct {
		Dataset struct{ Rows, Good, Failed int }
		Run     struct{ Skipped int }
	}
	b, err := readFile(disk{}, filepath.Join(dir, summaryName))
	if err == nil {
		err = json.Unmarshal(b, &file)
	}
	if err != nil || file.Dataset.Rows != 60 || file.Dataset.Good+file.Dataset.Failed != 60 || file.Run.Skipped != 1 {
		t.Errorf("%v: %s", err, b)
	}
	w = mustOpen(t, testConfig(dir))
	if !sameJSON(before, w.Summary()) {
		t.Errorf("rebuilt summary differs:\n%+v\n%+v", before, w.Summary())
	}
	mustClose(t, w)
}

func TestKeyOf(t *testing.T) {
	id := episode.ID("a")
	k := keyOf(id)
	if fmt.Sprintf("%x", k[:]) != id {
		t.Errorf("%x is not %s", k, id)
	}
	distinct := []string{id, strings.ToUpper(id), id[:31], id + "0", "task/1", "task/2", ""}
	keys := make([]key, len(distinct))
	for i, s := range distinct {
		keys[i] = keyOf(s)
	}
	slices.SortFunc(keys, func(a, b key) int { return cmp.Compare(string(a[:]), string(b[:])) })
	if len(slices.Compact(keys)) != len(distinct) {
		t.Errorf("two of %q share a key", distinct)
	}
}
