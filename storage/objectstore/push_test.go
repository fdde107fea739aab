package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tranche/episode"
	"tranche/internal/fakestore"
	"tranche/storage"
)

// play makes n episodes from the first on, every seventh of which failed unless better.
func play(t testing.TB, w *storage.Writer, first, n int, better bool) {
	t.Helper()
	for i := first; i < first+n; i++ {
		task := &episode.Task{ID: fmt.Sprintf("task-%05d", i), Hash: episode.ID("hash", fmt.Sprint(i)), Messages: []episode.Message{{Role: episode.RoleUser, Content: episode.Ptr("How much is it?")}}}
		e := episode.New("run", episode.Draw{Task: task, Samples: 1}, 0, episode.Sampling{}, episode.Budget{}, time.Unix(1_760_000_000, 0))
		if w.Done(e.ID) {
			continue
		}
		answer := strings.Repeat(fmt.Sprint(i, " "), 50)
		e.AddReply(&episode.Reply{Message: episode.Message{Role: episode.RoleAssistant, Content: &answer}, Finish: episode.FinishStop}, episode.Turn{Finish: "stop", Endpoint: "a"})
		if i%7 == 3 && !better {
			e.Fail(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassTimeout, Cause: errors.New("no answer")})
		}
		if err := w.Write(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}
}

func writer(t testing.TB, dir string, retry bool) *storage.Writer {
	t.Helper()
	w, err := storage.Open(storage.Config{Dir: dir, SyncInterval: time.Microsecond, MinPartAge: time.Hour, MaxPartAge: time.Hour, PartBytes: 32 << 10, RowGroupBytes: 16 << 10,
		RetryFailed: retry, RunFile: []byte("run-id: \"1\"\ncreated: \"then\"\n")})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// session plays once more into a run directory.
func session(t testing.TB, dir string, first, n int, retry bool) {
	t.Helper()
	w := writer(t, dir, retry)
	play(t, w, first, n, retry)
	if err := errors.Join(w.WriteSummary(map[string]int{"rows": first + n}), w.Close()); err != nil {
		t.Fatal(err)
	}
}

// copyTo makes a directory the copy of another.
func copyTo(t testing.TB, to, from string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))); err != nil {
		t.Fatal(err)
	}
}

