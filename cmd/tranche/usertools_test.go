package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tranche/action"
	"tranche/inference/enginesim"
	"tranche/internal/mock"
	"tranche/storage"
)

const arithmetic = "../../examples/arithmetic/tasks.jsonl"

// Episodes of a model that writes its calls: they are read, run and answered in text; the prompt of every later turn is the turn before, token
// by token, and goes on from it, also behind text that a stop string ended.
func TestCallsWrittenInTextEndToEnd(t *testing.T) {
	for _, format := range action.CallFormatNames()[1:] {
		t.Run(format, func(t *testing.T) {
			s := newShell(t)
			dir := newRunDir(t)
			s.do(codeOK, "run", arithmetic, "--calls", format, "-o", dir, "-q", "--json")
			if d := s.document(); d.Dataset.Good != 40 || d.Dataset.Reward.Mean == nil || *d.Dataset.Reward.Mean < 0.4 {
				t.Errorf("%d good rows, reward %v", d.Dataset.Good, d.Dataset.Reward.Mean)
			}
			stopped, later := 0, 0
			for key, row := range rowsIn(t, dir) {
				if *row.Messages[0].Role != "system" || row.NumPromptMessages != 2 || row.Submitted == nil || len(row.Breaks) > 0 {
					t.Errorf("%s: first message %s, %d of the prompt, submitted %v, %d breaks", key, *row.Messages[0].Role, row.NumPromptMessages, row.Submitted, len(row.Breaks))
				}
				for i, turn := range row.Turns {
					if turn.StopReason != nil {
						stopped++
					}
					if later += min(i, 1); i > 0 && *turn.Exchange != "ids" {
						t.Errorf("%s: turn %d went as %s", key, i, *turn.Exchange)
					}
				}
				for i, m := range row.Messages[2:] {
					if want := []string{"assistant", "user"}[i%2]; *m.Role != want || len(m.ToolCalls) > 0 {
						t.Errorf("%s: message %d is of %s with %d tool calls", key, i+2, *m.Role, len(m.ToolCalls))
					}
				}
				if sampled := int32(len(row.TokenIDs)); row.NumOutputTokens == nil || sampled <= *row.NumOutputTokens || len(row.LossMask) != len(row.TokenIDs) {
					t.Errorf("%s: %d tokens, of them %v sampled", key, sampled, row.NumOutputTokens)
				}
			}
			if stopped == 0 || later == 0 {
				t.Errorf("%d turns ended with a stop string, %d were later ones: this test tests nothing", stopped, later)
			}
		})
	}
}

// Whatever the server speaks, and where a stop string closes the call itself, later turns go by the tokens that were sampled.
func TestCallsWrittenInTextOnOtherServers(t *testing.T) {
	for name, c := range map[string]struct {
		engine enginesim.Config
		yaml   string
	}{
		"sglang":                           {enginesim.Config{Speaks: enginesim.SpeaksSGLang}, "calls: tags\n"},
		"llama-server":                     {enginesim.Config{Speaks: enginesim.SpeaksLlama}, "calls: tags\n"},
		"no scale-out routes":              {enginesim.Config{NoScaleOut: true}, "calls: tags\n"},
		"other tokens":                     {enginesim.Config{OddTokens: true}, "calls: tags\n"},
		"a call that a stop string closes": {enginesim.Config{}, "calls: {format: tags, stop: [</calculator>, </answer>]}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c.engine.Calls = enginesim.WritesTags
			dir := newRunDir(t)
			newShell(t).do(codeOK, "run", arithmetic, "-c", write(t, "run.yaml", c.yaml), "--limit", "12", "--endpoint", served(t, c.engine), "-o", dir, "-q")
			later, closed := 0, 0
			for key, row := range rowsIn(t, dir) {
				if row.PrefixBreak != nil || row.Submitted == nil {
					t.Errorf("%s: prefix break %v, submitted %v", key, row.PrefixBreak, row.Submitted)
				}
				for i, turn := range row.Turns {
					if later += min(i, 1); i > 0 && or(turn.Exchange, "") != "ids" {
						t.Errorf("%s: turn %d went as %s", key, i, or(turn.Exchange, ""))
					}
					if strings.HasPrefix(or(turn.StopReason, ""), "</") {
						closed++
					}
				}
				if said := *row.Messages[2].Content; strings.Count(said, "</") != strings.Count(said, "<")/2 || !strings.Contains(said, "</") {
					t.Errorf("%s: the first answer is %q", key, said)
				}
			}
			if later == 0 || (closed > 0) != strings.HasPrefix(name, "a call") {
				t.Errorf("%d later turns, %d closed by a stop string", later, closed)
			}
		})
	}
}

