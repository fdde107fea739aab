package storage

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tranche/episode"
)

// Whatever records are lost, a chain never joins turns that did not follow one another.
func TestChainsTellOneStory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var written []foundTurn
		after := map[uint64]uint64{} // the record before, as it really was
		seq := uint64(0)
		attempt := uint32(0)
		for range rapid.IntRange(1, 6).Draw(t, "processes") {
			lost := rapid.SliceOfN(rapid.Bool(), len(written), len(written)).Draw(t, "lost")
			l := &turnLog{chains: map[key]*chain{}}
			f := &turnFile{}
			var found []foundTurn
			for i, r := range written {
				if !lost[i] {
					r.at.file = f
					found = append(found, r)
				}
			}
			l.link(found, func(key) bool { return false })
			c := l.chains[key{}]
			var have []uint64
			if c != nil {
				for i, p := range c.turns {
					if i > 0 && after[p.seq] != c.turns[i-1].seq || i == 0 && after[p.seq] != 0 {
						t.Fatalf("turn %d (record %d) follows record %d, the chain has it behind another", i, p.seq, after[p.seq])
					}
					have = append(have, p.seq)
				}
			}
			if rapid.Bool().Draw(t, "lost for good") {
				written = found
			}
			// The next process goes on from some of it, or begins again.
			have = have[:rapid.IntRange(0, len(have)).Draw(t, "rebuilt")]
			if len(have) == 0 && c != nil {
				attempt = max(attempt, c.attempt) + 1
			} else if c != nil {
				attempt = c.attempt
			}
			for range rapid.IntRange(0, 3).Draw(t, "turns") {
				seq++
				prev := uint64(0)
				if n := len(have); n > 0 {
					prev = have[n-1]
				}
				written = append(written, foundTurn{turnHeader{seq: seq, prev: prev, attempt: attempt, turn: uint32(len(have))}, nil, recordAt{seq: seq, bytes: 1}})
				after[seq], have = prev, append(have, seq)
			}
		}
	})
}

// actors is what the tests play: a model and tools that answer alike whenever they are asked alike, from two to seven turns an episode.
type actors struct {
	calls int
	holds func(e *episode.Episode) []string // nil = tools hold nothing
}

func draw(e *episode.Episode) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, e.ID, len(e.Turns), len(e.Messages), e.Tokens.IDs)
	return h.Sum64()
}

// turn plays one turn; its step is kept where the episode goes on.
func (a *actors) turn(w *Writer, e *episode.Episode) {
	a.calls++
	n := draw(e)
	prompt := append(slices.Clone(e.Tokens.IDs), int32(n%1000), int32(n%7))
	if n%5 == 0 && len(e.Tokens.IDs) > 3 {
		prompt = append(slices.Clone(e.Tokens.IDs[:len(e.Tokens.IDs)-2]), 9)
	}
	r := &episode.Reply{Message: episode.Message{Role: episode.RoleAssistant, Content: episode.Ptr(fmt.Sprint("thought ", n))}, Finish: episode.FinishStop,
		PromptIDs: prompt, SampledIDs: []int32{int32(n % 100), 5}, Logprobs: []episode.Logprob{{Value: -1, Known: true}, {}}}
	if turn := len(e.Turns); turn == 0 || turn < 6 && n%4 > 0 {
		r.Finish, r.Message.ToolCalls = episode.FinishToolCalls, []episode.ToolCall{{ID: fmt.Sprint("c", turn), Type: "function"}}
	}
	s := e.Step(r, episode.Turn{CompletionTokens: episode.Ptr[int32](2), PromptTokens: episode.Ptr(int32(len(prompt)))})
	e.AddReply(r, s.Turn)
	for _, act := range e.PendingActions() {
		s.Seen = append(s.Seen, episode.Observation{CallID: act.Call.ID, Name: "tool", Text: strings.Repeat("seen ", int(n%50)), Status: episode.ActionOK})
		e.AddObservation(s.Seen[len(s.Seen)-1])
	}
	if !e.Open() {
		return
	}
	s.Spent = time.Duration(len(e.Turns))
	if a.holds != nil {
		s.Kept = a.holds(e)
	}
	w.KeepTurn(e, &s)
}

