package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"tranche/action"
	"tranche/action/codetools"
	"tranche/action/mcptools"
	"tranche/action/sandbox"
	"tranche/action/sandbox/rootfs"
)

// toolkit is the tools of one invocation that are made of settings: programs, web services, MCP servers, and those that run code.
type toolkit struct {
	tools   []action.Tool
	desk    *codetools.Desk // of the tools that run code
	coding  []string        // their names, but for those that the user gave to tools of their own
	servers []*mcptools.Server
	rootfs  rootfs.Tree  // of the sandboxes, where one was declared
	boxes   *graderBoxes // of graders that run code
	told    sync.Once    // what the back end cannot hold was said
	offered []string     // the run's tools, with those of a server in the place of its name
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
	f.at("sandbox", errors.Join(s.prepareRootfs(ctx), s.addCodeTools()))
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

// addCodeTools makes the tools that run code. A tool of the user's own that has the name of one stands in its place.
func (s *session) addCodeTools() (err error) {
	cfg := s.set.Sandbox.config(&s.set)
	cfg.Spec.Rootfs, cfg.Spec.RootfsDigest = s.kit.rootfs.Dir, s.set.Sandbox.RootfsDigest
	s.kit.desk, err = codetools.New(func() (sandbox.Executor, error) { return s.openBoxes(context.Background()) }, cfg) // once, whoever needs it first
	if err != nil {
		return err
	}
	taken := slices.Concat(s.a.tools, s.kit.tools)
	for _, t := range s.kit.desk.Tools() {
		if !slices.ContainsFunc(taken, func(own action.Tool) bool { return own.Name() == t.Name() }) {
			s.kit.tools = append(s.kit.tools, t)
			s.kit.coding = append(s.kit.coding, t.Name())
		}
	}
	return nil
}

// checkSandbox opens a sandbox where every task is offered a tool that needs one. Where only tasks name such tools, their first call does.
func (s *session) checkSandbox(ctx context.Context) error {
	if !slices.ContainsFunc(s.set.Tools, func(name string) bool { return slices.Contains(s.kit.coding, name) }) {
		return nil
	}
	if err := s.kit.desk.Check(ctx); err != nil {
		return withCode(codeUsage, fmt.Errorf("sandbox: %w; `%s sandbox check` tells what this machine can hold", err, s.a.program))
	}
	return nil
}

// noteWeak names every promise that is not enforced here, with its reason: no run falls back to less in silence.
func (a *app) noteWeak(caps sandbox.Capabilities) {
	for _, p := range sandbox.Promises() {
		how := "is absent"
		switch caps.Promises[p] {
		case sandbox.Enforced:
			continue
		case sandbox.BestEffort:
			how = "is held best effort only"
		}
		why := caps.Why[p]
		if why != "" {
			why = ": " + why
		}
		a.notice("warning: sandbox: %s %s (tier %s)%s", p, how, caps.Tier, why)
	}
}

// at adds an error under the key it belongs to; "" = it names that itself.
func (f *faults) at(key string, err error) {
	if err == nil {
		return
	}
	if list := listed(err); list != nil {
		for _, e := range list {
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
	groups, found := map[string][]string{}, map[string][]string{}
	servers, errs := make([]*mcptools.Server, len(configs)), make([]error, len(configs))
	var all sync.WaitGroup
	for i, cfg := range configs { // at once: one that does not answer costs its time once
		all.Go(func() { servers[i], errs[i] = mcptools.Open(ctx, cfg, s.a.notice) })
	}
	all.Wait()
	for i, cfg := range configs {
		f.at(fmt.Sprintf("mcp-server[%d] (%s)", i, cfg.Name), errs[i])
		if errs[i] == nil {
			s.kit.servers = append(s.kit.servers, servers[i])
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
		found[t.Server] = append(found[t.Server], toolFound(t))
		known[t.Name()] = true
		s.kit.tools = append(s.kit.tools, t.Tool)
	}
	for i, cfg := range configs {
		if known[cfg.Name] {
			f.add("mcp-server[%d]: name: %q is also a tool's: which of them is meant in tools could not be told", i, cfg.Name)
		}
		s.set.MCPServer[i].ToolsFound = found[cfg.Name]
		s.a.notice("MCP server %s: %d tools (%s)", cfg.Name, len(groups[cfg.Name]), short(joined(groups[cfg.Name]), 200))
	}
	s.kit.offered = expanded(s.set.Tools, groups)
	return f.err()
}

// toolFound tells a server's tool, with all that the model is told of it, from another of the same name.
func toolFound(t mcptools.Offered) string {
	sum := sha256.Sum256(t.Definition())
	return t.Name() + " " + hex.EncodeToString(sum[:8])
}

// refuseOtherTools is the error for servers that offer other tools than when the run was started: its later episodes would be others. A run of
// before that was noted goes on.
func refuseOtherTools(dir string, was, is []MCPServer) error {
	f := &faults{}
	for _, old := range was {
		i := slices.IndexFunc(is, func(m MCPServer) bool { return m.Name == old.Name })
		if i < 0 || len(old.ToolsFound) == 0 {
			continue
		}
		if told := differentTools(old.ToolsFound, is[i].ToolsFound); told != "" {
			f.add("%s: refused: MCP server %s has other tools than when this run was started: %s", dir, old.Name, told)
		}
	}
	return withCode(codeRefused, f.err())
}

// differentTools names the tools that came, went and changed, "" where all are the same.
func differentTools(was, is []string) string {
	before, now := map[string]string{}, map[string]string{}
	for into, list := range map[*map[string]string][]string{&before: was, &now: is} {
		for _, t := range list {
			name, digest, _ := strings.Cut(t, " ")
			(*into)[name] = digest
		}
	}
	var told []string
	for name, digest := range before {
		switch other, there := now[name]; {
		case !there:
			told = append(told, name+" is gone")
		case other != digest:
			told = append(told, name+" is described otherwise")
		}
	}
	for name := range now {
		if _, there := before[name]; !there {
			told = append(told, name+" is new")
		}
	}
	slices.Sort(told)
	return joined(told)
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
	s.judges.close()
	for _, t := range s.kit.tools {
		if web, ok := t.(*action.HTTP); ok {
			web.Close()
		}
	}
	for _, server := range s.kit.servers {
		server.Close()
	}
	if err := s.kit.boxes.close(); err != nil {
		s.a.notice("warning: closing the sandboxes of graders: %v", err)
	}
	if s.kit.desk != nil {
		if err := s.kit.desk.Close(); err != nil {
			s.a.notice("warning: closing the sandboxes: %v", err)
		}
	}
	if err := s.kit.rootfs.Close(); err != nil {
		s.a.notice("warning: letting go of the rootfs: %v", err)
	}
}

// identifyTools puts into a run's identity what of the tools decides its results: not where the programs lie. Without tools of the user's own
// it is what it was before there were any.
func identifyTools(s *Settings, id map[string]string) {
	commands, services, servers := slices.Clone(s.CommandTool), slices.Clone(s.HTTPTool), slices.Clone(s.MCPServer)
	for i := range commands {
		commands[i].Dir, commands[i].Stateless = "", false // where an episode goes on from changes no result
	}
	for i := range services {
		services[i].Stateless = false
	}
	for i := range servers {
		servers[i].Dir, servers[i].ToolsFound, servers[i].Stateless = "", nil, false
	}
	for key, v := range map[string]struct {
		none  bool
		value any
	}{
		"command-tool": {len(commands) == 0, commands}, "http-tool": {len(services) == 0, services},
		"mcp-server": {len(servers) == 0, servers}, "calls": {s.Calls.native(), s.Calls},
		"sandbox": {s.Sandbox.decides().none(), s.Sandbox.decides()},
	} {
		if id[key] = string(encode(v.value)); v.none {
			delete(id, key)
		}
	}
}
