package inference

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"tranche/episode"
)

// Load reads the server's own figures. See episode.Gauge. Figures of several engines or ranks behind one URL are added
// up, shares of the KV cache averaged.
func (e *Endpoint) Load(ctx context.Context) (episode.Load, error) {
	if !e.facts.metrics && !e.facts.loads {
		return episode.Load{}, episode.ErrUnsupported
	}
	l := episode.Load{Taken: time.Now()}
	if e.facts.metrics {
		status, raw, err := e.ask(ctx, http.MethodGet, e.address.root+"/metrics", nil)
		if err != nil {
			return episode.Load{}, fmt.Errorf("read the load of %s: %w", e.cfg.Name, err)
		}
		if status != http.StatusOK {
			return episode.Load{}, fmt.Errorf("read the load of %s: GET /metrics: HTTP %d", e.cfg.Name, status)
		}
		readLoad(&l, parseMetrics(string(raw)))
	}
	if e.facts.loads {
		if err := e.sglangLoad(ctx, &l); err != nil {
			return episode.Load{}, fmt.Errorf("read the load of %s: %w", e.cfg.Name, err)
		}
	}
	return l, nil
}

type sglangLoads struct {
	Loads []struct {
		Running    int     `json:"num_running_reqs"`
		MaxRunning int     `json:"max_running_requests"`
		Waiting    int     `json:"num_waiting_reqs"`
		Used       int     `json:"num_used_tokens"`
		Capacity   int     `json:"max_total_num_tokens"`
		Usage      float64 `json:"token_usage"`
	} `json:"loads"`
}

// sglangLoad reads what SGLang tells without its metrics flag; it is newer than /metrics and wins.
func (e *Endpoint) sglangLoad(ctx context.Context, l *episode.Load) error {
	status, raw, err := e.ask(ctx, http.MethodGet, e.address.api+"/loads?include=core", nil)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("GET /v1/loads: HTTP %d", status)
	}
	var loads sglangLoads
	if err := json.Unmarshal(raw, &loads); err != nil || len(loads.Loads) == 0 {
		return fmt.Errorf("GET /v1/loads: no list of loads in %q", clip(plain(raw), 100))
	}
	var running, waiting, used, capacity int
	var usage float64
	for _, r := range loads.Loads {
		running, waiting = running+r.Running, waiting+r.Waiting
		used, capacity = used+r.Used, capacity+r.Capacity
		usage += r.Usage / float64(len(loads.Loads))
	}
	if capacity > 0 {
		usage = float64(used) / float64(capacity)
	}
	l.Running, l.Waiting, l.KVUsed = &running, &waiting, &usage
	return nil
}
