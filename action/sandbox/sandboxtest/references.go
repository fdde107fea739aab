//go:build linux && (amd64 || arm64)

package sandboxtest

import (
	"bufio"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tranche/action/sandbox"
)

// reference is a program that is known to be right, with its tests behind it.
type reference struct{ name, source string }

// References runs the reference solutions of two well-known sets with their tests, twice: all pass, and both times alike. It takes every tenth,
// and all of them where TRANCHE_REFERENCES=all.
func References(t *testing.T, open func() (sandbox.Executor, error)) {
	list := append(humanEval(t), mbpp(t)...)
	if os.Getenv("TRANCHE_REFERENCES") != "all" {
		list = everyTenth(list)
	}
	s := newStage(t, open)
	began := time.Now()
	first := s.runAll(t, list)
	took := time.Since(began)
	second := s.runAll(t, list)
	t.Logf("%d programs in %v, then in %v", len(list), took.Round(time.Millisecond), (time.Since(began) - took).Round(time.Millisecond))
	for i, r := range first {
		switch again := second[i]; {
		case r.Status != sandbox.StatusOK:
			t.Errorf("%s: %s", list[i].name, summary(r))
		case again.Status != r.Status, again.Exit != r.Exit, text(again.Stdout) != text(r.Stdout), text(again.Stderr) != text(r.Stderr):
			t.Errorf("%s ends otherwise the second time: %s\nthen %s", list[i].name, summary(r), summary(again))
		}
	}
}

func everyTenth(list []reference) []reference {
	var some []reference
	for i := 0; i < len(list); i += 10 {
		some = append(some, list[i])
	}
	return some
}

// runAll gives each program a sandbox of its own, two at a time.
func (s *stage) runAll(t *testing.T, list []reference) []sandbox.Result {
	results := make([]sandbox.Result, len(list))
	var all sync.WaitGroup
	for half := range 2 {
		all.Go(func() {
			for i := half; i < len(list); i += 2 {
				box := s.open(t)
				r, err := play(box, sandbox.Cmd{Args: []string{python, "-I", "-c", list[i].source}, CPU: 20 * time.Second, Wall: patience})
				if err != nil {
					t.Errorf("%s: the executor failed: %v", list[i].name, err)
				}
				results[i] = r
				s.close(t, box)
			}
		})
	}
	all.Wait()
	return results
}

func humanEval(t *testing.T) []reference {
	var list []reference
	eachLine(t, "tasks-humaneval/humaneval.first82.jsonl", func(line []byte) error {
		var row struct {
			ID         string `json:"task_id"`
			Prompt     string `json:"prompt"`
			EntryPoint string `json:"entry_point"`
			Solution   string `json:"canonical_solution"`
			Test       string `json:"test"`
		}
		err := json.Unmarshal(line, &row)
		list = append(list, reference{row.ID, row.Prompt + row.Solution + "\n" + row.Test + "\ncheck(" + row.EntryPoint + ")\n"})
		return err
	})
	return list
}

func mbpp(t *testing.T) []reference {
	var list []reference
	eachLine(t, "tasks-mbpp/mbpp.part.jsonl", func(line []byte) error {
		var row struct {
			ID    json.Number `json:"task_id"`
			Code  string      `json:"code"`
			Setup string      `json:"test_setup_code"`
			Tests []string    `json:"test_list"`
		}
		err := json.Unmarshal(line, &row)
		list = append(list, reference{"MBPP/" + row.ID.String(), strings.Join(append([]string{row.Code, row.Setup}, row.Tests...), "\n")})
		return err
	})
	return list
}

func eachLine(t *testing.T, name string, do func([]byte) error) {
	t.Helper()
	path := filepath.Join(cmp.Or(os.Getenv("TRANCHE_DATA"), "../../../../shared/data"), name)
	file, err := os.Open(path)
	if err != nil {
		t.Skipf("needs the data set: %v (set TRANCHE_DATA)", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	n := 0
	for ; lines.Scan(); n++ {
		if err := do(lines.Bytes()); err != nil {
			t.Fatalf("%s, line %d: %v", path, n+1, err)
		}
	}
	if lines.Err() != nil || n == 0 {
		t.Fatalf("%s: %d lines, %v", path, n, lines.Err())
	}
}
