package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"tranche/episode"
	"tranche/inference/enginesim"
)

// A small instance of each workload through every policy: all is done, nothing beats the bound, and the report adds up.
func TestEveryWorkloadThroughEveryPolicy(t *testing.T) {
	sizes := map[string]int{"agent": 12, "agent-x5": 12, "agent-x20": 12, "coding-agent": 8, "reasoning": 48, "r1": 48, "prefixes": 32, "prefixes-fit": 48, "mooncake-conversation": 16, "mooncake-synthetic": 16}
	for _, item := range Catalogue() {
		t.Run(item.Name, func(t *testing.T) {
			var d Traces
			if item.Traced {
				d = traces(t)
			}
			n := sizes[item.Name]
			if n == 0 {
				n = 64
			}
			replica := Reference()
			replica.KVTokens = replica.ContextTokens + 8192
			m := Match{
				Workload: func(seed uint64) (Workload, error) { return item.Make(d, n, replica.ContextTokens, seed) },
				Fleet:    Fleet{Replicas: []enginesim.Config{replica, replica}, MetricsEvery: time.Second},
				Policies: Contestants()[:12], First: 1, // two caps among them
			}
			r, err := m.Run()
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range r.Levels[0].Rows {
				if x.Failed != "" || x.Rejected.Mean != 0 || x.Truncated.Mean != 0 || x.Failures.Mean != 0 {
					t.Errorf("%s: %q, %v rejected, %v cut short, %v failures", x.Policy, x.Failed, x.Rejected, x.Truncated, x.Failures)
				}
				if !(x.OfBound.Mean > 0.02 && x.OfBound.Mean <= 1) {
					t.Errorf("%s: the lower bound is %v of its makespan %v", x.Policy, x.OfBound, x.Makespan)
				}
				if int(x.Attempts.Mean) != r.Calls || x.Recomputed.Mean < 1 || x.Busy.Mean <= 0 || x.Busy.Mean > 1 || x.TokensPerSecond.Mean <= 0 {
					t.Errorf("%s: %v attempts of %d calls, recomputed %v, busy %v, %v tokens/s", x.Policy, x.Attempts, r.Calls, x.Recomputed, x.Busy, x.TokensPerSecond)
				}
			}
		})
	}
}

// The physics that every comparison rests on, on a small agent load: flood thrashes, a good cap does not, a cap a little too high is no
// better than none, and the hit rate shows it where preemptions do not.
func TestFloodThrashesAndAGoodCapDoesNot(t *testing.T) {
	policies, err := Named([]string{"flood", "flood-sticky", "cap-4", "cap-14", "cap-32"})
	if err != nil {
		t.Fatal(err)
	}
	m := Match{
		Workload: func(seed uint64) (Workload, error) { return Agent(64, 800*time.Millisecond, seed), nil },
		Fleet:    Fleet{Replicas: []enginesim.Config{Reference()}}, Policies: policies, First: 1,
	}
	r, err := m.Run()
	if err != nil {
		t.Fatal(err)
	}
	l := r.Levels[0]
	flood, good, high := l.row("flood"), l.row("cap-14"), l.row("cap-32")
	if l.BestCap != "cap-14" || good.Speedup.Mean < 1.7 {
		t.Errorf("best cap %s, %v times faster than flood", l.BestCap, good.Speedup)
	}
	if flood.HitRate.Mean > 0.4 || good.HitRate.Mean < 0.9 || good.Recomputed.Mean > 2 || flood.Recomputed.Mean < 8 {
		t.Errorf("hit rates: flood %v, cap 14 %v; computed over unique: %v and %v", flood.HitRate, good.HitRate, flood.Recomputed, good.Recomputed)
	}
	if high.Speedup.Mean > 0.75*good.Speedup.Mean || high.Preemptions.Mean > 0.05*high.Attempts.Mean {
		t.Errorf("cap 32 is %v times flood with %v preemptions in %v calls: expected well under cap 14's %v, and few preemptions", high.Speedup, high.Preemptions, high.Attempts, good.Speedup)
	}
}