func newPush(t testing.TB, dir string, s Store) *Pusher {
	t.Helper()
	p, err := NewPusher(Push{Dir: dir, Store: s, Every: 5 * time.Millisecond, Patience: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// push is `tranche push`.
func push(t testing.TB, dir string, s Store) (Pushed, error) {
	t.Helper()
	p := newPush(t, dir, s)
	err := p.Prepare(t.Context())
	if err == nil {
		err = errors.Join(p.Pass(t.Context()), p.Verify(t.Context()))
	}
	return p.Progress(), errors.Join(err, p.Close())
}

func mustPush(t testing.TB, dir string, s Store) Pushed {
	t.Helper()
	r, err := push(t, dir, s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func pull(t testing.TB, s Store, dir string) (Pulled, error) {
	t.Helper()
	p, err := NewPuller(Pull{Store: s, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	err = p.Run(t.Context())
	return p.Progress(), err
}

// belongs is the files of a run directory that are in its dataset, and their bytes.
func belongs(t testing.TB, dir string) map[string]string {
	t.Helper()
	m, text, err := storage.LoadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	extras, err := storage.Extras(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{manifestKey: string(text)}
	for _, part := range m.Published() {
		extras = append(extras, part.Path)
	}
	for _, name := range extras {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(b)
	}
	return files
}

func mustEqual(t testing.TB, got, want map[string]string) {
	t.Helper()
	for name, b := range want {
		if got[name] != b {
			t.Errorf("%s: %d bytes, want %d other ones", name, len(got[name]), len(b))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: nobody wants it", name)
		}
	}
}

func rows(t testing.TB, dir string) map[string]storage.Row {
	t.Helper()
	run, err := storage.OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]storage.Row{}
	for r, err := range run.Rows() {
		if err != nil {
			t.Fatal(err)
		}
		all[r.EpisodeID] = *r
	}
	return all
}

// stored is the objects under a place, read by the store itself.
func stored(t testing.TB, s Store) map[string]string {
	t.Helper()
	list, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, o := range list {
		b, _, err := readObject(t.Context(), s, o.Key)
		if err != nil {
			t.Fatal(err)
		}
		all[o.Key] = string(b)
	}
	return all
}

// A run goes out, grows, loses failures to retries, and comes back as it is, on every kind of store.
func TestPushAndPull(t *testing.T) {
	early, late := t.TempDir(), t.TempDir()
	session(t, early, 0, 100, false)
	copyTo(t, late, early)
	session(t, late, 100, 40, false)
	session(t, late, 0, 140, true)
	for _, scheme := range []string{"s3", "gs", "az", "file"} {
		t.Run(scheme, func(t *testing.T) {
			_, url := useFake(t, scheme)
			s := mustStore(t, quick(url))
			dir, back := t.TempDir(), filepath.Join(t.TempDir(), "new", "back")
			copyTo(t, dir, early)
			first := mustPush(t, dir, s)
			mustEqual(t, stored(t, s), belongs(t, dir))
			if first.Rows != 86 || first.Failures != 14 || first.Sent != first.Files || first.Files != len(belongs(t, dir)) {
				t.Errorf("pushed %+v", first)
			}
			if again := mustPush(t, dir, s); again.Sent != 0 || again.Files != first.Files {
				t.Errorf("nothing is new, and %d files were sent: %+v", again.Sent, again)
			}
			if r, err := pull(t, s, back); err != nil || r.Fetched != first.Files {
				t.Fatalf("%+v, %v", r, err)
			}
			mustEqual(t, belongs(t, back), belongs(t, dir))

			copyTo(t, dir, late)
			more := mustPush(t, dir, s)
			mustEqual(t, stored(t, s), belongs(t, dir))
			if more.Removed == 0 || more.Sent == 0 || more.Sent >= more.Files || more.Failures != 0 {
				t.Errorf("pushed %+v: expected that only new files go, and old failures", more)
			}
			if _, err := pull(t, s, back); err != nil { // over the earlier state
				t.Fatal(err)
			}
			mustEqual(t, belongs(t, back), belongs(t, dir))
			if got, want := rows(t, back), rows(t, dir); !reflect.DeepEqual(got, want) || len(want) != 140 {
				t.Errorf("%d rows came back, want %d equal ones", len(got), len(want))
			}
			session(t, back, 140, 10, false) // it is a run like any other, and can go out again
			if r := mustPush(t, back, s); r.Rows+r.Failures != 150 {
				t.Errorf("pushed %+v", r)
			}
			if _, err := push(t, dir, s); !errors.Is(err, ErrAhead) {
				t.Errorf("the directory that stayed behind: %v", err)
			}
		})
	}
}

// Two that push to one place: the second is refused, and the first loses nothing.
func TestTwoPublishers(t *testing.T) {
	for _, scheme := range []string{"s3", "file"} { // that all hold conditions, TestEveryStore sees
		t.Run(scheme, func(t *testing.T) {
			_, url := useFake(t, scheme)
			s := mustStore(t, quick(url))
			one, two := t.TempDir(), filepath.Join(t.TempDir(), "two")
			session(t, one, 0, 30, false)
			mustPush(t, one, s)
			if _, err := pull(t, s, two); err != nil {
				t.Fatal(err)
			}
			a, b := newPush(t, one, s), newPush(t, two, s)
			if err := errors.Join(a.Prepare(t.Context()), b.Prepare(t.Context())); err != nil {
				t.Fatal(err)
			}
			session(t, one, 30, 30, false)
			session(t, two, 60, 30, false)
			if err := a.Pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 2 { // and it stays so
				if err := b.Pass(t.Context()); !hopeless(err) {
					t.Errorf("the second publisher: %v, want that it is refused", err)
				}
			}
			if err := errors.Join(a.Close(), b.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := push(t, two, s); !hopeless(err) {
				t.Errorf("anew: %v", err)
			}
			mustEqual(t, stored(t, s), belongs(t, one))
			if _, err := pull(t, s, two); !hopeless(err) {
				t.Errorf("pulled over a copy that went on by itself: %v", err)
			}
		})
	}
}

// A service that knows no conditions is found out, and asked before.
func TestAServiceWithoutConditions(t *testing.T) {
	server, url := useFake(t, "s3")
	server.Deaf = true
	s := mustStore(t, quick(url))
	one, two := t.TempDir(), filepath.Join(t.TempDir(), "two")
	session(t, one, 0, 30, false)
	mustPush(t, one, s)
	if !s.(*bucket).loose.Load() {
		t.Fatal("it was not found out")
	}
	if _, err := pull(t, s, two); err != nil {
		t.Fatal(err)
	}
	b := newPush(t, two, s)
	if err := b.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	session(t, one, 30, 30, false)
	mustPush(t, one, s)
	session(t, two, 60, 30, false)
	if err := b.Pass(t.Context()); !hopeless(err) {
		t.Errorf("the second publisher: %v", err)
	}
	mustEqual(t, stored(t, s), belongs(t, one))
}

// A place that is somebody else's stays as it is.
func TestOtherPeoplesPlaces(t *testing.T) {
	server, url := useFake(t, "s3")
	s := mustStore(t, quick(url))
	dir := t.TempDir()
	session(t, dir, 0, 10, false)
	at := func(name string) string { return "runs/place of ä+b/x/" + name }
	cases := []struct {
		name, object, text string
		want               error
	}{
		{"files of nobody", "parts/part-00000.parquet", "not ours", ErrStray},
		{"any file", "notes.txt", "hello", ErrStray},
		{"another run", "run.yaml", "run-id: \"2\"\n", ErrOtherRun},
		{"a broken manifest", "manifest.json", "{", storage.ErrDamaged},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			server.Set(at(c.object), []byte(c.text))
			defer server.Remove(at(c.object))
			if _, err := push(t, dir, s); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if got := server.Names(); !slices.Equal(got, []string{at(c.object)}) || string(server.Data(at(c.object))) != c.text {
				t.Errorf("there is now %q", got)
			}
		})
	}
	t.Run("a run where none was begun", func(t *testing.T) {
		mustPush(t, dir, s)
		p := newPush(t, filepath.Join(t.TempDir(), "new"), s)
		if err := p.Prepare(t.Context()); !errors.Is(err, ErrOtherRun) {
			t.Errorf("%v", err)
		}
	})
	t.Run("pushed by another process", func(t *testing.T) {
		p := newPush(t, dir, s)
		if err := p.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := push(t, dir, s); !errors.Is(err, storage.ErrLocked) {
			t.Errorf("%v", err)
		}
	})
}

// A run and a dataset that was made of runs stay apart at one place and in one directory, whichever is newer: the dataset has no run.yaml that says so.
func TestARunIsNoDataset(t *testing.T) {
	run, set, other := t.TempDir(), filepath.Join(t.TempDir(), "set"), filepath.Join(t.TempDir(), "other")
	session(t, run, 0, 20, false)
	dataset(t, set, run, 10)
	dataset(t, other, run, 15)
	session(t, run, 20, 20, false)
	if _, err := storage.Compact(t.Context(), storage.Compaction{Dir: run, PartBytes: 1 << 20, RowGroupBytes: 1 << 18}); err != nil { // its parts have other names now
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ there, comes string }{"run over dataset": {set, run}, "dataset over run": {run, set}, "dataset over dataset": {set, other}} {
		t.Run(name, func(t *testing.T) {
			_, url := useFake(t, "file")
			s, before := mustStore(t, quick(url)), belongs(t, c.comes)
			mustPush(t, c.there, s)
			if _, err := push(t, c.comes, s); !errors.Is(err, ErrOtherRun) {
				t.Errorf("pushed over another: %v", err)
			}
			mustEqual(t, stored(t, s), belongs(t, c.there))
			if _, err := pull(t, s, c.comes); !errors.Is(err, ErrOtherRun) {
				t.Errorf("pulled over another: %v", err)
			}
			mustEqual(t, belongs(t, c.comes), before)
		})
	}
}

// A push or a pull of a dataset that ended on its way goes on, though no run.yaml says whose the files are; files of others are refused.
func TestADatasetGoesOn(t *testing.T) {
	server, url := useFake(t, "s3")
	s, run, base := mustStore(t, quick(url)), t.TempDir(), t.TempDir()
	session(t, run, 0, 20, false)
	set, back := filepath.Join(base, "set"), filepath.Join(base, "[b]ack")
	dataset(t, set, run, 20)
	server.Intercept(func(w http.ResponseWriter, r *http.Request) bool { // no manifest comes in
		if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, manifestKey) {
			return false
		}
		status(403)(w, r)
		return true
	})
	if _, err := push(t, set, s); !errors.Is(err, ErrDenied) || len(server.Names()) < 3 {
		t.Fatalf("%v, %d objects", err, len(server.Names()))
	}
	server.Intercept(nil)
	if r := mustPush(t, set, s); r.Sent != 1 {
		t.Errorf("sent anew: %+v", r)
	}
	mustEqual(t, stored(t, s), belongs(t, set))

	if _, err := pull(t, s, back); err != nil {
		t.Fatal(err)
	}
	want := belongs(t, back)
	if err := os.Remove(filepath.Join(back, manifestKey)); err != nil {
		t.Fatal(err)
	}
	if r, err := pull(t, s, back); err != nil || r.Fetched >= r.Files {
		t.Errorf("%+v, %v", r, err)
	}
	mustEqual(t, belongs(t, back), want)
	for _, name := range []string{"parts/part-00000.parquet", "failures/part-00007.parquet"} {
		if err := errors.Join(os.Remove(filepath.Join(back, manifestKey)), os.WriteFile(filepath.Join(back, name), []byte("mine"), 0o644)); err != nil {
			t.Fatal(err)
		}
		if _, err := pull(t, s, back); !errors.Is(err, ErrStray) {
			t.Errorf("%s of nobody: %v", name, err)
		}
		if text, err := os.ReadFile(filepath.Join(back, name)); err != nil || string(text) != "mine" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		if err := errors.Join(os.WriteFile(filepath.Join(back, manifestKey), []byte(want[manifestKey]), 0o644), os.Remove(filepath.Join(back, name))); err != nil {
			t.Fatal(err)
		}
		if _, err := pull(t, s, back); err != nil {
			t.Fatal(err)
		}
	}
}

// dataset makes one of the first n episodes of a run, as `tranche sample` does.
func dataset(t testing.TB, into, from string, n int) {
	t.Helper()
	var keep []string
	for id := range rows(t, from) {
		keep = append(keep, id)
	}
	slices.Sort(keep)
	keep = keep[:n]
	_, err := storage.Copy(t.Context(), storage.Copying{From: []string{from}, Into: into, How: "sample", Choice: fmt.Sprint(n), Keep: func(id string) bool { return slices.Contains(keep, id) }})
	if err != nil {
		t.Fatal(err)
	}
}

// What a pull finds on the disk: it takes only what is its own.
func TestPullIntoWhatIsThere(t *testing.T) {
	_, url := useFake(t, "s3")
	s := mustStore(t, quick(url))
	dir, other := t.TempDir(), t.TempDir()
	if _, err := pull(t, s, filepath.Join(other, "none")); !errors.Is(err, ErrNoRun) {
		t.Errorf("from an empty place: %v", err)
	}
	if _, err := os.Stat(filepath.Join(other, "none")); err == nil {
		t.Error("a directory was made for nothing")
	}
	session(t, dir, 0, 30, false)
	mustPush(t, dir, s)

	file := func(t *testing.T, dir, name, text string) string {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	refused := map[string]struct {
		dir  string
		want error
	}{
		"other files":  {file(t, t.TempDir(), "notes.txt", "x"), storage.ErrNotRun},
		"another run":  {file(t, t.TempDir(), "run.yaml", "run-id: \"2\"\n"), ErrOtherRun},
		"parts of who": {file(t, t.TempDir(), "parts/part-00000.parquet", "x"), ErrStray},
	}
	for name, c := range refused {
		if _, err := pull(t, s, c.dir); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}

	w := writer(t, dir, false)
	if _, err := pull(t, s, dir); !errors.Is(err, storage.ErrLocked) {
		t.Errorf("into a run that goes on: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	half := t.TempDir()
	if _, err := pull(t, s, half); err != nil {
		t.Fatal(err)
	}
	want := belongs(t, half)
	file(t, half, "parts/part-00000.parquet", "spoilt")
	if err := os.Remove(filepath.Join(half, manifestKey)); err != nil {
		t.Fatal(err)
	}
	if r, err := pull(t, s, half); err != nil || r.Fetched >= r.Files { // goes on
		t.Errorf("%+v, %v", r, err)
	}
	mustEqual(t, belongs(t, half), want)
}

// Bytes that came otherwise than they were listed are never taken.
func TestPullComparesEverything(t *testing.T) {
	server, url := useFake(t, "s3")
	s := mustStore(t, quick(url))
	dir, at := t.TempDir(), "runs/place of ä+b/x/"
	session(t, dir, 0, 30, false)
	mustPush(t, dir, s)
	whole := server.Data(at + "parts/part-00000.parquet")

	spoilt := bytes.Clone(whole)
	spoilt[len(spoilt)/2] ^= 1
	server.Set(at+"parts/part-00000.parquet", spoilt)
	back := t.TempDir()
	if _, err := pull(t, s, back); !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("a changed byte: %v", err)
	}
	if _, err := storage.OpenRun(back); !errors.Is(err, storage.ErrNotRun) {
		t.Errorf("it is a run now: %v", err)
	}
	server.Remove(at + "parts/part-00000.parquet")
	if _, err := pull(t, s, back); !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("a missing part: %v", err)
	}
	server.Set(at+"parts/part-00000.parquet", whole)

	manifest := server.Data(at + manifestKey)
	server.Set(at+manifestKey, bytes.ReplaceAll(manifest, []byte("parts/part-00000.parquet"), []byte("../../../etc/cron.d/part-0")))
	if _, err := pull(t, s, t.TempDir()); !errors.Is(err, errWrongName) {
		t.Errorf("a path out of the directory: %v", err)
	}
	server.Set(at+manifestKey, manifest)

	var n atomic.Int64
	server.Intercept(func(w http.ResponseWriter, r *http.Request) bool { // breaks off in the midst of an answer, now and then
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, ".parquet") || n.Add(1)%2 == 0 {
			return false
		}
		name := strings.TrimPrefix(r.URL.Path, "/bucket/")
		w.Header().Set("Content-Length", fmt.Sprint(len(server.Data(name))))
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("Last-Modified", time.Unix(0, 0).UTC().Format(http.TimeFormat))
		_, _ = w.Write(server.Data(name)[:100])
		fakestore.Break(w, r, 0)
		return true
	})
	if _, err := pull(t, s, back); err != nil {
		t.Errorf("connections that break off: %v", err)
	}
	mustEqual(t, belongs(t, back), belongs(t, dir))
}

// A connection that breaks off while the manifest comes is no reason to give up, and one request is not made more often than it is tried for.
func TestWhatIsReadAgain(t *testing.T) {
	server, url := useFake(t, "az") // the library for S3 makes one of its own
	s, dir := mustStore(t, quick(url)), t.TempDir()
	session(t, dir, 0, 8, false)
	mustPush(t, dir, s)
	var asked atomic.Int64
	server.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, manifestKey) || asked.Add(1) > 1 {
			return false
		}
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("{"))
		fakestore.Break(w, r, 0)
		return true
	})
	if _, err := pull(t, s, filepath.Join(t.TempDir(), "back")); err != nil || asked.Load() < 2 {
		t.Errorf("%v after %d requests for the manifest", err, asked.Load())
	}
	asked.Store(0)
	server.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "parts/part-00000.parquet") {
			return false
		}
		asked.Add(1)
		status(503)(w, r)
		return true
	})
	if _, err := pull(t, s, filepath.Join(t.TempDir(), "back")); !MayPass(err) || asked.Load() != int64(quick(url).Attempts) {
		t.Errorf("%v after %d requests for a part", err, asked.Load())
	}
}

