package sampler

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"tranche/episode"
)

// Knobs say how each sample of a draw is played: its sampling parameters, its prompt, its deadline. All of its methods may be called at once.
type Knobs struct{ cfg Config }

// Begin says when the run began, before the first use of a deadline.
func (k *Knobs) Begin(at time.Time) { k.cfg.Began = at }

// Params returns the sampling parameters of one sample of a draw: the run's, overridden by what the task sets itself
// (Task.Params), with a seed of its own where SendSeed asks for one. The value is the caller's alone: nothing in it is shared with
// the Config, the task or another sample. The error is a fault in Task.Params, which Next reports before it gives the draw out.
//
// A task that sets a seed gets it as it is for its first sample and counted up by one for each further one: equal seeds would make
// equal samples.
func (k *Knobs) Params(d episode.Draw, sample int) (episode.Sampling, error) {
	o, err := overrides(d.Task)
	if err != nil {
		return episode.Sampling{}, err
	}
	w, err := k.wish(d.Task)
	if err != nil {
		return episode.Sampling{}, err
	}
	p := clone(k.cfg.Sampling)
	p.Priority += w.priority
	k.turn(&p, d)
	if k.cfg.SendSeed {
		p.Seed = episode.Ptr(Seed(k.cfg.Seed, d.Task.ID, d.Round, sample))
	}
	o.apply(&p)
	if o.Seed != nil {
		p.Seed = episode.Ptr(*o.Seed + int64(sample))
	}
	return p, nil
}

// turn sets what changes with the draws, and what evaluations have of their own.
func (k *Knobs) turn(p *episode.Sampling, d episode.Draw) {
	if d.HeldOut {
		if v := k.cfg.HeldOut.Temperature; v != nil {
			p.Temperature = ptr(v)
		}
		if v := k.cfg.HeldOut.TopP; v != nil {
			p.TopP = ptr(v)
		}
		return
	}
	if s := k.cfg.TemperatureSchedule; s.On() {
		p.Temperature = episode.Ptr(s.At(d.Number))
	}
	if s := k.cfg.TopPSchedule; s.On() {
		p.TopP = episode.Ptr(s.At(d.Number))
	}
}

// Seed is the seed of one sample: 31 bits of a hash, which every engine takes.
func Seed(run int64, taskID string, round, sample int) int64 {
	id := episode.ID("seed", strconv.FormatInt(run, 10), taskID, strconv.Itoa(round), strconv.Itoa(sample))
	n, err := strconv.ParseUint(id[:8], 16, 32)
	if err != nil {
		panic("episode.ID gave no hex: " + id) // a bug there
	}
	return int64(n & 0x7fffffff)
}

// Budget returns the budget of a task's episodes: base, with the token budget of a turn that the task sets itself (max_tokens or
// max_completion_tokens in Task.Params; the smaller where both are there).
func Budget(t *episode.Task, base episode.Budget) (episode.Budget, error) {
	o, err := overrides(t)
	if err != nil {
		return base, err
	}
	for _, n := range []*int{o.MaxTokens, o.MaxCompletionTokens} {
		if n != nil {
			base.TurnTokens = *n
		}
	}
	if a, b := o.MaxTokens, o.MaxCompletionTokens; a != nil && b != nil {
		base.TurnTokens = min(*a, *b)
	}
	return base, nil
}

// override is what a task's own request fields say. nil = not said.
type override struct {
	Temperature         *float64 `json:"temperature"`
	TopP                *float64 `json:"top_p"`
	TopK                *int     `json:"top_k"`
	MinP                *float64 `json:"min_p"`
	Seed                *int64   `json:"seed"`
	Stop                stops    `json:"stop"`
	Logprobs            *bool    `json:"logprobs"`
	TokenIDs            *bool    `json:"return_token_ids"`
	MaxTokens           *int     `json:"max_tokens"`
	MaxCompletionTokens *int     `json:"max_completion_tokens"`

	others map[string]json.RawMessage // every other field
}

// stops is a stop string or a list of them.
type stops []string

func (s *stops) UnmarshalJSON(raw []byte) error {
	var one *string
	if json.Unmarshal(raw, &one) == nil {
		if one != nil {
			*s = stops{*one}
		}
		return nil
	}
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil {
		return errors.New("stop: expected a string or a list of strings")
	}
	*s = list
	return nil
}

// known are the fields of an override by their names on the wire.
func known() []string {
	return []string{"temperature", "top_p", "top_k", "min_p", "seed", "stop", "logprobs", "return_token_ids", "max_tokens", "max_completion_tokens"}
}

// overrides reads Task.Params.
func overrides(t *episode.Task) (override, error) {
	var o override
	if len(t.Params) == 0 {
		return o, nil
	}
	fail := func(err error) (override, error) {
		return override{}, fmt.Errorf("%s: request fields of task %q: %w", t.Where, t.ID, err)
	}
	if err := json.Unmarshal(t.Params, &o); err != nil {
		return fail(err)
	}
	if err := json.Unmarshal(t.Params, &o.others); err != nil {
		return fail(err)
	}
	for _, name := range known() {
		delete(o.others, name)
	}
	maps.DeleteFunc(o.others, func(_ string, raw json.RawMessage) bool { return string(raw) == "null" })
	check := episode.Sampling{Temperature: o.Temperature, TopP: o.TopP, TopK: o.TopK, MinP: o.MinP, Stop: o.Stop, Extra: o.others}
	if err := sampling(check); err != nil {
		return fail(err)
	}
	for name, n := range map[string]*int{"max_tokens": o.MaxTokens, "max_completion_tokens": o.MaxCompletionTokens} {
		if n != nil && *n <= 0 {
			return fail(fmt.Errorf("%s %d: expected 1 or more tokens", name, *n))
		}
	}
	return o, nil
}

// apply puts the task's own fields over the run's. Extra body fields win on the wire, so a run's extra field that a task sets
// itself has to go.
func (o override) apply(p *episode.Sampling) {
	set := func(name string, said bool, put func()) {
		if said {
			delete(p.Extra, name)
			put()
		}
	}
	set("temperature", o.Temperature != nil, func() { p.Temperature = ptr(o.Temperature) })
	set("top_p", o.TopP != nil, func() { p.TopP = ptr(o.TopP) })
	set("top_k", o.TopK != nil, func() { p.TopK = ptr(o.TopK) })
	set("min_p", o.MinP != nil, func() { p.MinP = ptr(o.MinP) })
	set("seed", o.Seed != nil, func() { p.Seed = ptr(o.Seed) })
	set("stop", o.Stop != nil, func() { p.Stop = slices.Clone(o.Stop) })
	set("logprobs", o.Logprobs != nil, func() { p.Logprobs = *o.Logprobs })
	set("return_token_ids", o.TokenIDs != nil, func() { p.TokenIDs = *o.TokenIDs })
	for name, raw := range o.others {
		if p.Extra == nil {
			p.Extra = map[string]json.RawMessage{}
		}
		p.Extra[name] = slices.Clone(raw)
	}
}

// clone copies everything a Sampling points to.
func clone(s episode.Sampling) episode.Sampling {
	s.Temperature, s.TopP, s.TopK, s.MinP, s.Seed = ptr(s.Temperature), ptr(s.TopP), ptr(s.TopK), ptr(s.MinP), ptr(s.Seed)
	s.Stop = slices.Clone(s.Stop)
	if s.Extra != nil {
		extra := make(map[string]json.RawMessage, len(s.Extra))
		for name, raw := range s.Extra {
			extra[name] = slices.Clone(raw)
		}
		s.Extra = extra
	}
	return s
}

func ptr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return episode.Ptr(*p)
}
