package inference

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"tranche/episode"
)

// facts are what Open found out, as far as calls depend on it.
type facts struct {
	kind     Kind
	version  string
	model    string
	order    priorities
	capacity episode.Capacity
	metrics  bool // GET /metrics answers in Prometheus text
	loads    bool // GET /v1/loads answers (SGLang)
}

// Open connects to a server, finds out what it is by GET requests alone, settles the model and reads its capacity. A
// server without these routes still works, as KindGeneric, when a model is named. The error says what was tried and what
// to check; it is a configuration fault, a server that does not answer, or a model that cannot be settled. What only
// generating can show is Probe's.
func Open(ctx context.Context, cfg Config) (*Endpoint, error) {
	e, err := newEndpoint(cfg)
	if err != nil {
		return nil, err
	}
	p := newProber(e, cmp.Or(cfg.OpenTimeout, postTimeout))
	if err := p.open(ctx); err != nil {
		e.Close()
		return nil, err
	}
	e.settle(p)
	return e, nil
}

// open asks what GET requests can tell: who the server is first, then what that kind tells of itself.
func (p *prober) open(ctx context.Context) error {
	cards, header, err := p.listModels(ctx)
	if err != nil {
		return err
	}
	p.identify(ctx, cards, header)
	e := p.e
	card, err := pickModel(e.cfg, p.kind(), cards)
	if err != nil {
		return fmt.Errorf("endpoint %s: %w", e.cfg.Name, err)
	}
	if card == nil {
		e.note("the server does not list the model %q; it is asked for all the same", e.cfg.Model)
		card = &modelCard{}
		card.ID = e.cfg.Model
		p.caps.Model.claim(card.ID, "config; the server does not list it")
	} else {
		p.caps.Model.prove(card.ID, "GET "+pathOf(e.address.api+"/models"))
	}
	p.readFigures(card)
	for _, f := range [...]factual{&p.caps.Version, &p.caps.ContextTokens, &p.caps.KVTokens, &p.caps.BlockTokens, &p.caps.Sequences} {
		f.wonder("it does not tell")
	}
	p.caps.claimsOf(p.kind())
	if err := p.caps.override(e.cfg.Capabilities); err != nil {
		return fmt.Errorf("endpoint %s: %w", e.cfg.Name, err)
	}
	if kv, most := p.caps.KVTokens, p.caps.ContextTokens; kv.Proof == Set && kv.Value > 0 && most.Known() && kv.Value < cmp.Or(e.cfg.Capacity.ContextTokens, most.Value) {
		return fmt.Errorf("endpoint %s: kv-tokens is set to %d, below the context limit of %d tokens: a call may need all of that; expected at least the limit, or a lower context beside it",
			e.cfg.Name, kv.Value, cmp.Or(e.cfg.Capacity.ContextTokens, most.Value))
	}
	p.sources = join(p.sources, overridden(e.cfg.Capacity, &p.caps))
	return nil
}

// settle makes a record what the endpoint goes by. Only Open calls it: what calls depend on is fixed from then on.
func (e *Endpoint) settle(p *prober) {
	c := p.caps
	e.facts = facts{
		kind: c.Kind.Value, version: c.Version.Value, model: c.Model.Value, order: prioritiesOf(&c), metrics: p.metrics, loads: p.loads,
		capacity: episode.Capacity{ContextTokens: c.ContextTokens.Value, KVTokens: c.KVTokens.Value, BlockTokens: c.BlockTokens.Value, Sequences: c.Sequences.Value, Source: p.sources},
	}
	e.learnFrom(&c)
	e.caps.Store(&c)
}

// listModels asks the one route nearly every server has; it doubles as the test whether anybody is there.
func (p *prober) listModels(ctx context.Context) ([]modelCard, http.Header, error) {
	e := p.e
	to := e.address.api + "/models"
	s := p.get(ctx, to)
	cards, err := e.readModels(to, s)
	return cards, s.header, err
}

