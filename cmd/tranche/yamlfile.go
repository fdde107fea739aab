package main

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// A YAML file has the keys of the flags; max-tokens and max_tokens are the same key. The walk below goes over the syntax
// tree itself, because only there every fault still has its line and column, and all of them are reported at once.

// yamlFile reads one file into Settings.
type yamlFile struct {
	name    string
	anchors map[string]ast.Node
	faults  faults
	set     map[string]bool // keys the file gave a value
	places  places          // where they stand
	visits  int             // nodes looked at
	noted   int             // places looked at, which are no visits: each value may have several
}

// maxVisits bounds the nodes looked at: aliases can make a small file endless.
const maxVisits = 20_000

// endless ends the walk of a file over maxVisits; readSettings recovers it.
type endless struct{}

// readSettings overlays the file's keys on s, but for those in keep (given as flags). Paths in the file are taken as
// relative to the file. A run.yaml of an earlier run is read too: its settings are under the key settings. The places are those of the keys
// that the file decides, for what is found wrong with them later.
func readSettings(path string, s *Settings, keep map[string]bool) (places, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the settings: %w", err)
	}
	y := &yamlFile{name: path, anchors: map[string]ast.Node{}, set: map[string]bool{}, places: places{}}
	root, err := y.parse(text)
	if err != nil {
		return nil, err
	}
	fresh := *s
	if err := y.walk(root, &fresh); err != nil {
		return nil, err
	}
	relativeTo(filepath.Dir(path), &fresh, y.set)
	for _, k := range keys() {
		if y.set[k.name] && !keep[k.name] {
			s.field(k).Set(fresh.field(k))
		}
	}
	return y.places.without(keep), nil
}

// walk reads the tree into s and returns all faults.
func (y *yamlFile) walk(root ast.Node, s *Settings) (err error) {
	defer func() {
		switch p := recover(); p.(type) {
		case nil:
		case endless:
			err = fmt.Errorf("%s: more than %d values: an alias holds itself, or aliases multiply", y.name, maxVisits)
		default:
			panic(p)
		}
	}()
	y.settings(root, s)
	return y.faults.err()
}

// relativeTo resolves the paths a file gave against the file's folder.
func relativeTo(dir string, s *Settings, set map[string]bool) {
	join := func(p string) string {
		if p == "" || filepath.IsAbs(p) {
			return p
		}
		return filepath.Join(dir, p)
	}
	if set["tasks"] {
		for i, p := range s.Tasks {
			s.Tasks[i] = join(p)
		}
	}
	if set["history"] {
		for i, dir := range s.History {
			s.History[i] = join(dir)
		}
	}
	if set["sandbox"] {
		s.Sandbox.Rootfs = join(s.Sandbox.Rootfs)
	}
	if set["reward"] {
		s.Reward = s.Reward.from(dir)
	}
	if set["out"] {
		s.Out = join(s.Out)
	}
	for i, c := range s.CommandTool {
		if set["command-tool"] && !filepath.IsAbs(c.Dir) {
			s.CommandTool[i].Dir = filepath.Join(dir, c.Dir)
		}
	}
	for i, m := range s.MCPServer {
		if set["mcp-server"] && len(m.Run) > 0 && !filepath.IsAbs(m.Dir) {
			s.MCPServer[i].Dir = filepath.Join(dir, m.Dir)
		}
	}
}

func (y *yamlFile) parse(text []byte) (ast.Node, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		var at yaml.Error
		if errors.As(err, &at) && at.GetToken() != nil {
			p := at.GetToken().Position
			return nil, fmt.Errorf("%s:%d:%d: %s%s", y.name, p.Line, p.Column, at.GetMessage(), templateHint(text, p.Line))
		}
		return nil, fmt.Errorf("%s: %w", y.name, err)
	}
	if len(file.Docs) > 1 {
		return nil, fmt.Errorf("%s: holds %d YAML documents, expected one", y.name, len(file.Docs))
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil, nil
	}
	return file.Docs[0].Body, nil
}

// templateHint helps with the mistake everyone makes once: {{...}} without quotes opens a YAML map.
func templateHint(text []byte, line int) string {
	lines := strings.Split(string(text), "\n")
	if line >= 1 && line <= len(lines) && strings.Contains(lines[line-1], "{{") {
		return ` (a template must stand in quotes: prompt: "{{.question}}")`
	}
	return ""
}

