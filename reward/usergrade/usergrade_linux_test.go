package usergrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tranche/action/sandbox"
	"tranche/action/sandbox/plain"
	"tranche/episode"
	"tranche/reward"
)

func same(text string) string { return text }

// host is what cmd/tranche wires, with the plain back end.
func host(t *testing.T) Host {
	var x sandbox.Executor
	t.Cleanup(func() {
		if x != nil {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	var once sync.Mutex
	return Host{
		Environment: func([]string) ([]string, func(string) string, error) {
			hide := func(text string) string { return strings.ReplaceAll(text, "hunter2", "[secret]") }
			return []string{"PATH=" + os.Getenv("PATH")}, hide, nil
		},
		CanStart: func(program, _ string) error { _, err := exec.LookPath(program); return err },
		Headers: func(map[string]string) (func(*http.Request), func(string) string, error) {
			return func(r *http.Request) { r.Header.Set("Authorization", "Bearer hunter2") }, same, nil
		},
		Boxes: func(context.Context) (_ sandbox.Executor, err error) {
			once.Lock()
			defer once.Unlock()
			if x == nil {
				x, err = plain.New(plain.Config{})
			}
			return x, err
		},
	}
}

type settings map[string]any

func scorerOf(t *testing.T, kind string, workers int, with settings) *reward.Scorer {
	t.Helper()
	raw, err := json.Marshal(with)
	if err != nil {
		t.Fatal(err)
	}
	s, err := reward.New(reward.Config{
		Workers: workers, Waiters: workers, Pause: time.Millisecond, Graders: []reward.Spec{{Name: "own", Kind: kind, With: raw}},
	}, Kinds(host(t))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func episodeOf(said string) *episode.Episode {
	question, gold := "q", "7"
	task := &episode.Task{ID: said, Answer: &gold, Messages: []episode.Message{{Role: episode.RoleUser, Content: &question}}, Extra: json.RawMessage(`{"level":3}`)}
	e := episode.New("run", episode.Draw{Task: task, Samples: 1}, 0, episode.Sampling{}, episode.Budget{}, time.Now())
	e.AddReply(&episode.Reply{Message: episode.Message{Role: episode.RoleAssistant, Content: &said}, Finish: episode.FinishStop}, episode.Turn{Finish: "stop"})
	return e
}

func score(t *testing.T, s *reward.Scorer, said string) episode.Verdict {
	t.Helper()
	v, err := s.Score(t.Context(), episodeOf(said))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// shell is a command that runs a script.
func shell(script string) settings { return settings{"run": []string{"sh", "-c", script}} }

// outcomes are the same for all three kinds: what a grader prints, or a program does.
var outcomes = []struct {
	name, said string
	score      float64 // where outcome is scored
	outcome    string
	tries      int
}{
	{"a score", `{"score": 0.25, "raw": 3, "evidence": "seen"}`, 0.25, "scored", 1},
	{"no verdict", `{"no_verdict": "too_hard", "detail": "no"}`, 0, "no_verdict: too_hard", 1},
	{"no verdict, asked again", `{"no_verdict": "busy", "retry": true}`, 0, "no_verdict: busy", 3},
	{"over 1", `{"score": 1.5}`, 0, "no_verdict: verifier_error", 1},
	{"below 0", `{"score": -0.1}`, 0, "no_verdict: verifier_error", 1},
	{"NaN", `{"score": NaN}`, 0, "no_verdict: verifier_error", 1},
	{"too large for a number", `{"score": 1e999}`, 0, "no_verdict: verifier_error", 1},
	{"null", `{"score": null}`, 0, "no_verdict: verifier_error", 1},
	{"a key that nobody knows", `{"score": 1, "reward": 1}`, 0, "no_verdict: verifier_error", 1},
	{"a key in capitals", `{"Score": 1}`, 0, "no_verdict: verifier_error", 1},
	{"a key in letters that fold", "{\"\u017fcore\": 1}", 0, "no_verdict: verifier_error", 1},
	{"a key twice", `{"score": 0, "score": 1}`, 0, "no_verdict: verifier_error", 1},
	{"a part's key twice", `{"score": 1, "parts": [{"name": "p", "score": 1, "score": 0}]}`, 0, "no_verdict: verifier_error", 1},
	{"parts and turns", `{"score": 1, "parts": [{"name": "p", "score": 1}, {"name": "q", "weight": 2, "score": null}], "turns": [null]}`, 1, "scored", 1},
	{"two answers", `{"score": 1} {"score": 0}`, 0, "no_verdict: verifier_error", 1},
	{"garbage", `ok`, 0, "no_verdict: verifier_error", 1},
	{"nothing", ``, 0, "no_verdict: verifier_error", 1},
	{"score and no verdict", `{"score": 1, "no_verdict": "x"}`, 0, "no_verdict: verifier_error", 1},
	{"credit for two turns of one", `{"score": 1, "turns": [1, 0]}`, 0, "no_verdict: verifier_error", 1},
	{"a part over 1", `{"score": 1, "parts": [{"name": "p", "score": 2}]}`, 0, "no_verdict: verifier_error", 1},
}

func checkOutcome(t *testing.T, v episode.Verdict, want float64, outcome string, tries int) {
	t.Helper()
	r := v.Rewards[0]
	if r.Outcome != outcome || r.Tries != tries || (r.Score == nil) != (outcome != "scored") || r.Score != nil && *r.Score != want {
		t.Errorf("%+v: %s after %d tries, want %s after %d", r.Score, r.Outcome+" "+r.Evidence, r.Tries, outcome, tries)
	}
	if outcome != "scored" && (v.Total != nil || !v.Failed) {
		t.Errorf("total %v, failed %v without a verdict", v.Total, v.Failed)
	}
}

func TestCommandOutcomes(t *testing.T) {
	t.Parallel()
	for _, c := range outcomes {
		t.Run(c.name, func(t *testing.T) {
			v := score(t, scorerOf(t, KindCommand, 1, shell("cat >/dev/null; cat <<'E'\n"+c.said+"\nE")), "a")
			checkOutcome(t, v, c.score, c.outcome, c.tries)
		})
	}
	for script, want := range map[string]struct {
		outcome string
		tries   int
	}{
		"echo '{\"score\": 1}'; exit 1": {"no_verdict: verifier_error", 1},
		"exit 75":                       {"no_verdict: " + Unable, 3},
		"kill -9 $$":                    {"no_verdict: " + Died, 3},
		"head -c 2000000 /dev/zero":     {"no_verdict: verifier_error", 1},
	} {
		checkOutcome(t, score(t, scorerOf(t, KindCommand, 1, shell(script)), "a"), 0, want.outcome, want.tries)
	}
}

func TestHTTPOutcomes(t *testing.T) {
	t.Parallel()
	var body atomic.Value
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c Case
		if json.NewDecoder(r.Body).Decode(&c) != nil || c.Text != "a" || r.Header.Get("Authorization") == "" || r.Method != http.MethodPost {
			w.WriteHeader(400)
			return
		}
		fmt.Fprint(w, body.Load())
	}))
	defer srv.Close()
	s := scorerOf(t, KindHTTP, 1, settings{"url": srv.URL})
	for _, c := range outcomes {
		t.Run(c.name, func(t *testing.T) {
			body.Store(c.said)
			checkOutcome(t, score(t, s, "a"), c.score, c.outcome, c.tries)
		})
	}
}

func TestHTTPStatuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []int // statuses, then 200
		after   string
		score   float64
		outcome string
		asked   int
	}{
		"500 twice":           {[]int{500, 500}, "", 1, "scored", 3},
		"500 for ever":        {[]int{500, 500, 500, 500, 500}, "", 0, "no_verdict: " + Unable, 3},
		"429 with a time":     {[]int{429}, "1", 1, "scored", 2},
		"503 for longer than": {[]int{503, 503, 503, 503}, "3600", 0, "no_verdict: " + Unable, 3},
		"404":                 {[]int{404}, "", 0, "no_verdict: verifier_error", 1},
		"404 with a time":     {[]int{404}, "2", 0, "no_verdict: verifier_error", 1},
		"a redirect":          {[]int{304}, "", 0, "no_verdict: verifier_error", 1},
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if i := int(n.Add(1)); i <= len(c.answers) {
					w.Header().Set("Retry-After", c.after)
					w.WriteHeader(c.answers[i-1])
					return
				}
				fmt.Fprint(w, `{"score": 1}`)
			}))
			defer srv.Close()
			began := time.Now()
			r := score(t, scorerOf(t, KindHTTP, 1, settings{"url": srv.URL}), "a").Rewards[0]
			if r.Outcome != c.outcome || int(n.Load()) != c.asked || r.Score != nil && *r.Score != c.score {
				t.Errorf("%s (%s), asked %d times, want %s after %d", r.Outcome, r.Evidence, n.Load(), c.outcome, c.asked)
			}
			if c.after == "1" && (time.Since(began) < time.Second || r.Tries != 1) {
				t.Errorf("came again after %s, in try %d", time.Since(began), r.Tries)
			}
		})
	}
}