// life is one process that plays what is not stored yet, all at once, turn by turn. It ends early where the disk fails, as if it were killed there.
func (a *actors) life(w *Writer, tasks int) (done bool) {
	var open []*episode.Episode
	for task := range tasks {
		for sample := range 2 {
			e := openEpisode("r", task, sample)
			if w.Done(e.ID) {
				continue
			}
			e.Begun = w.Begun(e.ID)
			if err := e.Rebuild(); err != nil {
				panic(err)
			}
			open = append(open, e)
		}
	}
	for len(open) > 0 {
		var still []*episode.Episode
		for _, e := range open {
			a.turn(w, e)
			if w.TurnTrouble() != nil {
				return false
			}
			if e.Open() {
				still = append(still, e)
			} else if w.Write(context.Background(), e) != nil {
				return false
			}
		}
		open = still
	}
	return true
}

// untold is a row without what tells how it went this time.
func untold(r *Row) Row {
	c := timeless(r)
	c.Attempt, c.CreatedAt = 0, time.Time{}
	c.Flags = slices.DeleteFunc(slices.Clone(c.Flags), func(f string) bool { return f == episode.FlagResumed })
	return c
}

func tinyTurnFiles(w *Writer) { w.turns.bytes, w.turns.slack = 4<<10, 2<<10 }

func mustLive(t *testing.T, a *actors, dir string, tasks int) {
	t.Helper()
	w := mustOpen(t, testConfig(dir))
	tinyTurnFiles(w)
	if !a.life(w, tasks) {
		t.Fatalf("the run did not come to its end: %v", w.TurnTrouble())
	}
	mustClose(t, w)
	entries, err := os.ReadDir(filepath.Join(dir, journalDir))
	if err != nil || len(entries) > 0 {
		t.Fatalf("left in the journal of a finished run: %v %v", entries, err)
	}
}

func rowsAre(t *testing.T, dir string, want map[string]*Row) {
	t.Helper()
	got := rowsOf(t, dir)
	if len(got) != len(want) {
		t.Fatalf("%d rows, uninterrupted %d", len(got), len(want))
	}
	for id, r := range want {
		if got[id] == nil || !reflect.DeepEqual(untold(got[id]), untold(r)) {
			t.Fatalf("row %s differs from the uninterrupted run\n got %s\nwant %s", id, shown(got[id]), shown(r))
		}
	}
}

// A process dies at each operation on the disk, or loses all that was not synced, and another goes on: the rows are those of a run that nothing
// happened to, and a crash costs no more than the turn that was going on.
func TestEpisodesGoOnWhereverTheProcessDies(t *testing.T) {
	const tasks = 4
	whole := fastDir(t)
	var once actors
	mustLive(t, &once, whole, tasks)
	want := rowsOf(t, whole)

	var all actors
	clean := newFaultyDisk(0, false)
	w, err := openOn(clean, testConfig(fastDir(t)))
	if err != nil {
		t.Fatal(err)
	}
	tinyTurnFiles(w)
	if !all.life(w, tasks) || w.Close() != nil {
		t.Fatal("the script does not end without faults")
	}
	stride := 3
	switch {
	case raceEnabled: // what runs at once is the same at every operation
		stride = 20
	case testing.Short():
		stride = 9
	case os.Getenv("TRANCHE_EVERY_FAULT") != "":
		stride = 1
	}
	moved := 0
	for _, lose := range []bool{false, true} {
		for k := 1; k <= clean.ops; k += stride {
			dir := fastDir(t)
			disk := newFaultyDisk(k, true)
			var a actors
			if w, err := openOn(disk, testConfig(dir)); err == nil {
				tinyTurnFiles(w)
				a.life(w, tasks)
				_ = w.Close() // fails: the process is dead
			}
			if lose {
				disk.loseUnsynced(t)
			}
			mustLive(t, &a, dir, tasks)
			rowsAre(t, dir, want)
			if most := once.calls + 2*tasks; !lose && a.calls > most {
				t.Fatalf("fault at operation %d of %d: %d calls, %d without it: more than a turn for each of %d episodes was played again", k, clean.ops, a.calls, once.calls, 2*tasks)
			}
			if a.calls > once.calls {
				moved++
			}
		}
	}
	if moved == 0 {
		t.Error("no turn was ever played again: no fault hit a turn")
	}
}