// settings reads the top level; a run.yaml is entered at its key settings.
func (y *yamlFile) settings(root ast.Node, s *Settings) {
	if root == nil {
		return
	}
	pairs, ok := y.mapping(root, "a map of settings (key: value lines)")
	if !ok {
		return
	}
	if inner := runFileSettings(pairs); inner != nil {
		if pairs, ok = y.mapping(inner, "a map of settings"); !ok {
			return
		}
	}
	known := map[string]key{}
	for _, k := range keys() {
		known[k.name] = k
	}
	for _, p := range pairs {
		name := keyName(p)
		k, ok := known[name]
		switch {
		case name == "api-key":
			y.fault(p.Key, "api-key: a key must not stand in a file; put it into an environment variable and name that with api-key-env")
		case !ok:
			y.fault(p.Key, "unknown key %q%s", name, suggestion(name, known))
		case y.set[name]:
			y.fault(p.Key, "%s is given twice (- and _ are the same)", name)
		default:
			y.set[name] = true
			y.value(name, p.Value, s.field(k))
			y.note(name, p.Key, p.Value, 0)
		}
	}
}

// runFileSettings returns the settings part of a run.yaml, nil for any other file.
func runFileSettings(pairs []*ast.MappingValueNode) ast.Node {
	var settings ast.Node
	isRun := false
	for _, p := range pairs {
		switch keyName(p) {
		case "settings":
			settings = p.Value
		case "run-id":
			isRun = true
		}
	}
	if !isRun {
		return nil
	}
	return settings
}

func suggestion(name string, known map[string]key) string {
	names := make([]string, 0, len(known))
	for n := range known {
		names = append(names, n)
	}
	slices.Sort(names)
	if n := nearest(name, names); n != "" {
		return fmt.Sprintf("; did you mean %q?", n)
	}
	return "; `tranche run --help` lists the keys"
}

func keyName(p *ast.MappingValueNode) string {
	return strings.ReplaceAll(p.Key.GetToken().Value, "_", "-")
}

func (y *yamlFile) fault(at ast.Node, format string, args ...any) {
	p := at.GetToken().Position
	y.faults.add("%s:%d:%d: %s", y.name, p.Line, p.Column, fmt.Sprintf(format, args...))
}

// mapping returns the pairs of a map node.
func (y *yamlFile) mapping(n ast.Node, expected string) ([]*ast.MappingValueNode, bool) {
	switch m := y.resolve(n).(type) {
	case *ast.MappingNode:
		return m.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}, true
	}
	y.fault(n, "expected %s, found %s", expected, describe(y.resolve(n)))
	return nil, false
}

// resolve follows anchors, aliases and tags to the node that holds the value.
func (y *yamlFile) resolve(n ast.Node) ast.Node {
	if y.visits++; y.visits > maxVisits {
		panic(endless{})
	}
	return y.follow(n)
}

func (y *yamlFile) follow(n ast.Node) ast.Node {
	for range 16 { // an alias of an alias is legal, a ring is not
		switch t := n.(type) {
		case *ast.AnchorNode:
			y.anchors[t.Name.GetToken().Value] = t.Value
			n = t.Value
		case *ast.AliasNode:
			target, ok := y.anchors[t.Value.GetToken().Value]
			if !ok {
				return n
			}
			n = target
		case *ast.TagNode:
			n = t.Value
		default:
			return n
		}
	}
	return n
}

// describe names what stands in a node, for "found …".
func describe(n ast.Node) string {
	switch t := n.(type) {
	case *ast.StringNode:
		return fmt.Sprintf("the text %q", short(t.Value, 40))
	case *ast.LiteralNode:
		return "a block of text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "the number " + n.GetToken().Value
	case *ast.BoolNode:
		return n.GetToken().Value
	case *ast.NullNode:
		return "nothing"
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a map"
	case *ast.AliasNode:
		return "the unknown alias *" + t.Value.GetToken().Value
	}
	return "a " + strings.ToLower(n.Type().String())
}

