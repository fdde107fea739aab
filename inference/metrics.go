package inference

import (
	"strconv"
	"strings"

	"tranche/episode"
)

// sample is one line of Prometheus text.
type sample struct {
	name   string
	labels map[string]string // nil = none
	value  float64
}

// parseMetrics reads Prometheus text. A line it cannot read is left out: a new kind of line must not blind us to the rest.
func parseMetrics(text string) []sample {
	var out []sample
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if s, ok := parseSample(line); ok {
			out = append(out, s)
		}
	}
	return out
}

func parseSample(line string) (s sample, ok bool) {
	end := strings.IndexAny(line, "{ \t")
	if end <= 0 {
		return s, false
	}
	s.name = line[:end]
	rest := line[end:]
	if rest[0] == '{' {
		if s.labels, rest, ok = parseLabels(rest[1:]); !ok {
			return s, false
		}
	}
	fields := strings.Fields(rest) // value, and maybe a time stamp
	if len(fields) == 0 {
		return s, false
	}
	v, err := strconv.ParseFloat(fields[0], 64)
	s.value = v
	return s, err == nil
}

// parseLabels reads name="value",… up to and with the closing brace.
func parseLabels(s string) (labels map[string]string, rest string, ok bool) {
	labels = map[string]string{}
	for {
		s = strings.TrimLeft(s, ", \t")
		if strings.HasPrefix(s, "}") {
			return labels, s[1:], true
		}
		name, after, found := strings.Cut(s, "=")
		if !found || !strings.HasPrefix(after, `"`) {
			return nil, "", false
		}
		value, tail, closed := quoted(after[1:])
		if !closed {
			return nil, "", false
		}
		labels[strings.TrimSpace(name)] = value
		s = tail
	}
}