// echoer answers with what it finds in the case, in the form of a worker.
const echoer = `import json, os, sys
for line in sys.stdin:
    c = json.loads(line)
    if c["text"] == "die": os._exit(3)
    if c["text"] == "hang":
        import time; time.sleep(1000)
    if c["text"] == "other": c["id"] += 1
    if c["text"] == "twice": print(json.dumps({"id": c["id"], "score": 0.5}))
    score = float(c["text"]) if c["text"][0] in "01" else 0.5
    print(json.dumps({"id": c["id"], "score": score, "evidence": c["task"]["answer"] + " hunter2", "turns": [score]}), flush=True)
`

func python3(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not there")
	}
}

// A worker that dies, hangs or says the answer of another case costs that case alone; a stray line never shifts the answers behind it.
func TestWorker(t *testing.T) {
	t.Parallel()
	python3(t)
	s := scorerOf(t, KindCommand, 1, settings{"run": []string{"python3", write(t, "w.py", echoer)}, "mode": Worker, "timeout": "5s"})
	for _, c := range []struct {
		said    string
		score   float64
		outcome string
		tries   int
	}{
		{"0.25", 0.25, "scored", 1}, {"die", 0, "no_verdict: " + Died, 3}, {"0.75", 0.75, "scored", 1}, {"other", 0, "no_verdict: verifier_error", 1},
		{"1", 1, "scored", 1}, {"twice", 0.5, "scored", 1}, {"0.125", 0, "no_verdict: verifier_error", 1}, {"0", 0, "scored", 1},
	} {
		checkOutcome(t, score(t, s, c.said), c.score, c.outcome, c.tries)
	}
	if v := score(t, s, "1"); v.Rewards[0].Evidence != "7 [secret]" || len(v.Credit) != 1 || v.Credit[0] != 1 {
		t.Errorf("evidence %q, credit %v", v.Rewards[0].Evidence, v.Credit)
	}
}

