package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tranche/storage"
)

// Case ME-o1 of the whole program: prompts of 2 KiB, answers of 1 KiB at once. 200,000 of them must not take 400 MiB, and about as
// much as 20,000 (±25 %). The program is a process of its own, so its peak is its own. 80,000 show the same growth in a third of the
// time, if what they take more is carried on to 200,000; TRANCHE_SOAK=1 plays the case's own number.
func TestCaseMEo1(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector multiplies memory: peaks are judged without it")
	}
	if testing.Short() {
		t.Skip("plays 100,000 episodes")
	}
	small, large := 20_000, 80_000
	if os.Getenv("TRANCHE_SOAK") != "" {
		large = 200_000
	}
	server := atOnce(t, strings.Repeat("lorem ipsum dol ", 64))
	few, many := peakOfRun(t, server, small), peakOfRun(t, server, large)
	all := many + max(many-few, 0)*int64(200_000-large)/int64(large-small)
	t.Logf("peak %d MiB with %d prompts, %d MiB with %d, that is %d MiB with 200,000", few>>10, small, many>>10, large, all>>10)
	if all > 400<<10 {
		t.Errorf("200,000 prompts take %d KiB, want 400 MiB at most", all)
	}
	if r := float64(many) / float64(few); r > 1.25 || r < 0.75 {
		t.Errorf("%d prompts take %.2f of the memory of %d, want 0.75 to 1.25", large, r, small)
	}
}

// atOnce is a server that gives the same answer to everything without delay. It keeps no record of its requests, as mock would.
func atOnce(t *testing.T, text string) string {
	body := fmt.Sprintf(`{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":{"prompt_tokens":500,"completion_tokens":250,"total_tokens":750}}`, text)
	mux := http.NewServeMux()
	say := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // a request that breaks off shows on the client's side
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		}
	}
	mux.Handle("/v1/models", say(`{"object":"list","data":[{"id":"m","object":"model","owned_by":"x"}]}`))
	mux.Handle("/v1/chat/completions", say(body))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

// peakOfRun plays n prompts of 2 KiB in a process of its own and returns the most memory it ever held, KiB.
func peakOfRun(t *testing.T, server string, n int) (peak int64) {
	t.Helper()
	tasks, dir := filepath.Join(t.TempDir(), "tasks.jsonl"), newRunDir(t)
	f, err := os.Create(tasks)
	if err != nil {
		t.Fatal(err)
	}
	w, text := bufio.NewWriter(f), strings.Repeat("dolor sit amet, ", 128)
	for i := range n {
		fmt.Fprintf(w, "{\"id\":\"t%d\",\"prompt\":\"%d %s\"}\n", i, i, text)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(program, "run", tasks, "--endpoint", server, "--no-logprobs", "--no-token-ids", "-o", dir, "-q")
	cmd.Args[0], cmd.Stdout, cmd.Stderr = "tranche", &out, &out // by that name the test binary is the program: TestMain
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%d prompts: %v\n%s", n, err, out.Bytes())
			}
			if peak == 0 {
				t.Skip("no /proc: peak memory cannot be read here")
			}
			if rows := rowCount(t, dir); rows != int64(n) {
				t.Errorf("%d rows of %d prompts", rows, n)
			}
			return peak
		case <-time.After(20 * time.Millisecond):
			peak = max(peak, highWater(cmd.Process.Pid))
		}
	}
}

func rowCount(t *testing.T, dir string) int64 {
	t.Helper()
	run, err := storage.OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := run.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	return m.Rows
}

// highWater is the most resident memory a process has held so far, KiB; 0 = not known. (What wait4 tells includes what the parent
// held at the moment of the fork.)
func highWater(pid int) (kib int64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			if _, err := fmt.Sscan(v, &kib); err != nil {
				return 0
			}
		}
	}
	return kib
}