// A part whose bytes are not those of the manifest goes nowhere.
func TestADamagedPartIsNotPushed(t *testing.T) {
	_, url := useFake(t, "s3")
	s := mustStore(t, quick(url))
	dir := t.TempDir()
	session(t, dir, 0, 30, false)
	name := filepath.Join(dir, "parts", "part-00000.parquet")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := push(t, dir, s); !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("a changed byte: %v", err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, err := push(t, dir, s); !errors.Is(err, storage.ErrDamaged) {
		t.Errorf("a missing part: %v", err)
	}
	if got := stored(t, s); got[manifestKey] != "" || got["parts/part-00000.parquet"] != "" {
		t.Errorf("the store holds %d objects", len(got))
	}
}

// Where deleting is not allowed the run goes out all the same.
func TestAPlaceWhereNothingMayBeDeleted(t *testing.T) {
	server, url := useFake(t, "s3")
	server.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	})
	s := mustStore(t, quick(url))
	dir := t.TempDir()
	session(t, dir, 0, 30, false)
	mustPush(t, dir, s)
	session(t, dir, 0, 30, true)
	if r := mustPush(t, dir, s); r.Unremoved == 0 || r.Removed != 0 || r.Rows != 30 {
		t.Errorf("pushed %+v", r)
	}
}

