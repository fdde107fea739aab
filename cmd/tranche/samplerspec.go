package main

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"tranche/sampler"
)

// Pairs is a list NAME=VALUE,NAME=VALUE as a flag has it; in a settings file it may be a map. What stands first without a name has the name that
// the key gives it.
type Pairs string

// UnmarshalText takes the form of a flag.
func (p *Pairs) UnmarshalText(text []byte) error {
	*p = Pairs(text)
	return nil
}

func (p *Pairs) readYAML(y *yamlFile, name string, n ast.Node) {
	scalar := func(n ast.Node) (string, bool) {
		switch n.(type) {
		case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode:
			return n.GetToken().Value, true
		}
		y.expected(n, name, "a text such as a=1,b=2, or a map of them")
		return "", false
	}
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		pairs, _ := y.mapping(n, "a map")
		var list []string
		for _, pair := range pairs {
			key := pair.Key.GetToken().Value
			value, ok := scalar(y.resolve(pair.Value))
			if ok && strings.ContainsAny(key+value, ",=") {
				y.fault(pair.Key, "%s: %q: a name or value with , or = cannot be given", name, key)
			}
			list = append(list, key+"="+value)
		}
		*p = Pairs(strings.Join(list, ","))
	default:
		if text, ok := scalar(n); ok {
			*p = Pairs(text)
		}
	}
}