func short(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

// value reads node into one field. name is the key as people write it.
func (y *yamlFile) value(name string, node ast.Node, into reflect.Value) {
	n := y.resolve(node)
	switch target := into.Addr().Interface().(type) {
	case *[]string:
		*target = y.strings(name, n)
	case *[]int:
		*target = y.ints(name, n)
	case *[]Endpoint:
		*target = y.endpoints(n)
	case fromYAML:
		target.readYAML(y, name, n)
	case *Object:
		*target = y.object(name, n)
	case *time.Duration:
		y.duration(name, n, target)
	case *bool:
		y.boolean(name, n, target)
	case *string:
		y.text(name, n, target)
	case encoding.TextUnmarshaler:
		y.unit(name, n, target)
	default:
		y.number(name, n, into)
	}
}

func (y *yamlFile) expected(n ast.Node, name, what string) {
	y.fault(n, "%s: expected %s, found %s", name, what, describe(n))
}

func (y *yamlFile) text(name string, n ast.Node, into *string) {
	switch t := n.(type) {
	case *ast.StringNode:
		*into = t.Value
	case *ast.LiteralNode:
		*into = t.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		y.fault(n, "%s: expected a text, found %s; put it in quotes: \"%s\"", name, describe(n), n.GetToken().Value)
	default:
		y.expected(n, name, "a text")
	}
}

func (y *yamlFile) boolean(name string, n ast.Node, into *bool) {
	if b, ok := n.(*ast.BoolNode); ok {
		*into = b.Value
		return
	}
	y.expected(n, name, "true or false")
}

func (y *yamlFile) duration(name string, n ast.Node, into *time.Duration) {
	const what = "a time with its unit such as 30s, 5m or 1h30m"
	switch t := n.(type) {
	case *ast.StringNode:
		d, err := time.ParseDuration(t.Value)
		if err != nil {
			y.expected(n, name, what)
			return
		}
		*into = d
	case *ast.IntegerNode:
		if n.GetToken().Value != "0" {
			y.expected(n, name, what)
			return
		}
		*into = 0
	default:
		y.expected(n, name, what)
	}
}

func (y *yamlFile) unit(name string, n ast.Node, into encoding.TextUnmarshaler) {
	switch n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode:
		if err := into.UnmarshalText([]byte(n.GetToken().Value)); err != nil {
			y.fault(n, "%s: %v", name, err)
		}
	default:
		y.expected(n, name, "a size such as 256MiB, or a time such as 30s")
	}
}

// number reads int, int64, float64 and pointers to them; null leaves a pointer nil (not sent).
func (y *yamlFile) number(name string, n ast.Node, into reflect.Value) {
	if into.Kind() == reflect.Pointer {
		if _, null := n.(*ast.NullNode); null {
			into.SetZero()
			return
		}
		fresh := reflect.New(into.Type().Elem())
		y.number(name, n, fresh.Elem())
		into.Set(fresh)
		return
	}
	if into.Kind() == reflect.Float64 {
		if f, ok := float(n); ok {
			into.SetFloat(f)
			return
		}
		y.expected(n, name, "a number")
		return
	}
	i, ok := integer(n)
	if !ok {
		y.expected(n, name, "a whole number")
		return
	}
	into.SetInt(i)
}

func integer(n ast.Node) (int64, bool) {
	t, ok := n.(*ast.IntegerNode)
	if !ok {
		return 0, false
	}
	switch v := t.Value.(type) {
	case int64:
		return v, true
	case uint64:
		return int64(v), v <= 1<<63-1
	}
	return 0, false
}

func float(n ast.Node) (float64, bool) {
	switch t := n.(type) {
	case *ast.FloatNode:
		return t.Value, true
	case *ast.IntegerNode:
		f, err := strconv.ParseFloat(t.GetToken().Value, 64)
		if i, ok := integer(n); err != nil && ok {
			return float64(i), true
		}
		return f, err == nil
	}
	return 0, false
}

// items returns the elements of a list; a single value counts as a list of one.
func (y *yamlFile) items(n ast.Node) []ast.Node {
	if s, ok := n.(*ast.SequenceNode); ok {
		list := make([]ast.Node, len(s.Values))
		for i, v := range s.Values {
			list[i] = y.resolve(v)
		}
		return list
	}
	return []ast.Node{n}
}

