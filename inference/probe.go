package inference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"tranche/episode"
)

// facts are what Open found out.
type facts struct {
	kind     Kind
	version  string
	model    string
	capacity episode.Capacity
	metrics  bool // GET /metrics answers in Prometheus text
	loads    bool // GET /v1/loads answers (SGLang)
}

// Open connects to a server, finds out what it is by GET requests alone, settles the model and reads its capacity. A
// server without these routes still works, as KindGeneric, when a model is named. The error says what was tried and what
// to check; it is a configuration fault, a server that does not answer, or a model that cannot be settled.
func Open(ctx context.Context, cfg Config) (*Endpoint, error) {
	e, err := newEndpoint(cfg)
	if err != nil {
		return nil, err
	}
	if err := e.probe(ctx); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

func (e *Endpoint) probe(ctx context.Context) error {
	cards, err := e.listModels(ctx)
	if err != nil {
		return err
	}
	e.facts.kind = e.identify(ctx, cards)
	card, err := pickModel(e.cfg, e.facts.kind, cards)
	if err != nil {
		return fmt.Errorf("endpoint %s: %w", e.cfg.Name, err)
	}
	if card == nil {
		e.note("the server does not list the model %q; it is asked for all the same", e.cfg.Model)
		card = &modelCard{}
		card.ID = e.cfg.Model
	}
	e.facts.model = card.ID
	e.facts.capacity = e.readCapacity(ctx, card)
	override(&e.facts.capacity, e.cfg.Capacity)
	return nil
}

// listModels asks the one route nearly every server has; it doubles as the test whether anybody is there.
func (e *Endpoint) listModels(ctx context.Context) ([]modelCard, error) {
	to := e.address.api + "/models"
	status, raw, err := e.ask(ctx, http.MethodGet, to, nil)
	if err != nil {
		return nil, fmt.Errorf("endpoint %s does not answer: tried GET %s: %w; check that the server is up, that host and port are right, "+
			"and that nothing between here and there blocks it", e.cfg.Name, to, err)
	}
	if status == http.StatusOK {
		return e.modelCards(to, raw)
	}
	said := classify(failure{reach: reachAnswer, status: status, body: notNil(e.redact(raw))}, time.Now())
	switch {
	case said.Class == episode.ClassAuth:
		return nil, fmt.Errorf("endpoint %s wants an API key, or another one: GET %s: %w", e.cfg.Name, to, said.Cause)
	case said.Class == episode.ClassUnavailable:
		return nil, fmt.Errorf("endpoint %s is not ready: GET %s: %w; it may still be loading its model, try again when GET %s/health answers 200",
			e.cfg.Name, to, said.Cause, e.address.root)
	case said.Class == episode.ClassNotFound && e.cfg.Model != "" && status/100 != 3:
		e.note("the server has no model list (GET %s: HTTP %d); the model name is not checked", pathOf(to), status)
		return nil, nil
	case said.Class == episode.ClassNotFound:
		return nil, fmt.Errorf("endpoint %s: GET %s: %w; check the base URL, or name a model if the server has no model list", e.cfg.Name, to, said.Cause)
	}
	return nil, fmt.Errorf("endpoint %s: GET %s: %w", e.cfg.Name, to, said.Cause)
}

func (e *Endpoint) modelCards(to string, raw []byte) ([]modelCard, error) {
	var list struct {
		Data []json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		if err := json.Unmarshal(raw, &list.Data); err != nil { // some hosts send the bare list
			return nil, fmt.Errorf("endpoint %s: GET %s is no model list: %w; check the base URL", e.cfg.Name, to, describe(raw, err))
		}
	}
	cards := make([]modelCard, 0, len(list.Data))
	for _, d := range list.Data {
		var c modelCard
		// A card may hold foreign types in fields we do not read; its id is what counts.
		if err := json.Unmarshal(d, &c); err != nil && c.ID == "" {
			return nil, fmt.Errorf("endpoint %s: GET %s: a model without an id: %w", e.cfg.Name, to, err)
		}
		cards = append(cards, c)
	}
	return cards, nil
}

// identify decides what the server is: by the owner it writes on its models, else by the route only it has.
func (e *Endpoint) identify(ctx context.Context, cards []modelCard) Kind {
	kind := KindGeneric
	for _, c := range cards {
		if k, ok := kindOfOwner(c.OwnedBy); ok {
			kind = k
			break
		}
	}
	if kind == KindGeneric {
		kind = e.kindByRoute(ctx)
	}
	if kind == KindVLLM || kind == KindSim || kind == KindOllama {
		to := e.address.root + "/version"
		if kind == KindOllama {
			to = e.address.root + "/api/version"
		}
		var v struct{ Version string }
		if e.fetch(ctx, to, &v) {
			e.facts.version = v.Version
		}
	}
	return kind
}

func kindOfOwner(owner string) (Kind, bool) {
	switch owner {
	case "vllm":
		return KindVLLM, true
	case "sglang":
		return KindSGLang, true
	case "llamacpp":
		return KindLlama, true
	case "library":
		return KindOllama, true
	case string(KindSim):
		return KindSim, true
	}
	return KindGeneric, false
}

func (e *Endpoint) kindByRoute(ctx context.Context) Kind {
	var info serverInfo
	if e.fetch(ctx, e.address.root+"/server_info", &info) && info.Tokens > 0 {
		return KindSGLang
	}
	var props llamaProps
	if e.fetch(ctx, e.address.root+"/props", &props) && props.Build != "" {
		return KindLlama
	}
	var v struct{ Version string }
	if e.fetch(ctx, e.address.root+"/api/version", &v) && v.Version != "" {
		return KindOllama
	}
	return KindGeneric
}

// fetch reads an optional JSON route; false means that the server does not have it in this form.
func (e *Endpoint) fetch(ctx context.Context, to string, v any) bool {
	status, raw, err := e.ask(ctx, http.MethodGet, to, nil)
	return err == nil && status == http.StatusOK && json.Unmarshal(raw, v) == nil
}

// pickModel settles which of the listed models is meant. A nil card without error: it is not listed, and this kind of
// server may well serve it.
func pickModel(cfg Config, k Kind, cards []modelCard) (*modelCard, error) {
	ids := make([]string, len(cards))
	for i, c := range cards {
		ids[i] = c.ID
	}
	switch {
	case cfg.Model == "" && len(cards) == 1:
		return &cards[0], nil
	case cfg.Model == "" && len(cards) == 0:
		return nil, errors.New("the server lists no model; name one")
	case cfg.Model == "":
		return nil, fmt.Errorf("the server lists %d models, name one of them: %s", len(ids), someOf(ids))
	}
	for i := range cards {
		if ids[i] == cfg.Model || ids[i] == cfg.Model+":latest" || slices.Contains(cards[i].Aliases, cfg.Model) {
			return &cards[i], nil
		}
	}
	if len(cards) > 0 && k.checksModel() {
		return nil, fmt.Errorf("the server does not serve the model %q; it lists: %s", cfg.Model, someOf(ids))
	}
	return nil, nil
}

func someOf(ids []string) string {
	const most = 20
	if len(ids) <= most {
		return strings.Join(ids, ", ")
	}
	return strings.Join(ids[:most], ", ") + fmt.Sprintf(" and %d more", len(ids)-most)
}

type serverInfo struct { // SGLang
	Version string `json:"version"`
	Tokens  int    `json:"max_total_num_tokens"`
	Running int    `json:"max_running_requests"`
	Context int    `json:"context_length"`
}

type llamaProps struct {
	Build    string `json:"build_info"`
	Slots    int    `json:"total_slots"`
	Defaults struct {
		ContextTokens int `json:"n_ctx"`
	} `json:"default_generation_settings"`
}

// readCapacity asks each kind where it tells its sizes. What it does not tell stays 0.
func (e *Endpoint) readCapacity(ctx context.Context, card *modelCard) episode.Capacity {
	var c episode.Capacity
	if card.MaxModelLen != nil {
		c = episode.Capacity{ContextTokens: *card.MaxModelLen, Source: fmt.Sprintf("%s /v1/models", e.facts.kind)}
	}
	text, hasMetrics := e.metricsText(ctx)
	e.facts.metrics = hasMetrics
	switch e.facts.kind {
	case KindSGLang:
		e.sglangCapacity(ctx, &c)
	case KindLlama:
		e.llamaCapacity(ctx, &c)
	default:
		if kv, block := cacheTokens(parseMetrics(text)); kv > 0 {
			c.KVTokens, c.BlockTokens = kv, block
			c.Source = join(c.Source, "/metrics cache_config_info")
		}
	}
	return c
}

// sglangCapacity prefers /v1/loads, which counts every data-parallel rank, over /server_info, which speaks for one.
func (e *Endpoint) sglangCapacity(ctx context.Context, c *episode.Capacity) {
	var info serverInfo
	if e.fetch(ctx, e.address.root+"/server_info", &info) {
		e.facts.version = info.Version
		c.KVTokens, c.Sequences = info.Tokens, info.Running
		if c.ContextTokens == 0 {
			c.ContextTokens = info.Context
		}
		c.Source = join(c.Source, "/server_info")
	}
	var loads sglangLoads
	if !e.fetch(ctx, e.address.api+"/loads?include=core", &loads) || len(loads.Loads) == 0 {
		return
	}
	e.facts.loads = true
	tokens, running := 0, 0
	for _, r := range loads.Loads {
		tokens, running = tokens+r.Capacity, running+r.MaxRunning
	}
	if tokens > 0 {
		c.KVTokens, c.Source = tokens, join(c.Source, "/v1/loads")
	}
	if running > 0 {
		c.Sequences = running
	}
}

// autoSlots is the number of slots llama-server makes when it is not told one; they then share one KV buffer, which it
// does not report. Counting that buffer once for each slot would overfill it, and every answer running then fails.
const autoSlots = 4

func (e *Endpoint) llamaCapacity(ctx context.Context, c *episode.Capacity) {
	var p llamaProps
	if !e.fetch(ctx, e.address.root+"/props", &p) {
		return
	}
	e.facts.version = p.Build
	c.ContextTokens, c.Sequences = p.Defaults.ContextTokens, p.Slots
	c.KVTokens = p.Defaults.ContextTokens * p.Slots
	c.Source = "llama-server /props"
	if p.Slots == autoSlots {
		c.KVTokens = p.Defaults.ContextTokens
		e.note("%d slots of %d tokens are taken to share one KV buffer, as llama-server's automatic slots do; if it was started with -np %d, set the KV capacity to %d",
			p.Slots, p.Defaults.ContextTokens, p.Slots, p.Slots*p.Defaults.ContextTokens)
	}
}

// override puts the configured figures over the server's.
func override(c *episode.Capacity, by episode.Capacity) {
	for _, f := range [...]struct{ to, by *int }{
		{&c.ContextTokens, &by.ContextTokens}, {&c.KVTokens, &by.KVTokens}, {&c.Sequences, &by.Sequences},
	} {
		if *f.by > 0 {
			*f.to = *f.by
		}
	}
	if by.ContextTokens > 0 || by.KVTokens > 0 || by.Sequences > 0 {
		from := by.Source
		if from == "" {
			from = "config"
		}
		c.Source = join(c.Source, from)
	}
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + ", " + b
}
