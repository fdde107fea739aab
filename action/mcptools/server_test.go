package mcptools

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"tranche/action"
	"tranche/episode"
)

// itsKey names a variable of the server's.
const itsKey = "TRANCHE_TEST_MCP_KEY"

// asServer makes this test binary an MCP server on stdio in the place of running tests.
const asServer = "TRANCHE_TEST_MCP_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		if err := testServer().Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	goleak.VerifyTestMain(m, // a session that the SDK's own server was made to forget
		goleak.IgnoreTopFunction("github.com/modelcontextprotocol/go-sdk/mcp.(*streamableServerConn).Read"))
}

type words struct {
	Text string `json:"text" jsonschema:"what to say"`
}

// testServer has a tool for each thing that a tool can do.
func testServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	says := func(name string, hints *mcp.ToolAnnotations, do func(ctx context.Context, text string) (*mcp.CallToolResult, error)) {
		mcp.AddTool(s, &mcp.Tool{Name: name, Description: "does " + name, Annotations: hints}, func(ctx context.Context, _ *mcp.CallToolRequest, in words) (*mcp.CallToolResult, any, error) {
			r, err := do(ctx, in.Text)
			return r, nil, err
		})
	}
	text := func(format string, args ...any) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
	}
	calls := 0
	says("echo", nil, func(_ context.Context, in string) (*mcp.CallToolResult, error) { return text("%s", in), nil })
	says("count", nil, func(context.Context, string) (*mcp.CallToolResult, error) {
		calls++
		return text("%d in %d", calls, os.Getpid()), nil
	})
	says("fail", nil, func(_ context.Context, in string) (*mcp.CallToolResult, error) {
		return nil, errors.New("there is no " + in)
	})
	says("die", nil, func(context.Context, string) (*mcp.CallToolResult, error) {
		fmt.Fprintln(os.Stderr, "out of luck with "+os.Getenv(itsKey))
		os.Exit(3)
		return nil, nil
	})
	says("dies.once", &mcp.ToolAnnotations{IdempotentHint: true}, func(_ context.Context, file string) (*mcp.CallToolResult, error) {
		if os.WriteFile(file, nil, 0o600); errors.Is(os.Mkdir(file+".d", 0o700), os.ErrExist) {
			return text("well"), nil
		}
		os.Exit(4)
		return nil, nil
	})
	says("hang", nil, func(ctx context.Context, file string) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		return nil, errors.Join(os.WriteFile(file, []byte("cancelled"), 0o600), ctx.Err())
	})
	says("picture", nil, func(context.Context, string) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{
			&mcp.TextContent{Text: "see"}, &mcp.ImageContent{Data: make([]byte, 1000), MIMEType: "image/png"},
			&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///a", Text: "a's text"}}, &mcp.ResourceLink{URI: "file:///b", Name: "b"},
		}}, nil
	})
	return s
}

// stdio is the server as a process.
func stdio(t *testing.T, change func(*Config)) (*Server, *notices) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(asServer, "1")
	cfg := Config{Name: "test", Run: []string{exe, "-test.run=^$"}, Env: []string{asServer}}
	if change != nil {
		change(&cfg)
	}
	n := &notices{}
	s, err := Open(t.Context(), cfg, n.add)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, n
}

type notices struct {
	mu   sync.Mutex
	said []string
}

func (n *notices) add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said, fmt.Sprintf(format, args...))
}

func (n *notices) all() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.said, "\n")
}

func none(string) bool { return false }

