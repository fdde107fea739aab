package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"tranche/storage"
)

// The kill test runs this test binary again to push a directory, and ends it with SIGKILL.
const (
	childEnv    = "TRANCHE_PUSH_CHILD"     // the directory
	childURLEnv = "TRANCHE_PUSH_CHILD_URL" // where to
	killsEnv    = "TRANCHE_PUSH_KILLS"     // how many kills; default 6
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := childPushes(dir, os.Getenv(childURLEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func childPushes(dir, url string) error {
	ctx := context.Background()
	s, err := Open(ctx, quick(url))
	if err != nil {
		return err
	}
	p, err := NewPusher(Push{Dir: dir, Store: s})
	if err != nil {
		return err
	}
	if err := p.Prepare(ctx); err != nil {
		return err
	}
	return errors.Join(p.Pass(ctx), p.Verify(ctx), p.Close())
}

// killed pushes in a process that is killed after a while; 0 = it may end. It tells whether the kill came first.
func killed(t *testing.T, dir, url string, after time.Duration) bool {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir, childURLEnv+"="+url)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if after > 0 { // there is a process by now
		timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return false
	case errors.As(err, &exit) && !exit.Exited() && after > 0:
		return true
	}
	t.Fatalf("the push failed: %v\n%s", err, &out)
	return false
}

// A push is killed at random moments while the run goes on between them: at each of these moments the place holds a whole state of
// the run or none, and in the end it holds the run.
func TestAKilledPushLeavesWholeStates(t *testing.T) {
	kills := 6
	if text := os.Getenv(killsEnv); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		kills = n
	} else if testing.Short() {
		t.Skip("kills 6 processes: skipped with -short")
	}
	server, url := useFake(t, "s3")
	server.Page = 1000
	server.Intercept(func(http.ResponseWriter, *http.Request) bool { time.Sleep(3 * time.Millisecond); return false })
	s, dir := mustStore(t, quick(url)), t.TempDir()
	session(t, dir, 0, 60, false)
	grow := func(i int) { // more rows, at times a retry that replaces failures, at times a large file that goes in parts
		session(t, dir, 60+20*i, 20, i%4 == 3) // numbers that were there are passed over
		if i%3 == 0 {
			if err := os.WriteFile(filepath.Join(dir, storage.StreamName), noise(2*leastPartBytes+i+1), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	grow(0)
	began := time.Now()
	whole := t.TempDir()
	if err := os.CopyFS(whole, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	killed(t, whole, url+"-timed", 0)
	long := time.Since(began)

	cut, none, halves, last := 0, 0, 0, int64(0)
	for i := range kills {
		grow(i + 1)
		if i == kills/4 { // the first quarter dies before there is a state, the others between two
			killed(t, dir, url, 0)
			grow(kills + i)
		}
		if killed(t, dir, url, time.Duration(rand.Int64N(int64(long)))) {
			cut++
		}
		if server.Uploads() > 0 {
			halves++
		}
		back := t.TempDir()
		switch r, err := pull(t, s, back); {
		case errors.Is(err, ErrNoRun) && last == 0:
			none++
		case err != nil:
			t.Fatalf("kill %d: %v", i, err)
		case r.Generation < last:
			t.Fatalf("kill %d: generation %d after %d", i, r.Generation, last)
		default:
			last = r.Generation
			if n := len(rows(t, back)); int64(n) != r.Rows+r.Failures {
				t.Fatalf("kill %d: %d rows, the manifest says %d and %d", i, n, r.Rows, r.Failures)
			}
		}
	}
	t.Logf("%d pushes were killed of %d that were to be, in %v each; %d times there was no manifest yet, %d times half an upload was left", cut, kills, long, none, halves)
	if kills >= 6 && cut == 0 {
		t.Error("no push was killed on its way: nothing was tried")
	}
	killed(t, dir, url, 0)
	mustEqual(t, stored(t, s), belongs(t, dir))
	if n := server.Uploads(); n > 0 {
		t.Errorf("%d uploads are left", n)
	}
}

// Who pulls while a run is published gets one whole state of it, though files that it lists are replaced and removed meanwhile.
func TestPullWhileItIsPushed(t *testing.T) {
	_, url := useFake(t, "s3")
	s, dir := mustStore(t, quick(url)), t.TempDir()
	session(t, dir, 0, 40, false)
	p := newPush(t, dir, s)
	if err := p.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		defer close(ended) // a failing play ends this goroutine
		for i := range 6 {
			w, err := storage.Open(storage.Config{Dir: dir, RetryFailed: i%3 == 2})
			if err != nil {
				ended <- err
				return
			}
			play(t, w, 40+10*i, 10, i%3 == 2)
			if err := errors.Join(w.Close(), p.Pass(context.Background())); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	pulls := 0
	for going := true; going; pulls++ {
		back := t.TempDir()
		r, err := pull(t, s, back)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(rows(t, back)); int64(n) != r.Rows+r.Failures {
			t.Fatalf("%d rows, the manifest says %d and %d", n, r.Rows, r.Failures)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			going = false
		default:
		}
	}
	t.Logf("%d pulls", pulls)
}
