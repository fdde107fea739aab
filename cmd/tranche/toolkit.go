package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tranche/action"
	"tranche/action/mcptools"
)

// toolkit is the user's own tools of one invocation: programs, web services, MCP servers.
type toolkit struct {
	tools   []action.Tool
	servers []*mcptools.Server
	offered []string // the run's tools, with those of a server in the place of its name
}

// openTools makes the tools of the settings and starts or reaches the MCP servers. Close them with closeTools, also after an error.
func (s *session) openTools(ctx context.Context) error {
	f := &faults{}
	for i, c := range s.set.CommandTool {
		s.kit.add(f, fmt.Sprintf("command-tool[%d] (%s)", i, c.Name), func() (action.Tool, error) { return action.NewCommand(c.config()) })
	}
	for i, h := range s.set.HTTPTool {
		s.kit.add(f, fmt.Sprintf("http-tool[%d] (%s)", i, h.Name), func() (action.Tool, error) { return action.NewHTTP(h.config()) })
	}
	var configs []mcptools.Config
	for i, m := range s.set.MCPServer {
		cfg, err := m.config()
		f.at(fmt.Sprintf("mcp-server[%d] (%s)", i, m.Name), err)
		if slices.ContainsFunc(configs, func(o mcptools.Config) bool { return o.Name == cfg.Name }) {
			f.add("mcp-server[%d]: name: %q is another server's", i, m.Name)
		}
		configs = append(configs, cfg)
	}
	if err := f.err(); err != nil {
		return withCode(codeUsage, err)
	}
	return withCode(codeUsage, s.openServers(ctx, configs))
}

// at adds an error under the key it belongs to; "" = it names that itself.
func (f *faults) at(key string, err error) {
	if err == nil {
		return
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok && errors.Join(many.Unwrap()...).Error() == err.Error() { // a list, not a chain
		for _, e := range many.Unwrap() {
			f.at(key, e)
		}
		return
	}
	if key != "" {
		err = fmt.Errorf("%s: %w", key, err)
	}
	f.list = append(f.list, err)
}

func (k *toolkit) add(f *faults, key string, make func() (action.Tool, error)) {
	t, err := make()
	f.at(key, err)
	if err == nil {
		k.tools = append(k.tools, t)
	}
}

// openServers connects to all servers and names their tools.
func (s *session) openServers(ctx context.Context, configs []mcptools.Config) error {
	f := &faults{}
	groups := map[string][]string{}
	for i, cfg := range configs {
		server, err := mcptools.Open(ctx, cfg, s.a.notice)
		f.at(fmt.Sprintf("mcp-server[%d] (%s)", i, cfg.Name), err)
		if err == nil {
			s.kit.servers = append(s.kit.servers, server)
		}
	}
	if err := f.err(); err != nil {
		return err
	}
	known := map[string]bool{}
	for _, t := range slices.Concat(action.Builtins(), s.a.tools, s.kit.tools) {
		known[t.Name()] = true
	}
	tools, err := mcptools.Tools(s.kit.servers, func(name string) bool { return known[name] })
	if err != nil {
		return err
	}
	for _, t := range tools {
		groups[t.Server] = append(groups[t.Server], t.Name())
		known[t.Name()] = true
		s.kit.tools = append(s.kit.tools, t.Tool)
	}
	for i, cfg := range configs {
		if known[cfg.Name] {
			f.add("mcp-server[%d]: name: %q is also a tool's: which of them is meant in tools could not be told", i, cfg.Name)
		}
		s.a.notice("MCP server %s: %d tools (%s)", cfg.Name, len(groups[cfg.Name]), short(joined(groups[cfg.Name]), 200))
	}
	s.kit.offered = expanded(s.set.Tools, groups)
	return f.err()
}

// expanded puts a server's tools in the place of its name.
func expanded(names []string, groups map[string][]string) []string {
	var list []string
	for _, name := range names {
		if tools, ok := groups[name]; ok {
			list = append(list, tools...)
			continue
		}
		list = append(list, name)
	}
	return list
}

// closeTools ends what openTools started.
func (s *session) closeTools() {
	for _, t := range s.kit.tools {
		if web, ok := t.(*action.HTTP); ok {
			web.Close()
		}
	}
	for _, server := range s.kit.servers {
		server.Close()
	}
}

// identifyTools puts into a run's identity what of the tools decides its results: not where the programs lie. Without tools of the user's own
// it is what it was before there were any.
func identifyTools(s *Settings, id map[string]string) {
	commands, servers := slices.Clone(s.CommandTool), slices.Clone(s.MCPServer)
	for i := range commands {
		commands[i].Dir = ""
	}
	for i := range servers {
		servers[i].Dir = ""
	}
	for key, v := range map[string]struct {
		none  bool
		value any
	}{
		"command-tool": {len(commands) == 0, commands}, "http-tool": {len(s.HTTPTool) == 0, s.HTTPTool},
		"mcp-server": {len(servers) == 0, servers}, "calls": {s.Calls.native(), s.Calls},
	} {
		if id[key] = string(encode(v.value)); v.none {
			delete(id, key)
		}
	}
}