// A grader that hangs on one answer out of 20 ends at its deadline, with all that it started; the other 19 rewards arrive, and its workers
// are free (RW-o3).
func TestCaseRWo3HungCommandIsKilled(t *testing.T) {
	t.Parallel()
	python3(t)
	dir := t.TempDir()
	each := `read line; case "$line" in *'"text":"hang"'*) sleep 1000 & echo $! $$ >>` + filepath.Join(dir, "each") + `; wait;; esac; echo '{"score": 1}'`
	worker := strings.Replace(echoer, "import time;", "import subprocess, time; p = subprocess.Popen(['sleep', '1000']); open('"+filepath.Join(dir, "worker")+"', 'a').write(f'{p.pid} {os.getpid()}\\n');", 1)
	for name, with := range map[string]settings{
		"each":   {"run": []string{"sh", "-c", each}, "timeout": "4s"},
		"worker": {"run": []string{"python3", write(t, "w.py", worker)}, "mode": Worker, "timeout": "4s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scorerOf(t, KindCommand, 2, with)
			out := make([]episode.Verdict, 20)
			var all sync.WaitGroup
			for i := range out {
				said := "1"
				if i == 7 {
					said = "hang"
				}
				all.Go(func() { out[i], _ = s.Score(t.Context(), episodeOf(said)) })
			}
			all.Wait()
			for i, v := range out {
				want, outcome := 1.0, "scored"
				if i == 7 {
					want, outcome = 0, "no_verdict: score_timeout"
				}
				checkOutcome(t, v, want, outcome, 1)
			}
			if st := s.Stats(); st.Running != 0 || st.Abandoned != 0 {
				t.Errorf("%+v: workers are not free", st)
			}
			started, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			for _, pid := range strings.Fields(string(started)) {
				gone(t, pid)
			}
		})
	}
}

