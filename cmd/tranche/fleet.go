package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tranche/episode"
	"tranche/inference"
	"tranche/inference/enginesim"
	"tranche/scheduler"
)

// fleet is the endpoints of a run, opened, with a meter each. It owns the embedded engine when there is one.
type fleet struct {
	members  []member
	embedded *enginesim.Server // nil with real endpoints
}

type member struct {
	endpoint *inference.Endpoint
	url      string
	calls    int    // in flight at most
	strict   bool   // the KV cache figure is a budget that the user set
	rows     int    // of a batch, where it pads; 0 = it does not
	shapes   []int  // tokens: what prompts are padded to
	extends  bool   // answers may be cut there: it goes on from token ids
	lists    bool   // it takes a batch in one request
	begun    bool   // a list only goes on with answers
	callsWhy string // where that figure is from, for people
	meter    *meter
}

// openTime bounds the probe of one endpoint.
const openTime = 30 * time.Second

// embeddedModel is the name of the simulated model.
const embeddedModel = "sim"

// openFleet opens every endpoint, or the embedded engine, which knows the answers given. Those that do not answer are left out and named on stderr; with none left it is an error.
func openFleet(ctx context.Context, a *app, s *Settings, answers func(string) (string, bool)) (*fleet, error) {
	f := &fleet{}
	wanted := s.Endpoint
	if len(wanted) == 0 {
		e, err := f.embed(s, answers)
		if err != nil {
			return nil, err
		}
		a.notice("no --endpoint: using the embedded simulated engine; its answers are made up")
		wanted = []Endpoint{e}
	}
	names := namesOf(wanted)
	opened := make([]*inference.Endpoint, len(wanted))
	errs := make([]error, len(wanted))
	var all sync.WaitGroup
	for i, e := range wanted {
		all.Go(func() { opened[i], errs[i] = openEndpoint(ctx, e, s, names[i]) })
	}
	all.Wait()
	for i, e := range wanted {
		if errs[i] == nil {
			f.add(opened[i], e, s)
		}
	}
	return f, f.judge(ctx, a, errs)
}

// judge decides whether a fleet with these failures can work; it closes the fleet when not.
func (f *fleet) judge(ctx context.Context, a *app, errs []error) error {
	failed := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	switch {
	case ctx.Err() != nil:
		f.close()
		return context.Cause(ctx)
	case len(f.members) == 0:
		f.close()
		return withCode(codeEndpoint, errors.Join(append([]error{errors.New("no endpoint is usable")}, failed...)...))
	}
	for _, err := range failed {
		a.notice("warning: left out for this run: %v", err)
	}
	return nil
}

// embed starts the simulated engine on loopback.
func (f *fleet) embed(s *Settings, answers func(string) (string, bool)) (Endpoint, error) {
	model := s.Model
	if model == "" {
		model = embeddedModel
	}
	batching := enginesim.Continuous
	if s.Padded > 0 {
		batching = enginesim.Static
	}
	engine, err := enginesim.New(enginesim.Config{Model: model, Seed: s.EngineSeed, SolveRate: &s.EngineSolveRate, Speed: s.EngineSpeed, Answer: answers, Batching: batching, MaxSeqs: s.Padded, Calls: writtenCalls(s.Calls.Format)})
	if err != nil {
		return Endpoint{}, withCode(codeUsage, fmt.Errorf("embedded engine: %w", err))
	}
	if f.embedded, err = engine.Listen("127.0.0.1:0"); err != nil {
		return Endpoint{}, withCode(codeEndpoint, fmt.Errorf("embedded engine: %w", err))
	}
	return Endpoint{URL: "http://" + f.embedded.Addr() + "/v1"}, nil
}

