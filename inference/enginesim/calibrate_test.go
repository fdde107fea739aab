package enginesim

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// probe measures an idle engine as a client would: it knows what it sent and when each token came, nothing else.
type probe struct {
	config Config
	noise  *rand.Rand
	spread float64 // of the noise: the standard deviation of its logarithm
	text   uint64  // no probe shares a prefix with another
}

func (p *probe) blurred(d time.Duration) time.Duration {
	return time.Duration(float64(d) * math.Exp(p.spread*p.noise.NormFloat64()))
}

// decode runs streams at once and times their tokens after the first.
func (p *probe) decode(streams, context, tokens int) StepSample {
	m := NewModel(p.config)
	contexts := make([]int, streams)
	for i := range streams {
		p.text++
		contexts[i] = context + 1
		m.Offer(Request{ID: uint64(i), Outline: []Segment{{p.text, 0, context}}, Continuation: Segment{p.text, context, tokens + 200}}, 0)
	}
	now, begun := time.Duration(0), 0
	for begun < streams { // until all have their first token: the earlier ones are a little further
		events, d := m.Step(now)
		now += d
		for _, v := range events {
			if v.Kind == Sampled {
				begun++
			}
		}
	}
	for i := range contexts {
		contexts[i] = m.known[uint64(i)].total()
	}
	took := time.Duration(0)
	for range tokens {
		_, d := m.Step(now + took)
		took += d
	}
	return DecodeSample(contexts, tokens, p.blurred(took))
}

// prefill sends a prompt whose beginning was sent before, and times its first token.
func (p *probe) prefill(prompt, prefix int, fixed time.Duration) StepSample {
	m := NewModel(p.config)
	p.text++
	if prefix > 0 {
		m.Offer(Request{ID: 1, Outline: []Segment{{p.text, 0, prefix}}, Continuation: Segment{p.text, prefix, 1}}, 0)
		run(m, 0)
	}
	m.Offer(Request{ID: 2, Outline: []Segment{{p.text, 0, prompt}}, Continuation: Segment{p.text, prompt, 1}}, 0)
	events, d := run(m, 0)
	return PrefillSample(prompt, events[0].Tokens, p.config.StepBudget, p.blurred(d+fixed))
}

func (p *probe) all() (out []StepSample) {
	for range 3 {
		for _, streams := range []int{1, 2, 4, 8, 16, 32} {
			for _, context := range []int{64, 1000, 4000, 10000} {
				out = append(out, p.decode(streams, context, 50))
			}
		}
		for _, prompt := range []int{20, 100, 200, 400, 800, 1600, 3200, 6400, 12800} {
			for _, prefix := range []int{0, 8000, 16000} {
				out = append(out, p.prefill(prefix+prompt, prefix, 3*time.Millisecond))
			}
		}
	}
	return out
}

func TestCalibrateRecovers(t *testing.T) {
	oneGoroutine(t)
	for _, machine := range Presets() {
		for name, spread := range map[string]float64{"exact": 0, "3 % noise": 0.03} {
			t.Run(machine.Name+", "+name, func(t *testing.T) {
				c := machine.Config()
				p := probe{config: c, noise: rand.New(rand.NewPCG(7, 7)), spread: spread}
				samples := p.all()
				fit, err := Calibrate(samples)
				if err != nil {
					t.Fatal(err)
				}
				got := fit.Step
				for i, off := range fit.Residuals {
					if math.Abs(off) > 0.01+6*spread {
						t.Errorf("sample %d, %+v, is explained to %.1f %% only", i, samples[i], 100*off)
					}
				}
				closeTo(t, "Request", fit.Request.Seconds(), 3e-3, 0.01+10*spread)
				loose := 0.001 + 5*spread // of coefficients that other costs hide
				closeTo(t, "Base+Floor", got.Base+got.Floor, c.Step.Base+c.Step.Floor, 0.002+spread)
				closeTo(t, "PerToken", got.PerToken, c.Step.PerToken, 0.001+2*spread)
				closeTo(t, "PerRead", got.PerRead, c.Step.PerRead, 0.001+2*spread)
				closeTo(t, "PerPair", got.PerPair, c.Step.PerPair, loose)
				if spread == 0 {
					closeTo(t, "Base", got.Base, c.Step.Base, 0.01)
					closeTo(t, "PerSeq", got.PerSeq, c.Step.PerSeq, 0.01)
				}
			})
		}
	}
}

func closeTo(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if off := got/want - 1; math.Abs(off) > within {
		t.Errorf("%s = %.4g s, want %.4g: off by %.1f %%, more than %.1f %%", what, got, want, 100*off, 100*within)
	}
}

func TestCalibrateSaysWhatIsMissing(t *testing.T) {
	machine := Presets()[0]
	p := probe{config: machine.Config(), noise: rand.New(rand.NewPCG(1, 1))}
	whole := p.all()
	without := func(drop func(StepSample) bool) (out []StepSample) {
		for _, s := range whole {
			if !drop(s) {
				out = append(out, s)
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		samples []StepSample
		want    string
	}{
		"nothing":             {nil, "decodes with different numbers of streams"},
		"no decodes":          {without(func(s StepSample) bool { return s.Pairs == 0 }), "decodes at different lengths"},
		"one stream":          {without(func(s StepSample) bool { return s.Pairs == 0 && s.Tokens != s.Steps }), "different numbers of streams"},
		"no prefills":         {without(func(s StepSample) bool { return s.Pairs > 0 }), "at least three lengths"},
		"no cached prefixes":  {without(func(s StepSample) bool { return s.Pairs > 0.51*float64(s.Tokens)*float64(s.Tokens) }), "cached prefix"},
		"a broken sample":     {append(whole[:len(whole):len(whole)], StepSample{Steps: 1}), "must be above zero"},
		"all under the floor": {without(func(s StepSample) bool { return s.Tokens/s.Steps > 200 }), "do not determine what a token costs"},
	} {
		t.Run(name, func(t *testing.T) {
			if fit, err := Calibrate(c.samples); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("fit %+v, error %v; want one that says %q", fit, err, c.want)
			}
		})
	}
}
