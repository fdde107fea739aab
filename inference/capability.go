package inference

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/episode"
)

// Proof says how a fact about a server is known.
type Proof string

// Kinds of proof, the weakest first.
const (
	Unknown Proof = "unknown" // nobody said; the value means nothing, From may say why
	Claimed Proof = "claimed" // the server says so of itself, or servers of its kind do it; it was not tried
	Proved  Proof = "proved"  // an answer held it, or the server refused it
	Set     Proof = "set"     // the configuration says so
)

// Fact is one thing known about a server, with how it is known.
type Fact[T any] struct {
	Value T      `json:"value"`
	Proof Proof  `json:"proof"`
	From  string `json:"from,omitempty"` // the request and what of its answer said so; for Unknown, why nothing did
}

// Known reports whether the value means anything.
func (f *Fact[T]) Known() bool { return f.Proof != Unknown && f.Proof != "" }

// Likely reports whether the server has it, by anybody's word.
func (f *Fact[T]) Likely() bool { return f.Known() && !reflect.ValueOf(f.Value).IsZero() }

// Sure reports whether the server has it, by an answer or by the configuration: what data may rest on.
func (f *Fact[T]) Sure() bool { return f.Likely() && f.Proof != Claimed }

func (f *Fact[T]) prove(v T, from string) { *f = Fact[T]{v, Proved, from} }
func (f *Fact[T]) claim(v T, from string) { *f = Fact[T]{v, Claimed, from} }

// wonder says why nothing is known, where nothing is.
func (f *Fact[T]) wonder(why string) {
	if !f.Known() {
		f.Proof, f.From = Unknown, why
	}
}

// doubt takes back what was only claimed: an answer went against it, and did not show what holds instead.
func (f *Fact[T]) doubt(why string) {
	if f.Proof == Claimed {
		*f = Fact[T]{Proof: Unknown}
	}
	f.wonder(why)
}

// Order is which of two priority values a server serves first.
type Order string

// Orders of priority.
const (
	LowFirst   Order = "low-first"
	HighFirst  Order = "high-first"
	NoPriority Order = "none"
)

// Policy is what a server does with request fields it does not know.
type Policy string

// Policies.
const (
	Ignores Policy = "ignored"
	Refuses Policy = "refused"
)

// Overflow is how a server answers a prompt longer than its context.
type Overflow struct {
	Status     int    `json:"status"`           // HTTP status; 200 = the prompt was cut and answered
	Recognised bool   `json:"recognised"`       // the refusal is told from any other bad request
	Limit      int    `json:"limit,omitempty"`  // tokens, as the message names it; 0 = it does not
	Prompt     int    `json:"prompt,omitempty"` // likewise
	Says       string `json:"says,omitempty"`   // the start of the message

	Wordings []Wording `json:"wordings,omitempty"` // by which later ones are recognised
}

func (o Overflow) String() string {
	switch {
	case o.Status == 0:
		return ""
	case o.Status == 200:
		return "HTTP 200: the prompt is cut"
	case !o.Recognised:
		return fmt.Sprintf("HTTP %d, not told from other refusals", o.Status)
	case o.Limit == 0:
		return fmt.Sprintf("HTTP %d, recognised, names no limit", o.Status)
	}
	return fmt.Sprintf("HTTP %d, recognised, names the limit %d", o.Status, o.Limit)
}