// An audit of such a run renders what was sent: prompts are as they were, and only behind a stop string the text says less than the tokens.
func TestCallsWrittenInTextAreAudited(t *testing.T) {
	dir := newRunDir(t)
	newShell(t).do(codeOK, "run", arithmetic, "--calls", "tags", "-o", dir, "-q")
	cut := 0 // rows with more of a turn's tokens than of its text
	for _, row := range rowsIn(t, dir) {
		if slices.ContainsFunc(row.Turns[:len(row.Turns)-1], func(turn storage.Turn) bool { return turn.StopReason != nil }) {
			cut++
		}
	}
	if got := audited(t, dir); cut == 0 || got.Rows != 40 || got.Same != 40-cut || got.Rewritten != cut || got.Prompt > 0 {
		t.Errorf("%d rows, %d the same, %d rewritten, %d other prompts; %d rows have a turn that a stop string ended", got.Rows, got.Same, got.Rewritten, got.Prompt, cut)
	}
}

// A dry run shows the request with the tools in its prompt.
func TestDryRunOfCallsWrittenInText(t *testing.T) {
	s := newShell(t)
	s.do(codeOK, "run", arithmetic, "--calls", "tags", "--dry-run", "-q", "--json")
	var dry struct {
		Request struct {
			Messages []struct{ Role, Content string }
			Tools    json.RawMessage
			Stop     []string
		} `json:"first_request"`
	}
	if err := json.Unmarshal(s.out.Bytes(), &dry); err != nil {
		t.Fatal(err)
	}
	if r := dry.Request; r.Tools != nil || !slices.Equal(r.Stop, []string{"<output>"}) || !strings.Contains(r.Messages[0].Content, "<calculator>expression</calculator>") {
		t.Errorf("the first request would be %+v", r)
	}
}

// A format of the user's own: an unreadable call goes back, the model's next one is run, its observation is told in the declared words.
func TestCallsInAFormOfOnesOwn(t *testing.T) {
	says := []string{"Let me <calc>2 +", "<calc>2 + 2</calc> is 5", "#### 4"}
	var seen []string
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		seen = append(seen, string(r.Field("messages")))
		mock.Text(says[min(len(seen), len(says))-1]).Send(r, w)
	}})
	file := write(t, "run.yaml", `
tools: calculator
calls:
  blocks: {open: <calc>, close: </calc>, tool: calculator}
  output: "RESULT[{output}]"
  prompt: "Calculate with {calls}."
`)
	s := newShell(t)
	dir := newRunDir(t)
	s.do(codeOK, "run", taskFile(t, 1, ""), "-c", file, "--endpoint", server.URL(), "--reward", "none", "-o", dir, "-q")
	row := rowsIn(t, dir)["t0/0"]
	var told []string
	for _, m := range row.Messages {
		told = append(told, *m.Role+": "+*m.Content)
	}
	want := []string{
		"system: Calculate with <calc>expression</calc>.", "user: task 0",
		"assistant: Let me <calc>2 +", "user: RESULT[error: the call could not be read: <calc> is not closed by </calc>\nexpected <calc>expression</calc>]",
		"assistant: <calc>2 + 2</calc> is 5", "user: RESULT[4]", "assistant: #### 4",
	}
	if !slices.Equal(told, want) {
		t.Errorf("the conversation was\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
	if len(seen) != 3 || !strings.Contains(seen[2], `2 + 2\u003c/calc\u003e is 5`) && !strings.Contains(seen[2], `<calc>2 + 2</calc> is 5`) {
		t.Errorf("the text behind a call is not sent back: %s", seen[len(seen)-1])
	}
}

type greeting struct {
	Who string `json:"who"`
}

// mcpOverHTTP is an MCP server with one tool.
func mcpOverHTTP(t *testing.T) string {
	server := mcp.NewServer(&mcp.Implementation{Name: "greeter", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "greet", Description: "greets"}, func(_ context.Context, _ *mcp.CallToolRequest, in greeting) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello " + in.Who}}}, nil, nil
	})
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(web.Close)
	return web.URL
}