// A chain of crashes: each process dies after a few turns.
func TestEpisodesGoOnThroughManyCrashes(t *testing.T) {
	const tasks = 8
	whole := fastDir(t)
	var once actors
	mustLive(t, &once, whole, tasks)

	dir := fastDir(t)
	var a actors
	lives := 0
	for k := 5; ; k += 3 {
		disk := newFaultyDisk(k, true)
		w, err := openOn(disk, testConfig(dir))
		done := false
		if err == nil {
			tinyTurnFiles(w)
			done = a.life(w, tasks)
			done = w.Close() == nil && done
		}
		if lives++; done {
			break
		}
	}
	rowsAre(t, dir, rowsOf(t, whole))
	if most := once.calls + lives*2*tasks; a.calls > most || lives < 5 {
		t.Errorf("%d calls over %d lives, %d without crashes, at most %d", a.calls, lives, once.calls, most)
	}
	t.Logf("%d calls over %d lives, %d without crashes", a.calls, lives, once.calls)
}

// What is dead is let go of, however long the run: the files hold little more than what lives.
func TestTurnFilesStaySmall(t *testing.T) {
	dir := fastDir(t)
	w := mustOpen(t, testConfig(dir))
	tinyTurnFiles(w)
	long := openEpisode("r", 999, 0) // lives through all the others
	var a actors
	a.turn(w, long)
	var most, live, all int64
	for task := range 200 {
		e := openEpisode("r", task, 0)
		for e.Open() {
			a.turn(w, e)
			live = max(live, liveIn(w))
		}
		all += liveIn(w)
		mustWrite(t, w, e)
		most = max(most, bytesIn(t, dir))
	}
	if limit := 2*live + w.turns.slack + 3*w.turns.bytes; most > limit || all < 4*limit {
		t.Errorf("the files held up to %d bytes of some %d, while up to %d were alive, expected at most %d", most, all, live, limit)
	}
	mustClose(t, w)
	w = mustOpen(t, testConfig(dir))
	if o := w.Recovery().Open; o.GoOn != 1 || o.Turns != 1 {
		t.Errorf("the episode that was moved from file to file: %+v (%v)", o, w.TurnTrouble())
	}
	if b := w.Begun(long.ID); b == nil || len(b.Steps) != 1 || b.Steps[0].Reply.Message.Content == nil || *b.Steps[0].Reply.Message.Content != *long.Messages[2].Content {
		t.Errorf("its turn: %s", shown(b))
	}
}

func liveIn(w *Writer) (n int64) {
	w.turns.mu.Lock()
	defer w.turns.mu.Unlock()
	for _, f := range w.turns.files {
		n += f.live
	}
	return n
}

func bytesIn(t *testing.T, dir string) (n int64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, journalDir, "turns-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		n += info.Size()
	}
	return n
}

