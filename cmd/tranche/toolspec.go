package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"tranche/action"
	"tranche/action/mcptools"
)

// Span is a time as text, 30s or 5m, inside a list of a settings file.
type Span time.Duration

// UnmarshalText reads a number with its unit.
func (d *Span) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("expected a time with its unit such as 30s, 5m or 1h30m, found %q", text)
	}
	*d = Span(v)
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (d Span) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// CommandTool is a program of the user's own as a tool. See action.CommandConfig.
type CommandTool struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Parameters  Object   `json:"parameters,omitempty"` // JSON schema
	Run         []string `json:"run"`
	Dir         string   `json:"dir,omitempty"` // where it runs; default the folder of the settings file
	Timeout     Span     `json:"timeout,omitempty"`
	Idempotent  bool     `json:"idempotent,omitempty"`
	Stateless   bool     `json:"stateless,omitempty"`
	Env         []string `json:"env,omitzero"`
	Output      string   `json:"output,omitempty"` // text or json
}

func (c CommandTool) config() action.CommandConfig {
	return action.CommandConfig{
		Name: c.Name, Description: c.Description, Parameters: c.Parameters.text(), Run: c.Run, Dir: c.Dir, Timeout: time.Duration(c.Timeout),
		Idempotent: c.Idempotent, Stateless: c.Stateless, Env: c.Env, Output: c.Output,
	}
}

// HTTPTool is a web service as a tool. See action.HTTPConfig.
type HTTPTool struct {
	Name        string  `json:"name"`
	Description string  `json:"description,omitempty"`
	Parameters  Object  `json:"parameters,omitempty"`
	URL         string  `json:"url"`
	Method      string  `json:"method,omitempty"`
	Headers     Headers `json:"headers,omitempty"`
	Timeout     Span    `json:"timeout,omitempty"`
	Idempotent  bool    `json:"idempotent,omitempty"`
	Stateless   bool    `json:"stateless,omitempty"`
	MaxBytes    Bytes   `json:"max-bytes,omitempty"`
}

func (h HTTPTool) config() action.HTTPConfig {
	return action.HTTPConfig{
		Name: h.Name, Description: h.Description, Parameters: h.Parameters.text(), URL: h.URL, Method: h.Method, Headers: h.Headers,
		Timeout: time.Duration(h.Timeout), Idempotent: h.Idempotent, Stateless: h.Stateless, MaxBytes: int64(h.MaxBytes),
	}
}

// MCPServer is a server of tools. See mcptools.Config.
type MCPServer struct {
	Name         string   `json:"name"`
	Run          []string `json:"run,omitzero"`
	Dir          string   `json:"dir,omitempty"`
	URL          string   `json:"url,omitempty"`
	Env          []string `json:"env,omitzero"`
	Headers      Headers  `json:"headers,omitempty"`
	Tools        []string `json:"tools,omitzero"`
	Per          string   `json:"per,omitempty"` // run or episode
	Idempotent   bool     `json:"idempotent,omitempty"`
	Stateless    bool     `json:"stateless,omitempty"`
	Timeout      Span     `json:"timeout,omitempty"`
	StartTimeout Span     `json:"start-timeout,omitempty"`
	ToolsFound   []string `json:"tools-found,omitzero"` // name and digest of each; the run puts in what it found, and resume refuses others
}

// What a connection to an MCP server lasts for.
const (
	perRun     = "run"
	perEpisode = "episode"
)

func (m MCPServer) config() (mcptools.Config, error) {
	cfg := mcptools.Config{
		Name: m.Name, Run: m.Run, Dir: m.Dir, URL: m.URL, Env: m.Env, Headers: m.Headers, Tools: m.Tools, PerEpisode: m.Per == perEpisode, Idempotent: m.Idempotent, Stateless: m.Stateless,
		Timeout: time.Duration(m.Timeout), StartTimeout: time.Duration(m.StartTimeout),
	}
	err := cfg.Validate()
	if !slices.Contains([]string{"", perRun, perEpisode}, m.Per) {
		err = errors.Join(err, fmt.Errorf("per: expected %s or %s, found %q", perRun, perEpisode, m.Per))
	}
	return cfg, err
}

// Calls is how a model calls tools: a format by name, or one of its own. See action.CallFormat.
type Calls struct {
	Format string    `json:"format,omitempty"`
	Blocks CallForms `json:"blocks,omitzero"`
	Output string    `json:"output,omitempty"`
	Prompt string    `json:"prompt,omitempty"`
	Stop   []string  `json:"stop,omitzero"`
}

