package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"tranche/internal/fakestore"
)

func TestMain(m *testing.M) {
	sandboxInit()
	testscript.Main(m, map[string]func(){"tranche": main})
}

// The scripts in testdata/script are what a person types. Besides the usual commands there are:
//
//	exits CODE tranche ARGS…   run it and expect exactly that exit status
//	await FILE                 wait up to two minutes until the file exists
//	[race] skip …              under the race detector: for what runs nothing at once that other scripts do not
//
// $EXAMPLES is the folder of examples, $S3 a bucket of a fake service.
func TestScripts(t *testing.T) {
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	store := fakestore.New(t, "s3")
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("EXAMPLES", examples)
			e.Setenv("NO_COLOR", "1")
			e.Setenv("S3", "s3://"+store.Bucket)
			e.Setenv("AWS_ENDPOINT_URL", store.URL())
			e.Setenv("AWS_ACCESS_KEY_ID", "id")
			e.Setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-scripts")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "await": await},
		Condition: func(cond string) (bool, error) {
			if cond != "race" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			return raceEnabled, nil
		},
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var failed *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &failed):
		got = failed.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await FILE")
	}
	for range 2400 {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	ts.Fatalf("%s did not come within two minutes", fmt.Sprint(args[0]))
}