// A program, a web service and an MCP server, defined in one settings file and called in one episode; then resumed from run.yaml.
func TestToolsOfTheUsersOwn(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("needs sh")
	}
	t.Setenv("WEATHER_KEY", "hunter2")
	weather := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "sunny in %s (%s)", r.URL.Path[1:], r.Header.Get("X-Api-Key"))
	}))
	defer weather.Close()
	calls := []struct{ tool, args, want string }{
		{"wiki", `{"title":"Tranche"}`, `you asked {"title":"Tranche"}`},
		{"weather", `{"city":"Bergen"}`, "sunny in Bergen ([secret])"},
		{"greet", `{"who":"you"}`, "hello you"},
		{"wiki", `{"titel":"x"}`, "error: the arguments do not fit"},
	}
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		n := strings.Count(string(r.Field("messages")), `"role":"tool"`)
		if n == len(calls) {
			mock.Text("#### 7").Send(r, w)
			return
		}
		mock.Tool(fmt.Sprint("c", n), calls[n].tool, calls[n].args).Send(r, w)
	}})
	folder := t.TempDir()
	script := "#!/bin/sh\nprintf 'you asked '; cat\n"
	if err := os.WriteFile(filepath.Join(folder, "wiki.sh"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	settings := `
tools: [wiki, weather, greeter]
command-tool:
  name: wiki
  description: looks things up
  parameters: {type: object, properties: {title: {type: string}}, required: [title], additionalProperties: false}
  run: [./wiki.sh]
  timeout: 20s
http-tool:
  - name: weather
    parameters: {type: object, properties: {city: {type: string}}, required: [city]}
    url: ` + weather.URL + `/{city}
    headers: {X-Api-Key: "${WEATHER_KEY}"}
    max-bytes: 64KiB
mcp-server:
  - {name: greeter, url: "` + mcpOverHTTP(t) + `", timeout: 10s}
`
	file := filepath.Join(folder, "run.yaml")
	if err := os.WriteFile(file, []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newShell(t)
	dir := newRunDir(t)
	s.do(codeOK, "run", taskFile(t, 1, ""), "-c", file, "--endpoint", server.URL(), "--reward", "none", "-o", dir)
	if said := s.err.String(); !strings.Contains(said, "MCP server greeter: 1 tools (greet)") {
		t.Errorf("nothing is told of the server:\n%s", said)
	}
	row := rowsIn(t, dir)["t0/0"]
	var results []string
	for _, m := range row.Messages {
		if *m.Role == "tool" {
			results = append(results, *m.Content)
		}
	}
	for i, c := range calls {
		if i >= len(results) || !strings.HasPrefix(results[i], c.want) {
			t.Errorf("call %d of %s brought %q, want %q", i, c.tool, results, c.want)
			break
		}
	}
	stored, err := os.ReadFile(filepath.Join(dir, runFileName))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(stored), "hunter2") || !strings.Contains(string(stored), "${WEATHER_KEY}") {
		t.Errorf("run.yaml holds the key, or not its name:\n%s", stored)
	}
	if !strings.Contains(string(stored), `"tools-found":["greet `) {
		t.Errorf("run.yaml does not hold what was found:\n%s", stored)
	}
	s.do(codeOK, "resume", dir, "-q")
	s.do(codeRefused, "resume", dir, "-q", "--calls", "tags")
	if said := s.err.String(); !strings.Contains(said, "calls: was (none), now") {
		t.Errorf("another format is refused without naming it:\n%s", said)
	}
}

// Faults of definitions come with their place, or with their key, before anything is started.
func TestToolDefinitionsSayWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct{ yaml, want string }{
		"a key nobody knows":      {"command-tool:\n  - {name: a, run: [sh], timeuot: 3s}\n", `run.yaml:2:26: command-tool: unknown key "timeuot"; did you mean "timeout"?`},
		"a key that is missing":   {"command-tool: {name: a}\n", "run.yaml:1:"},
		"no program":              {"command-tool: {name: a, run: [/no/such]}\n", "command-tool[0] (a): run: expected a program that can be started"},
		"no time":                 {"command-tool: {name: a, run: [sh], timeout: soon}\n", `command-tool: timeout: expected a time with its unit such as 30s, 5m or 1h30m, found "soon"`},
		"no map":                  {"http-tool: [https://x/]\n", "http-tool: expected a map {name, …}, found the text"},
		"a key in the file":       {"http-tool: {name: a, url: https://x/, headers: {Authorization: Bearer hunter2}}\n", "http-tool[0] (a): headers: Authorization: a key must not stand here"},
		"a name that is taken":    {"command-tool: {name: calculator, run: [sh]}\n", `tool "calculator": registered twice`},
		"a schema that is none":   {"command-tool: {name: a, run: [sh], parameters: {type: objekt}}\n", `tool "a": parameters: no JSON schema`},
		"an MCP server nowhere":   {"mcp-server: {name: a, url: http://127.0.0.1:1/mcp}\n", "mcp-server[0] (a): it was not begun: MCP server a could not be reached"},
		"two of one name":         {"mcp-server: [{name: a, run: [sh]}, {name: a, run: [sh]}]\n", `mcp-server[1]: name: "a" is another server's`},
		"a format nobody knows":   {"calls: tag\n", `calls: expected one of api, tool-call, fenced, python, tags, or a map {blocks, output, …}; found "tag"; did you mean "tags"?`},
		"a form without an end":   {"calls: {blocks: [{open: <a>}]}\n", "calls: blocks: close: is missing"},
		"an output without place": {"calls: {format: tags, output: here}\n", "calls: output: expected {output} in it"},
		"a tool nobody has":       {"calls: {blocks: [{open: <a>, close: </a>, tool: b}]}\n", `calls: blocks[0]: no tool "b"; there are: bash, calculator, python, read_file, submit, write_file`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t)
			s.do(codeUsage, "run", taskFile(t, 1, ""), "-c", write(t, "run.yaml", c.yaml), "-q", "-o", newRunDir(t))
			if said := s.err.String(); !strings.Contains(said, c.want) || strings.Contains(said, "hunter2") {
				t.Errorf("said:\n%s\nwant %s", said, c.want)
			}
		})
	}
}