// namesOf are what the endpoints are called: host and port, and the path too where several are behind one, as gateways have them.
func namesOf(list []Endpoint) []string {
	addresses, hosts := make([]string, len(list)), make([]string, len(list))
	of := map[string]int{}
	for i, e := range list {
		address, _ := inference.Address(e.URL) // what is none is refused elsewhere
		_, addresses[i], _ = strings.Cut(address, "://")
		hosts[i], _, _ = strings.Cut(addresses[i], "/")
		of[hosts[i]]++
	}
	names := make([]string, len(list))
	for i, host := range hosts {
		if of[host] > 1 && host != "" { // "" = on a socket, whose path is its name
			names[i] = addresses[i]
		}
	}
	return names
}

// openEndpoint opens one; name "" = it is called after its address.
func openEndpoint(ctx context.Context, e Endpoint, s *Settings, name string) (*inference.Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	cfg := endpointConfig(e, s)
	cfg.Name = name
	if err := cfg.Validate(); err != nil {
		return nil, withCode(codeUsage, fmt.Errorf("endpoint %s: %w", e.URL, err))
	}
	return inference.Open(ctx, cfg)
}

// endpointConfig merges what the endpoint says with what the run says.
func endpointConfig(e Endpoint, s *Settings) inference.Config {
	cfg := inference.Config{
		BaseURL: e.URL, Model: or(nonEmpty(e.Model), s.Model), Concurrency: max(e.Concurrency, s.Concurrency),
		Exchange: exchangeOf(s.Exchange), ServerIdle: s.ServerIdle, AttemptTimeout: s.AttemptTimeout, IdleTimeout: s.IdleTimeout, Stream: s.Stream,
		ExtraBody: e.ExtraBody, Capabilities: e.Capabilities, CAFile: or(nonEmpty(e.CAFile), s.CAFile), KeepRaw: s.KeepRaw,
	}
	if e.Concurrency > 0 {
		cfg.Concurrency = e.Concurrency
	}
	if cfg.Concurrency == 0 { // idle connections kept: enough for what is decided after the probe
		cfg.Concurrency = maxGuessedCalls
	}
	if name := or(nonEmpty(e.APIKeyEnv), s.APIKeyEnv); name != "" {
		cfg.APIKey = os.Getenv(name)
	}
	cfg.Capacity.ContextTokens = e.Context
	if e.KVTokens == 0 {
		cfg.Capacity.KVTokens = s.KVBudget
		return cfg
	}
	cfg.Capabilities = maps.Clone(cfg.Capabilities) // what the server has, not a budget of the run
	if cfg.Capabilities == nil {
		cfg.Capabilities = map[string]json.RawMessage{}
	}
	cfg.Capabilities["kv-tokens"] = json.RawMessage(strconv.Itoa(e.KVTokens))
	return cfg
}

// exchangeOf is the setting in the words of package inference.
func exchangeOf(setting string) episode.Exchange {
	if setting == "auto" {
		return ""
	}
	return episode.Exchange(setting)
}

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Calls in flight where nobody says: what the server runs at once, else 64.
const (
	defaultCalls    = 64
	maxGuessedCalls = 1024
)

func (f *fleet) add(ep *inference.Endpoint, e Endpoint, s *Settings) {
	m := member{endpoint: ep, url: e.URL, meter: &meter{name: ep.Name()}}
	m.strict = e.KVTokens == 0 && s.KVBudget > 0
	m.calls, m.callsWhy = callsAtOnce(e.Concurrency, s.Concurrency, ep.Capacity().Sequences)
	if m.rows, m.shapes = e.padded(s.Padded); m.rows > 0 {
		m.calls, m.callsWhy = m.rows, "the rows of a padded batch"
	}
	f.members = append(f.members, m)
}

// callsAtOnce decides how many calls may be in flight at an endpoint and says why.
func callsAtOnce(endpoint, run, sequences int) (calls int, why string) {
	switch {
	case endpoint > 0:
		return endpoint, "the endpoint's concurrency"
	case run > 0:
		return run, "--concurrency"
	case sequences > 0:
		return min(sequences, maxGuessedCalls), "the server runs so many at once"
	}
	return defaultCalls, "the default; --concurrency changes it"
}