// gone waits until a process is dead; nobody may have waited for it yet.
func gone(t *testing.T, text string) {
	t.Helper()
	pid, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d lives on", pid)
}

const pythonGrader = `import json, os, sys
def grade(case):
    text = case["text"]
    if text == "raise": raise ValueError("cannot")
    if text == "die": os._exit(3)
    if text == "hang":
        while True: pass
    if text == "nan": return float("nan")
    if text == "number": return 0.5
    if text == "none": return None
    print("stray output does no harm")
    return {"score": float(text), "raw": case["options"]["base"], "parts": [{"name": "p", "score": 1, "weight": 0}], "turns": [None]}
`

func TestPython(t *testing.T) {
	t.Parallel()
	python3(t)
	s := scorerOf(t, KindPython, 2, settings{
		"file": write(t, "g.py", pythonGrader), "trusted": true, "timeout": "20s", "options": settings{"base": 2},
	})
	for _, c := range []struct {
		said    string
		score   float64
		outcome string
		tries   int
	}{
		{"0.25", 0.25, "scored", 1}, {"raise", 0, "no_verdict: verifier_error", 1}, {"0.75", 0.75, "scored", 1}, {"die", 0, "no_verdict: " + Died, 3},
		{"1", 1, "scored", 1}, {"nan", 0, "no_verdict: verifier_error", 1}, {"number", 0.5, "scored", 1}, {"none", 0, "no_verdict: verifier_error", 1},
		{"2", 0, "no_verdict: verifier_error", 1},
	} {
		checkOutcome(t, score(t, s, c.said), c.score, c.outcome, c.tries)
	}
	v := score(t, s, "0.5")
	if r := v.Rewards[0]; *r.Raw != 2 || r.Tier != string(sandbox.TierNone) || len(v.Rewards) != 2 || v.Rewards[1].Name != "own.p" || len(r.Credit) != 1 {
		t.Errorf("%+v", v)
	}
}

func TestPythonThatHangsOrIsNotTrusted(t *testing.T) {
	t.Parallel()
	python3(t)
	file := write(t, "g.py", pythonGrader)
	s := scorerOf(t, KindPython, 1, settings{"file": file, "trusted": true, "timeout": "4s"})
	checkOutcome(t, score(t, s, "hang"), 0, "no_verdict: score_timeout", 1)
	checkOutcome(t, score(t, s, "number"), 0.5, "scored", 1)
	checkOutcome(t, score(t, scorerOf(t, KindPython, 1, settings{"file": file}), "number"), 0, "no_verdict: "+Died, 3)
	checkOutcome(t, score(t, scorerOf(t, KindPython, 1, settings{"file": write(t, "g.py", "x = 1 +"), "trusted": true}), "number"), 0, "no_verdict: verifier_error", 1)
}