// A run without tools of the user's own has the identity that it had before there were any.
func TestIdentityWithoutToolsOfOnesOwn(t *testing.T) {
	s := defaults()
	id := identity(&s, "", nil)
	for _, key := range []string{"command-tool", "http-tool", "mcp-server", "calls"} {
		if v, ok := id[key]; ok {
			t.Errorf("%s = %s is part of it", key, v)
		}
	}
	s.CommandTool = CommandTools{{Name: "a", Run: []string{"x"}, Dir: "/one"}}
	there := identity(&s, "", nil)
	s.CommandTool = CommandTools{{Name: "a", Run: []string{"x"}, Dir: "/two"}}
	if elsewhere := identity(&s, "", nil); there["command-tool"] == "" || there["command-tool"] != elsewhere["command-tool"] {
		t.Errorf("where a program lies decides: %s, %s", there["command-tool"], elsewhere["command-tool"])
	}
}

// A server that has other tools than when the run was started would make other episodes of the rest: resume names them.
func TestOtherToolsOfAServer(t *testing.T) {
	was := []MCPServer{{Name: "s", ToolsFound: []string{"a 01", "b 02", "c 03"}}, {Name: "before", Run: []string{"x"}}}
	for _, c := range []struct {
		name string
		is   []MCPServer
		want string
	}{
		{"the same", []MCPServer{{Name: "before", ToolsFound: []string{"x 09"}}, {Name: "s", ToolsFound: []string{"c 03", "a 01", "b 02"}}}, ""},
		{"others", []MCPServer{{Name: "s", ToolsFound: []string{"a 01", "b 07", "d 04"}}}, "MCP server s has other tools than when this run was started: b is described otherwise, c is gone, d is new"},
	} {
		err := refuseOtherTools("dir", was, c.is)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || codeOf(err) != codeRefused) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	s := Settings{MCPServer: was}
	id := identity(&s, "", nil)
	s.MCPServer = []MCPServer{{Name: "s"}, {Name: "before", Run: []string{"x"}}}
	if other := identity(&s, "", nil); id["mcp-server"] == "" || id["mcp-server"] != other["mcp-server"] {
		t.Errorf("what was found is part of the identity: %s, %s", id["mcp-server"], other["mcp-server"])
	}
}

