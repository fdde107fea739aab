package taskfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tranche/episode"
)

// parser turns rows into tasks. It keeps no state between rows but the counts of ignored fields and of
// the models that batch rows name.
type parser struct {
	format  Format
	tpl     templates
	ignored map[string]int64
	models  map[string]int64
}

func newParser(cfg Config) (*parser, error) {
	tpl, err := compileAll(cfg.Templates)
	if err != nil {
		return nil, err
	}
	return &parser{format: cfg.format(), tpl: tpl, ignored: map[string]int64{}, models: map[string]int64{}}, nil
}

// idField names where ids come from, for messages.
func (p *parser) idField() string {
	switch {
	case p.tpl.id != nil:
		return "id (template)"
	case p.format == FormatBatch:
		return "custom_id"
	}
	return "id"
}

// ignore counts a field that is not sent.
func (p *parser) ignore(field string) {
	tally(p.ignored, field)
}

// tally counts a name. The cap keeps a file with made-up names in every row from growing the map.
func tally(counts map[string]int64, name string) {
	if _, known := counts[name]; known || len(counts) < 100 {
		counts[name]++
	}
}

// row turns one row into a task, or lists everything that is wrong with it.
//
// The columns that have a home in episode.Task are taken out one by one; what is left over, and what a template replaced, goes to
// Task.Extra together with extra_info.
func (p *parser) row(raw []byte, where episode.Position, index int64, typed bool) (*episode.Task, []*RowError) {
	b := &builder{p: p, typed: typed, task: &episode.Task{Index: index, Where: where}, extra: map[string]json.RawMessage{}}
	cols := b.columns(raw)
	if cols == nil {
		return nil, b.faults
	}
	b.cols = cols
	b.templates() // first, while all columns are still there
	if p.isBatch(cols) {
		b.batch()
	} else {
		b.demand()
		b.identity("id")
		b.prompt()
	}
	b.system()
	b.answer()
	b.labels()
	b.leftovers()
	if len(b.faults) == 0 {
		b.checkMessages()
	}
	if len(b.faults) > 0 {
		return nil, b.faults
	}
	b.task.Hash = contentHash(b.task)
	if b.task.ID == "" {
		b.task.ID = b.task.Hash[:16]
	}
	return b.task, nil
}

// builder is one row on its way to a task.
type builder struct {
	p      *parser
	typed  bool
	task   *episode.Task
	cols   map[string]json.RawMessage // columns not yet taken
	extra  map[string]json.RawMessage // what goes to Task.Extra
	faults []*RowError
	made   made
	prefix bool // the request says that the model goes on with the last assistant message
}

// made are the fields that templates made; nil = no template.
type made struct{ id, prompt, system, answer, dataSource, envClass *string }

func (b *builder) fault(field, format string, args ...any) {
	b.faults = append(b.faults, &RowError{Where: b.task.Where, Field: field, Problem: fmt.Sprintf(format, args...)})
}

// wrong reports a value of the wrong kind.
func (b *builder) wrong(field, expected string, raw []byte) {
	b.fault(field, "expected %s, found %s", expected, kind(raw))
}

// columns takes a row apart. nil = it cannot be; the faults say why.
func (b *builder) columns(raw []byte) map[string]json.RawMessage {
	if bad := badText(raw); bad != "" {
		b.fault("", "%s", bad)
		return nil
	}
	var cols map[string]json.RawMessage
	err := json.Unmarshal(raw, &cols)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		b.fault("", "byte %d: not valid JSON: %v; expected one whole JSON object on this line", syntax.Offset, err)
		return nil
	case err != nil || cols == nil:
		b.fault("", "expected a JSON object, found %s", kind(raw))
		return nil
	case members(raw) != len(cols):
		b.fault(repeated(raw), "appears twice in one row; expected it once")
		return nil
	}
	return cols
}

// take removes a column and returns it. A null column is an absent one.
func (b *builder) take(name string) (json.RawMessage, bool) { return take(b.cols, name) }

func take(m map[string]json.RawMessage, name string) (json.RawMessage, bool) {
	raw, ok := m[name]
	delete(m, name)
	return raw, ok && first(raw) != 'n'
}

// text reads a JSON string.
func (b *builder) text(field string, raw json.RawMessage) (string, bool) {
	var s string
	if first(raw) != '"' || json.Unmarshal(raw, &s) != nil {
		b.wrong(field, "a string", raw)
		return "", false
	}
	return s, true
}

// object reads a JSON object, or a string that holds one, as columns of Parquet files often do.
func (b *builder) object(field string, raw json.RawMessage) (map[string]json.RawMessage, bool) {
	raw = unquoted(raw, '{')
	var m map[string]json.RawMessage
	if first(raw) != '{' || json.Unmarshal(raw, &m) != nil {
		b.wrong(field, "an object", raw)
		return nil, false
	}
	return m, true
}

// unquoted returns the JSON inside a JSON string when it begins as wanted, else raw itself.
func unquoted(raw json.RawMessage, want byte) json.RawMessage {
	var s string
	if first(raw) != '"' || json.Unmarshal(raw, &s) != nil || first([]byte(s)) != want || !json.Valid([]byte(s)) {
		return raw
	}
	return json.RawMessage(s)
}