// each reads the pairs. first is the name of one without a name, where it stands first; "" = there is none such.
func (p Pairs) each(first string, take func(name, value string) error) error {
	if p == "" {
		return nil
	}
	var errs []error
	seen := map[string]bool{}
	for i, part := range strings.Split(string(p), ",") {
		name, value, named := strings.Cut(part, "=")
		if !named && i == 0 && first != "" {
			name, value, named = first, part, true
		}
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case !named || name == "":
			errs = append(errs, fmt.Errorf("%q is not NAME=VALUE", part))
		case seen[name]:
			errs = append(errs, fmt.Errorf("%s is given twice", name))
		default:
			seen[name] = true
			if err := take(name, value); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// into reads pairs whose names are known: *float64, **float64, *int, *int64, *string.
func (p Pairs) into(first string, known map[string]any) error {
	return p.each(first, func(name, value string) error {
		to, ok := known[name]
		if !ok {
			return fmt.Errorf("is not known%s", didYouMean(name, slices.Collect(maps.Keys(known))))
		}
		return scan(value, to)
	})
}

// over0 is a number that is not 0: that would silently be the default.
type over0 struct{ to any }

func scan(value string, to any) (err error) {
	number := func() float64 {
		f, ferr := strconv.ParseFloat(value, 64)
		if ferr != nil {
			err = fmt.Errorf("expected a number, found %q", value)
		}
		return f
	}
	whole := func() int64 {
		n, nerr := strconv.ParseInt(value, 10, 64)
		if nerr != nil {
			err = fmt.Errorf("expected a whole number, found %q", value)
		}
		return n
	}
	switch to := to.(type) {
	case over0:
		if err = scan(value, to.to); err == nil && reflect.ValueOf(to.to).Elem().IsZero() {
			err = errors.New("expected more than 0, or leave it out for the default")
		}
	case *float64:
		*to = number()
	case **float64:
		f := number()
		*to = &f
	case *int:
		*to = int(whole())
	case *int64:
		*to = whole()
	case *string:
		*to = value
	}
	return err
}

// mix reads --mix: size, equal, progress, temperature=T or weights by name, and floor, cap and every besides.
func (p Pairs) mix() (m sampler.Mix, err error) {
	bounds := map[string]any{"floor": &m.Floor, "cap": over0{&m.Cap}, "every": over0{&m.Every}, "temperature": over0{&m.Temperature}}
	floored := false
	err = p.each("by", func(name, value string) error {
		if to, ok := bounds[name]; ok {
			floored = floored || name == "floor"
			return scan(value, to)
		}
		if name == "by" {
			return mixBy(&m, value)
		}
		var w float64
		if err := scan(value, &w); err != nil {
			return err
		}
		if m.Weights == nil {
			m.Weights = map[string]float64{}
		}
		m.Weights[name] = w
		return nil
	})
	switch {
	case m.By != sampler.MixNone || p == "":
	case m.Temperature != 0:
		m.By = sampler.MixTemperature
	default:
		m.By = sampler.MixWeights
	}
	if err == nil && floored && m.Floor == 0 && m.By == sampler.MixProgress {
		err = errors.New("floor: progress has one over 0: what is never tried shows no progress; leave it out for a fifth of an equal share")
	}
	return m, err
}

func mixBy(m *sampler.Mix, value string) error {
	switch value {
	case "size":
		m.By, m.Temperature = sampler.MixTemperature, 1
	case "equal":
		m.By, m.Weights = sampler.MixWeights, map[string]float64{"*": 1}
	case "progress":
		m.By = sampler.MixProgress
	default:
		return fmt.Errorf("expected size, equal, progress, temperature=T or DOMAIN=WEIGHT, found %q", value)
	}
	return nil
}

// band reads --band: LOW-HIGH, and keep, memory and revisit besides.
func (p Pairs) band() (b sampler.Band, err error) {
	var span string
	err = p.into("range", map[string]any{"range": &span, "keep": over0{&b.Keep}, "memory": over0{&b.Memory}, "revisit": over0{&b.Revisit}})
	if p == "" || err != nil {
		return b, err
	}
	low, high, ok := strings.Cut(span, "-")
	if !ok {
		return b, fmt.Errorf("expected two pass rates such as 0.2-0.8, found %q", span)
	}
	err = errors.Join(scan(low, &b.Low), scan(high, &b.High))
	if err == nil && b.High <= 0 {
		err = fmt.Errorf("expected pass rates up to more than 0, found %q", span)
	}
	return b, err
}

// grow reads --grow: the samples to begin with, and error besides.
func (p Pairs) grow() (g sampler.Grow, err error) {
	err = p.into("from", map[string]any{"from": &g.From, "error": over0{&g.Error}})
	if err == nil && p != "" && g.From < 1 {
		err = fmt.Errorf("expected 1 sample or more to begin with, found %q", p)
	}
	return g, err
}

// heldOut reads --held-out: the split, or a share, and how it is evaluated.
func (p Pairs) heldOut() (h sampler.HeldOut, s sampler.HeldOutSampling, err error) {
	err = p.into("split", map[string]any{"split": &h.Split, "share": over0{&h.Share}, "every": over0{&h.Every}, "samples": over0{&h.Samples}, "temperature": &s.Temperature, "top-p": &s.TopP})
	return h, s, err
}

// PromptVariant is one way to put the tasks. See sampler.Variant.
type PromptVariant struct {
	Name   string `json:"name"`
	System string `json:"system,omitempty"`
	Prompt string `json:"prompt,omitempty"`
}

// PromptVariants is the list of them.
type PromptVariants []PromptVariant

func (l *PromptVariants) readYAML(y *yamlFile, name string, n ast.Node) {
	*l = readMaps(y, name, n, "name", func(v *PromptVariant) map[string]bool { return nil })
}

// plan is the sampler's part of the settings, without what only a session knows.
func (s *Settings) plan() (c sampler.PlanConfig, err error) {
	f := &faults{}
	c.Mix, err = s.Mix.mix()
	f.at("mix", err)
	c.Band, err = s.Band.band()
	f.at("band", err)
	c.Grow, err = s.Grow.grow()
	f.at("grow", err)
	c.Held, c.HeldOut, err = s.HeldOut.heldOut()
	f.at("held-out", err)
	c.TemperatureSchedule, err = sampler.ParseSchedule(s.TemperatureSchedule)
	f.at("temperature-schedule", err)
	c.TopPSchedule, err = sampler.ParseSchedule(s.TopPSchedule)
	f.at("top-p-schedule", err)
	c.Draws, c.Useful, c.MaxDraws = int64(s.Draws), int64(s.Useful), int64(s.MaxDraws)
	c.PriorityColumn, c.DeadlineColumn = s.PriorityColumn, s.DeadlineColumn
	for _, v := range s.PromptVariant {
		c.Variants = append(c.Variants, sampler.Variant(v))
	}
	return c, f.err()
}

// validateSampler checks what the keys of the sampler say, each by itself and together.
func (s *Settings) validateSampler(f *faults) {
	c, err := s.plan()
	if err != nil {
		f.list = append(f.list, err)
		return
	}
	c.Samples, c.Rounds = s.drawn(), s.Rounds
	f.at("", c.Validate())
	if c.Decides() && s.cuts() {
		f.add("oversample, quorum: cut samples have no verdict, and grow, useful, band and mix progress decide by verdicts; expected one or the other")
	}
	if c.Decides() && s.ungraded() {
		f.add("reward: none, and grow, useful, band and mix progress decide by rewards")
	}
	if len(s.History) > 0 && !(c.Band.Low < c.Band.High || c.Grow.From > 0 && c.Holds()) {
		f.add("history: is read for band, and for grow where the tasks are held in memory; neither is set")
	}
	if s.TasksCommand == "" {
		return
	}
	for _, bad := range []struct {
		is   bool
		what string
	}{
		{len(s.Tasks) > 0, "task files are given as well; expected one or the other"},
		{s.Rounds > 1, "rounds: what a command gives is gone through once"},
		{s.Offset > 0, "offset: a command can leave rows out itself"},
		{s.DryRun, "dry-run: the command would have to run"},
		{c.Holds(), "mix, band, draws, held-out and priority-column need all tasks at the start, and a command gives one after the other"},
	} {
		if bad.is {
			f.add("tasks-command: %s", bad.what)
		}
	}
}

// identifySampler leaves out what is not set, so that a run without these keys is what it was before there were any. What decides the order of the
// tasks decides the results where something goes by the number of a draw.
func identifySampler(s *Settings, id map[string]string) {
	for name, none := range map[string]bool{
		"mix": s.Mix == "", "band": s.Band == "", "history": len(s.History) == 0, "draws": s.Draws == 0, "useful": s.Useful == 0, "max-draws": s.MaxDraws == 0,
		"grow": s.Grow == "", "held-out": s.HeldOut == "", "temperature-schedule": s.TemperatureSchedule == "", "top-p-schedule": s.TopPSchedule == "",
		"prompt-variant": len(s.PromptVariant) == 0, "priority-column": s.PriorityColumn == "", "deadline-column": s.DeadlineColumn == "",
		"tasks-command": s.TasksCommand == "",
	} {
		if none {
			delete(id, name)
		}
	}
	c, err := s.plan() // the settings were checked
	if err == nil && (c.Planned() || c.TemperatureSchedule.On() || c.TopPSchedule.On()) {
		id["order"], id["window"] = string(encode(s.Order)), string(encode(s.Window))
	}
}
