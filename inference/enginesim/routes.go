package enginesim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// Version is what GET /version tells.
const Version = "0.1.0+tranche.sim"

// maxBody bounds a request body, bytes.
const maxBody = 64 << 20

// Handler is the engine's HTTP face, for a server or a test of one's own. A request that hangs by an injected fault ends when
// its client goes.
func (e *Engine) Handler() http.Handler { return e.routes(nil) }

func (e *Engine) routes(closing <-chan struct{}) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", e.health)
	mux.HandleFunc("GET /ping", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /version", e.serveVersion)
	mux.HandleFunc("GET /metrics", e.metrics)
	mux.HandleFunc("GET /v1/models", e.models)
	mux.HandleFunc("POST /tokenize", answered(e.tokenize))
	mux.HandleFunc("POST /detokenize", answered(e.detokenize))
	mux.HandleFunc("POST /v1/chat/completions", e.generating(closing, e.chat))
	mux.HandleFunc("POST /v1/completions", e.generating(closing, e.complete))
	mux.HandleFunc("POST /v1/embeddings", e.generating(closing, e.embed))
	mux.HandleFunc("POST /v1/responses", e.generating(closing, e.respond))
	e.tokenRoutes(closing, mux)
	if e.config.DevRoutes {
		e.devRoutes(mux)
	}
	return e.authorised(mux)
}

func (e *Engine) health(w http.ResponseWriter, _ *http.Request) {
	if e.jinx.doom.dead() {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (e *Engine) authorised(next http.Handler) http.Handler {
	if e.config.APIKey == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1") && r.Header.Get("Authorization") != "Bearer "+e.config.APIKey {
			writeJSON(w, http.StatusUnauthorized, map[string]string{"error": "Unauthorized"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// answered turns a route that returns its answer into a handler.
func answered(route func([]byte) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := readBody(w, r)
		if err == nil {
			var reply any
			if reply, err = route(body); err == nil {
				writeJSON(w, http.StatusOK, reply)
				return
			}
		}
		writeFailure(w, err)
	}
}

// generating wraps a generate route: reads the body, injects faults, writes errors.
func (e *Engine) generating(closing <-chan struct{}, route func(http.ResponseWriter, *http.Request, []byte) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := readBody(w, r)
		if err != nil {
			writeFailure(w, err)
			return
		}
		if e.jinx.doom.dead() {
			e.jinx.doom.lastWords(w)
			return
		}
		name, err := e.jinx.fault(r.Header, body)
		if err != nil {
			writeError(w, badRequest("", "%v", err))
			return
		}
		w, struck := e.jinx.strike(name, w, r, closing)
		if struck {
			return
		}
		ctx, release := e.jinx.doom.until(r.Context())
		defer release()
		switch err := route(w, r.WithContext(ctx), body); {
		case err == nil:
		case errors.Is(context.Cause(ctx), errDead):
			e.jinx.doom.lastWords(w)
		default:
			writeFailure(w, err)
		}
	}
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return nil, &apiError{Message: "Unsupported Media Type: Only 'application/json' is allowed", Type: "Bad Request", Code: http.StatusBadRequest}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, malformedBody(err)
	}
	return body, nil
}

// writeFailure writes an error answer, unless the client is gone.
func writeFailure(w http.ResponseWriter, err error) {
	var e *apiError
	if errors.As(err, &e) {
		writeError(w, e)
	}
}

// parse reads a body. A strict engine refuses every field that is not among those known, where any are named.
func (e *Engine) parse(body []byte, into any, known ...string) error {
	if err := json.Unmarshal(body, into); err != nil {
		return malformedBody(err)
	}
	if !e.config.Strict || known == nil {
		return nil
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(body, &given); err != nil {
		return malformedBody(err)
	}
	var extra []string
	for name := range given {
		if !slices.Contains(known, name) {
			extra = append(extra, name)
		}
	}
	if len(extra) == 0 {
		return nil
	}
	slices.Sort(extra)
	return badRequest(extra[0], "%d validation error: body.%s: Extra inputs are not permitted", len(extra), strings.Join(extra, ", body."))
}

func (e *Engine) knows(model *string) error {
	if model == nil || *model == "" || *model == e.config.Model {
		return nil
	}
	return unknownModel(*model)
}

func (e *Engine) serveVersion(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"version": Version})
}

func (e *Engine) models(w http.ResponseWriter, _ *http.Request) {
	type card struct {
		ID         string   `json:"id"`
		Object     string   `json:"object"`
		Created    int64    `json:"created"`
		OwnedBy    string   `json:"owned_by"`
		Root       string   `json:"root"`
		Parent     *string  `json:"parent"`
		MaxLen     int      `json:"max_model_len"`
		Permission []string `json:"permission"`
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []card{{
		ID: e.config.Model, Object: "model", Created: e.began.Unix(), OwnedBy: e.config.Speaks.owner(), Root: e.config.Model,
		MaxLen: e.config.ContextTokens, Permission: []string{},
	}}})
}

