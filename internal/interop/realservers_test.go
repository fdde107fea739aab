package interop

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLawsOfRealServers holds what scripts/real-servers.sh checks against a run on the simulated engine, which keeps the laws, and against the same
// run with one of them broken at a time.
func TestLawsOfRealServers(t *testing.T) {
	python3, err := exec.LookPath("python3")
	if err != nil {
		missing(t, "python3 is not on PATH")
	}
	script := func(args ...string) (string, error) {
		out, err := exec.Command(python3, args...).CombinedOutput()
		return string(out), err
	}
	tasks, err := script(root("scripts", "realservers", "tasks.py"))
	if err != nil {
		t.Fatalf("%v\n%s", err, tasks)
	}
	dir, url := t.TempDir(), "http://"+engine(t, "--speed", "0")+"/v1"
	run := filepath.Join(dir, "run")
	succeed(t, time.Minute, "run", write(t, filepath.Join(dir, "tasks.jsonl"), tasks), "-n", "1", "--endpoint", url, "--model", "sim", "--max-turns", "4", "--reward", "numeric",
		"--extra-body", `{"tool_choice":"required"}`, "-o", run, "--progress", "none")
	write(t, filepath.Join(dir, "probe.json"), succeed(t, time.Minute, "probe", "--json", url))
	write(t, filepath.Join(dir, "audit.json"), succeed(t, time.Minute, "audit", "tokens", run, "-n", "0", "--json"))
	rows := succeed(t, time.Minute, "view", run, "-n", "99", "--json")
	rowsFile := write(t, filepath.Join(dir, "rows.json"), rows)
	laws := func() (string, error) {
		return script(root("scripts", "realservers", "laws.py"), "vllm", dir, "8", "0")
	}
	said, err := laws()
	if err != nil {
		t.Fatalf("a run that keeps the laws: %v\n%s", err, said)
	}
	t.Log(said)

	for name, c := range map[string]struct {
		harm func(rows []map[string]any) []map[string]any
		want string
	}{
		"a row is lost":    {func(r []map[string]any) []map[string]any { return r[1:] }, "7 rows of 8 episodes"},
		"a row is doubled": {func(r []map[string]any) []map[string]any { return append(r, r[0]) }, "9 rows of 8 episodes"},
		"a break is lost":  {func(r []map[string]any) []map[string]any { r[0]["prefix_break"] = 3; return r }, "and 0 breaks are kept"},
		"a prefix break by ids": {func(r []map[string]any) []map[string]any {
			for _, row := range r {
				if turns := row["turns"].([]any); turns[len(turns)-1].(map[string]any)["exchange"] == "ids" {
					row["prefix_break"], row["breaks"] = 3, []any{map[string]any{"turn": len(turns) - 1, "at": 3}}
					break
				}
			}
			return r
		}, "does not extend the one before, from id 3 on"},
		"an id is lost": {func(r []map[string]any) []map[string]any {
			r[0]["token_ids"] = r[0]["token_ids"].([]any)[1:]
			return r
		}, "token ids and"},
		"an id was never sampled": {func(r []map[string]any) []map[string]any { r[0]["loss_mask"].([]any)[0] = 1; return r }, "sampled ids are stored"},
		"an observation is lost": {func(r []map[string]any) []map[string]any {
			r[0]["messages"] = withoutOne(r[0]["messages"].([]any), "tool")
			r[0]["submitted"] = nil
			return r
		}, "observation of"},
		"an answer is lost": {func(r []map[string]any) []map[string]any {
			r[0]["messages"] = withoutOne(r[0]["messages"].([]any), "assistant")
			return r
		}, "not so many answers"},
	} {
		t.Run(name, func(t *testing.T) {
			var doc struct {
				Episodes []map[string]any `json:"episodes"`
			}
			if err := json.Unmarshal([]byte(rows), &doc); err != nil {
				t.Fatal(err)
			}
			doc.Episodes = c.harm(doc.Episodes)
			raw, err := json.Marshal(doc)
			if err == nil {
				err = os.WriteFile(rowsFile, raw, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			if said, err := laws(); err == nil || !strings.Contains(said, c.want) {
				t.Errorf("%v, said %s, want a word of %q", err, said, c.want)
			}
		})
	}
}

// withoutOne is the messages without the last one of a role.
func withoutOne(messages []any, role string) []any {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].(map[string]any)["role"] == role {
			return append(messages[:i:i], messages[i+1:]...)
		}
	}
	return messages
}