// canonical is canonical with its error, which only a bug can cause, made a fault.
func (b *builder) canonical(field string, raw json.RawMessage) json.RawMessage {
	out, err := canonical(raw)
	if err != nil {
		b.fault(field, "cannot be written again as JSON: %v", err)
	}
	return out
}

func (b *builder) templates() {
	t := b.p.tpl
	if !t.any() {
		return
	}
	cols, err := view(b.cols)
	if err != nil {
		b.fault("", "%v", err)
		return
	}
	run := func(c *column, to **string) {
		if c == nil {
			return
		}
		s, err := c.render(cols)
		if err != nil {
			b.fault("", "%v", err)
		}
		*to = &s
	}
	run(t.id, &b.made.id)
	run(t.prompt, &b.made.prompt)
	run(t.system, &b.made.system)
	run(t.answer, &b.made.answer)
	run(t.dataSource, &b.made.dataSource)
	run(t.envClass, &b.made.envClass)
}

// demand reports the columns that the named format cannot do without. A missing prompt is a fault in every format.
func (b *builder) demand() {
	needs := map[Format][]string{
		FormatVerl:  {"data_source", "reward_model"},
		FormatSkyRL: {"env_class", "reward_spec"},
	}[b.p.format]
	have := map[string]bool{
		"data_source": b.made.dataSource != nil, "env_class": b.made.envClass != nil,
		"reward_model": b.made.answer != nil, "reward_spec": b.made.answer != nil,
	}
	for _, name := range needs {
		if raw, ok := b.cols[name]; (!ok || first(raw) == 'n') && !have[name] {
			b.fault(name, "missing; format %s needs it (format auto does not)", b.p.format)
		}
	}
	if raw, ok := b.cols["prompt"]; ok && needs != nil && b.made.prompt == nil && first(raw) == '"' {
		b.wrong("prompt", fmt.Sprintf("a list of messages (format %s)", b.p.format), raw)
	}
}

// identity takes the id from a template or a column. An absent one is filled in from the hash later.
func (b *builder) identity(col string) {
	if b.made.id != nil {
		b.setID(`id (template)`, strings.TrimSpace(*b.made.id))
		return
	}
	raw, ok := b.take(col)
	if !ok {
		return
	}
	switch k := kind(raw); k {
	case "a string":
		if s, ok := b.text(col, raw); ok {
			b.setID(col, s)
		}
	case "a number":
		b.setID(col, string(raw))
	default:
		b.wrong(col, "a string or a number", raw)
	}
}

func (b *builder) setID(field, id string) {
	if strings.TrimSpace(id) == "" {
		b.fault(field, "is blank; expected an id (or no such column: then the content's hash is the id)")
		return
	}
	b.task.ID = id
}

// prompt takes the messages from a template, or from prompt or messages.
func (b *builder) prompt() {
	if b.made.prompt != nil {
		b.madePrompt()
		return
	}
	prompt, isPrompt := b.cols["prompt"]
	isPrompt = isPrompt && first(prompt) != 'n'
	messages, isMessages := b.cols["messages"]
	nullPrompt, nullMessages := first(prompt) == 'n', first(messages) == 'n'
	isMessages = isMessages && first(messages) != 'n'
	delete(b.cols, "prompt")
	delete(b.cols, "messages")
	switch {
	case isPrompt && isMessages:
		b.fault("prompt", "stands beside \"messages\"; expected one of the two (or a prompt template, which wins over both)")
	case isPrompt:
		b.promptColumn(prompt)
	case isMessages:
		b.messages("messages", messages)
	case nullPrompt:
		b.fault("prompt", "is null; expected a string or a list of messages")
	case nullMessages:
		b.fault("messages", "is null; expected a list of messages")
	default:
		b.fault("prompt", "missing, and so is \"messages\"; expected one of them, or a prompt template over the columns: %s", b.names())
	}
}

func (b *builder) madePrompt() {
	if strings.TrimSpace(*b.made.prompt) == "" && len(b.faults) == 0 {
		b.fault("", "template \"prompt\" came out blank for this row")
	}
	b.task.Messages = []episode.Message{{Role: episode.RoleUser, Content: b.made.prompt}}
}

func (b *builder) promptColumn(raw json.RawMessage) {
	switch first(raw) {
	case '"':
		s, _ := b.text("prompt", raw)
		if strings.TrimSpace(s) == "" {
			b.fault("prompt", "is blank; expected text")
			return
		}
		b.task.Messages = []episode.Message{{Role: episode.RoleUser, Content: &s}}
	case '[':
		b.messages("prompt", raw)
	default:
		b.wrong("prompt", "a string or a list of messages", raw)
	}
}

func (b *builder) names() string {
	return strings.Join(slices.Sorted(maps.Keys(b.cols)), ", ")
}

