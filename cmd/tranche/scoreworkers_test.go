package main

import (
	"fmt"
	"runtime"
	"testing"

	"tranche/internal/mock"
)

// Graders that wait until all of them run end only where --score-workers lets as many run at once.
func TestScoreWorkersRunAtOnce(t *testing.T) {
	n := runtime.NumCPU() + 3
	script := fmt.Sprintf(`touch %[1]s/$$; while [ $(ls %[1]s | wc -l) -lt %[2]d ]; do sleep 0.05; done; echo '{"score": 1}'`, t.TempDir(), n)
	settings := write(t, "run.yaml", fmt.Sprintf("score-workers: %d\nscore-timeout: 60s\nscore-retries: 0\nreward:\n- {kind: command, name: meet, run: [sh, -c, %s]}\n", n, encode(script)))
	server := mock.New(t, mock.Config{Chat: mock.Text("#### 7").Send})
	s := newShell(t)
	s.do(codeOK, "run", taskFile(t, n, ""), "-c", settings, "--endpoint", server.URL(), "-o", newRunDir(t), "--json")
	if d := s.document(); d.Dataset.Reward.N != int64(n) {
		t.Errorf("%d of %d scored", d.Dataset.Reward.N, n)
	}
}