// A run is published while it grows; the store goes away and comes back; nothing of the run waits for it.
func TestFollow(t *testing.T) {
	for _, scheme := range []string{"s3", "file"} {
		t.Run(scheme, func(t *testing.T) {
			server, url := useFake(t, scheme)
			s := mustStore(t, quick(url))
			dir := t.TempDir()
			p := newPush(t, dir, s)
			p.Patience = time.Minute // nothing is to be given up here, however long a disk takes
			if err := p.Prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
			told := make(chan string, 100)
			w := writer(t, dir, false)
			f := Follow(t.Context(), p, func(text string) { told <- text })
			play(t, w, 0, 40, false)
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			await(t, "the first rows", func() bool { return p.Progress().Rows+p.Progress().Failures == 40 })
			if server != nil {
				server.Intercept(func(w http.ResponseWriter, r *http.Request) bool { status(503)(w, r); return true })
				play(t, w, 40, 40, false)
				if err := w.Flush(); err != nil {
					t.Fatal(err)
				}
				if text := <-told; !strings.Contains(text, "tried again") {
					t.Errorf("told %q", text)
				}
				server.Intercept(nil)
				if text := <-told; !strings.Contains(text, "goes on") {
					t.Errorf("told %q", text)
				}
			}
			play(t, w, 80, 40, false)
			if err := errors.Join(w.WriteSummary(nil), w.Close(), f.Finish(t.Context())); err != nil {
				t.Fatal(err)
			}
			mustEqual(t, stored(t, s), belongs(t, dir))
		})
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 6000 {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("waited a minute for %s", what)
}

// At the end a store that does not come back is given up, a signal ends the waiting, and the next push goes on.
func TestFinishGivesUp(t *testing.T) {
	server, url := useFake(t, "s3")
	s := mustStore(t, quick(url))
	dir := t.TempDir()
	session(t, dir, 0, 40, false)
	server.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "failures/part-00000.parquet") {
			status(503)(w, r)
			return true
		}
		return false
	})
	p := newPush(t, dir, s)
	f := Follow(t.Context(), p, func(string) {})
	if err := f.Finish(t.Context()); !MayPass(err) {
		t.Errorf("%v, want trouble that may pass", err)
	}
	if server.Data("runs/place of ä+b/x/"+manifestKey) != nil {
		t.Error("there is a manifest, and not all of its parts")
	}
	p.Patience = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	f = Follow(ctx, p, func(string) {})
	time.AfterFunc(50*time.Millisecond, cancel)
	if err := f.Finish(ctx); err == nil {
		t.Error("it went well without the store")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	server.Intercept(nil)
	if r := mustPush(t, dir, s); r.Sent >= r.Files {
		t.Errorf("all is sent again: %+v", r)
	}
	mustEqual(t, stored(t, s), belongs(t, dir))
}