// Where tools hold something of an episode it goes on from the last turn before, or begins again as the next attempt.
func TestTurnsBehindStateAreNotGoneOnFrom(t *testing.T) {
	dir := fastDir(t)
	w := mustOpen(t, testConfig(dir))
	from := func(turn int) func(*episode.Episode) []string {
		return func(e *episode.Episode) []string {
			if len(e.Turns) > turn {
				return []string{"python"}
			}
			return nil
		}
	}
	var ids [2]string
	for i := range ids {
		ids[i] = longEpisode(w, &actors{holds: from(2 * i)}, i, 4).ID
	}
	mustClose(t, w)
	w = mustOpen(t, testConfig(dir))
	if o := w.Recovery().Open; o.GoOn != 1 || o.Turns != 2 || o.Again != 1 || !slices.Equal(o.Kept, []string{"python"}) {
		t.Errorf("found %+v", o)
	}
	for i, want := range []struct{ steps, attempt int }{{0, 1}, {2, 0}} {
		again := openEpisode("long", longTask(i, 4), i)
		again.Begun = w.Begun(ids[i])
		if again.Begun == nil || len(again.Begun.Steps) != want.steps {
			t.Fatalf("episode %d: %s, want %d steps", i, shown(again.Begun), want.steps)
		}
		if err := again.Rebuild(); err != nil || len(again.Turns) != want.steps || again.Attempt != want.attempt {
			t.Errorf("episode %d: %d turns, attempt %d (%v), want %d and %d", i, len(again.Turns), again.Attempt, err, want.steps, want.attempt)
		}
		var a actors
		a.turn(w, again) // and is kept from there on
		if b := w.Begun(ids[i]); len(b.Steps) != want.steps+1 || b.Attempt != want.attempt {
			t.Errorf("episode %d after another turn: %d steps, attempt %d", i, len(b.Steps), b.Attempt)
		}
	}
}

// Damage to a record of a turn costs that turn and those behind it, is told, and costs no row.
func TestDamagedTurns(t *testing.T) {
	for name, c := range map[string]struct {
		harm    func(path string, at []int64) error
		turns   int // that are left
		damaged bool
	}{
		"nothing":               {func(string, []int64) error { return nil }, 4, false},
		"a flipped bit":         {func(p string, at []int64) error { return flip(p, at[1]+60) }, 1, true},
		"half a record":         {func(p string, at []int64) error { return os.Truncate(p, (at[3]+at[4])/2) }, 3, false},
		"zeros behind":          {func(p string, at []int64) error { return os.Truncate(p, at[4]+4096) }, 4, false},
		"the first one":         {func(p string, at []int64) error { return flip(p, at[0]+5) }, 0, true},
		"no file at all":        {func(p string, _ []int64) error { return os.Remove(p) }, 0, false},
		"a row in a turn's way": {func(p string, _ []int64) error { return appendRowFrame(p) }, 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := fastDir(t)
			w := mustOpen(t, testConfig(dir))
			m := made{run: "r", group: 2}
			mustWrite(t, w, m.episode(7, 0))
			e := longEpisode(w, &actors{}, 0, 4)
			mustClose(t, w)
			file := filepath.Join(dir, journalDir, turnFileName(0))
			if err := c.harm(file, framesOf(t, file)); err != nil {
				t.Fatal(err)
			}
			w = mustOpen(t, testConfig(dir))
			steps := 0
			if b := w.Begun(e.ID); b != nil {
				steps = len(b.Steps)
			}
			if steps != c.turns {
				t.Errorf("%d turns are left, want %d", steps, c.turns)
			}
			damage := w.Recovery().Damage
			if (len(damage) > 0) != c.damaged || c.damaged && (!damage[0].Turns || !strings.Contains(damage[0].String(), "played again")) {
				t.Errorf("damage %v, want some: %v", damage, c.damaged)
			}
			if !w.Done(m.episode(7, 0).ID) || w.Recovery().Journal != 1 {
				t.Errorf("the row is gone: %+v", w.Recovery())
			}
			if rows := rowsOf(t, dir); len(rows) != 1 {
				t.Errorf("a reader sees %d rows", len(rows))
			}
		})
	}
}

// longTask is a task of which a sample has more than so many turns.
func longTask(sample, turns int) int {
	nowhere := &Writer{turns: &turnLog{off: true}}
	for task := 0; ; task++ {
		e := openEpisode("long", task, sample)
		var a actors
		for len(e.Turns) <= turns && e.Open() {
			a.turn(nowhere, e)
		}
		if len(e.Turns) > turns {
			return task
		}
	}
}

