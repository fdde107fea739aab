package bench

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"tranche/inference/enginesim"
)

// Item is a workload by name, made anew for every seed.
type Item struct {
	Name  string
	About string // one line for people
	// Episodes is how many there are unless told otherwise.
	Episodes int
	// Traced says that it is read from recorded traces.
	Traced bool
	// Replicas are what it is played on unless told otherwise; nil = four reference replicas.
	Replicas []enginesim.Config
	// Make draws n episodes whose contexts fit contextTokens.
	Make func(t Traces, n, contextTokens int, seed uint64) (Workload, error)
}

// Catalogue is all workloads.
func Catalogue() []Item {
	agent := func(slow float64) func(Traces, int, int, uint64) (Workload, error) {
		return func(_ Traces, n, _ int, seed uint64) (Workload, error) {
			if slow == 1 {
				return Agent(n, 800*time.Millisecond, seed), nil
			}
			return Agent(n, 800*time.Millisecond, seed).Slower(slow), nil
		}
	}
	return []Item{
		{"agent", "multi-turn agents in the shape of public trajectories, actions 0.8 s in the median", 768, false, nil, agent(1)},
		{"agent-x5", "the same with actions five times slower", 768, false, nil, agent(5)},
		{"agent-x20", "the same with actions twenty times slower", 768, false, nil, agent(20)},
		{"reasoning", "single answers with a long tail, groups of 8", 4096, false, nil, func(_ Traces, n, _ int, seed uint64) (Workload, error) {
			return Reasoning(groups(n, 8), 8, seed), nil
		}},
		{"prefixes", "groups of 8 on 64 documents of 16k tokens: more than one replica holds", 2048, false, nil, func(_ Traces, n, _ int, seed uint64) (Workload, error) {
			return Prefixes(groups(n, 8), 8, 64, 16_000, seed), nil
		}},
		{"prefixes-fit", "groups of 8 on 16 documents of 6k tokens: every replica holds them all", 2048, false, nil, func(_ Traces, n, _ int, seed uint64) (Workload, error) {
			return Prefixes(groups(n, 8), 8, 16, 6_000, seed), nil
		}},
		{"coding-agent", "recorded coding-agent sessions, scaled to the context", 256, true, nil, Traces.CodingAgent},
		{"r1", "lengths of a DeepSeek-R1 service, groups of 8 alike", 4096, true, nil, func(t Traces, n, _ int, seed uint64) (Workload, error) {
			return t.R1(groups(n, 8), 8, seed)
		}},
		{"mooncake-conversation", "recorded prompts with shared prefixes, groups of 8", 2048, true, nil, func(t Traces, n, context int, _ uint64) (Workload, error) {
			return t.Mooncake("conversation", groups(n, 8), 8, context)
		}},
		{"mooncake-synthetic", "composed prompts with shared prefixes, groups of 8", 2048, true, nil, func(t Traces, n, context int, _ uint64) (Workload, error) {
			return t.Mooncake("synthetic", groups(n, 8), 8, context)
		}},
		{"azure-code", "recorded code completions: long prompts, short answers", 4096, true, nil, func(t Traces, n, _ int, seed uint64) (Workload, error) {
			return t.Azure("code", n, seed)
		}},
		{"azure-conv", "recorded chat", 4096, true, nil, func(t Traces, n, _ int, seed uint64) (Workload, error) {
			return t.Azure("conv", n, seed)
		}},
		{"summaries", "summaries of long documents of nearly one length: the null case", 4096, true, nil, func(t Traces, n, _ int, seed uint64) (Workload, error) {
			return t.Summaries(n, seed)
		}},
		onVLLM(VLLMA(), "short multi-turn episodes on a small real vLLM, of which its cache holds about ten"),
		onVLLM(VLLMB(), "the same with longer prompts and shorter answers"),
	}
}

// onVLLM is a load that comes with the one server it was made for.
func onVLLM(l VLLMLoad, about string) Item {
	return Item{l.Name, about, l.Episodes, false, []enginesim.Config{l.Engine()}, func(_ Traces, n, _ int, seed uint64) (Workload, error) {
		return l.Draw(n, seed), nil
	}}
}

func groups(n, size int) int { return max((n+size-1)/size, 1) }

// Find is the workload of that name.
func Find(name string) (Item, error) {
	var names []string
	for _, i := range Catalogue() {
		if i.Name == name {
			return i, nil
		}
		names = append(names, i.Name)
	}
	return Item{}, fmt.Errorf("workload %q: expected one of %s", name, strings.Join(names, ", "))
}

// Reference is the replica that simulations use unless told otherwise: Llama-3.1-8B on one H100 with 0.9 of its 80 GB in use.
func Reference() enginesim.Config {
	return enginesim.Config{
		Model: "llama-3.1-8b", ContextTokens: 128 << 10, KVTokens: 404_000, BlockTokens: 16, MaxSeqs: 256, StepBudget: 8192, Step: enginesim.DefaultStep(),
	}
}

// ParseReplicas reads a fleet: COUNT or COUNTxSHARE, several by comma; SHARE is the part of the reference's KV memory that each has.
// "4" is four reference replicas, "2,2x0.3" two of them and two with three tenths of the memory. The context limit is the
// reference's, or what the memory holds if that is less.
func ParseReplicas(text string) ([]enginesim.Config, error) {
	var fleet []enginesim.Config
	for _, part := range strings.Split(text, ",") {
		number, size, sized := strings.Cut(strings.TrimSpace(part), "x")
		count, err := strconv.Atoi(number)
		share := 1.0
		if err == nil && sized {
			share, err = strconv.ParseFloat(size, 64)
		}
		c := Reference()
		if err != nil || count < 1 || count > 1024 || !(share > 0 && share <= 1000) {
			return nil, fmt.Errorf("fleet %q: expected COUNT or COUNTxSHARE, several by comma, such as 4 or 2,2x0.3; found %q", text, part)
		}
		c.KVTokens = int(float64(c.KVTokens)*share) / c.BlockTokens * c.BlockTokens
		c.ContextTokens = min(c.ContextTokens, c.KVTokens)
		if err := c.Validate(); err != nil {
			return nil, fmt.Errorf("fleet %q: %w", text, err)
		}
		for range count {
			fleet = append(fleet, c)
		}
	}
	return fleet, nil
}