// spareFiles is what a run has open beside its calls: journal, parts, gauges, pipes of tools.
const spareFiles = 100

// checkFiles refuses more calls at once than the process may have connections: a server would be taken for down for what this end lacks, and the dataset
// could not be written.
func (f *fleet) checkFiles(limit uint64, known bool) error {
	calls := 0
	for _, m := range f.members {
		calls += m.calls
	}
	if !known || uint64(calls)+spareFiles <= limit {
		return nil
	}
	fits := max(int64(limit)-spareFiles, 0) / int64(max(len(f.members), 1))
	return fmt.Errorf("concurrency: %d calls at once, over all endpoints, and %d files of its own are more than the %d files and connections that this process may have open: raise that (ulimit -n %d), or give --concurrency %d",
		calls, spareFiles, limit, calls+spareFiles, max(fits, 1))
}

// describe tells the effective limits of each endpoint, so that none is hidden.
func (f *fleet) describe(a *app) {
	for _, m := range f.members {
		c := m.endpoint.Capacity()
		a.notice("endpoint %s: %s, model %s, context %s, KV cache %s, %d calls at once (%s)", m.endpoint.Name(), m.endpoint.Kind(), m.endpoint.Model(),
			tokensText(c.ContextTokens), tokensText(c.KVTokens), m.calls, m.callsWhy)
	}
}

// tellPriority names the endpoints that are not told how urgent the run's calls are.
func (f *fleet) tellPriority(a *app, priority int) {
	for _, m := range f.members {
		if why := m.endpoint.PriorityUnsent(); priority != 0 && why != "" {
			a.notice("endpoint %s: --priority %d is not sent: %s; if it has priorities, say so by its capabilities: {priority: high-first}", m.endpoint.Name(), priority, why)
		}
	}
}

func tokensText(n int) string {
	if n == 0 {
		return "not told"
	}
	return fmt.Sprintf("%d tokens", n)
}

// models lists the models that answer, one an endpoint.
func (f *fleet) models() []string {
	var list []string
	for _, m := range f.members {
		list = append(list, m.endpoint.Model())
	}
	return list
}

// calls is the number of calls in flight over all endpoints at most.
func (f *fleet) calls() int {
	n := 0
	for _, m := range f.members {
		n += m.calls
	}
	return n
}

// rows is the number of rows over all endpoints that pad.
func (f *fleet) rows() int {
	n := 0
	for _, m := range f.members {
		n += m.rows
	}
	return n
}

// endpoints hands the fleet to the scheduler.
func (f *fleet) endpoints() []scheduler.Endpoint {
	var list []scheduler.Endpoint
	for _, m := range f.members {
		e := scheduler.Endpoint{
			Name: m.meter.name, Model: m.endpoint, Counter: m.endpoint, Gauge: m.endpoint, Capacity: m.endpoint.Capacity(), MaxCalls: m.calls, Strict: m.strict,
			Rows: m.rows, Shapes: m.shapes,
		}
		if m.extends {
			e.Extender = m.endpoint
		}
		if m.lists {
			e.Lister, e.Begun = m.endpoint, m.begun
		}
		list = append(list, e)
	}
	return list
}

// meters finds an endpoint's meter by name.
func (f *fleet) meters() map[string]*meter {
	all := map[string]*meter{}
	for _, m := range f.members {
		all[m.meter.name] = m.meter
	}
	return all
}

// notes collects what the clients learned about their servers, once each.
func (f *fleet) notes() []string {
	seen := map[string]bool{}
	for _, m := range f.members {
		for _, n := range m.endpoint.Notes() {
			seen[m.meter.name+": "+n] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// close ends the connections and the embedded engine.
func (f *fleet) close() {
	for _, m := range f.members {
		m.endpoint.Close()
	}
	if f.embedded != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = f.embedded.Close(ctx) // cut answers: nobody waits for them any more
	}
}

// joined is a list for people.
func joined(list []string) string { return strings.Join(list, ", ") }