// longEpisode plays so many turns of an episode that then goes on.
func longEpisode(w *Writer, a *actors, sample, turns int) *episode.Episode {
	e := openEpisode("long", longTask(sample, turns), sample)
	for len(e.Turns) < turns {
		a.turn(w, e)
	}
	return e
}

func framesOf(t *testing.T, path string) (offsets []int64) {
	t.Helper()
	f, err := disk{}.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scanFrames(f, info.Size(), func(at int64, _ []byte) error { offsets = append(offsets, at); return nil }); err != nil {
		t.Fatal(err)
	}
	return append(offsets, info.Size())
}

func appendRowFrame(path string) error {
	row := RowOf(made{run: "r"}.episode(1, 0))
	frame, err := appendFrame(nil, frameRow, func(b []byte) ([]byte, error) { return appendRow(b, 1, key{}, &row) })
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(frame)
	return errors.Join(err, f.Close())
}

// An episode that is played again because it failed begins at its beginning, whatever is left of its first try.
func TestRetriedFailuresBeginAgain(t *testing.T) {
	dir := fastDir(t)
	w := mustOpen(t, testConfig(dir))
	e := longEpisode(w, &actors{}, 0, 3)
	frames, err := os.ReadFile(filepath.Join(dir, journalDir, turnFileName(0)))
	if err != nil || len(frames) <= len(segmentMagic) {
		t.Fatalf("%d bytes of turns: %v", len(frames), err)
	}
	e.Fail(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassTimeout, Cause: errors.New("late")})
	mustWrite(t, w, e)
	mustClose(t, w)
	if err := os.WriteFile(filepath.Join(dir, journalDir, turnFileName(0)), frames, 0o644); err != nil { // as a crash before the removal leaves it
		t.Fatal(err)
	}
	cfg := testConfig(dir)
	cfg.RetryFailed = true
	w = mustOpen(t, cfg)
	if b := w.Begun(e.ID); w.Done(e.ID) || b != nil {
		t.Errorf("done %v, begun %s", w.Done(e.ID), shown(b))
	}
}