// What a store said before it was given up is told, though a round of tries was cut in its midst.
func TestGivingUpTellsWhatTheStoreSaid(t *testing.T) {
	server, url := useFake(t, "gs")
	s, dir := mustStore(t, quick(url)), t.TempDir()
	session(t, dir, 0, 8, false)
	var asked atomic.Int64
	var ending atomic.Bool
	server.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if ending.Load() && asked.Add(1) > 20 { // later ones are never answered
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return true
		}
		status(503)(w, r)
		return true
	})
	p := newPush(t, dir, s)
	p.Patience, p.Every = time.Second, time.Millisecond
	f := Follow(t.Context(), p, func(string) {})
	ending.Store(true)
	if err := f.Finish(t.Context()); !MayPass(err) || !strings.Contains(err.Error(), "503") {
		t.Errorf("%v, want that it was given up, and why", err)
	}
}

// A store that takes requests and never answers is given up too, long before its connections are, whether it fell silent in the end or while the run went on.
func TestFinishGivesUpASilentStore(t *testing.T) {
	for _, during := range []bool{false, true} {
		server, url := useFake(t, "s3")
		s, dir := mustStore(t, quick(url)), t.TempDir()
		session(t, dir, 0, 8, false)
		silent := make(chan struct{})
		tell := sync.OnceFunc(func() { close(silent) })
		server.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			tell()
			<-r.Context().Done()
			return true
		})
		p := newPush(t, dir, s)
		p.Patience = 30 * time.Millisecond
		if !during {
			p.Every = time.Hour
		}
		f := Follow(t.Context(), p, func(string) {})
		if during {
			<-silent
		}
		began := time.Now()
		err := f.Finish(t.Context())
		if !MayPass(err) || !strings.Contains(err.Error(), "nothing went out for 30ms") {
			t.Errorf("%v, want that it was given up", err)
		}
		if took := time.Since(began); took > time.Minute { // its connections last two
			t.Errorf("it took %v", took)
		}
		if p.Store != s {
			t.Error("the pusher has another store now")
		}
	}
}

