package mcptools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tranche/action"
)

// tool is one tool of a server.
type tool struct {
	server *Server
	remote string // the server's name for it
	name   string // the model's
	def    json.RawMessage
	safe   bool
}

// episodeTool is a tool of a server that has a connection for each episode.
type episodeTool struct{ *tool }

var (
	_ action.Tool       = (*tool)(nil)
	_ action.Repeatable = (*tool)(nil)
	_ action.Timed      = (*tool)(nil)
	_ action.Keeper     = (*tool)(nil)
	_ action.Ender      = episodeTool{}
)

// Offered is a tool with the name of its server.
type Offered struct {
	Server string
	action.Tool
}

// Tools makes the tools of all servers. A tool has the server's own name for it, with what a name may not hold made _; where two servers
// have one of that name, or taken says that something else has, it is SERVER_NAME. The error names every tool that cannot be offered.
func Tools(servers []*Server, taken func(name string) bool) ([]Offered, error) {
	count := map[string]int{}
	for _, s := range servers {
		for _, t := range s.listed {
			count[plainName(t.Name)]++
		}
	}
	var all []Offered
	var errs []error
	used := map[string]bool{}
	for _, s := range servers {
		for _, t := range s.listed {
			name := plainName(t.Name)
			if count[name] > 1 || taken(name) {
				name = s.cfg.Name + "_" + name
			}
			made, err := s.tool(t, name)
			if err == nil && (used[name] || taken(name)) {
				err = fmt.Errorf("the name %q is taken", name)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("MCP server %s: tool %q: %w", s.cfg.Name, t.Name, err))
				continue
			}
			used[name] = true
			all = append(all, Offered{s.cfg.Name, made})
		}
	}
	return all, errors.Join(errs...)
}

// plainName is the name with what OpenAI's interface does not take in one made _.
func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

func (s *Server) tool(t *mcp.Tool, name string) (action.Tool, error) {
	params, err := schemaOf(t)
	if err != nil {
		return nil, fmt.Errorf("its schema: %w", err)
	}
	def, err := action.Define(name, s.secrets.Redact(t.Description), params)
	if err != nil {
		return nil, err
	}
	hints := t.Annotations
	made := &tool{server: s, remote: t.Name, name: name, def: def, safe: s.cfg.Idempotent || hints != nil && (hints.ReadOnlyHint || hints.IdempotentHint)}
	if s.cfg.PerEpisode {
		return episodeTool{made}, nil
	}
	return made, nil
}

func (t *tool) Name() string                { return t.name }
func (t *tool) Definition() json.RawMessage { return t.def }
func (t *tool) Repeatable() bool            { return t.safe }
func (t *tool) Keeps(string) bool           { return !t.server.cfg.Stateless }
func (t *tool) Timeout() time.Duration      { return t.server.cfg.Timeout }

// End closes the episode's connection, whichever of the server's tools is told first.
func (t episodeTool) End(_ context.Context, episode string) error {
	t.server.End(episode)
	return nil
}

// Run sends the call. When ctx ends the server is told that it is cancelled.
func (t *tool) Run(ctx context.Context, args json.RawMessage, env action.Env) (action.Result, error) {
	place, err := t.server.slotOf(env.Episode)
	if err != nil {
		return action.Result{}, err
	}
	c, err := t.server.reach(ctx, place)
	if err != nil {
		return action.Result{}, err
	}
	said, err := c.session.CallTool(ctx, &mcp.CallToolParams{Name: t.remote, Arguments: args})
	if err != nil {
		switch {
		case answered(err):
			c.late.Store(0)
		case ctx.Err() == nil, errors.Is(ctx.Err(), context.DeadlineExceeded) && c.late.Add(1) >= mostLate:
			c.suspect.Store(true)
		}
		return action.Result{}, t.failed(c, err)
	}
	c.late.Store(0)
	text, left := textOf(said)
	r := action.Result{Text: t.server.secrets.Redact(text), Truncated: left > 0}
	r.OutBytes = int64(len(r.Text)) + left
	if said.IsError {
		mistake := action.Reject("%s", cmp.Or(r.Text, "the tool failed and did not say why"))
		r.Text = ""
		return r, mistake
	}
	return r, nil
}

// failed says whose fault it is that no result came: what the server finds wrong with the arguments is the model's.
func (t *tool) failed(c *connection, err error) error {
	var said *jsonrpc.Error
	if errors.As(err, &said) && said.Code == jsonrpc.CodeInvalidParams {
		return &action.ToolError{Text: t.server.secrets.Redact(said.Message)}
	}
	return fmt.Errorf("MCP server %s: %s%s", t.server.cfg.Name, t.server.secrets.Redact(err.Error()), c.said())
}

// textOf is a result as text: what is no text is marked in its place, and counted in bytes left out.
func textOf(r *mcp.CallToolResult) (text string, left int64) {
	var parts []string
	for _, c := range r.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			parts = append(parts, c.Text)
		case *mcp.ImageContent:
			parts, left = append(parts, placeholder("image", c.MIMEType, len(c.Data))), left+int64(len(c.Data))
		case *mcp.AudioContent:
			parts, left = append(parts, placeholder("audio", c.MIMEType, len(c.Data))), left+int64(len(c.Data))
		case *mcp.ResourceLink:
			parts = append(parts, fmt.Sprintf("[resource %s %s]", c.Name, c.URI))
		case *mcp.EmbeddedResource:
			if c.Resource == nil {
				continue
			}
			if c.Resource.Blob != nil {
				parts, left = append(parts, placeholder("resource "+c.Resource.URI, c.Resource.MIMEType, len(c.Resource.Blob))), left+int64(len(c.Resource.Blob))
				continue
			}
			parts = append(parts, c.Resource.Text)
		default:
			parts = append(parts, fmt.Sprintf("[%T]", c))
		}
	}
	if len(parts) == 0 && r.StructuredContent != nil {
		if raw, err := json.Marshal(r.StructuredContent); err == nil {
			parts = append(parts, string(raw))
		}
	}
	return strings.Join(parts, "\n"), left
}

// placeholder stands for what a text cannot hold.
func placeholder(what, kind string, bytes int) string {
	return fmt.Sprintf("[%s %s, %d bytes, not shown]", what, kind, bytes)
}