// Where the disk is full turns are not kept any more; rows are refused for themselves.
func TestTurnsOnAFullDisk(t *testing.T) {
	d := newFaultyDisk(0, false)
	dir := fastDir(t)
	w, err := openOn(d, testConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	e := longEpisode(w, &actors{}, 0, 2)
	d.mu.Lock()
	d.failAt = d.ops + 1
	d.mu.Unlock()
	var a actors
	for range 3 {
		if e.Open() {
			a.turn(w, e)
		}
	}
	if err := w.TurnTrouble(); err == nil || !errors.Is(err, errInjected) {
		t.Errorf("trouble: %v", err)
	}
	mustWrite(t, w, made{run: "r"}.episode(1, 0)) // the disk has room again
	mustClose(t, w)
	w = mustOpen(t, testConfig(dir))
	if b := w.Begun(e.ID); b == nil || len(b.Steps) != 2 || w.Recovery().Published != 1 {
		t.Errorf("afterwards: %s, %+v", shown(b), w.Recovery())
	}
}

// A run without turns to keep makes no file for them.
func TestSingleTurnsLeaveNoTrace(t *testing.T) {
	dir := fastDir(t)
	d := newFaultyDisk(0, false)
	w, err := openOn(d, testConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	m := made{run: "r", group: 2}
	mustWrite(t, w, m.episode(1, 0), m.episode(2, 0))
	for name := range d.synced {
		if strings.Contains(name, "turns-") {
			t.Errorf("there is %s", name)
		}
	}
	mustClose(t, w)
}

// A file of turns that cannot be read keeps its turns, and those that follow them in other files, for the next process; this one keeps no new ones, whose
// numbers would stand twice.
func TestUnreadableTurnsStay(t *testing.T) {
	for _, op := range []string{"open", "read"} {
		t.Run(op, func(t *testing.T) {
			dir := fastDir(t)
			w := mustOpen(t, testConfig(dir))
			w.turns.bytes = 1 // a file for each
			e := longEpisode(w, &actors{}, 0, 4)
			mustClose(t, w)
			d := newFaultyDisk(0, false)
			d.hide(func(o, path string) bool { return o == op && filepath.Base(path) == turnFileName(0) })
			w, err := openOn(d, testConfig(dir))
			if err != nil {
				t.Fatal(err)
			}
			if err := w.TurnTrouble(); !errors.Is(err, errInjected) {
				t.Errorf("trouble: %v", err)
			}
			other := longEpisode(w, &actors{}, 1, 2)
			if a, b := w.Begun(e.ID), w.Begun(other.ID); a != nil || b != nil {
				t.Errorf("begun: %s and %s", shown(a), shown(b))
			}
			mustClose(t, w)
			if d.handles != 0 {
				t.Errorf("%d files are open", d.handles)
			}
			w = mustOpen(t, testConfig(dir))
			if b := w.Begun(e.ID); b == nil || len(b.Steps) != 4 || w.TurnTrouble() != nil {
				t.Errorf("afterwards: %s, %v", shown(b), w.TurnTrouble())
			}
		})
	}
}

// Turns that were moved out of a file survive a loss of power from the moment on when the file is gone.
func TestMovedTurnsAreDurable(t *testing.T) {
	dir := fastDir(t)
	d := newFaultyDisk(0, false)
	w, err := openOn(d, testConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	tinyTurnFiles(w)
	var a actors
	mustWrite(t, w, made{run: "r"}.episode(1, 0)) // nothing else has the folder synced from here on
	long := openEpisode("r", 999, 0)
	a.turn(w, long)
	for task := 0; ; task++ {
		e := openEpisode("r", task, 0)
		for e.Open() {
			a.turn(w, e)
		}
		mustWrite(t, w, e)
		if movedOn(w, long.ID) {
			break
		}
	}
	d.failWhen(func(string, string) bool { return true })
	_ = w.Close() // fails: there is no power
	d.loseUnsynced(t)
	w = mustOpen(t, testConfig(dir))
	if b := w.Begun(long.ID); b == nil || len(b.Steps) != 1 {
		t.Errorf("begun: %s (%v)", shown(b), w.TurnTrouble())
	}
}

// movedOn says whether the first turn of an episode is no longer in the first file.
func movedOn(w *Writer, id string) bool {
	w.turns.mu.Lock()
	defer w.turns.mu.Unlock()
	return w.turns.chains[keyOf(id)].turns[0].file.number > 0
}

// A process that ends leaves all turns durable, those in files that were full before as well, and says where it could not.
func TestTurnsAreDurableWhenTheProcessEnds(t *testing.T) {
	for name, fails := range map[string]func(op, path string) bool{
		"nothing fails":                  nil,
		"a full file cannot be synced":   func(op, path string) bool { return op == "sync" && filepath.Base(path) == turnFileName(0) },
		"the folder cannot be synced":    func(op, path string) bool { return op == "syncdir" && filepath.Base(path) == journalDir },
		"the last file cannot be synced": func(op, path string) bool { return op == "sync" && filepath.Base(path) == turnFileName(3) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := fastDir(t)
			d := newFaultyDisk(0, false)
			w, err := openOn(d, testConfig(dir))
			if err != nil {
				t.Fatal(err)
			}
			w.turns.bytes = 1
			e := longEpisode(w, &actors{}, 0, 4)
			d.failWhen(fails)
			mustClose(t, w)
			if err := w.TurnTrouble(); (err != nil) != (fails != nil) {
				t.Errorf("trouble: %v", err)
			}
			if fails != nil {
				return
			}
			d.loseUnsynced(t)
			w = mustOpen(t, testConfig(dir))
			if b := w.Begun(e.ID); b == nil || len(b.Steps) != 4 {
				t.Errorf("begun: %s (%v)", shown(b), w.TurnTrouble())
			}
		})
	}
}
