package action

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"tranche/episode"
	"tranche/internal/jsonschema"
)

// offer is what an episode of some task may call.
type offer struct {
	defs     []byte           // OpenAI JSON list, as the model is told; nil = no tools
	runnable bool             // every tool in defs is run here
	tools    map[string]bound // those that are run here
	names    []string         // their names, in the order of defs
	text     *textCalls       // how calls stand in texts; nil = they do not
}

// bound is a tool with all that its arguments must fit: what the model was told first, then what the tool itself needs.
type bound struct {
	tool    Tool
	schemas []*jsonschema.Schema
}

// registered is a tool of the run with its definition taken apart.
type registered struct {
	tool   Tool
	def    json.RawMessage
	schema *jsonschema.Schema
	shape  shape
}

// definition is an OpenAI tool definition, as far as it matters here.
type definition struct {
	Type     string `json:"type"`
	Function struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	} `json:"function"`
}

var toolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func register(t Tool) (registered, error) {
	name, raw := t.Name(), t.Definition()
	if !toolName.MatchString(name) {
		return registered{}, fmt.Errorf("tool %q: a name has 1 to 64 letters, digits, _ and -", name)
	}
	def, err := parseDefinition(raw)
	if err != nil {
		return registered{}, fmt.Errorf("tool %q: %w", name, err)
	}
	if def.Function.Name != name {
		return registered{}, fmt.Errorf("tool %q: its definition is for %q", name, def.Function.Name)
	}
	s, err := compile(def.Function.Parameters)
	if err != nil {
		return registered{}, fmt.Errorf("tool %q: %w", name, err)
	}
	var args shape
	if err := json.Unmarshal([]byte(s.String()), &args); err != nil {
		return registered{}, fmt.Errorf("tool %q: parameters: %w", name, err)
	}
	return registered{tool: t, def: raw, schema: s, shape: args}, nil
}

func parseDefinition(raw json.RawMessage) (definition, error) {
	const want = `{"type":"function","function":{"name":…,"parameters":…}}`
	var d definition
	if err := json.Unmarshal(raw, &d); err != nil {
		return d, fmt.Errorf("no tool definition: %w; expected %s", err, want)
	}
	if d.Type != "function" || d.Function.Name == "" {
		return d, fmt.Errorf("no tool definition: %s; expected %s", clip(string(raw), maxShownArgs), want)
	}
	return d, nil
}

// decideOffer works out what a task's episodes may call: the run's own tools, then the task's. A task's definition of a
// tool that is offered anyway replaces what the model is told of it.
func decideOffer(all map[string]registered, always []string, task json.RawMessage) (*offer, error) {
	wishes, err := parseWishes(task)
	if err != nil {
		return nil, err
	}
	told := make(map[string]bool, len(wishes))
	for _, w := range wishes {
		if told[w.name] {
			return nil, fmt.Errorf("%q is listed twice", w.name)
		}
		told[w.name] = true
	}
	o := &offer{runnable: true, tools: make(map[string]bound)}
	var defs []json.RawMessage
	for _, name := range always {
		if !told[name] {
			defs = append(defs, o.add(all[name]))
		}
	}
	for _, w := range wishes {
		def, err := o.grant(all, w)
		if err != nil {
			return nil, err
		}
		defs = append(defs, def)
	}
	if len(defs) == 0 {
		return o, nil
	}
	o.defs, err = json.Marshal(defs)
	return o, err
}

func (o *offer) add(r registered) json.RawMessage {
	name := r.tool.Name()
	o.tools[name] = bound{r.tool, []*jsonschema.Schema{r.schema}}
	o.names = append(o.names, name)
	return r.def
}

// grant offers what a task asked for. A definition belongs to a tool of ours when it has its name and takes all that the
// tool needs; a namesake with other arguments is a tool that nobody here runs.
func (o *offer) grant(all map[string]registered, w wish) (json.RawMessage, error) {
	r, known := all[w.name]
	if w.def == nil {
		if !known {
			return nil, fmt.Errorf("no built-in tool %q; there are: %s", w.name, strings.Join(names(all), ", "))
		}
		return o.add(r), nil
	}
	if !known || !w.takes(r.shape.Required) {
		o.runnable = false
		return w.def, nil
	}
	s, err := compile(w.params)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", w.name, err)
	}
	o.tools[w.name] = bound{r.tool, []*jsonschema.Schema{s, r.schema}}
	o.names = append(o.names, w.name)
	return w.def, nil
}

// wish is one entry of a task's own tools.
type wish struct {
	name   string
	def    json.RawMessage // nil = a built-in by name
	params json.RawMessage
}

func (w wish) takes(needs []string) bool {
	var p struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if len(w.params) > 0 && json.Unmarshal(w.params, &p) != nil {
		return false
	}
	for _, n := range needs {
		if _, ok := p.Properties[n]; !ok {
			return false
		}
	}
	return true
}

func parseWishes(task json.RawMessage) ([]wish, error) {
	if len(task) == 0 || string(bytes.TrimSpace(task)) == "null" {
		return nil, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(task, &list); err != nil {
		return nil, fmt.Errorf("expected a list of tool names or OpenAI tool definitions: %w", err)
	}
	wishes := make([]wish, len(list))
	for i, raw := range list {
		var name string
		if json.Unmarshal(raw, &name) == nil {
			wishes[i] = wish{name: name}
			continue
		}
		d, err := parseDefinition(raw)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		wishes[i] = wish{name: d.Function.Name, def: raw, params: d.Function.Parameters}
	}
	return wishes, nil
}

func names(all map[string]registered) []string { return slices.Sorted(maps.Keys(all)) }

// place says where a task came from, for messages.
func place(t *episode.Task) string {
	if t.Where.File != "" {
		return t.Where.String()
	}
	return fmt.Sprintf("task %q", t.ID)
}