// A folder that shares files with the run directory is refused, by whatever name, and nothing in it is touched.
func TestTheRunsOwnFolderIsRefused(t *testing.T) {
	base := t.TempDir()
	dir, link := filepath.Join(base, "run"), filepath.Join(base, "link")
	session(t, dir, 0, 10, false)
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "parts", ".tmp-1-part-00009.parquet")
	if err := os.WriteFile(left, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	before := belongs(t, dir)
	for root, at := range map[string]string{dir: dir, link: dir, dir + "/": link, filepath.Join(dir, "new", "place"): dir, filepath.Join(link, "new"): dir,
		base: dir, filepath.Join(base, "later", "in"): filepath.Join(base, "later")} {
		s := mustStore(t, quick("file://"+root))
		if _, err := NewPusher(Push{Dir: at, Store: s}); !errors.Is(err, ErrOverlap) {
			t.Errorf("push %s to %s: %v", at, root, err)
		}
		if _, err := NewPuller(Pull{Dir: at, Store: s}); !errors.Is(err, ErrOverlap) {
			t.Errorf("pull %s into %s: %v", root, at, err)
		}
	}
	mustEqual(t, belongs(t, dir), before)
	if _, err := os.Stat(left); err != nil {
		t.Error(err)
	}
	mustPush(t, dir, mustStore(t, quick("file://"+dir+"-published"))) // a name that only begins the same
}