// quoted reads a label value up to its closing quote.
func quoted(s string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			i++
			if i == len(s) {
				return "", "", false
			}
			if s[i] == 'n' {
				b.WriteByte('\n')
				continue
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}

// aliases are the names engines give one figure, newest first: the first that is there counts, so that an old and a new
// name of the same figure are not added up. vLLM hides a name one minor version after it deprecates it.
type aliases []string

var (
	runningNames   = aliases{"vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing"}
	waitingNames   = aliases{"vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred"}
	kvUsedNames    = aliases{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "llamacpp:kv_cache_usage_ratio"}
	preemptNames   = aliases{"vllm:num_preemptions_total", "vllm:num_preemptions", "sglang:num_retracted_requests_total"}
	queryNames     = aliases{"vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries_total"}
	hitNames       = aliases{"vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits_total"}
	promptNames    = aliases{"vllm:prompt_tokens_total", "vllm:prompt_tokens", "sglang:prompt_tokens_total"}
	cachedNames    = aliases{"vllm:prompt_tokens_cached_total", "vllm:prompt_tokens_cached", "sglang:cached_tokens_total", "llamacpp:prompt_tokens_cached_total"}
	computedNames  = aliases{"llamacpp:prompt_tokens_total"} // llama-server leaves cached tokens out of it
	firstNames     = aliases{"vllm:time_to_first_token_seconds_count", "sglang:time_to_first_token_seconds_count"}
	firstTimeNames = aliases{"vllm:time_to_first_token_seconds_sum", "sglang:time_to_first_token_seconds_sum"}
	generatedNames = aliases{"vllm:generation_tokens_total", "vllm:generation_tokens", "sglang:generation_tokens_total", "llamacpp:tokens_predicted_total"}
	bornNames      = aliases{"process_start_time_seconds"}
	// SGLang and llama-server count the tokens above when a request has ended.
	stepNames = aliases{"vllm:generation_tokens_total", "vllm:generation_tokens", "sglang:realtime_tokens_total", "llamacpp:n_decode_total"}
)

// readLoad fills a Load from metrics; figures that are not there stay nil.
func readLoad(l *episode.Load, samples []sample) {
	if at, n := bornNames.sum(samples); n == 1 { // several processes write one text: no telling whose it is
		l.Born = &at
	}
	l.Running = whole[int](runningNames.sum(samples))
	l.Waiting = whole[int](waitingNames.sum(samples))
	l.Preemptions = whole[int64](preemptNames.sum(samples))
	l.PrefixQueries = whole[int64](queryNames.sum(samples))
	l.Hits = whole[int64](hitNames.sum(samples))
	l.GeneratedTokens = whole[int64](generatedNames.sum(samples))
	l.Steps = whole[int64](stepNames.sum(samples))
	l.Firsts = whole[int64](firstNames.sum(samples))
	if sum, n := firstTimeNames.sum(samples); n > 0 {
		l.FirstSeconds = &sum
	}
	if sum, n := kvUsedNames.sum(samples); n > 0 {
		l.KVUsed = episode.Ptr(sum / float64(n))
	}
	l.PromptTokens = whole[int64](promptNames.sum(samples))
	l.Computed = whole[int64](computedNames.sum(samples))
	cached := whole[int64](cachedNames.sum(samples))
	if cached == nil {
		return
	}
	switch { // of prompt, cached and computed tokens, two give the third
	case l.PromptTokens != nil && l.Computed == nil:
		l.Computed = episode.Ptr(*l.PromptTokens - *cached)
	case l.PromptTokens == nil && l.Computed != nil:
		l.PromptTokens = episode.Ptr(*l.Computed + *cached)
	}
}

// figure is a load figure by the name it has in records.
type figure struct {
	name string
	of   aliases
}

func figures() []figure {
	return []figure{
		{"running", runningNames}, {"waiting", waitingNames}, {"kv used", kvUsedNames}, {"preemptions", preemptNames}, {"prefix queries", queryNames},
		{"prefix hits", hitNames}, {"prompt tokens", promptNames}, {"cached tokens", cachedNames}, {"computed tokens", computedNames}, {"generated tokens", generatedNames},
	}
}

// knownFigures are the names of all figures.
func knownFigures() []string {
	var all []string
	for _, f := range figures() {
		all = append(all, f.name)
	}
	return all
}

// figureNames lists which load figures are among the samples, for people.
func figureNames(samples []sample) []string {
	var found []string
	for _, f := range figures() {
		if _, n := f.of.sum(samples); n > 0 {
			found = append(found, f.name)
		}
	}
	return found
}

// hasLoad reports whether the samples tell anything of a server's load.
func hasLoad(samples []sample) bool {
	var l episode.Load
	readLoad(&l, samples)
	return l.Running != nil || l.Waiting != nil || l.KVUsed != nil || l.GeneratedTokens != nil
}

// prefixCaching is what vLLM says of its prefix cache; ok is false when it says nothing.
func prefixCaching(samples []sample) (on, ok bool) {
	for _, s := range samples {
		if v := s.labels["enable_prefix_caching"]; s.name == "vllm:cache_config_info" && v != "" {
			return v == "True", true
		}
	}
	return false, false
}

// sum adds up the samples of the first alias that has any. Ranks that share one model's work (tensor and pipeline
// parallel) report the same figures; only their first counts.
func (a aliases) sum(samples []sample) (sum float64, n int) {
	for _, name := range a {
		for _, s := range samples {
			if s.name == name && firstRank(s.labels) {
				sum, n = sum+s.value, n+1
			}
		}
		if n > 0 {
			return sum, n
		}
	}
	return 0, 0
}

func firstRank(labels map[string]string) bool {
	for _, l := range [...]string{"tp_rank", "pp_rank", "moe_ep_rank"} {
		if r, ok := labels[l]; ok && r != "0" {
			return false
		}
	}
	return true
}

func whole[T int | int64](sum float64, n int) *T {
	if n == 0 {
		return nil
	}
	return episode.Ptr(T(sum))
}

// cacheTokens is the KV capacity in tokens of all engines behind a URL, from vLLM's cache_config_info: its own figure
// where it has one, else blocks times their size, and the size of a block, of the largest if they differ. 0 = not told.
func cacheTokens(samples []sample) (total, block int) {
	for _, s := range samples {
		if s.name != "vllm:cache_config_info" {
			continue
		}
		size, err := strconv.Atoi(s.labels["block_size"])
		if err == nil {
			block = max(block, size)
		}
		if n, err := strconv.Atoi(s.labels["kv_cache_size_tokens"]); err == nil && n > 0 {
			total += n
			continue
		}
		if blocks, err2 := strconv.Atoi(s.labels["num_gpu_blocks"]); err == nil && err2 == nil {
			total += blocks * size
		}
	}
	return total, block
}
