package mathgrade

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tranche/reward"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake writes a program that speaks as a child does: ready, then the lines of its body for each line it reads. Its ids are in the file pids.
func fake(t *testing.T, body string) (program, pids string) {
	t.Helper()
	dir := t.TempDir()
	pids = filepath.Join(dir, "pids")
	program = filepath.Join(dir, "python")
	text := "#!/bin/sh\necho $$ >> " + pids + "\necho '{\"ready\":\"0\"}'\nwhile read -r line; do\n" + body + "\ndone\n"
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return program, pids
}

func external(t *testing.T, opt ExternalOptions) *External {
	t.Helper()
	x, err := NewExternal(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	return x
}

// started are the ids of the children so far.
func started(t *testing.T, pids string) (ids []int) {
	t.Helper()
	raw, _ := os.ReadFile(pids) // none yet
	for f := range strings.FieldsSeq(string(raw)) {
		id, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

func unjudged(err error) *reward.Unjudged {
	var u *reward.Unjudged
	errors.As(err, &u)
	return u
}

func TestAChildIsAsked(t *testing.T) {
	const judge = `case $line in *seven*) echo '{"right":true,"read":"7","cpu":0.5}';; *) echo '{"right":false,"read":"8"}';; esac`
	program, pids := fake(t, judge)
	x := external(t, ExternalOptions{Python: program, Children: 1})
	if n := len(started(t, pids)); n != 0 {
		t.Fatalf("%d children before anything was asked", n)
	}
	f, err := x.Grade(t.Context(), input("it is seven", "7"))
	if err != nil || f.Score != 1 || f.Cost.CPU != 500*time.Millisecond || f.Evidence != `read "7", want "7"` {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err := x.Grade(t.Context(), input("it is eight", "7")); err != nil || f.Score != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err := x.Grade(t.Context(), input(" ", "7")); err != nil || f.Score != 0 {
		t.Errorf("an empty text: %+v, %v", f, err)
	}
	if n := len(started(t, pids)); n != 1 {
		t.Errorf("%d children, want 1", n)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	for _, id := range started(t, pids) {
		if syscall.Kill(id, 0) == nil {
			t.Errorf("child %d is still there", id)
		}
	}
	if _, err := x.Grade(t.Context(), input("it is seven", "7")); err == nil {
		t.Error("a closed grader judges")
	}
}

// What goes wrong with a child is never a score.
func TestAChildThatFailsGivesNoVerdict(t *testing.T) {
	const forEver = `case $line in *slow*) sleep 1000;; *) echo '{"right":true}';; esac`
	cases := []struct {
		name, body, text string
		limit            time.Duration
		reason           string // "" = an error of the grader's own
		retry            bool
		children         int // after one more question
	}{
		{"it goes on for ever", forEver, "slow", 100 * time.Millisecond, verifierTimeout, false, 2},
		// Asked again, and about the truth alone, it is no better.
		{"it dies", `case $line in *good*) echo '{"right":true}';; *) echo oh >&2; exit 3;; esac`, "bad", time.Minute, verifierDied, true, 4},
		{"it says what is no JSON", `case $line in *good*) echo '{"right":true}';; *) echo huh;; esac`, "bad", time.Minute, verifierDied, true, 4},
		{"the memory is too small", `case $line in *good*) echo '{"right":true}';; *) echo '{"error":"MemoryError: x"}';; esac`, "bad", time.Minute, "", false, 1},
		{"the library raised", `case $line in *bad*) echo '{"error":"TypeError: x"}';; *) echo '{"right":true}';; esac`, "bad", time.Minute, "", false, 1},
		{"the truth was not read", `case $line in *bad*) echo '{"truth_unread":true}';; *) echo '{"right":true}';; esac`, "bad", time.Minute, reward.BadTruth, false, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			program, pids := fake(t, c.body)
			x := external(t, ExternalOptions{Python: program, Children: 1, Limit: c.limit})
			_, err := x.Grade(t.Context(), input(c.text, "7"))
			u := unjudged(err)
			if err == nil || (u != nil) != (c.reason != "") || u != nil && (u.Reason != c.reason || u.Retry != c.retry) {
				t.Fatalf("%v, want %q", err, c.reason)
			}
			x.opt.Limit = time.Minute
			if f, err := x.Grade(t.Context(), input("good", "7")); err != nil || f.Score != 1 {
				t.Errorf("the next question: %+v, %v", f, err)
			}
			if n := len(started(t, pids)); n != c.children {
				t.Errorf("%d children were started, want %d", n, c.children)
			}
		})
	}
}

// An answer that no child copes with is wrong where the truth alone is judged all the same: else it would be a way around a 0.
func TestAnAnswerThatCannotBeJudgedIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		bad      string
		limit    time.Duration
		children int
	}{
		"it works for ever":   {"while :; do :; done", 2 * time.Second, 2},
		"it takes all memory": {`echo '{"error":"MemoryError: over the limit"}'`, time.Minute, 1},
		"it ends the child":   {"exit 3", time.Minute, 3},
	} {
		t.Run(name, func(t *testing.T) {
			program, pids := fake(t, `case $line in *tower*) `+c.bad+`;; *) echo '{"right":true}';; esac`)
			x := external(t, ExternalOptions{Python: program, Children: 1, Limit: c.limit})
			x.busy = 0 // the machine may have no time for it
			if f, err := x.Grade(t.Context(), input("a tower", "7")); err != nil || f.Score != 0 || f.Evidence == "" {
				t.Errorf("%+v, %v; want 0", f, err)
			}
			if n := len(started(t, pids)); n != c.children {
				t.Errorf("%d children were started, want %d", n, c.children)
			}
		})
	}
}

func TestAChildThatCannotStartSaysWhy(t *testing.T) {
	program := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho '{\"fatal\":\"No module named math_verify\"}'\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	x := external(t, ExternalOptions{Python: program, Children: 1})
	_, err := x.Grade(t.Context(), input("7", "7"))
	if err == nil || unjudged(err) != nil || !strings.Contains(err.Error(), "No module named math_verify") || !strings.Contains(err.Error(), "pip install") {
		t.Errorf("%v", err)
	}
}

// A caller that goes leaves nothing behind, and the next one is served.
func TestACallerMayGo(t *testing.T) {
	program, _ := fake(t, `case $line in *slow*) sleep 1000;; *) echo '{"right":true}';; esac`)
	x := external(t, ExternalOptions{Python: program, Children: 1, Limit: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := x.Grade(ctx, input("slow", "7")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if f, err := x.Grade(t.Context(), input("good", "7")); err != nil || f.Score != 1 {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestExternalOptionsAreChecked(t *testing.T) {
	_, err := ExternalKind().Make(reward.Spec{With: []byte(`{"python": "/nowhere/python", "children": -1, "limit": "-1s", "memory": -5}`)})
	for _, want := range []string{"python", "children: -1", "limit: -1s", "memory: -5"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := ExternalKind().Make(reward.Spec{With: []byte(`{"pyhton": "x"}`)}); err == nil || !strings.Contains(err.Error(), "pyhton") {
		t.Errorf("an unknown option: %v", err)
	}
}

// library is the grader with the real library, which is looked for where the tests' programs are kept; the test is skipped without.
func library(t *testing.T) *External {
	t.Helper()
	dir := os.Getenv("TRANCHE_ENGINES")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Skip(err)
		}
		dir = filepath.Join(cache, "tranche-engines")
	}
	python := filepath.Join(dir, "mathverify", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Skipf("math-verify is not installed: %v; get it with: scripts/mathverify.sh install", err)
	}
	return external(t, ExternalOptions{Python: python, Limit: 20 * time.Second})
}

func TestTheRealLibraryJudges(t *testing.T) {
	x := library(t)
	for _, c := range []struct {
		answer, truth string
		score         float64
	}{
		{`The answer is \boxed{\frac{1}{2}}.`, "0.5", 1},
		{`The answer is \boxed{\frac{1}{3}}.`, "0.5", 0},
		{`\boxed{x < 3}`, "x < 3", 1},
	} {
		if f, err := x.Grade(t.Context(), input(c.answer, c.truth)); err != nil || f.Score != c.score {
			t.Errorf("%s: %+v, %v", c.answer, f, err)
		}
	}
	f, err := external(t, ExternalOptions{Python: x.opt.Python, Children: 1, Limit: 300 * time.Millisecond}).
		Grade(t.Context(), input(`\boxed{2^{2^{2^{2^{2^{2}}}}}}`, "7"))
	if err == nil && (f.Score != 0 || !strings.Contains(f.Evidence, "cannot cope")) { // on a busy machine there is no verdict
		t.Errorf("a tower of powers: %+v", f)
	}
}

// Set TRANCHE_COMPARE=1 to see where the two graders differ, on the cases and on the labelled answers; some minutes of one core.
func TestWhereTheLibraryDiffers(t *testing.T) {
	if os.Getenv("TRANCHE_COMPARE") == "" {
		t.Skip("set TRANCHE_COMPARE=1 to compare with math-verify")
	}
	x := library(t)
	var mu sync.Mutex
	tally := map[string]int{}
	ask := func(name string, in reward.Input, want bool) {
		f, err := x.Grade(t.Context(), in)
		got := "no"
		switch {
		case err != nil:
			got = "none"
		case f.Score == 1:
			got = "yes"
		}
		word := "wrong"
		if (got == "yes") == want && got != "none" {
			word = "right"
		} else if got == "none" {
			word = "none"
		}
		mu.Lock()
		defer mu.Unlock()
		tally[strings.Fields(name)[0]+" "+word]++
		if word != "right" {
			t.Logf("%s: %s, want %v: %s %v", name, got, want, f.Evidence, err)
		}
	}
	for _, c := range cases(t) {
		ask("case "+strconv.Itoa(c.line)+" "+c.answer+" | "+c.truth, input(c.text(), c.truth), c.want == "yes")
	}
	for _, s := range solutions(t) {
		answer := strings.Replace(s.answer, "A: ", "Answer: ", 1)
		truth := s.truth[strings.LastIndex(s.truth, "A:")+2:]
		ask("label "+strconv.Itoa(s.line)+" "+s.model, input(answer, strings.TrimSpace(truth)), s.correct)
	}
	t.Logf("%v", tally)
}

// How many children there are decides no verdict; what an answer may take does.
func TestWhatDecidesOfTheExternalGrader(t *testing.T) {
	of := func(o ExternalOptions) string {
		x, err := NewExternal(o)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		return x.Decides()
	}
	if of(ExternalOptions{}) != of(ExternalOptions{Children: 7, Python: "python3"}) {
		t.Error("the number of children, or a default that is written out, decides")
	}
	if of(ExternalOptions{}) == of(ExternalOptions{Limit: time.Second}) || of(ExternalOptions{}) == of(ExternalOptions{Markers: []string{"so:"}}) {
		t.Error("the limit, or where the truth stands, does not decide")
	}
}
