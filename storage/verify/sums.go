package verify

import (
	"fmt"
	"math"
	"time"

	"tranche/storage"
)

func tokenSums(r *row) (column, what string) {
	in := sum(r.Turns, func(t storage.Turn) *int32 { return t.PromptTokens })
	if !same(r.NumInputTokens, in) {
		return "num_input_tokens", fmt.Sprintf("num_input_tokens is %s, the turns add up to %s", count(r.NumInputTokens), count(in))
	}
	out := sum(r.Turns, func(t storage.Turn) *int32 { return t.CompletionTokens })
	if out == nil { // the number of sampled ids stands in, where it is known
		if r.NumOutputTokens == nil || int(*r.NumOutputTokens) == sampled(r.LossMask) {
			return "", ""
		}
	}
	if !same(r.NumOutputTokens, out) {
		return "num_output_tokens", fmt.Sprintf("num_output_tokens is %s, the turns add up to %s", count(r.NumOutputTokens), count(out))
	}
	return "", ""
}

func sum(turns []storage.Turn, of func(storage.Turn) *int32) *int32 {
	n := int32(0)
	for _, t := range turns {
		c := of(t)
		if c == nil {
			return nil
		}
		n += *c
	}
	return &n
}

func sampled(mask []int8) (n int) {
	for _, m := range mask {
		n += int(m)
	}
	return n
}

func same(a, b *int32) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

func count(n *int32) string {
	if n == nil {
		return "unknown"
	}
	return fmt.Sprint(*n)
}

// slack is what clocks that are read one after another may differ by: seconds, and a share.
const (
	slack      = 0.05
	slackShare = 0.01
)

func timing(r *row) (column, what string) {
	t := r.Timing
	for _, v := range []struct {
		name  string
		value float64
	}{{"queue", t.Queue}, {"model", t.Model}, {"action", t.Action}, {"score", t.Score}, {"total", t.Total}} {
		if !(v.value >= 0) || math.IsInf(v.value, 0) {
			return "timing", fmt.Sprintf("timing.%s is %g", v.name, v.value)
		}
	}
	queue, model, action := 0.0, 0.0, 0.0
	for i, t := range r.Turns {
		if name, v := negative([]string{"queue_ms", "ttft_ms", "service_ms"}, t.QueueMS, t.TTFTMS, t.ServiceMS); name != "" {
			return "turns", fmt.Sprintf("turn %d: %s is %g", i+1, name, v)
		}
		queue, model = queue+seconds(t.QueueMS), model+seconds(t.ServiceMS)
	}
	for i, a := range r.Actions {
		if name, v := negative([]string{"wall_ms", "cpu_ms", "queue_ms", "setup_ms"}, a.WallMS, a.CPUMS, a.QueueMS, a.SetupMS); name != "" {
			return "actions", fmt.Sprintf("actions[%d]: %s is %g", i, name, v)
		}
		action += seconds(a.WallMS)
	}
	switch {
	case differ(t.Queue, queue):
		what = fmt.Sprintf("timing.queue is %.3f s, the turns add up to %.3f", t.Queue, queue)
	case differ(t.Model, model):
		what = fmt.Sprintf("timing.model is %.3f s, the turns add up to %.3f", t.Model, model)
	case differ(t.Action, action):
		what = fmt.Sprintf("timing.action is %.3f s, the actions add up to %.3f", t.Action, action)
	case t.Total > 0 && t.Queue+t.Model > t.Total*(1+slackShare)+slack:
		what = fmt.Sprintf("timing.queue and timing.model are %.3f s together, timing.total %.3f", t.Queue+t.Model, t.Total)
	case t.Total > 0 && t.Score > t.Total*(1+slackShare)+slack:
		what = fmt.Sprintf("timing.score is %.3f s, timing.total %.3f", t.Score, t.Total)
	}
	if what != "" {
		return "timing", what
	}
	return "", ""
}

func differ(a, b float64) bool { return math.Abs(a-b) > slackShare*max(a, b)+slack }

func seconds(ms *float32) float64 {
	if ms == nil {
		return 0
	}
	return float64(*ms) / 1000
}

// negative is the first of the values that is below 0 or no number.
func negative(names []string, values ...*float32) (name string, value float32) {
	for i, v := range values {
		if v != nil && !(*v >= 0 && !math.IsInf(float64(*v), 0)) {
			return names[i], *v
		}
	}
	return "", 0
}

// created holds times between the first such program and a day from now, for clocks differ.
func created(r *row) (column, what string) {
	if unset := r.CreatedAt.Equal(time.Unix(0, 0)); !unset && !r.plausible(r.CreatedAt) {
		return "created_at", fmt.Sprintf("created_at is %s", r.CreatedAt.UTC().Format(time.RFC3339))
	}
	for i, a := range r.FaultAttempts {
		if a.Began != nil && a.Ended != nil && (a.Ended.Before(*a.Began) || !r.plausible(*a.Began)) {
			return "fault_attempts", fmt.Sprintf("fault_attempts[%d] began %s and ended %s", i, a.Began.UTC().Format(time.RFC3339), a.Ended.UTC().Format(time.RFC3339))
		}
	}
	return "", ""
}

func (r *row) plausible(t time.Time) bool {
	return t.After(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)) && t.Before(r.now.Add(24*time.Hour))
}

func branches(r *row) (column, what string) {
	switch {
	case r.BranchIndex < 0 || r.BranchIndex >= r.NumBranches:
		return "branch_index", fmt.Sprintf("branch_index is %d of %d", r.BranchIndex, r.NumBranches)
	case r.SchemaVersion != storage.SchemaVersion:
		return "schema_version", fmt.Sprintf("schema_version is %d: expected %d", r.SchemaVersion, storage.SchemaVersion)
	}
	return "", ""
}