// A tool that could not do its job in 3 of 10 episodes costs these three their reward and no other.
func TestCaseSBo3(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("needs sh")
	}
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		if strings.Contains(string(r.Field("messages")), `"role":"tool"`) {
			mock.Text("#### 7").Send(r, w)
			return
		}
		mock.Tool("c", "box", fmt.Sprintf(`{"task":%q}`, userText(r))).Send(r, w)
	}})
	file := write(t, "run.yaml", `
tools: [box]
command-tool:
  name: box
  parameters: {type: object, properties: {task: {type: string}}, required: [task]}
  run: [sh, -c, 'if grep -q "[258]"; then echo "no room" >&2; exit 75; fi; echo fine']
`)
	s := newShell(t)
	dir := newRunDir(t)
	s.do(codePartial, "run", taskFile(t, 10, `,"answer":"7"`), "-c", file, "--endpoint", server.URL(), "-o", dir, "-q", "--json", "--stop-on-failed-share", "0")
	d := s.document()
	if d.Dataset.Good != 7 || d.Dataset.Failures["harness_error"] != 3 || d.Dataset.Reward.N != 7 || d.Dataset.Reward.Mean == nil || *d.Dataset.Reward.Mean != 1 {
		t.Errorf("%d good, failures %v, %d rewards of mean %v; want 7, 3 harness_error, 7 of mean 1", d.Dataset.Good, d.Dataset.Failures, d.Dataset.Reward.N, d.Dataset.Reward.Mean)
	}
	for key, row := range rowsIn(t, dir) {
		if failed := strings.ContainsAny(key[:2], "258"); failed != (row.FaultClass != nil) || failed && (row.Reward != nil || !strings.Contains(*row.FaultDetail, "no room")) {
			t.Errorf("%s: fault %v, reward %v", key, row.FaultClass, row.Reward)
		}
	}
}

// A reply that is cut inside a written call is not acted upon (the twin of CO-o2).
func TestWrittenCallsThatAreCutAreNotRun(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		answer := mock.Text("<calculator>2+2</calculator> and <calc")
		answer.Finish = "length"
		answer.Send(r, w)
	}})
	s := newShell(t)
	dir := newRunDir(t)
	s.do(codeOK, "run", taskFile(t, 1, ""), "--tools", "calculator", "--calls", "tags", "--endpoint", server.URL(), "--reward", "none", "-o", dir, "-q")
	if row := rowsIn(t, dir)["t0/0"]; *row.StopReason != "length" || len(row.Actions) > 0 || row.NumTurns != 1 {
		t.Errorf("stop %s, %d actions, %d turns", *row.StopReason, len(row.Actions), row.NumTurns)
	}
}

// The examples play on the embedded engine.
func TestExamplesOfTextCalls(t *testing.T) {
	for _, name := range []string{"run.yaml", "own-tool.yaml"} {
		s := newShell(t)
		s.do(codeOK, "run", "-c", filepath.Join("..", "..", "examples", "text-calls", name), "-o", newRunDir(t), "-q", "--json")
		if d := s.document(); d.Dataset.Good != 40 || d.Dataset.Reward.Mean == nil || *d.Dataset.Reward.Mean < 0.4 {
			t.Errorf("%s: %d good rows, reward %v", name, d.Dataset.Good, d.Dataset.Reward.Mean)
		}
	}
}