func TestMeanOf(t *testing.T) {
	for name, c := range map[string]struct {
		sample []float64
		want   Mean
	}{
		"none": {nil, Mean{}},
		"one":  {[]float64{3}, Mean{3, 0}},
		// mean 3, deviation 1.5811, t(4) at 0.975 = 2.7764, over sqrt(5)
		"five": {[]float64{1, 2, 3, 4, 5}, Mean{3, 1.9632}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := MeanOf(c.sample); math.Abs(got.Mean-c.want.Mean) > 1e-9 || math.Abs(got.Half-c.want.Half) > 1e-4 {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	for m, want := range map[Mean]string{{}: "0", {1.234, 0}: "1.23", {12.34, 0.5}: "12.3 ±0.5", {1234.5, 20.4}: "1234 ±20", {0.5, 0.01}: "0.50 ±0.01"} {
		if got := m.String(); got != want {
			t.Errorf("%v is written %q, want %q", [2]float64{m.Mean, m.Half}, got, want)
		}
	}
}

func TestReportsAsTableJSONAndPlot(t *testing.T) {
	policies, err := Named([]string{"tranche", "cap-2", "cap-4", "thunder"})
	if err != nil {
		t.Fatal(err)
	}
	ended := 0
	m := Match{
		Workload: func(seed uint64) (Workload, error) { return mixed(30, seed), nil },
		Fleet: Fleet{Replicas: []enginesim.Config{small(), small()}, Told: func(_ int, c episode.Capacity) episode.Capacity {
			c.KVTokens = 0
			return c
		}},
		Loads: []int{2, 5}, Policies: policies, Seeds: 3, Workers: 2, Done: func(int, string, uint64, Result) { ended++ },
	}
	r, err := m.Run()
	if err != nil {
		t.Fatal(err)
	}
	if ended != 2*3*4 { // flood is added, ThunderAgent cannot play untold
		t.Errorf("%d runs ended, want 24", ended)
	}
	var table bytes.Buffer
	if err := r.Table(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"mixed: 30 episodes", "2 episodes open a replica", "5 episodes open a replica", "best static cap: cap-", "thunder could not play: seed 0: the policy needs", "±"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back struct {
		Levels []struct {
			Policies []struct {
				Policy   string
				Makespan Mean `json:"makespan_s"`
				Speedup  Mean `json:"speedup_over_flood"`
			}
		}
	}
	if err := json.Unmarshal(text, &back); err != nil || len(back.Levels) != 2 || len(back.Levels[1].Policies) != 5 {
		t.Fatalf("%v: %s", err, text)
	}
	for _, p := range back.Levels[1].Policies {
		if p.Policy == "flood" && (p.Speedup != Mean{1, 0} || p.Makespan.Mean <= 0) {
			t.Errorf("flood over itself is %v", p.Speedup)
		}
	}
	path, err := r.Plot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s is no XML: %v", path, err)
		}
	}
	for _, want := range []string{"tranche", "lower bound", "best static cap", "flood"} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("the plot does not name %q", want)
		}
	}
}

func TestAMatchCanBeStopped(t *testing.T) {
	stop := make(chan struct{})
	close(stop)
	m := Match{Workload: func(seed uint64) (Workload, error) { return mixed(30, seed), nil }, Fleet: Fleet{Replicas: []enginesim.Config{small()}, Stop: stop}}
	if _, err := m.Run(); !errors.Is(err, ErrStopped) {
		t.Errorf("got %v", err)
	}
}

func TestNames(t *testing.T) {
	if got, err := Named([]string{"cap-7", "caps", "tranche", "cap-8"}); err != nil || len(got) != len(StaticCaps())+2 {
		t.Errorf("%d policies, %v", len(got), err)
	}
	for _, bad := range []string{"cap-0", "cap-x", "best", ""} {
		if _, err := Named([]string{bad}); err == nil || !strings.Contains(err.Error(), "expected one of all, caps, cap-N, padded, tranche") {
			t.Errorf("%q gave %v", bad, err)
		}
	}
	if _, err := Find("agents"); err == nil || !strings.Contains(err.Error(), "expected one of agent, ") {
		t.Errorf("got %v", err)
	}
}

func TestParseReplicas(t *testing.T) {
	for text, want := range map[string][]int{"3": {404_000, 404_000, 404_000}, "1,2x0.3": {404_000, 121_200, 121_200}} {
		got, err := ParseReplicas(text)
		if err != nil || len(got) != len(want) {
			t.Errorf("%q: %v, %v", text, got, err)
			continue
		}
		for i, c := range got {
			if c.KVTokens != want[i] || c.ContextTokens != min(128<<10, want[i]) {
				t.Errorf("%q: replica %d has %d KV tokens and a context of %d", text, i, c.KVTokens, c.ContextTokens)
			}
		}
	}
	for _, bad := range []string{"", "0", "x2", "2x", "2x-1", "2xNaN", "4;2", "99999"} {
		if _, err := ParseReplicas(bad); err == nil || !strings.Contains(err.Error(), "COUNTxSHARE") {
			t.Errorf("%q gave %v", bad, err)
		}
	}
}
