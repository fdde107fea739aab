package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"tranche/bench"
	"tranche/inference/enginesim"
)

// small is an engine like vLLM on two cores, at a multiple of its speed, on TCP; with the step times it then has.
func small(t *testing.T, speed float64) (url string, step enginesim.StepTime) {
	t.Helper()
	cfg := bench.VLLMA().Engine()
	cfg.Speed = speed
	engine, err := enginesim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server, err := engine.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close(context.Background()) })
	s := cfg.Step
	for _, f := range []*float64{&s.Base, &s.Floor, &s.PerToken, &s.PerSeq, &s.PerRead, &s.PerPair} {
		*f /= speed
	}
	return "http://" + server.Addr(), s
}

// TestBenchRealAndItsSimulation plays the small load over HTTP and beside it in virtual time, with the step times that the engine
// has. What the machine does to times is not judged; what is cached does not hang on it much. The scheduler's order hangs on times, so its makespan is one of three plays'
// median: a single one is now and then a tenth below the simulated.
func TestBenchRealAndItsSimulation(t *testing.T) {
	if testing.Short() {
		t.Skip("judges times; the script benchreal plays the same without")
	}
	const speed = 20
	url, step := small(t, speed)
	cfg := bench.VLLMA().Engine()
	text, err := preset{
		Model: cfg.Model, ContextTokens: cfg.ContextTokens, KVTokens: cfg.KVTokens, BlockTokens: cfg.BlockTokens, NullBlock: cfg.NullBlock,
		MaxSeqs: cfg.MaxSeqs, StepBudget: cfg.StepBudget, Step: stepPreset(step),
	}.text("# a test\n")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "small.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newShell(t)
	s.do(codeOK, "bench", "real", "--endpoint", url, "-p", "tranche,cap-4", "--episodes", "30", "--time-scale", "0.05", "--repeats", "3", "--simulate", file, "--json")
	var report bench.RealReport
	if err := json.Unmarshal(s.out.Bytes(), &report); err != nil {
		t.Fatalf("%v in %s", err, s.out.String())
	}
	figures := map[string]bench.RealRow{}
	for _, row := range report.Rows {
		figures[row.Policy] = row
		t.Logf("%s: %.2f s and hit rate %.3f, simulated %.2f s and %.3f", row.Policy, row.Makespan, row.HitRate, row.Simulated.Makespan, row.Simulated.HitRate)
		if off := math.Abs(row.HitRate - row.Simulated.HitRate); off > 0.12 {
			t.Errorf("%s: hit rate %.2f, simulated %.2f", row.Policy, row.HitRate, row.Simulated.HitRate)
		}
		if row.Simulated.Makespan > row.Makespan*1.1 {
			t.Errorf("%s: %.2f s, simulated %.2f s: real time cannot be so much faster", row.Policy, row.Makespan, row.Simulated.Makespan)
		}
	}
	if len(figures) != 3 || figures["flood"].HitRate > 0.2 || figures["tranche"].HitRate < 0.5 || figures["tranche"].OfLowestCap > 1.3 || report.Agreement == nil {
		t.Errorf("%+v; want flood to lose its prefixes and the scheduler to keep them", report)
	}
}

// TestCalibrateFindsTheStepTimes fits a simulated engine over HTTP, in real time, and compares with what it was made of, by what steps
// take. A busy machine makes them longer, so the bounds are wide here; bench has the same in virtual time with narrow ones.
func TestCalibrateFindsTheStepTimes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a quarter of a minute")
	}
	t.Parallel()
	url, step := small(t, 2)
	file := filepath.Join(t.TempDir(), "fit.yaml")
	s := newShell(t)
	s.do(codeOK, "calibrate", "--endpoint", url, "--repeats", "1", "--max-seqs", "64", "-o", file)
	p, err := readPreset(file)
	if err != nil {
		t.Fatal(err)
	}
	c := p.config()
	if c.KVTokens != 16512 || c.BlockTokens != 128 || c.ContextTokens != 8192 || c.MaxSeqs != 64 || !strings.Contains(s.out.String(), "root mean square") {
		t.Errorf("%+v from\n%s", c, s.out.String())
	}
	for name, x := range map[string]enginesim.StepSample{
		"one stream":     enginesim.DecodeSample([]int{500}, 1, 1),
		"eight streams":  enginesim.DecodeSample([]int{500, 600, 700, 800, 900, 1000, 1100, 1200}, 1, 1),
		"a short prompt": enginesim.PrefillSample(300, 0, 2048, 1),
		"a long prompt":  enginesim.PrefillSample(2000, 0, 2048, 1),
		"a turn":         enginesim.PrefillSample(2000, 1792, 2048, 1),
	} {
		if want, is := step.Of(x), c.Step.Of(x); is < want*7/10 || is > want*2 {
			t.Errorf("%s takes %v a step, fitted %v", name, want, is)
		}
	}
}

// The JSON of calibrate says what the file says, under the file's names.
func TestFitDocumentHoldsThePreset(t *testing.T) {
	p := preset{Model: "m", ContextTokens: 1024, KVTokens: 4096, BlockTokens: 16, NullBlock: true, MaxSeqs: 8, StepBudget: 512,
		Step: stepPreset{Base: 1e-3, Floor: 2e-3, PerToken: 3e-6, PerSeq: 4e-6, PerRead: 5e-9, PerPair: 6e-9}, Request: 0.25}
	text, err := p.text("")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(fitDocument{p, []float64{0.5}})
	if err != nil {
		t.Fatal(err)
	}
	var back fitDocument
	var names struct{ Preset map[string]any }
	var file map[string]any
	if err := errors.Join(json.Unmarshal(raw, &back), json.Unmarshal(raw, &names), yaml.Unmarshal([]byte(text), &file)); err != nil {
		t.Fatal(err)
	}
	if back.Preset != p || !slices.Equal(back.Residuals, []float64{0.5}) {
		t.Errorf("%s is read back as %+v", raw, back)
	}
	step := func(m map[string]any) []string { return slices.Sorted(maps.Keys(m["step"].(map[string]any))) }
	if !slices.Equal(slices.Sorted(maps.Keys(names.Preset)), slices.Sorted(maps.Keys(file))) || !slices.Equal(step(names.Preset), step(file)) {
		t.Errorf("the document has other names than the file:\n%s\n%s", raw, text)
	}
}
