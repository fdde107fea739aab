package enginesim

// weightSpan says that the sampled tokens [Start, End) of an answer are of one version, as vLLM's generate route tells it.
type weightSpan struct {
	Version string `json:"version"`
	Start   int    `json:"start"`
	End     int    `json:"end"`
}

// turnWeights notes for every open answer which version its tokens until now are of; mu is held.
func (e *Engine) turnWeights() {
	if e.version == "" {
		return
	}
	for _, f := range e.flows {
		f.spans = spanTo(f.spans, e.version, f.sampled)
	}
}

// spans are the versions of an answer that has ended; nil where no version was ever told.
func (e *Engine) spans(f *flow) []weightSpan {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.version == "" {
		return nil
	}
	return spanTo(f.spans, e.version, f.sampled)
}

// spanTo adds a span from where the last one ended, unless nothing lies between.
func spanTo(spans []weightSpan, version string, end int) []weightSpan {
	start := 0
	if n := len(spans); n > 0 {
		start = spans[n-1].End
	}
	if end == start {
		return spans
	}
	return append(spans, weightSpan{version, start, end})
}
