package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"tranche/inference"
)

type probeCmd struct {
	URLs        []string      `arg:"" optional:"" name:"url" help:"OpenAI-compatible servers, e.g. http://host:8000/v1."`
	Config      string        `short:"c" placeholder:"FILE" help:"YAML file of a run: its endpoints are probed, with their models, keys and capabilities."`
	Model       string        `placeholder:"NAME" help:"Model to ask for. Default: the only one the server lists."`
	APIKeyEnv   string        `name:"api-key-env" placeholder:"NAME" help:"NAME of the environment variable that holds the API key. Default: none is sent."`
	CAFile      string        `name:"ca-file" placeholder:"FILE" help:"PEM file of the certificate authorities to trust for https. Default: the system's."`
	ExtraBody   Object        `placeholder:"JSON" help:"JSON object of more fields for the completion requests. Default: none."`
	Quick       bool          `help:"Only ask the server about itself; generate nothing."`
	Generate    bool          `help:"Generate also where that costs money (api.openai.com): under 20 tokens. Default: only its model list is read."`
	CallTimeout time.Duration `default:"20s" placeholder:"TIME" help:"Time one request may take. Default: ${default}."`
	Timeout     time.Duration `default:"1m" placeholder:"TIME" help:"Time the requests about the server may take together, and then again the generating ones; what these do not get answered stays unknown. Default: ${default}."`
	JSON        bool          `name:"json" help:"Print one JSON document: the records, as a run keeps them in endpoints/; url and error of a server that gave none."`
}

// Help is kong's long text of the command.
func (probeCmd) Help() string {
	return "Asks a server at most 12 small requests, which make under 20 tokens, and prints what it can do. Each fact is proved (an answer held it, or the server refused it), claimed (the server says so of itself, or servers of its kind do it), set (by capabilities in the configuration) or unknown, and the last column says by what. Only what answers hold proves anything: many servers take fields that they ignore. A fact can be overridden in a run's YAML file: endpoint: [{url: …, capabilities: {token-ids-in: false}}]."
}

// probed is what one endpoint gave.
type probed struct {
	record inference.Capabilities
	notes  []string
	url    string
	err    error
}

func (c *probeCmd) do(ctx context.Context, a *app, given map[string]bool) error {
	set, err := c.settings(given)
	if err != nil {
		return withCode(codeUsage, err)
	}
	ctx, stopped, release := cancelOnSignal(ctx, a)
	defer release()
	list := make([]probed, len(set.Endpoint))
	var all sync.WaitGroup
	for i, e := range set.Endpoint {
		all.Go(func() { list[i] = c.probe(ctx, e, &set) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return outcome(stopped())
	}
	return errors.Join(c.print(a, list), failures(list))
}

// settings are a run's, with the endpoints to probe.
func (c *probeCmd) settings(given map[string]bool) (Settings, error) {
	set := defaults()
	var at places
	if c.Config != "" {
		var err error
		if at, err = readSettings(c.Config, &set, nil); err != nil {
			return set, err
		}
	}
	for _, u := range c.URLs {
		set.Endpoint = append(set.Endpoint, Endpoint{URL: u})
	}
	if given["model"] {
		set.Model = c.Model
	}
	if given["api-key-env"] {
		set.APIKeyEnv = c.APIKeyEnv
	}
	if given["ca-file"] {
		set.CAFile = c.CAFile
	}
	for i := range set.Endpoint {
		if given["extra-body"] {
			set.Endpoint[i].ExtraBody = c.ExtraBody
		}
	}
	f := &faults{}
	if len(set.Endpoint) == 0 {
		f.add("probe: no server given; name one, such as http://127.0.0.1:8000/v1, or a file with -c that has endpoints")
	}
	if c.CallTimeout <= 0 || c.Timeout <= 0 {
		f.add("probe: --call-timeout and --timeout must be times over 0, found %v and %v", c.CallTimeout, c.Timeout)
	}
	set.validateServers(f)
	return set, at.without(given).locate(f.err())
}

func (c *probeCmd) probe(ctx context.Context, e Endpoint, set *Settings) probed {
	out := probed{url: e.URL}
	ep, err := c.open(ctx, e, set)
	if err != nil {
		out.err = err
		return out
	}
	defer ep.Close()
	out.record = ep.Capabilities()
	if !c.Quick {
		out.record, out.err = ep.Probe(ctx, inference.ProbeOptions{CallTimeout: c.CallTimeout, Timeout: c.Timeout, Paid: c.Generate})
	}
	out.notes = ep.Notes()
	return out
}

// open asks the server about itself, in the times of the command line.
func (c *probeCmd) open(ctx context.Context, e Endpoint, set *Settings) (*inference.Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cfg := endpointConfig(e, set)
	cfg.OpenTimeout = c.CallTimeout
	if err := cfg.Validate(); err != nil {
		return nil, withCode(codeUsage, fmt.Errorf("endpoint %s: %w", e.URL, err))
	}
	return inference.Open(ctx, cfg)
}

// failures is the error of the endpoints that gave nothing.
func failures(list []probed) error {
	var errs []error
	for _, p := range list {
		if p.err != nil {
			errs = append(errs, p.err)
		}
	}
	return withCode(codeEndpoint, errors.Join(errs...))
}

// unanswered stands in the JSON list for an endpoint that gave no record.
type unanswered struct {
	URL   string `json:"url"`
	Error string `json:"error"`
}

// print writes the records of those that answered; the JSON list has the others too, in their places.
func (c *probeCmd) print(a *app, list []probed) error {
	records := []any{}
	p := &printer{colour: a.colour, width: a.width()}
	for _, one := range list {
		if one.err == nil {
			records = append(records, one.record)
			p.record(one)
		} else {
			records = append(records, unanswered{one.url, one.err.Error()})
		}
	}
	if c.JSON {
		return a.printJSON(records)
	}
	return a.print(p.b.String())
}

// record writes one record as a table, and what else a person should know.
func (p *printer) record(one probed) {
	r := one.record
	p.line("%s", p.paint(bold, fmt.Sprintf("%s: %s, model %s (%d requests)", one.url, strings.TrimSpace(string(r.Kind.Value)+" "+r.Version.Value), r.Model.Value, r.Calls)))
	p.facts(r.Rows())
	for _, n := range one.notes {
		p.block("  ", "note: "+n)
	}
	p.line("")
}

// valueWidth bounds the column of values; a longer one, such as the list of load figures, goes on in the next line.
const valueWidth = 26

// facts writes a table of four columns: what, its value, how it is known, by what. Long cells go on in the next line.
func (p *printer) facts(rows []inference.Row) {
	titles, values := 0, 0
	for _, f := range rows {
		titles, values = max(titles, utf8.RuneCountInString(f.Title)), max(values, min(valueWidth, utf8.RuneCountInString(f.Value)))
	}
	proofs := len(inference.Unknown)
	rest := max(36, p.width-titles-values-proofs-8)
	for _, f := range rows {
		value, from := wrap(visibleLine(f.Value), valueWidth), wrap(visibleLine(f.From), rest)
		for i := range max(len(value), len(from)) {
			title, proof := "", ""
			if i == 0 {
				title, proof = f.Title, string(f.Proof)
			}
			line := fmt.Sprintf("  %-*s  %-*s  %-*s  %s", titles, title, values, at(value, i), proofs, proof, at(from, i))
			p.line("%s", strings.TrimRight(line, " "))
		}
	}
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return ""
}