// kit is a Set of a server's tools.
func kit(t *testing.T, timeout time.Duration, servers ...*Server) *action.Set {
	t.Helper()
	offered, err := Tools(servers, none)
	if err != nil {
		t.Fatal(err)
	}
	cfg := action.Config{Timeout: timeout}
	tools := make([]action.Tool, len(offered))
	for i, o := range offered {
		tools[i] = o.Tool
		cfg.Tools = append(cfg.Tools, o.Name())
	}
	set, err := action.New(cfg, tools...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	return set
}

// call runs one call of an episode.
func call(t *testing.T, set *action.Set, id, tool, text string) episode.Observation {
	t.Helper()
	args, err := json.Marshal(words{text})
	if err != nil {
		t.Fatal(err)
	}
	e := &episode.Episode{ID: id, Task: &episode.Task{ID: "t"}, Turns: make([]episode.Turn, 1)}
	act := episode.Action{ID: id + "/" + tool + text, Call: episode.ToolCall{ID: "c", Function: episode.Function{Name: tool, Arguments: string(args)}}}
	return set.Do(t.Context(), e, []episode.Action{act})[0]
}

func TestToolsOfAServerOnStdio(t *testing.T) {
	s, _ := stdio(t, nil)
	outcomes(t, s)
}

func TestToolsOfAServerOverHTTP(t *testing.T) {
	s, _ := overHTTP(t)
	outcomes(t, s)
}

// overHTTP is the server behind streamable HTTP; it answers nobody without the key.
func overHTTP(t *testing.T) (s *Server, restart func()) {
	t.Helper()
	t.Setenv("MCP_KEY", "hunter2")
	var handler atomic.Pointer[mcp.StreamableHTTPHandler]
	restart = func() {
		handler.Store(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return testServer() }, nil))
	}
	restart()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hunter2" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		handler.Load().ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	cfg := Config{Name: "test", URL: web.URL, Headers: map[string]string{"Authorization": "Bearer ${MCP_KEY}"}}
	s, err := Open(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	cfg.Headers = nil
	if refused, err := Open(t.Context(), cfg, nil); err == nil {
		refused.Close()
		t.Error("the server was reached without its key")
	}
	return s, restart
}

// outcomes is what every transport must do alike.
func outcomes(t *testing.T, s *Server) {
	set := kit(t, 10*time.Second, s)
	for _, c := range []struct{ name, tool, in, status, text string }{
		{"a text", "echo", "héllo", episode.ActionOK, "héllo"},
		{"an error is the model's", "fail", "cat", episode.ActionError, "error: there is no cat"},
		{"parts that are no text are marked", "picture", "", episode.ActionOK, "see\n[image image/png, 1000 bytes, not shown]\na's text\n[resource b file:///b]"},
		{"the key is shown to nobody", "echo", "hunter2", episode.ActionOK, map[bool]string{true: "[secret]", false: "hunter2"}[s.cfg.URL != ""]},
	} {
		o := call(t, set, "e", c.tool, c.in)
		if o.Status != c.status || o.Text != c.text {
			t.Errorf("%s: observed %s %q (%v), want %s %q", c.name, o.Status, o.Text, o.Fault, c.status, c.text)
		}
		if c.tool == "picture" && (!o.Truncated || o.OutBytes != int64(len(o.Text))+1000) {
			t.Errorf("%s: %d bytes, truncated %v", c.name, o.OutBytes, o.Truncated)
		}
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if o := call(t, set, "e"+strconv.Itoa(i), "echo", strconv.Itoa(i)); o.Text != strconv.Itoa(i) {
				t.Errorf("call %d was answered %q (%v)", i, o.Text, o.Fault)
			}
		})
	}
	all.Wait()
}

// Arguments are checked against the server's schema before anything is sent.
func TestArgumentsOfMCPToolsAreChecked(t *testing.T) {
	s, _ := stdio(t, nil)
	set := kit(t, 10*time.Second, s)
	e := &episode.Episode{ID: "e", Task: &episode.Task{ID: "t"}, Turns: make([]episode.Turn, 1)}
	act := episode.Action{ID: "a", Call: episode.ToolCall{ID: "c", Function: episode.Function{Name: "echo", Arguments: `{"text":7}`}}}
	if o := set.Do(t.Context(), e, []episode.Action{act})[0]; o.Status != episode.ActionBadArgs || o.CallID != "c" {
		t.Errorf("observed %+v", o)
	}
}

