package bench

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat"

	"tranche/inference/enginesim"
)

func traces(t *testing.T) Traces {
	t.Helper()
	d, err := FindTraces()
	if errors.Is(err, ErrNoTraces) {
		t.Skipf("needs the recorded traces: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func within(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance*want {
		t.Errorf("%s is %.4g, want %.4g within %.0f %%", what, got, want, 100*tolerance)
	}
}

func TestAgentHasThePublishedShape(t *testing.T) {
	w := Agent(1500, 800*time.Millisecond, 1)
	var peaks, tools []float64
	for _, e := range w.Episodes {
		peaks = append(peaks, float64(e.Peak()))
		for _, k := range e.Turns[:len(e.Turns)-1] {
			tools = append(tools, k.Tool.Seconds())
		}
	}
	slices.Sort(tools)
	within(t, "turns", float64(w.Calls())/float64(len(w.Episodes)), 38, 0.06)
	within(t, "mean peak", stat.Mean(peaks, nil), 27_700, 0.06)
	within(t, "median action", stat.Quantile(0.5, stat.Empirical, tools, nil), 0.8, 0.05)
	within(t, "slow median action", w.Slower(20).Episodes[3].Turns[0].Tool.Seconds(), 20*w.Episodes[3].Turns[0].Tool.Seconds(), 1e-6)
}

func TestReasoningHasItsTail(t *testing.T) {
	w := Reasoning(512, 8, 1)
	var outs, medians []float64
	for i, e := range w.Episodes {
		outs = append(outs, float64(e.Turns[0].Out))
		if i%8 == 7 {
			group := slices.Clone(outs[i-7:])
			slices.Sort(group)
			medians = append(medians, math.Log(group[4]))
		}
	}
	slices.Sort(outs)
	within(t, "samples", float64(len(outs)), 4096, 0)
	within(t, "median", outs[2048], 1100, 0.15)
	within(t, "p99", stat.Quantile(0.99, stat.Empirical, outs, nil), 1100*math.Exp(2.326*math.Sqrt(0.81+0.25)), 0.25)
	within(t, "spread between groups", stat.StdDev(medians, nil), 0.92, 0.1)
	if outs[len(outs)-1] > 32<<10 {
		t.Errorf("longest %v, over the cap", outs[len(outs)-1])
	}
}

// spell writes named text out, one value a token.
func spell(segments ...enginesim.Segment) []uint64 {
	var all []uint64
	for _, g := range segments {
		for i := range g.Tokens {
			all = append(all, mix(g.Content)+uint64(g.From+i))
		}
	}
	return all
}

// Equal segments are equal tokens, different ones differ, and what a call sampled is what the next prompt holds.
func TestContent(t *testing.T) {
	e := Episode{Prefix: []Segment{{1, 20}}, Turns: []Turn{{New: 30, Out: 5}, {New: 10, Out: 4}, {Cut: 12, New: 3, Out: 2}, {New: 1, Out: 1}}}
	a, b := newContent(1, e), newContent(2, e)
	var prompts, all [][]uint64
	e.calls(func(c span) {
		p, o := a.call(c)
		again, _ := a.call(c)
		if len(spell(p...)) != c.prompt || o.Tokens != c.out || !slices.Equal(p, again) {
			t.Fatalf("turn %d: %v and %v, want %d and %d tokens, and the same again: %v", c.turn, p, o, c.prompt, c.out, again)
		}
		prompts = append(prompts, spell(p...))
		all = append(all, spell(append(slices.Clone(p), o)...))
	})
	other, _ := b.call(span{prompt: 30, out: 5})
	if !slices.Equal(prompts[0][:20], spell(other...)[:20]) || slices.Equal(prompts[0][20:30], spell(other...)[20:30]) {
		t.Error("the shared prefix differs, or what is not shared is equal")
	}
	if !slices.Equal(prompts[1][:35], all[0]) || !slices.Equal(prompts[3][:42], all[2]) {
		t.Error("a prompt does not begin with the call before it")
	}
	if kept := all[1][:37]; !slices.Equal(prompts[2][:37], kept) || prompts[2][37] == all[1][37] {
		t.Error("after the cut the context is not what was kept and then something else")
	}
	if e.Peak() != 49 {
		t.Errorf("peak %d, want 49", e.Peak())
	}
}

func TestLoadCountsSharedTokensOnce(t *testing.T) {
	w := Workload{MaxNew: 8, Episodes: []Episode{
		{Prefix: []Segment{{1, 10}, {2, 5}}, Turns: []Turn{{New: 20, Out: 2}, {New: 7, Out: 3}}},
		{Prefix: []Segment{{1, 10}, {3, 5}}, Turns: []Turn{{New: 16, Out: 2}}},
		{Prefix: []Segment{{2, 5}}, Turns: []Turn{{New: 5, Out: 1}}}, // the same segment after something else is something else
	}}
	if got, want := w.Load(), (Load{Generated: 8, Prompt: 27 + 6 + 5}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestTracesKeepTheirLengths(t *testing.T) {
	oneGoroutine(t)
	d := traces(t)
	load := func(w Workload, err error) Workload {
		t.Helper()
		if err == nil {
			err = w.Validate()
		}
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	coding := load(d.CodingAgent(1000, 131072, 1))
	within(t, "sessions", float64(len(coding.Episodes)), 692, 0)
	within(t, "calls", float64(coding.Calls()), 45542, 0)
	within(t, "longest scaled context", float64(coding.Peak()), 0.9*131072, 0.01)
	cuts, peaks := 0, 0.0
	for _, e := range coding.Episodes {
		peaks += float64(e.Peak())
		for _, k := range e.Turns {
			if k.Cut > 0 {
				cuts++
			}
			if k.Tool > LongestAction {
				t.Errorf("an action takes %v", k.Tool)
			}
		}
	}
	within(t, "mean peak", peaks/692, 181_772*0.9*131072/894_371, 0.02)
	if cuts < 201 {
		t.Errorf("%d compactions, at least 201 were recorded", cuts)
	}

	r1 := load(d.R1(2500, 8, 1))
	var outs, a, b []float64
	for i, e := range r1.Episodes {
		outs = append(outs, float64(e.Turns[0].Out))
		if i%8 == 0 {
			a, b = append(a, math.Log(outs[i])), append(b, math.Log(float64(r1.Episodes[i+1].Turns[0].Out)))
		}
	}
	slices.Sort(outs)
	within(t, "r1 median", outs[len(outs)/2], 782, 0.1)
	within(t, "r1 mean", stat.Mean(outs, nil), 1544, 0.1)
	within(t, "r1 p99", stat.Quantile(0.99, stat.Empirical, outs, nil), 12_641, 0.15)
	within(t, "correlation of siblings", stat.Correlation(a, b, nil), 0.764, 0.1)

	moon := load(d.Mooncake("conversation", 20_000, 1, 131072))
	prompts := 0
	for _, e := range moon.Episodes {
		prompts += e.Turns[0].New
	}
	within(t, "mooncake's share of unique prompt tokens", float64(moon.Load().Prompt)/float64(prompts), 1-0.366, 0.03)
	if eight := load(d.Mooncake("synthetic", 10, 8, 65536)); len(eight.Episodes) != 80 || eight.Episodes[0].Group != eight.Episodes[7].Group || eight.Episodes[7].Group == eight.Episodes[8].Group {
		t.Errorf("%d episodes in groups of eight expected, got %d", 80, len(eight.Episodes))
	}
	within(t, "azure code", float64(len(load(d.Azure("code", 1e6, 1)).Episodes)), 8819, 0)
	within(t, "azure conv", float64(load(d.Azure("conv", 1e6, 1)).Load().Prompt)/19366, 1155, 0.01)
	within(t, "summaries", float64(len(load(d.Summaries(1e6, 1)).Episodes)), 9419, 0)
}

func TestBrokenTraces(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	d := Traces{dir}
	if _, err := d.Azure("code", 1, 1); !errors.Is(err, ErrNoTraces) {
		t.Errorf("a missing trace gave %v", err)
	}
	write("trace-azure2023/code.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nnow,12,3\nnow,twelve,3\n")
	write("trace-azure2023/conv.csv", "a,b\n1,2\n")
	write("trace-coding-agent/episodes.jsonl", "{\"turns\":[[0,5,1,0,1,0,\"tool_use\",null]]}\n{\"turns\":[[0,\"x\",1,0,1,0,\"tool_use\",null]]}\n")
	_, first := d.Azure("code", 1, 1)
	_, second := d.Azure("conv", 1, 1)
	_, third := d.CodingAgent(1, 100, 1)
	for want, err := range map[string]error{"code.csv:3: ": first, "conv.csv:1: ": second, "episodes.jsonl:2: field 1 of a turn is x": third} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}
