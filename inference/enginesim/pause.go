package enginesim

import (
	"net/http"
	"time"
)

// What a trainer does to an engine between two steps of training: hold it, change its weights, let it go on. The routes exist with
// Config.DevRoutes only, as on vLLM with VLLM_SERVER_DEV_MODE=1.

func (e *Engine) devRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /pause", e.pause)
	mux.HandleFunc("POST /resume", e.resume)
	mux.HandleFunc("GET /is_paused", func(w http.ResponseWriter, _ *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		writeJSON(w, http.StatusOK, map[string]bool{"is_paused": e.paused})
	})
	mux.HandleFunc("POST /update_weight_version", answered(e.updateVersion))
	mux.HandleFunc("GET /weight_info", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"weight_version": e.weightVersion()})
	})
}

// pause stops the engine at the end of the step in progress. ?mode=abort, the default, ends what is in flight with what it has and
// finish reason "abort"; mode=keep freezes it. ?clear_cache=false keeps the prefix cache. Requests that come later wait.
func (e *Engine) pause(w http.ResponseWriter, r *http.Request) {
	mode, keepCache := r.URL.Query().Get("mode"), r.URL.Query().Get("clear_cache") == "false"
	if mode != "" && mode != "abort" && mode != "keep" {
		writeError(w, badRequest("mode", "mode is %q, must be abort or keep", mode))
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.paused = true
	e.clear = e.clear || !keepCache
	if mode != "keep" {
		e.cutAll()
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "paused"})
}

// cutAll ends every answer in flight; mu is held.
func (e *Engine) cutAll() {
	for id, f := range e.flows {
		delete(e.flows, id)
		e.aborted = append(e.aborted, id)
		f.cut = true
		if !f.call.stream { // a stream has told what came, and tells its end itself
			f.answer = f.answer.upTo(f.sampled)
		}
		f.close()
	}
}

// upTo is an answer that was cut after n tokens.
func (a *answer) upTo(n int) *answer {
	cut := *a
	cut.ids, cut.shown, cut.text, cut.stop, cut.finish = a.ids[:n], a.shown[:n], "", nil, finishAbort
	if n > 0 {
		cut.text = a.text[:a.shown[n-1]]
	}
	return &cut
}

const finishAbort = "abort"

func (e *Engine) resume(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.paused = false
	e.start()
	writeJSON(w, http.StatusOK, map[string]string{"status": "resumed"})
}

func (e *Engine) updateVersion(body []byte) (any, error) {
	var r struct {
		Version *string `json:"new_version"`
	}
	if err := e.parse(body, &r); err != nil {
		return nil, err
	}
	if r.Version == nil || *r.Version == "" {
		return nil, badRequest("new_version", "new_version is required: the name of the weights from now on")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.version = *r.Version
	return map[string]any{"success": true, "new_version": *r.Version}, nil
}

func (e *Engine) weightVersion() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.version
}

// metadata is what answers say about the weights, in SGLang's form; nil where no version was ever told.
func (e *Engine) metadata(c *call) *metadata {
	if v := e.weights(c); v != "" {
		return &metadata{v}
	}
	return nil
}

type metadata struct {
	WeightVersion string `json:"weight_version"`
}

// waits are the histograms of /metrics, in seconds of model time.
type waits struct{ queue, first, whole histogram }

func newWaits() waits {
	first := []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	whole := []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	return waits{queue: newHistogram(whole), first: newHistogram(first), whole: newHistogram(whole)}
}

// histogram counts durations by upper bound.
type histogram struct {
	bounds []float64 // seconds, rising
	counts []int64   // one more than bounds: the last is for what is above
	sum    float64   // seconds
}

func newHistogram(bounds []float64) histogram {
	return histogram{bounds: bounds, counts: make([]int64, len(bounds)+1)}
}

func (h *histogram) add(d time.Duration) {
	i := 0
	for i < len(h.bounds) && d.Seconds() > h.bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += d.Seconds()
}

// each walks the cumulative counts in the order of Prometheus' text form.
func (h *histogram) each(visit func(le float64, upTo int64)) (all int64) {
	for i, b := range h.bounds {
		all += h.counts[i]
		visit(b, all)
	}
	return all + h.counts[len(h.bounds)]
}