// Closing ends a grading that waits for its sandbox, whoever began it, and waits for it: a back end that never comes holds nobody.
func TestCloseEndsGradingsThatWaitForASandbox(t *testing.T) {
	asked := make(chan struct{})
	raw, err := json.Marshal(settings{"file": write(t, "g.py", "def grade(case):\n    return 1\n")})
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPython(reward.Spec{Name: "own", Kind: KindPython, With: raw}, Host{Boxes: func(ctx context.Context) (sandbox.Executor, error) {
		close(asked)
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	if err != nil {
		t.Fatal(err)
	}
	graded := make(chan error, 1)
	go func() {
		_, err := p.Grade(context.Background(), reward.Input{Task: &episode.Task{ID: "t"}, Text: "7", Said: true})
		graded <- err
	}()
	<-asked
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := <-graded; !errors.Is(err, context.Canceled) {
		t.Errorf("the grading ended with %v", err)
	}
}

// The same episodes give the same verdicts, byte for byte but for the times, whatever the number of workers.
func TestVerdictsAreReproducible(t *testing.T) {
	t.Parallel()
	python3(t)
	script := write(t, "w.py", echoer)
	verdicts := func(workers int) string {
		s := scorerOf(t, KindCommand, workers, settings{"run": []string{"python3", script}, "mode": Worker})
		out := make([]episode.Verdict, 32)
		var all sync.WaitGroup
		for i := range out {
			all.Go(func() { out[i], _ = s.Score(t.Context(), episodeOf(fmt.Sprint(float64(i)/32))) })
		}
		all.Wait()
		for i := range out {
			for k := range out[i].Rewards {
				out[i].Rewards[k].Cost = episode.Cost{}
			}
		}
		text, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	one, many := verdicts(1), verdicts(16)
	if one != many || !strings.Contains(one, `"Score":0.96875`) {
		t.Errorf("verdicts differ:\n%s\n%s", one, many)
	}
}

func TestWrongOptionsAreNamed(t *testing.T) {
	for _, c := range []struct {
		kind, with string
		wants      []string
	}{
		{KindCommand, `{}`, []string{"run: is missing"}},
		{KindCommand, `{"run":["no-such-program"],"mode":"x","timeout":"-1s"}`, []string{"no-such-program", "mode:", "timeout:"}},
		{KindHTTP, `{"url":"ftp://x"}`, []string{"url: expected"}},
		{KindHTTP, `{"url":"http://u:hunter2@x/"}`, []string{"url: a user name"}},
		{KindPython, `{"function":"a b"}`, []string{"file: is missing", "function:"}},
		{KindPython, `{"fil":"x"}`, []string{"fil: unknown option"}},
	} {
		_, err := reward.New(reward.Config{Graders: []reward.Spec{{Name: "own", Kind: c.kind, With: json.RawMessage(c.with)}}}, Kinds(host(t))...)
		for _, want := range c.wants {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s %s: %v, want %q", c.kind, c.with, err, want)
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, c := range outcomes {
		f.Add([]byte(c.said))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := read(raw)
		if err == nil && (a.Score == nil) == (a.NoVerdict == "") {
			t.Errorf("%q: %+v", raw, a)
		}
	})
}

// Workers that ended while they waited, however many, cost no try: the next case gets one that lives.
func TestWorkersThatEndedWhileTheyWaited(t *testing.T) {
	c := &command{opt: commandOptions{Run: []string{"sh", "-c", "read line; exit 3"}}}
	p := &crew{start: c.startWorker}
	for range 4 {
		w, err := c.startWorker()
		if err != nil {
			t.Fatal(err)
		}
		w.in.Close()
		<-w.ended
		p.live.Add(1)
		p.give(w, true)
	}
	w, err := p.take()
	if err != nil || !w.lives() || len(p.idle) > 0 {
		t.Errorf("got %+v, %v, with %d that wait", w, err, len(p.idle))
	}
	p.give(w, false)
	p.close()
}