// Capabilities is what is known about one server: the record of an endpoint. Routes are paths below the server's root.
type Capabilities struct {
	Endpoint string     `json:"endpoint"` // its name
	URL      string     `json:"url"`
	Taken    time.Time  `json:"taken"` // when the last question was answered
	Calls    int        `json:"calls"` // requests it took, those of Open included
	Asked    []Question `json:"asked"` // what was tried by generating; the rest rests on GET requests

	Kind    Fact[Kind]   `json:"kind" title:"server"`
	Version Fact[string] `json:"version" title:"version"`
	Model   Fact[string] `json:"model" title:"model"`

	ContextTokens Fact[int]      `json:"context-tokens" title:"context limit, tokens"`
	KVTokens      Fact[int]      `json:"kv-tokens" title:"KV capacity, tokens"`
	BlockTokens   Fact[int]      `json:"block-tokens" title:"KV block, tokens"`
	Sequences     Fact[int]      `json:"sequences" title:"sequences at once"`
	Metrics       Fact[[]string] `json:"metrics" title:"load figures"` // see figureNames

	TokenizeText     Fact[string] `json:"tokenize-text" title:"text to token ids"`             // "" = no such route
	TokenizeMessages Fact[string] `json:"tokenize-messages" title:"messages to token ids"`     // renders and tokenises in one request
	Render           Fact[string] `json:"render" title:"messages to prompt"`                   // vLLM: to a request with ids; llama-server: to text
	Generate         Fact[string] `json:"generate" title:"own route, ids in and out"`          // takes and gives token ids, no text between
	TokenIDsIn       Fact[bool]   `json:"token-ids-in" title:"completions take token ids"`     // /v1/completions
	PromptKept       Fact[bool]   `json:"prompt-kept" title:"token ids kept as sent"`          // what the server saw is what was sent, no token more
	TokenIDsOut      Fact[bool]   `json:"token-ids-out" title:"completions give token ids"`    // of the sampled tokens
	ChatTokenIDs     Fact[bool]   `json:"chat-token-ids" title:"chat gives token ids"`         // of the sampled tokens
	ChatPromptIDs    Fact[bool]   `json:"chat-prompt-ids" title:"chat gives the prompt's ids"` //

	Logprobs       Fact[bool]           `json:"logprobs" title:"logprobs of sampled tokens"` // in chat answers
	LogprobsMode   Fact[episode.Spread] `json:"logprobs-mode" title:"logprobs are"`          // raw = of the model's own distribution; processed = after temperature and the like
	N              Fact[bool]           `json:"n" title:"n > 1"`
	ListPrompts    Fact[bool]           `json:"list-prompts" title:"lists of prompts"` // in one completions request
	Usage          Fact[bool]           `json:"usage" title:"token counts"`
	CachedTokens   Fact[bool]           `json:"cached-tokens" title:"cached tokens in answers"`
	PrefixRetained Fact[bool]           `json:"prefix-retained" title:"prefixes are kept"`
	WeightVersion  Fact[bool]           `json:"weight-version" title:"weight version in answers"`
	UnknownFields  Fact[Policy]         `json:"unknown-fields" title:"unknown fields"`
	Priority       Fact[Order]          `json:"priority" title:"priority"`
	Overflow       Fact[Overflow]       `json:"overflow" title:"prompt over the limit"`
}

// factual is a Fact of any type.
type factual interface {
	proof() Proof
	from() string
	text() string
	same(other factual) bool
	take(other factual)
	set(raw json.RawMessage) error
	wonder(why string)
	doubt(why string)
}

func (f *Fact[T]) proof() Proof { return f.Proof }
func (f *Fact[T]) from() string { return f.From }

// text is the value for people.
func (f *Fact[T]) text() string {
	var s string
	switch v := any(f.Value).(type) {
	case bool:
		return map[bool]string{true: "yes", false: "no"}[v]
	case int:
		return strconv.Itoa(v)
	case []string:
		s = strings.Join(v, ", ")
	default:
		s = fmt.Sprint(v)
	}
	if s == "" {
		return "none"
	}
	return s
}

func (f *Fact[T]) same(other factual) bool {
	o, ok := other.(*Fact[T])
	return ok && reflect.DeepEqual(f.Value, o.Value)
}

// take keeps what an earlier probe proved and this one did not ask.
func (f *Fact[T]) take(other factual) {
	if o, ok := other.(*Fact[T]); ok && o.Proof == Proved && f.Proof != Proved && f.Proof != Set {
		*f = *o
	}
}

// set takes a value from the configuration.
func (f *Fact[T]) set(raw json.RawMessage) error {
	var v T
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil || string(bytes.TrimSpace(raw)) == "null" {
		return fmt.Errorf("expected %s, found %s", wanted(f.Value), clip(string(raw), 80))
	}
	if choices := choicesOf(v); choices != nil && !slices.Contains(choices, fmt.Sprint(v)) {
		return fmt.Errorf("expected one of %s, found %s", strings.Join(choices, ", "), clip(string(raw), 80))
	}
	if n, ok := any(v).(int); ok && n < 0 {
		return fmt.Errorf("expected 0 or more, found %d", n)
	}
	*f = Fact[T]{v, Set, "config"}
	return nil
}

func wanted(v any) string {
	switch v.(type) {
	case bool:
		return "true or false"
	case int:
		return "a whole number"
	case []string:
		return "a list of texts"
	case Overflow:
		return "an object such as {\"status\": 400, \"recognised\": true}"
	}
	return "a text"
}

func choicesOf(v any) []string {
	switch v.(type) {
	case Kind:
		var all []string
		for _, k := range kinds() {
			all = append(all, string(k))
		}
		return all
	case Order:
		return []string{string(LowFirst), string(HighFirst), string(NoPriority)}
	case Policy:
		return []string{string(Ignores), string(Refuses)}
	}
	return nil
}