// A call that takes too long is cancelled at the server, and the next one goes on with the same process.
func TestMCPCallsAreCancelled(t *testing.T) {
	s, _ := stdio(t, nil)
	set := kit(t, 2*time.Second, s)
	file := t.TempDir() + "/told"
	before := call(t, set, "e", "count", "1").Text
	if o := call(t, set, "e", "hang", file); o.Status != episode.ActionTimeout {
		t.Fatalf("observed %s %v", o.Status, o.Fault)
	}
	for range 6000 { // half a minute
		if raw, _ := os.ReadFile(file); string(raw) == "cancelled" {
			if o := call(t, set, "e", "count", "2"); o.Text != strings.Replace(before, "1 in", "2 in", 1) {
				t.Errorf("afterwards: %q, before %q", o.Text, before)
			}
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("the server was not told")
}

// A server that dies fails the call it died in, is started anew before the next, and says so; a call that is safe to repeat goes on.
func TestAServerThatDiesIsStartedAnew(t *testing.T) {
	s, n := stdio(t, nil)
	set := kit(t, 10*time.Second, s)
	if o := call(t, set, "e", "die", ""); o.Status != episode.ActionHarness || o.Fault == nil {
		t.Fatalf("observed %s %q", o.Status, o.Text)
	}
	if o := call(t, set, "e", "echo", "again"); o.Text != "again" {
		t.Errorf("the next call: %s %q %v", o.Status, o.Text, o.Fault)
	}
	if said := n.all(); strings.Count(said, "MCP server test is gone") != 1 || !strings.Contains(said, "out of luck") {
		t.Errorf("notices:\n%s", said)
	}
	if o := call(t, set, "e", "dies_once", t.TempDir()+"/once"); o.Text != "well" || strings.Count(n.all(), "is gone") != 2 {
		t.Errorf("a safe call: %s %q %v; notices:\n%s", o.Status, o.Text, o.Fault, n.all())
	}
}

// What a server on stdio gets by name stands in no result, no fault and no notice.
func TestAServerOnStdioKeepsItsKey(t *testing.T) {
	t.Setenv(itsKey, "hunter2")
	s, n := stdio(t, func(c *Config) { c.Env = append(c.Env, itsKey) })
	set := kit(t, 10*time.Second, s)
	if o := call(t, set, "e", "echo", "it is hunter2"); o.Text != "it is [secret]" {
		t.Errorf("observed %q", o.Text)
	}
	if o := call(t, set, "e", "fail", "hunter2"); o.Text != "error: there is no [secret]" {
		t.Errorf("observed %q", o.Text)
	}
	fault := call(t, set, "e", "die", "").Fault.Error()
	call(t, set, "e", "echo", "again")
	if said := fault + n.all(); strings.Contains(said, "hunter2") || !strings.Contains(said, "out of luck with [secret]") {
		t.Errorf("told:\n%s", said)
	}
}

// A server that answers without end fails the call; it does not fill this process.
func TestAServerOverHTTPThatFloods(t *testing.T) {
	var flood atomic.Bool
	var sent atomic.Int64
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return testServer() }, nil)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !flood.Load() || r.Method != http.MethodPost {
			handler.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		for spaces := []byte(strings.Repeat(" ", 1<<20)); sent.Load() < 10*mostAnswer; {
			n, err := w.Write(spaces)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}))
	defer web.Close()
	s, err := Open(t.Context(), Config{Name: "test", URL: web.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer web.CloseClientConnections()
	defer s.Close()
	set := kit(t, 10*time.Second, s)
	flood.Store(true)
	o := call(t, set, "e", "echo", "x")
	if o.Status != episode.ActionHarness || !strings.Contains(o.Fault.Error(), "longer than") || sent.Load() > 3*mostAnswer {
		t.Errorf("observed %s %v after %d bytes", o.Status, o.Fault, sent.Load())
	}
	flood.Store(false)
	if o := call(t, set, "e", "echo", "again"); o.Text != "again" {
		t.Errorf("the next call: %s %q %v", o.Status, o.Text, o.Fault)
	}
}

// An answer of just the length that is let through is whole.
func TestBoundedBodies(t *testing.T) {
	for text, want := range map[string]bool{"": true, "1234": true, "12345": false} {
		got, err := io.ReadAll(&bounded{io.NopCloser(strings.NewReader(text)), 4})
		if (err == nil) != want || want && string(got) != text {
			t.Errorf("%q: read %q, %v", text, got, err)
		}
	}
}

// A server that was started anew elsewhere knows nothing of the session: another is begun.
func TestAServerOverHTTPThatForgotUs(t *testing.T) {
	s, restart := overHTTP(t)
	set := kit(t, 10*time.Second, s)
	restart()
	var seen []string
	for range 3 {
		seen = append(seen, call(t, set, "e", "echo", "x").Status)
	}
	if seen[1] != episode.ActionOK || seen[2] != episode.ActionOK {
		t.Errorf("calls ended %q", seen)
	}
}

// A server that is killed between two calls costs neither.
func TestAServerKilledBetweenCalls(t *testing.T) {
	s, n := stdio(t, nil)
	set := kit(t, 10*time.Second, s)
	var calls, pid int
	if _, err := fmt.Sscanf(call(t, set, "e", "count", "").Text, "%d in %d", &calls, &pid); err != nil {
		t.Fatal(err)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	select {
	case <-s.shared.conn.ended:
	case <-time.After(time.Minute):
		t.Fatal("the end is not noticed")
	}
	if o := call(t, set, "e", "echo", "again"); o.Text != "again" || !strings.Contains(n.all(), "is gone") {
		t.Errorf("the next call: %s %q %v; notices %q", o.Status, o.Text, o.Fault, n.all())
	}
}

// per: episode gives each episode a process, which ends with it.
func TestAConnectionForEachEpisode(t *testing.T) {
	s, _ := stdio(t, func(c *Config) { c.PerEpisode, c.Tools = true, []string{"count"} })
	set := kit(t, 10*time.Second, s)
	pids := map[string]int{}
	for _, id := range []string{"a", "b", "a"} {
		var n, pid int
		o := call(t, set, id, "count", strconv.Itoa(len(pids)))
		if _, err := fmt.Sscanf(o.Text, "%d in %d", &n, &pid); err != nil {
			t.Fatalf("%q: %v (%v)", o.Text, err, o.Fault)
		}
		if was, ok := pids[id]; ok && (was != pid || n != 2) || !ok && n != 1 {
			t.Errorf("episode %s: %s, was in %d", id, o.Text, was)
		}
		pids[id] = pid
	}
	if pids["a"] == pids["b"] {
		t.Error("two episodes share a process")
	}
	set.End(&episode.Episode{ID: "a", Task: &episode.Task{ID: "t"}})
	if syscall.Kill(pids["a"], 0) == nil || syscall.Kill(pids["b"], 0) != nil {
		t.Errorf("a's process goes on: %v; b's: %v", syscall.Kill(pids["a"], 0) == nil, syscall.Kill(pids["b"], 0) == nil)
	}
	s.Close()
	if syscall.Kill(pids["b"], 0) == nil {
		t.Error("b's process outlives Close")
	}
	if o := call(t, set, "c", "count", ""); o.Status != episode.ActionHarness {
		t.Errorf("a call after Close: %s %q", o.Status, o.Text)
	}
}

// Where names collide the server's name goes before them.
func TestNamesOfToolsThatCollide(t *testing.T) {
	server := func(name string, tools ...string) *Server {
		s := &Server{cfg: Config{Name: name}}
		for _, tool := range tools {
			s.listed = append(s.listed, &mcp.Tool{Name: tool})
		}
		return s
	}
	tools, err := Tools([]*Server{server("a", "read", "own", "dot.ted"), server("b", "read", "submit")}, func(n string) bool { return n == "submit" })
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools {
		names = append(names, tool.Name())
	}
	if want := []string{"a_read", "own", "dot_ted", "b_read", "b_submit"}; !slices.Equal(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}
	if _, err := Tools([]*Server{server("a", "x.y", "x_y")}, none); err == nil || !strings.Contains(err.Error(), `"a_x_y" is taken`) {
		t.Errorf("two names that become one: %v", err)
	}
	if _, err := Tools([]*Server{server("b", "x")}, func(n string) bool { return n == "x" || n == "b_x" }); err == nil || !strings.Contains(err.Error(), `MCP server b: tool "x": the name "b_x" is taken`) {
		t.Errorf("a name that is taken both ways: %v", err)
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		want []string
	}{
		"nothing":        {Config{}, []string{"name: expected", "run, url: expected one of them"}},
		"both":           {Config{Name: "a", Run: []string{"sh"}, URL: "http://x"}, []string{"run, url: expected one of them"}},
		"no program":     {Config{Name: "a", Run: []string{"/no/such"}}, []string{"run: expected a program"}},
		"no MCP server":  {Config{Name: "a", Run: []string{"sh", "-c", "echo sorry >&2"}, StartTimeout: 5 * time.Second}, []string{"MCP server a could not be started", "sorry"}},
		"nobody there":   {Config{Name: "a", URL: "http://127.0.0.1:1/mcp"}, []string{"MCP server a could not be reached"}},
		"a password":     {Config{Name: "a", URL: "http://me:hunter2@x/mcp"}, []string{"without user name and password"}},
		"headers, env":   {Config{Name: "a", Run: []string{"sh"}, Headers: map[string]string{"A": "b"}, Timeout: -1}, []string{"headers: have no meaning", "timeout"}},
		"a missing tool": {Config{Name: "a", Run: []string{os.Args[0], "-test.run=^$"}, Env: []string{asServer}, Tools: []string{"ecko"}}, []string{`tools[0]: the server has no tool "ecko"; it has: `}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(asServer, "1")
			s, err := Open(t.Context(), c.cfg, nil)
			if err == nil {
				s.Close()
			}
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("the error lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

// A server that is deaf holds the start up for start-timeout and no longer; its name and what it wrote are told, and nothing of it is left.
func TestDeafServerIsToldOf(t *testing.T) {
	began := time.Now()
	_, err := Open(t.Context(), Config{
		Name: "deaf", StartTimeout: 300 * time.Millisecond,
		Run: []string{"sh", "-c", `trap "" TERM HUP PIPE; echo cannot find my key >&2; while :; do sleep 1; done`},
	}, nil)
	if err == nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{"MCP server deaf", "did not answer its first request within 300ms (start-timeout)", "it wrote: cannot find my key"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

// speaks is a server of the protocol of before server/discover, which does with other requests what else says.
func speaks(otherwise string) []string {
	return []string{"sh", "-c", `while read line; do
		id=$(echo "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
		case $line in
		*'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"hello","inputSchema":{"type":"object"}},{"name":"fails","inputSchema":{"type":"object"}},{"name":"hang","inputSchema":{"type":"object"}}]}}' ;;
		*'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}' ;;
		*'"hello"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"hi from '$$'"}]}}' ;;
		*'"fails"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[],"isError":true}}' ;;
		*'"hang"'*) while :; do sleep 1; done ;;
		*'"id"'*) ` + otherwise + ` ;;
		esac
	done`}
}

// Servers that know nothing of server/discover may ignore it or end at it: they are spoken to in the protocol of before.
func TestServersOfTheOlderProtocol(t *testing.T) {
	for name, otherwise := range map[string]string{"ignores it": ":", "ends": "exit 1", "answers nobody": `echo '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"what?"}}'`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Open(t.Context(), Config{Name: "old", StartTimeout: 6 * time.Second, Run: speaks(otherwise)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			set := kit(t, 5*time.Second, s)
			if o := call(t, set, "e", "hello", ""); !strings.HasPrefix(o.Text, "hi from") {
				t.Errorf("%s %q %v", o.Status, o.Text, o.Fault)
			}
			if o := call(t, set, "e", "fails", ""); !strings.Contains(o.Text, "the tool failed and did not say why") {
				t.Errorf("a failure without a word: %s %q", o.Status, o.Text)
			}
		})
	}
}

// A server that hangs in a call and answers nobody since is replaced, and one that no longer reads does not hold the end up.
func TestAServerThatHangsIsReplaced(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Config{Name: "hung", StartTimeout: 9 * time.Second, Run: speaks("exit 1")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	set := kit(t, 500*time.Millisecond, s)
	for i := range mostLate {
		if o := call(t, set, "e", "hang", ""); o.Status != episode.ActionTimeout {
			t.Fatalf("call %d: %s %q", i, o.Status, o.Text)
		}
	}
	patient := kit(t, time.Minute, s)
	if o := call(t, patient, "e", "hello", ""); !strings.HasPrefix(o.Text, "hi from") {
		t.Fatalf("the next call: %s %q %v", o.Status, o.Text, o.Fault)
	}
	if o := call(t, set, "e", "hang", ""); o.Status != episode.ActionTimeout {
		t.Fatalf("%s %q", o.Status, o.Text)
	}
	if o := call(t, set, "e", "hello", strings.Repeat("x", 300_000)); o.Status != episode.ActionTimeout { // more than its pipe holds
		t.Fatalf("%s %q", o.Status, o.Text)
	}
	ended := make(chan struct{})
	go func() { s.Close(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("Close hangs")
	}
}

// One that answers the first request and then no more is too, within the same time.
func TestServerWithoutToolsIsToldOf(t *testing.T) {
	script := `while read line; do
		id=$(echo "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
		case $line in
		*'"tools/list"'*) ;;
		*'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}' ;;
		*'"id"'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no such method"}}' ;;
		esac
	done`
	_, err := Open(t.Context(), Config{Name: "half", StartTimeout: 3 * time.Second, Run: []string{"sh", "-c", script}}, nil)
	if err == nil || !strings.Contains(err.Error(), "did not answer with its tools within 3s (start-timeout)") {
		t.Errorf("got %v", err)
	}
}