// system puts the system message first. A template wins over the row's own system message, a column does not.
func (b *builder) system() {
	if b.made.system != nil {
		rest := slices.DeleteFunc(b.task.Messages, isSystem)
		if strings.TrimSpace(*b.made.system) != "" {
			rest = slices.Insert(rest, 0, episode.Message{Role: episode.RoleSystem, Content: b.made.system})
		}
		b.task.Messages = rest
		return
	}
	raw, ok := b.take("system")
	if !ok {
		return
	}
	s, ok := b.text("system", raw)
	if !ok {
		return
	}
	if slices.ContainsFunc(b.task.Messages, isSystem) {
		b.fault("system", "stands beside a system message; expected one of the two")
		return
	}
	b.task.Messages = slices.Insert(b.task.Messages, 0, episode.Message{Role: episode.RoleSystem, Content: &s})
}

func isSystem(m episode.Message) bool {
	return m.Role == episode.RoleSystem || m.Role == roleDeveloper
}

// answer takes the ground truth: a template, else reward_model.ground_truth (verl), else reward_spec.ground_truth (SkyRL), else
// answer. A column that another one outranked stays in Extra.
func (b *builder) answer() {
	b.rewardColumn("reward_model", "style")
	b.rewardColumn("reward_spec", "method")
	if b.made.answer != nil {
		b.task.Answer = nil
		if s := strings.TrimSpace(*b.made.answer); s != "" {
			b.task.Answer = &s
		}
		return
	}
	if b.task.Answer != nil {
		return
	}
	if raw, ok := b.take("answer"); ok {
		b.task.Answer = b.scalar("answer", b.dense(raw))
	}
}

func (b *builder) rewardColumn(col, style string) {
	if b.task.Style != "" || (b.task.Answer != nil) {
		return
	}
	raw, ok := b.take(col)
	if !ok {
		return
	}
	m, ok := b.object(col, b.dense(raw))
	if !ok {
		return
	}
	if raw, ok := take(m, style); ok {
		b.task.Style, _ = b.text(col+"."+style, raw)
	}
	if b.made.answer == nil { // a template replaces it: then it stays in Extra
		if raw, ok := take(m, "ground_truth"); ok {
			b.task.Answer = b.scalar(col+".ground_truth", raw)
		}
	}
	b.keep(col, m)
}

// scalar is the text of an answer: a string as it is, a number or boolean as it was written, a list or object as its JSON.
func (b *builder) scalar(field string, raw json.RawMessage) *string {
	if first(raw) == '"' {
		s, _ := b.text(field, raw)
		return &s
	}
	return episode.Ptr(string(b.canonical(field, raw)))
}

// keep puts the members of a column that have no home into Extra, under the column's name.
func (b *builder) keep(col string, rest map[string]json.RawMessage) {
	for name, raw := range rest {
		if first(raw) == 'n' {
			delete(rest, name)
		}
	}
	if len(rest) == 0 {
		return
	}
	raw, err := encode(rest)
	if err != nil {
		b.fault(col, "cannot be written again as JSON: %v", err)
		return
	}
	b.extra[col] = raw
}

// labels takes tools and the names of domain, environment and split.
func (b *builder) labels() {
	if raw, ok := b.take("tools"); ok {
		if b.task.Tools != nil {
			b.fault("tools", "stands beside \"body.tools\"; expected one of the two")
		} else {
			b.tools("tools", raw)
		}
	}
	b.label("data_source", &b.task.DataSource, b.made.dataSource)
	b.label("env_class", &b.task.EnvClass, b.made.envClass)
	b.label("split", &b.task.Split, nil)
}

func (b *builder) label(col string, to *string, made *string) {
	if made != nil {
		*to = strings.TrimSpace(*made)
		return
	}
	if raw, ok := b.take(col); ok {
		*to, _ = b.text(col, raw)
	}
}

// leftovers makes Task.Extra: the members of extra_info, then every column that is left. A column that has the name of another
// member of extra_info is kept as column.NAME.
func (b *builder) leftovers() {
	if raw, ok := b.take("extra_info"); ok {
		info, _ := b.object("extra_info", b.dense(raw))
		for _, name := range slices.Sorted(maps.Keys(info)) {
			b.merge(name, info[name])
		}
	}
	if raw, ok := b.extra["split"]; ok && b.task.Split == "" && first(raw) == '"' {
		b.task.Split, _ = b.text("extra_info.split", raw)
	}
	for _, name := range slices.Sorted(maps.Keys(b.cols)) {
		b.merge(name, b.dense(b.cols[name]))
	}
	if len(b.extra) == 0 || len(b.faults) > 0 {
		return
	}
	extra, err := encode(b.extra)
	if err != nil {
		b.fault("extra_info", "cannot be written again as JSON: %v", err)
	}
	b.task.Extra = extra
}

// merge adds one value to Extra. null is the same as absent, so that a row has one hash whatever the file format.
func (b *builder) merge(name string, raw json.RawMessage) {
	if first(raw) == 'n' {
		return
	}
	raw = b.canonical(name, raw)
	for have, taken := b.extra[name]; taken; have, taken = b.extra[name] {
		if string(have) == string(raw) {
			return
		}
		name = "column." + name
	}
	b.extra[name] = raw
}