func (e *Engine) tokenize(body []byte) (any, error) {
	var r tokenizeRequest
	if err := e.parse(body, &r); err != nil {
		return nil, err
	}
	if err := e.knows(r.Model); err != nil {
		return nil, err
	}
	var ids []int32
	switch {
	case r.Prompt != nil:
		ids = e.tokens.Encode(*r.Prompt)
	case r.Content != nil && e.config.Speaks == SpeaksLlama:
		return map[string]any{"tokens": e.tokens.Encode(*r.Content)}, nil
	case r.Messages != nil:
		if err := checkMessages(r.Messages); err != nil {
			return nil, err
		}
		ids = e.tokens.render(script(r.Messages, r.Tools), r.AddGeneration == nil || *r.AddGeneration)
	default:
		return nil, badRequest("prompt", "either prompt or messages is required")
	}
	reply := struct {
		Count   int      `json:"count"`
		MaxLen  int      `json:"max_model_len"`
		Tokens  []int32  `json:"tokens"`
		Strings []string `json:"token_strs"`
	}{Count: len(ids), MaxLen: e.config.ContextTokens, Tokens: ids}
	if r.TokenStrings {
		for _, id := range ids {
			reply.Strings = append(reply.Strings, e.tokens.pieces[id])
		}
	}
	return reply, nil
}

func (e *Engine) detokenize(body []byte) (any, error) {
	var r detokenizeRequest
	if err := e.parse(body, &r); err != nil {
		return nil, err
	}
	if err := e.knows(r.Model); err != nil {
		return nil, err
	}
	if err := e.tokens.Check(r.Tokens); err != nil {
		return nil, badRequest("tokens", "%v", err)
	}
	name := "prompt"
	switch e.config.Speaks {
	case SpeaksLlama:
		name = "content"
	case SpeaksSGLang:
		name = "text"
	}
	return map[string]string{name: e.tokens.Decode(r.Tokens)}, nil
}

// metrics writes vLLM's names in Prometheus' text form.
func (e *Engine) metrics(w http.ResponseWriter, _ *http.Request) {
	s := e.Stats()
	var b strings.Builder
	typed := ""
	put := func(kind, name, labels string, value any) {
		family := name
		if kind == "histogram" {
			family = name[:strings.LastIndexByte(name, '_')]
		}
		if family != typed {
			fmt.Fprintf(&b, "# TYPE %s %s\n", family, kind)
			typed = family
		}
		fmt.Fprintf(&b, "%s{engine=\"0\",model_name=%q%s} %v\n", name, e.config.Model, labels, value)
	}
	put("gauge", "vllm:num_requests_running", "", s.Running)
	put("gauge", "vllm:num_requests_waiting", "", s.Waiting)
	put("gauge", "vllm:kv_cache_usage_perc", "", float64(s.BlocksUsed)/float64(s.Blocks))
	put("counter", "vllm:prompt_tokens_total", "", s.PromptTokens)
	put("counter", "vllm:generation_tokens_total", "", s.GeneratedTokens)
	put("counter", "vllm:prompt_tokens_cached_total", "", s.PrefixHits)
	put("counter", "vllm:num_preemptions_total", "", s.Preemptions)
	put("counter", "vllm:prefix_cache_queries_total", "", s.PrefixQueries)
	put("counter", "vllm:prefix_cache_hits_total", "", s.PrefixHits)
	put("counter", "vllm:request_success_total", ",finished_reason=\"stop\"", s.FinishedStop)
	put("counter", "vllm:request_success_total", ",finished_reason=\"length\"", s.FinishedLength)
	put("counter", "vllm:request_success_total", ",finished_reason=\"abort\"", s.Aborted)
	put("gauge", "vllm:cache_config_info", fmt.Sprintf(",block_size=\"%d\",enable_prefix_caching=\"True\",kv_cache_size_tokens=\"%d\",num_gpu_blocks=\"%d\"",
		e.config.BlockTokens, e.config.allBlocks()*e.config.BlockTokens, e.config.allBlocks()), 1)
	fmt.Fprintf(&b, "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %.2f\n", float64(e.began.UnixMilli())/1e3)
	e.putWaits(put)
	put("counter", "tranche_sim:computed_prompt_tokens_total", "", s.ComputedTokens)
	put("counter", "tranche_sim:steps_total", "", s.Steps)
	put("counter", "tranche_sim:busy_seconds_total", "", s.Busy.Seconds())
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = io.WriteString(w, b.String()) // a client that is gone needs no answer
}

// putWaits writes the histograms.
func (e *Engine) putWaits(put func(kind, name, labels string, value any)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range []struct {
		name string
		of   *histogram
	}{
		{"vllm:time_to_first_token_seconds", &e.waits.first}, {"vllm:request_queue_time_seconds", &e.waits.queue},
		{"vllm:e2e_request_latency_seconds", &e.waits.whole},
	} {
		all := h.of.each(func(le float64, upTo int64) {
			put("histogram", h.name+"_bucket", fmt.Sprintf(",le=\"%g\"", le), upTo)
		})
		put("histogram", h.name+"_bucket", ",le=\"+Inf\"", all)
		put("histogram", h.name+"_sum", "", h.of.sum)
		put("histogram", h.name+"_count", "", all)
	}
}