// CallForm is one form of a call. See action.CallBlock.
type CallForm struct {
	Open     string `json:"open"`
	Close    string `json:"close"`
	Tool     string `json:"tool,omitempty"`
	Argument string `json:"argument,omitempty"`
}

// UnmarshalText takes the name alone, which is what a flag has.
func (c *Calls) UnmarshalText(text []byte) error {
	*c = Calls{Format: string(text)}
	return nil
}

// native reports that calls come as the server's tool calls.
func (c Calls) native() bool { return c.Format == action.CallsAPI && len(c.Blocks) == 0 }

// format is the whole of it: what a name stands for, with what is given besides in its place.
func (c Calls) format() (action.CallFormat, error) {
	var f action.CallFormat
	if c.Format != "" {
		var ok bool
		if f, ok = action.NamedCallFormat(c.Format); !ok {
			return f, fmt.Errorf("calls: expected one of %s, or a map {blocks, output, …}; found %q%s",
				strings.Join(action.CallFormatNames(), ", "), c.Format, didYouMean(c.Format, action.CallFormatNames()))
		}
	}
	if len(c.Blocks) > 0 {
		f.Name = ""
	}
	for _, b := range c.Blocks {
		f.Blocks = append(f.Blocks, action.CallBlock(b))
	}
	f.Stop = append(f.Stop, c.Stop...)
	if c.Output != "" {
		f.Output = c.Output
	}
	if c.Prompt != "" {
		f.Prompt = c.Prompt
	}
	return f, f.Validate()
}

// Lists of a settings file, and maps in them.
type (
	CommandTools []CommandTool
	HTTPTools    []HTTPTool
	MCPServers   []MCPServer
	CallForms    []CallForm
	Headers      map[string]string
)

// fromYAML is a value that reads itself out of a settings file; name is its key as people write it.
type fromYAML interface {
	readYAML(y *yamlFile, name string, n ast.Node)
}

func (l *CommandTools) readYAML(y *yamlFile, name string, n ast.Node) {
	*l = readMaps(y, name, n, "name", func(t *CommandTool) map[string]bool {
		return map[string]bool{"name": t.Name == "", "run": len(t.Run) == 0}
	})
}

func (l *HTTPTools) readYAML(y *yamlFile, name string, n ast.Node) {
	*l = readMaps(y, name, n, "name", func(t *HTTPTool) map[string]bool { return map[string]bool{"name": t.Name == "", "url": t.URL == ""} })
}

func (l *MCPServers) readYAML(y *yamlFile, name string, n ast.Node) {
	*l = readMaps(y, name, n, "name", func(t *MCPServer) map[string]bool { return map[string]bool{"name": t.Name == ""} })
}

func (l *CallForms) readYAML(y *yamlFile, name string, n ast.Node) {
	*l = readMaps(y, name, n, "open", func(b *CallForm) map[string]bool {
		return map[string]bool{"open": b.Open == "", "close": b.Close == ""}
	})
}

// readMaps reads a list of maps; a single one counts as a list of one. missing tells which of the keys that a map must have it has not.
func readMaps[T any](y *yamlFile, name string, n ast.Node, first string, missing func(*T) map[string]bool) []T {
	var list []T
	for _, item := range y.items(n) {
		var v T
		switch item.(type) {
		case *ast.MappingNode, *ast.MappingValueNode:
			before := len(y.faults.list)
			y.fields(name, item, fieldsOf(&v))
			lacks := missing(&v)
			for _, key := range slices.Sorted(mapKeys(lacks)) {
				if lacks[key] && len(y.faults.list) == before {
					y.fault(item, "%s: %s: is missing", name, key)
				}
			}
		default:
			y.expected(item, name, "a map {"+first+", …}")
		}
		list = append(list, v)
	}
	return list
}

func (c *Calls) readYAML(y *yamlFile, name string, n ast.Node) {
	switch t := n.(type) {
	case *ast.StringNode:
		c.Format = t.Value
	case *ast.MappingNode, *ast.MappingValueNode:
		*c = Calls{}
		y.fields(name, n, fieldsOf(c))
	default:
		y.expected(n, name, "the name of a format, or a map {blocks, output, …}")
	}
}

func (h *Headers) readYAML(y *yamlFile, name string, n ast.Node) {
	pairs, ok := y.mapping(n, "a map of header names to values")
	if !ok {
		return
	}
	*h = Headers{}
	for _, p := range pairs {
		var value string
		y.text(name+": "+p.Key.GetToken().Value, y.resolve(p.Value), &value)
		(*h)[p.Key.GetToken().Value] = value
	}
}