// What an earlier pull left that is not listed goes, also where nothing is new; other people's files stay.
func TestPullDropsWhatIsNotListed(t *testing.T) {
	_, url := useFake(t, "file")
	s, dir, back := mustStore(t, quick(url)), t.TempDir(), filepath.Join(t.TempDir(), "back")
	session(t, dir, 0, 10, false)
	mustPush(t, dir, s)
	gone := []string{"parts/part-00077.parquet", "failures/part-00077.parquet", "parts/.tmp-12-part-00078.parquet", ".tmp-12-manifest.json", ".tmp-12-draws.jsonl"}
	kept := []string{"parts/notes.parquet", ".tmp-12-export.jsonl", ".tmp-x"}
	if _, err := pull(t, s, back); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(gone, kept) {
		if err := os.WriteFile(filepath.Join(back, name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pull(t, s, back); err != nil {
		t.Fatal(err)
	}
	for _, name := range gone {
		if _, err := os.Stat(filepath.Join(back, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	for _, name := range kept {
		if _, err := os.Stat(filepath.Join(back, name)); err != nil {
			t.Error(err)
		}
	}
	mustEqual(t, belongs(t, back), belongs(t, dir))
}

// What is here of the same state stays: decisions may have been written since it was pushed.
func TestPullKeepsWhatIsNewerHere(t *testing.T) {
	_, url := useFake(t, "s3")
	s := mustStore(t, quick(url))
	dir := t.TempDir()
	session(t, dir, 0, 8, false)
	log := filepath.Join(dir, storage.DrawsName)
	if err := os.WriteFile(log, []byte("one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	mustPush(t, dir, s)
	if err := os.WriteFile(log, []byte("one\ntwo\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := pull(t, s, dir); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(log); err != nil || string(text) != "one\ntwo\n" {
		t.Errorf("%q, %v", text, err)
	}
}
