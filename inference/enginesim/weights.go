package enginesim

import (
	"cmp"
	"slices"
)

// weightSpan says that the sampled tokens [Start, End) of an answer are of one version, as vLLM's generate route tells it.
type weightSpan struct {
	Version string `json:"version"`
	Start   int    `json:"start"`
	End     int    `json:"end"`
}

// weigh notes of which version the tokens are that came since the last time: an answer may be told long after it ended, under other weights.
// Engine.mu is held.
func (f *flow) weigh(version string) {
	if version == "" {
		return
	}
	start, n := 0, len(f.spans)
	if n > 0 {
		if f.spans[n-1].Version == version {
			f.spans[n-1].End = f.sampled
			return
		}
		start = f.spans[n-1].End
	}
	f.spans = append(f.spans, weightSpan{version, start, f.sampled})
}

// spans are the versions of an answer's tokens; nil where no version was ever told.
func (e *Engine) spans(f *flow) []weightSpan {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(f.spans)
}

// weights is the last version that tokens of a call are of, as engines tell that do not tell it of each; without tokens that of the engine.
func (e *Engine) weights(c *call) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	last := ""
	for _, f := range c.flows {
		if n := len(f.spans); n > 0 && last != e.version {
			last = f.spans[n-1].Version
		}
	}
	return cmp.Or(last, e.version)
}