func (y *yamlFile) strings(name string, n ast.Node) []string {
	list := []string{}
	for _, item := range y.items(n) {
		var s string
		y.text(name, item, &s)
		list = append(list, s)
	}
	return list
}

func (y *yamlFile) ints(name string, n ast.Node) []int {
	var list []int
	for _, item := range y.items(n) {
		i, ok := integer(item)
		if !ok {
			y.expected(item, name, "a whole number of tokens, or a list of them")
		}
		list = append(list, int(i))
	}
	return list
}

// fields reads a map with a closed set of keys.
func (y *yamlFile) fields(what string, n ast.Node, known map[string]reflect.Value) {
	pairs, ok := y.mapping(n, "a map with the keys of "+what)
	if ok {
		y.pairs(what, pairs, known)
	}
}

// pairs reads the values of a map into the fields of its keys.
func (y *yamlFile) pairs(what string, pairs []*ast.MappingValueNode, known map[string]reflect.Value) {
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, p := range pairs {
		name := keyName(p)
		field, ok := known[name]
		switch {
		case name == "api-key":
			y.fault(p.Key, "%s: api-key: a key must not stand in a file; name an environment variable with api-key-env", what)
		case !ok:
			y.fault(p.Key, "%s: unknown key %q%s", what, name, didYouMean(name, names))
		default:
			y.value(what+": "+name, p.Value, field)
		}
	}
}

// fieldsOf maps the json names of a struct's fields to the fields.
func fieldsOf(v any) map[string]reflect.Value {
	s := reflect.ValueOf(v).Elem()
	m := map[string]reflect.Value{}
	for i := range s.NumField() {
		name, _, _ := strings.Cut(s.Type().Field(i).Tag.Get("json"), ",")
		m[name] = s.Field(i)
	}
	return m
}

func (y *yamlFile) endpoints(n ast.Node) []Endpoint {
	var list []Endpoint
	for _, item := range y.items(n) {
		var e Endpoint
		switch t := item.(type) {
		case *ast.StringNode:
			e.URL = t.Value
		case *ast.MappingNode, *ast.MappingValueNode:
			y.fields("endpoint", item, fieldsOf(&e))
			if e.URL == "" {
				y.fault(item, "endpoint: url: is missing; expected e.g. http://host:8000/v1")
			}
		default:
			y.expected(item, "endpoint", "a URL or a map {url, model, api-key-env, …}")
		}
		list = append(list, e)
	}
	return list
}

func (y *yamlFile) object(name string, n ast.Node) Object {
	if t, ok := n.(*ast.StringNode); ok { // the JSON form a flag has
		var o Object
		if err := o.UnmarshalText([]byte(t.Value)); err != nil {
			y.fault(n, "%s: %v", name, err)
		}
		return o
	}
	pairs, ok := y.mapping(n, "a map of names to values")
	if !ok {
		return nil
	}
	o := Object{}
	for _, p := range pairs {
		o[p.Key.GetToken().Value] = y.json(name, p.Value)
	}
	return o
}

// json turns any node into JSON, numbers as they were written.
func (y *yamlFile) json(name string, node ast.Node) json.RawMessage {
	n := y.resolve(node)
	switch t := n.(type) {
	case *ast.NullNode:
		return json.RawMessage("null")
	case *ast.BoolNode:
		return json.RawMessage(strconv.FormatBool(t.Value))
	case *ast.StringNode:
		return encode(t.Value)
	case *ast.LiteralNode:
		return encode(t.Value.Value)
	case *ast.IntegerNode:
		return encode(t.Value)
	case *ast.FloatNode:
		return encode(t.Value)
	case *ast.SequenceNode:
		list := []json.RawMessage{}
		for _, item := range t.Values {
			list = append(list, y.json(name, item))
		}
		return encode(list)
	case *ast.MappingNode, *ast.MappingValueNode:
		return encode(y.object(name, n))
	}
	y.expected(n, name, "a value that JSON can hold")
	return json.RawMessage("null")
}

// encode writes JSON without HTML escapes. It is used only on values that JSON can hold.
func encode(v any) json.RawMessage {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return json.RawMessage(strings.TrimSuffix(b.String(), "\n"))
}