func (e *Endpoint) readModels(to string, s said) ([]modelCard, error) {
	status, raw := s.status, s.body
	if err := s.err; err != nil {
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
	case status/100 == 3:
		return nil, fmt.Errorf("endpoint %s: GET %s: %w to %q, which is not followed; name that server itself if it is meant", e.cfg.Name, to, said.Cause, s.header.Get("Location"))
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

// identify decides what the server is: by the owner it writes on its models, by a header, by the names of its metrics, else by
// the route only it has. On the way it asks what that kind tells of itself.
func (p *prober) identify(ctx context.Context, cards []modelCard, header http.Header) {
	models := "GET " + pathOf(p.e.address.api+"/models")
	c := &p.caps
	c.Kind.claim(KindGeneric, "nothing tells it from others")
	for _, card := range cards {
		if k, ok := kindOfOwner(card.OwnedBy); ok {
			c.Kind.prove(k, models+": owned_by "+card.OwnedBy)
			break
		}
	}
	if k, name := kindOfHeader(header); k != "" {
		c.Kind.prove(k, models+": header "+name)
	}
	if strings.EqualFold(p.e.address.host, openAIHost) {
		c.Kind.prove(KindOpenAI, "its address")
	}
	p.overrideKind()
	p.getAll(ctx, routesOf(p.kind())...)
	if p.kind() == KindGeneric && c.Kind.Proof != Set {
		p.kindByAnswers()
		p.getAll(ctx, routesOf(p.kind())...)
	}
	p.readVersion(header)
}

func (p *prober) kind() Kind { return p.caps.Kind.Value }

// overrideKind takes the configured kind early: it decides what is asked.
func (p *prober) overrideKind() {
	if raw, ok := p.e.cfg.Capabilities["kind"]; ok {
		_ = p.caps.Kind.set(raw) // Validate has read it
	}
}

// routesOf are the GET routes, below the root, where a kind tells of itself. Of a server that is not known each is tried by which
// one could be told.
func routesOf(k Kind) []string {
	switch k {
	case KindVLLM, KindSim, KindTensorRT:
		return []string{"/version", "/metrics"}
	case KindSGLang:
		return []string{"/server_info", "/v1/loads?include=core", "/metrics"}
	case KindLlama:
		return []string{"/props", "/metrics"}
	case KindOllama:
		return []string{"/api/version", "/metrics"}
	case KindTGI:
		return []string{"/info", "/metrics"}
	case KindGeneric:
		return []string{"/metrics", "/server_info", "/props", "/api/version", "/info"}
	case KindOpenAI:
		return nil
	}
	return []string{"/metrics"}
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
	case "tensorrt_llm":
		return KindTensorRT, true
	case "lmdeploy":
		return KindLMDeploy, true
	case string(KindSim):
		return KindSim, true
	}
	return KindGeneric, false
}

// openAIHost is where asking costs money.
const openAIHost = "api.openai.com"

// kindOfHeader recognises who answers by a header only they send.
func kindOfHeader(h http.Header) (Kind, string) {
	for name := range h {
		switch lower := strings.ToLower(name); {
		case strings.HasPrefix(lower, "x-litellm-"):
			return KindProxy, lower
		case lower == "openai-version" || lower == "openai-organization":
			return KindOpenAI, lower
		}
	}
	return "", ""
}

// kindByAnswers recognises a server by what its GET routes said.
func (p *prober) kindByAnswers() {
	c := &p.caps
	for prefix, k := range map[string]Kind{"vllm:": KindVLLM, "sglang:": KindSGLang, "llamacpp:": KindLlama} {
		if m := p.got["/metrics"]; m.status == http.StatusOK && bytes.Contains(m.body, []byte("\n"+prefix)) {
			c.Kind.prove(k, "GET /metrics: names begin with "+prefix)
			return
		}
	}
	var info serverInfo
	var props llamaProps
	var v struct{ Version string }
	var tgi tgiInfo
	switch {
	case p.read("/server_info", &info) && info.Tokens > 0:
		c.Kind.prove(KindSGLang, "GET /server_info: max_total_num_tokens")
	case p.read("/props", &props) && props.Build != "":
		c.Kind.prove(KindLlama, "GET /props: build_info")
	case p.read("/api/version", &v) && v.Version != "":
		c.Kind.prove(KindOllama, "GET /api/version")
	case p.read("/info", &tgi) && tgi.Model != "" && tgi.Version != "":
		c.Kind.prove(KindTGI, "GET /info: model_id and version")
	}
}

// readVersion takes the version from where the kind tells it.
func (p *prober) readVersion(header http.Header) {
	v := &p.caps.Version
	switch p.kind() {
	case KindSGLang:
		var i serverInfo
		p.read("/server_info", &i)
		tell(v, i.Version, "GET /server_info")
	case KindLlama:
		var l llamaProps
		p.read("/props", &l)
		tell(v, l.Build, "GET /props: build_info")
	case KindProxy:
		tell(v, header.Get("X-Litellm-Version"), "header x-litellm-version")
	default:
		for _, route := range [...]string{"/version", "/api/version", "/info"} {
			var a struct{ Version string }
			p.read(route, &a)
			tell(v, a.Version, "GET "+route)
		}
	}
}

// tell keeps what a server says of itself, where it says anything.
func tell[T comparable](f *Fact[T], v T, from string) {
	var nothing T
	if v != nothing {
		f.prove(v, from)
	}
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

// someOf lists model ids for people; one that would break the line is quoted.
func someOf(names []string) string {
	const most = 20
	ids := slices.Clone(names)
	for i, id := range ids {
		if strings.ContainsFunc(id, unicode.IsControl) {
			ids[i] = strconv.Quote(id)
		}
	}
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

	Priority *bool `json:"enable_priority_scheduling"`
	LowFirst bool  `json:"schedule_low_priority_values_first"`
}

type llamaProps struct {
	Build    string `json:"build_info"`
	Slots    int    `json:"total_slots"`
	Defaults struct {
		ContextTokens int `json:"n_ctx"`
	} `json:"default_generation_settings"`
}

type tgiInfo struct {
	Version  string `json:"version"`
	Model    string `json:"model_id"`
	Total    int    `json:"max_total_tokens"`       // of one request
	Batch    int    `json:"max_batch_total_tokens"` // of all that run
	Requests int    `json:"max_concurrent_requests"`
}

// readFigures takes the sizes from where each kind tells them. What it does not tell stays unknown.
func (p *prober) readFigures(card *modelCard) {
	c := &p.caps
	if card.MaxModelLen != nil {
		tell(&c.ContextTokens, *card.MaxModelLen, "GET /v1/models: max_model_len")
		p.source(fmt.Sprintf("%s /v1/models", p.kind()))
	}
	p.readMetrics()
	switch p.kind() {
	case KindSGLang:
		p.sglangFigures()
	case KindLlama:
		p.llamaFigures()
	case KindTGI:
		var i tgiInfo
		if p.read("/info", &i) {
			p.source("/info")
			tell(&c.ContextTokens, i.Total, "GET /info: max_total_tokens")
			tell(&c.KVTokens, i.Batch, "GET /info: max_batch_total_tokens")
		}
	}
}

// readMetrics notes which load figures there are, and takes vLLM's cache sizes.
func (p *prober) readMetrics() {
	c := &p.caps
	m, asked := p.got["/metrics"]
	if !asked || m.status != http.StatusOK {
		c.Metrics.wonder("GET /metrics: " + m.why())
		return
	}
	samples := parseMetrics(string(m.body))
	names := figureNames(samples)
	if p.metrics = hasLoad(samples); !p.metrics {
		c.Metrics.wonder("GET /metrics: no name that is known here")
		return
	}
	c.Metrics.prove(names, "GET /metrics")
	if kv, block := cacheTokens(samples); kv > 0 && p.kind() != KindSGLang && p.kind() != KindLlama {
		c.KVTokens.prove(kv, "GET /metrics: cache_config_info")
		tell(&c.BlockTokens, block, "GET /metrics: cache_config_info")
		p.source("/metrics cache_config_info")
	}
	if on, ok := prefixCaching(samples); ok {
		c.PrefixRetained.claim(on, "GET /metrics: cache_config_info enable_prefix_caching")
	}
}

// sglangFigures prefers /v1/loads, which counts every data-parallel rank, over /server_info, which speaks for one.
func (p *prober) sglangFigures() {
	c := &p.caps
	var info serverInfo
	if p.read("/server_info", &info) {
		tell(&c.KVTokens, info.Tokens, "GET /server_info: max_total_num_tokens")
		tell(&c.Sequences, info.Running, "GET /server_info: max_running_requests")
		if c.ContextTokens.Value == 0 {
			tell(&c.ContextTokens, info.Context, "GET /server_info: context_length")
		}
		p.sglangPriority(info)
		p.source("/server_info")
	}
	var loads sglangLoads
	if !p.read("/v1/loads?include=core", &loads) || len(loads.Loads) == 0 {
		return
	}
	p.loads = true
	tokens, running := 0, 0
	for _, r := range loads.Loads {
		tokens, running = tokens+r.Capacity, running+r.MaxRunning
	}
	if tokens > 0 {
		c.KVTokens.prove(tokens, fmt.Sprintf("GET /v1/loads: max_total_num_tokens of %d ranks", len(loads.Loads)))
		p.source("/v1/loads")
	}
	tell(&c.Sequences, running, "GET /v1/loads: max_running_requests")
	if !c.Metrics.Known() {
		c.Metrics.prove([]string{"running", "waiting", "kv used"}, "GET /v1/loads")
	}
}

func (p *prober) sglangPriority(info serverInfo) {
	c := &p.caps
	switch {
	case info.Priority == nil:
	case !*info.Priority:
		c.Priority.prove(NoPriority, "GET /server_info: enable_priority_scheduling false")
	case info.LowFirst:
		c.Priority.prove(LowFirst, "GET /server_info: schedule_low_priority_values_first")
	default:
		c.Priority.prove(HighFirst, "GET /server_info: enable_priority_scheduling")
	}
}

// autoSlots is the number of slots llama-server makes when it is not told one; they then share one KV buffer, which it
// does not report. Counting that buffer once for each slot would overfill it, and every answer running then fails.
const autoSlots = 4

func (p *prober) llamaFigures() {
	c := &p.caps
	var props llamaProps
	if !p.read("/props", &props) {
		return
	}
	size, slots := props.Defaults.ContextTokens, props.Slots
	p.sources = "llama-server /props"
	tell(&c.ContextTokens, size, "GET /props: n_ctx")
	tell(&c.Sequences, slots, "GET /props: total_slots")
	if slots != autoSlots {
		tell(&c.KVTokens, size*slots, "GET /props: n_ctx · total_slots")
		return
	}
	if size > 0 {
		c.KVTokens.claim(size, "GET /props: n_ctx, taken to be shared by its automatic slots")
	}
	p.e.note("%d slots of %d tokens are taken to share one KV buffer, as llama-server's automatic slots do; if it was started with -np %d, set the KV capacity to %d",
		slots, size, slots, slots*size)
}

// source notes where the capacity is from, for people.
func (p *prober) source(s string) { p.sources = join(p.sources, s) }

// overridden puts the configured figures over the server's and says where they are from; "" when there are none.
func overridden(by episode.Capacity, c *Capabilities) string {
	from := by.Source
	if from == "" {
		from = "config"
	}
	any := false
	for _, f := range [...]struct {
		to *Fact[int]
		by int
	}{{&c.ContextTokens, by.ContextTokens}, {&c.KVTokens, by.KVTokens}, {&c.Sequences, by.Sequences}} {
		if f.by > 0 {
			*f.to, any = Fact[int]{f.by, Set, from}, true
		}
		any = any || f.to.Proof == Set
	}
	if !any {
		return ""
	}
	return from
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ", " + b
}