// item is one fact of a record by its name.
type item struct {
	key, title string
	factual
}

// items are the facts in the order of the struct.
func (c *Capabilities) items() []item {
	var all []item
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		if f, ok := v.Field(i).Addr().Interface().(factual); ok {
			tag := v.Type().Field(i).Tag
			all = append(all, item{tag.Get("json"), tag.Get("title"), f})
		}
	}
	return all
}

// Row is one fact for people.
type Row struct {
	Key, Title, Value string
	Proof             Proof
	From              string
}

// Rows are the facts as a table, in a fixed order. The value of what is unknown is "".
func (c Capabilities) Rows() []Row {
	var rows []Row
	for _, f := range c.items() {
		r := Row{Key: f.key, Title: f.title, Proof: f.proof(), From: f.from()}
		if r.Proof != Unknown {
			r.Value = f.text()
		}
		rows = append(rows, r)
	}
	return rows
}

// Change is one fact that is no longer what it was.
type Change struct{ Key, Title, Was, Is string }

// Changes lists what differs from an earlier record, where both know it.
func (c Capabilities) Changes(since Capabilities) []Change {
	var list []Change
	was := since.items()
	for i, f := range c.items() {
		if f.proof() != Unknown && was[i].proof() != Unknown && !f.same(was[i].factual) && f.text() != was[i].text() {
			list = append(list, Change{f.key, f.title, was[i].text(), f.text()})
		}
	}
	return list
}

// SameServer reports whether a record is of the server that an earlier one is of: what was proved then holds now.
func (c Capabilities) SameServer(earlier Capabilities) bool {
	return c.Kind.Value == earlier.Kind.Value && c.Version.Value == earlier.Version.Value && c.Model.Value == earlier.Model.Value &&
		c.ContextTokens.Value == earlier.ContextTokens.Value
}

// Check says what is wrong with a record that was read from a file.
func (c Capabilities) Check() error {
	var faults []error
	for _, f := range c.items() {
		if !slices.Contains([]Proof{Unknown, Claimed, Proved, Set}, f.proof()) {
			faults = append(faults, fmt.Errorf("%s: proof is %q", f.key, f.proof()))
		}
	}
	return errors.Join(faults...)
}

// newCapabilities knows nothing.
func newCapabilities(name, url string) Capabilities {
	c := Capabilities{Endpoint: name, URL: url, Taken: time.Now()}
	for _, f := range c.items() {
		f.wonder("")
	}
	return c
}

// CheckOverrides says what is wrong with values that are to override what a probe finds (Config.Capabilities).
func CheckOverrides(by map[string]json.RawMessage) error { return new(Capabilities).override(by) }

// possible refuses a configured value that no server of ours can have: nothing here would act on it.
func possible(key string, f factual) error {
	switch f := f.(type) {
	case *Fact[[]string]: // metrics
		for _, name := range f.Value {
			if !slices.Contains(knownFigures(), name) {
				return fmt.Errorf("unknown figure %q; there are %s", name, strings.Join(knownFigures(), ", "))
			}
		}
	case *Fact[string]:
		switch known := routesFor(key); {
		case f.Value == "" || known == nil || slices.Contains(known, f.Value):
		default:
			return fmt.Errorf("expected one of %s, or an empty text for none, found %q", strings.Join(known, ", "), f.Value)
		}
	}
	return nil
}

// routesFor are the routes that are known for a fact; nil = it is no route.
func routesFor(key string) []string {
	switch key {
	case "tokenize-text", "tokenize-messages":
		return []string{"/tokenize"}
	case "render":
		return []string{"/apply-template", "/v1/chat/completions/render"}
	case "generate":
		return []string{"/completion", "/generate", "/inference/v1/generate"}
	}
	return nil
}

// notOverridden are the facts that have settings of their own.
var notOverridden = map[string]string{"model": "the endpoint's model setting names it"}

// override puts the configured values over what was found.
func (c *Capabilities) override(by map[string]json.RawMessage) error {
	var faults []error
	known := map[string]item{}
	for _, f := range c.items() {
		known[f.key] = f
	}
	for _, key := range slices.Sorted(maps.Keys(by)) {
		f, ok := known[key]
		var err error
		switch why := notOverridden[key]; {
		case !ok:
			err = fmt.Errorf("unknown; there are %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case why != "":
			err = errors.New("cannot be set here: " + why)
		default:
			if err = f.set(by[key]); err == nil {
				err = possible(key, f.factual)
			}
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("capabilities: %s: %w", key, err))
		}
	}
	return errors.Join(faults...)
}
