package interop

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"tranche/action"
	"tranche/action/mcptools"
	"tranche/episode"
)

// TestPythonMCPServer calls the tools of a server made with the official Python package, over stdio and over HTTP.
func TestPythonMCPServer(t *testing.T) {
	interpreter := python(t)
	program := root("internal", "interop", "python", "mcp_server.py")
	for name, cfg := range map[string]mcptools.Config{
		"stdio": {Run: []string{interpreter, program, "stdio"}},
		"http":  {URL: serveMCP(t, interpreter, program)},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Name = "things"
			server, err := mcptools.Open(t.Context(), cfg, t.Logf)
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			set := offering(t, server)
			defer set.Close()
			for i, c := range []struct{ tool, args, status, text string }{
				{"add", `{"a":2,"b":40}`, episode.ActionOK, "42"},
				{"add", `{"a":"two","b":40}`, episode.ActionBadArgs, ""},
				{"greet", `{"name":"Åsa","times":2}`, episode.ActionOK, "grüß dich, Åsa! grüß dich, Åsa! "},
				{"fail", `{"why":"no such city"}`, episode.ActionError, "error: Error executing tool fail: no such city"},
				{"picture", `{}`, episode.ActionOK, "[image image/png, 1000 bytes, not shown]"},
				{"add", `{"a":1,"b":1}`, episode.ActionOK, "2"},
			} {
				o := do(t, set, i, c.tool, c.args)
				if o.Status != c.status || c.text != "" && o.Text != c.text {
					t.Errorf("%s %s: %s %q (%v), want %s %q", c.tool, c.args, o.Status, o.Text, o.Fault, c.status, c.text)
				}
			}
		})
	}
}

// serveMCP starts the server on a free port and returns its URL once it listens.
func serveMCP(t *testing.T, interpreter, program string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, interpreter, program, "http", strconv.Itoa(port))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	for range 600 {
		if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			c.Close()
			return fmt.Sprintf("http://127.0.0.1:%d/mcp", port)
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the server does not listen")
	return ""
}

// offering is a set of all the tools of a server, which must be those of mcp_server.py.
func offering(t *testing.T, server *mcptools.Server) *action.Set {
	t.Helper()
	offered, err := mcptools.Tools([]*mcptools.Server{server}, func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	var tools []action.Tool
	var names []string
	for _, o := range offered {
		tools, names = append(tools, o.Tool), append(names, o.Name())
	}
	if want := []string{"add", "greet", "fail", "picture"}; !slices.Equal(names, want) {
		t.Fatalf("tools %q, want %q", names, want)
	}
	set, err := action.New(action.Config{Tools: names}, tools...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// do carries out one call of an episode of its own.
func do(t *testing.T, set *action.Set, i int, tool, args string) episode.Observation {
	t.Helper()
	e := &episode.Episode{ID: strconv.Itoa(i), Task: &episode.Task{ID: "t"}, Turns: make([]episode.Turn, 1)}
	return set.Do(t.Context(), e, []episode.Action{{ID: e.ID + "/0/0", Call: episode.ToolCall{ID: "c", Function: episode.Function{Name: tool, Arguments: args}}}})[0]
}
