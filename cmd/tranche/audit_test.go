package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tranche/episode"
	"tranche/inference/enginesim"
	"tranche/storage"
)

// served is a simulated engine on TCP.
func served(t *testing.T, cfg enginesim.Config) (url string) {
	t.Helper()
	engine, err := enginesim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server, err := engine.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close(context.Background()) })
	return "http://" + server.Addr() + "/v1"
}

// A whole run with tools goes by exact ids, though the model samples other tokens than its text would be cut into; the audit finds just that, and what
// the same run had lost by messages.
func TestAuditTokensOfARun(t *testing.T) {
	tasks := filepath.Join("..", "..", "examples", "arithmetic", "tasks.jsonl")
	url := served(t, enginesim.Config{OddTokens: true})
	for name, c := range map[string]struct {
		flags []string
		want  string
		broke bool
	}{
		"by ids": {nil, "ids", false}, "by messages": {[]string{"--exchange", "chat"}, "chat", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newRunDir(t)
			newShell(t).do(codeOK, append([]string{"run", tasks, "--limit", "8", "--endpoint", url, "-o", dir, "-q"}, c.flags...)...)
			breaks, turns := 0, 0
			for _, row := range rowsIn(t, dir) {
				if row.PrefixBreak != nil {
					breaks++
				}
				for i, turn := range row.Turns {
					if want := map[bool]string{true: "chat", false: c.want}[i == 0]; or(turn.Exchange, "") != want {
						t.Errorf("%s: turn %d went as %q, want %q", row.TaskID, i, or(turn.Exchange, ""), want)
					}
					turns++
				}
			}
			if turns < 12 || (breaks > 0) != c.broke {
				t.Errorf("%d turns, %d rows with a prefix break", turns, breaks)
			}
			got := audited(t, dir)
			if got.Rows != 8 || got.Breaks != breaks || got.Prompt+got.Rewritten > 0 || (got.Retokenised == 0) != c.broke {
				t.Errorf("%+v", got)
			}
		})
	}
}

func audited(t *testing.T, dir string, flags ...string) (got tokenAudit) {
	t.Helper()
	s := newShell(t)
	s.do(codeOK, append([]string{"audit", "tokens", dir, "--json"}, flags...)...)
	if err := json.Unmarshal(s.out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAuditTokensOfTheEmbeddedEngine(t *testing.T) {
	dir := newRunDir(t)
	newShell(t).do(codeOK, "run", filepath.Join("..", "..", "examples", "arithmetic", "tasks.jsonl"), "--limit", "6", "-o", dir, "-q")
	if got := audited(t, dir, "-n", "4"); got.Dataset != 6 || got.Rows != 4 || got.Same != 4 || got.IDs == 0 || got.Behind != 0 || len(got.Drifts) > 0 {
		t.Errorf("%+v", got)
	}
	s := newShell(t)
	s.do(codeOK, "audit", "tokens", dir)
	if said := s.out.String(); !strings.Contains(said, "6 looked at of 6") || !strings.Contains(said, "same         6 (100.0 %)") {
		t.Errorf("%s", said)
	}
	s.do(codeRefused, "audit", "tokens", filepath.Join(dir, "nowhere"))
	s.do(codeUsage, "audit", "tokens", dir, "-n", "-1")
	s.do(codeEndpoint, "audit", "tokens", dir, "--endpoint", "http://127.0.0.1:1")
}

// letters renders a letter an id.
type letters struct{ renders string }

func (l letters) PromptIDs(context.Context, *episode.Call) ([]int32, error) {
	return []int32(l.renders), nil
}

func (letters) Text(_ context.Context, ids []int32) (string, error) {
	return strings.ToLower(string([]rune(ids))), nil
}

type noTools struct{}

func (noTools) Tools(*episode.Task) ([]byte, bool, error) { return nil, false, nil }

// Each kind of difference, by what was stored and what is rendered now. Letters of another case are other tokens of the same text.
func TestAuditJudges(t *testing.T) {
	for name, c := range map[string]struct {
		stored, mask, renders string
		kind                  string
		at                    int
		sampled               bool
	}{
		"same":                      {"qqabqqyy", "00110011", "qqabqq", driftSame, 0, false},
		"other tokens of an answer": {"qqabqqyy", "00110011", "qqaBqq", driftRetokenised, 3, true},
		"an answer rewritten":       {"qqabqqyy", "00110011", "qqaxqq", driftRewritten, 3, true},
		"an answer dropped":         {"qqabqqyy", "00110011", "qq", driftRewritten, 2, true},
		"more behind":               {"qqabqqyy", "00110011", "qqabqqz", driftRewritten, 6, false},
		"a message rewritten":       {"qqabqqyy", "00110011", "qqabxq", driftRewritten, 4, false},
		"another prompt":            {"qqabqqyy", "00110011", "qxabqq", driftPrompt, 1, false},
		"a prompt cut otherwise":    {"qqabqqyy", "00110011", "qQabqq", driftPrompt, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			row := &storage.Row{EpisodeID: "e", TokenIDs: []int32(c.stored), PromptLen: 2, NumPromptMessages: 1, Messages: []storage.Message{
				{Role: episode.Ptr("user"), Content: episode.Ptr("qq")}, {Role: episode.Ptr("assistant"), Content: episode.Ptr("ab")},
				{Role: episode.Ptr("user"), Content: episode.Ptr("qq")}, {Role: episode.Ptr("assistant"), Content: episode.Ptr("yy")},
			}}
			for _, m := range c.mask {
				row.LossMask = append(row.LossMask, int8(m-'0'))
			}
			var got tokenAudit
			if err := got.look(t.Context(), letters{c.renders}, noTools{}, row); err != nil {
				t.Fatal(err)
			}
			counts := map[string]int{driftSame: got.Same, driftRetokenised: got.Retokenised, driftRewritten: got.Rewritten, driftPrompt: got.Prompt}
			if got.Rows != 1 || counts[c.kind] != 1 || got.Same+len(got.Drifts) != 1 {
				t.Fatalf("%+v", got)
			}
			if c.kind != driftSame && (got.Drifts[0].At != c.at || got.Drifts[0].Sampled != c.sampled || got.Drifts[0].Kind != c.kind) {
				t.Errorf("%+v", got.Drifts[0])
			}
		})
	}
}

// The call that is rendered again is the last one the row was played with: everything before the last answer.
func TestAuditRendersTheLastCall(t *testing.T) {
	row := &storage.Row{Flags: []string{episode.FlagThinkingTagged}, Sampling: episode.Ptr(`{"chat_template_kwargs":{"a":1},"temperature":1}`), NumPromptMessages: 1, Messages: []storage.Message{
		{Role: episode.Ptr("user"), Content: episode.Ptr("q")},
		{Role: episode.Ptr("assistant"), Content: episode.Ptr("a"), ReasoningContent: episode.Ptr("r")},
		{Role: episode.Ptr("tool"), Content: episode.Ptr("t"), ToolCallID: episode.Ptr("1")},
		{Role: episode.Ptr("assistant"), Content: episode.Ptr("z")}, {Role: episode.Ptr("tool"), Content: episode.Ptr("end")},
	}}
	c, answers, err := callOf(row, noTools{})
	if err != nil || answers != 2 {
		t.Fatalf("%d answers, %v", answers, err)
	}
	var said []string
	for _, m := range c.Messages {
		said = append(said, m.Text())
	}
	if !slices.Equal(said, []string{"q", "<think>r</think>a", "t"}) || string(c.Sampling.Extra["chat_template_kwargs"]) != `{"a":1}` {
		t.Errorf("%q, %s", said, c.Sampling.Extra)
	}
}
