package reward

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"tranche/episode"
)

// Config says how episodes are scored. The zero value is valid: one grader, named "answer", of kind auto.
type Config struct {
	// Graders are the components of a verdict, in order. Default: one of kind auto, named "answer".
	Graders []Spec `yaml:"graders"`
	// Workers is how many gradings go on at once, over all episodes. Default: one a core.
	Workers int `yaml:"workers"`
	// Waiters is how many gradings of kinds that only wait (Kind.Waits) go on at once, beside the Workers. Default 256.
	Waiters int `yaml:"waiters"`
	// Queue is how many gradings may wait for a worker before an episode waits outside the queue. Default 16 x Workers.
	Queue int `yaml:"queue"`
	// Timeout is how long one grading may take once it has started. One that goes on longer gives no verdict and is
	// abandoned. Default 30s.
	Timeout time.Duration `yaml:"timeout"`
	// Retries is how often a grading is asked again that says it may succeed later (Unjudged.Retry). Default 2; below 0 = never.
	Retries int `yaml:"retries"`
	// Pause is the wait before the first such retry; it doubles each time, up to 10s. Default 100ms.
	Pause time.Duration `yaml:"pause"`
	// MaxAbandoned is how many gradings of one grader, given up because they did not stop at their time, may go on before it is
	// not asked any more (no verdict) until some of them have ended; those that had begun by then come on top, Workers at most. Each may
	// hold a core. Default 16.
	MaxAbandoned int `yaml:"max_abandoned"`
	// Total is the rule that makes one number of the components: weighted_sum, gate, product or minimum; total.go says how.
	// Default weighted_sum, the mean of the scores by weight; nil when a component with a weight has no score.
	Total string `yaml:"total"`
	// Unscored lists why an episode may have ended that is not judged then: an answer that was cut says little of what the model can, and neither it nor
	// its group need count it as wrong. Its components have no verdict, for NotGraded. Default: every episode that ended well is judged.
	Unscored []episode.Stop `yaml:"unscored"`
}

// Spec is one grader of a run.
type Spec struct {
	// Name of the component in the dataset; unique. Default: its kind.
	Name string `yaml:"name"`
	// Kind is how it judges: auto, exact, numeric, contains, regex, none, or a kind given to New. Default auto.
	//
	//	auto      as the task's reward style says; without one (or with verl's "rule"): numeric when the ground truth is a
	//	          number, else exact
	//	exact     the answer is the ground truth
	//	numeric   the answer's number is the ground truth's
	//	contains  the ground truth is somewhere in the text
	//	regex     the text matches Pattern, or the ground truth as a pattern where there is none
	//	none      nothing is judged; only alone
	//
	// and majority and group_length, which judge a group at once; groupkinds.go says how.
	Kind string `yaml:"kind"`
	// Weight in the total, 0 or more; 0 records the component, and its parts, without counting them. Default (nil) 1; 0 for the
	// built-in kinds that judge groups.
	Weight *float64 `yaml:"weight"`
	// Threshold is the least score that lets the total through, from 0 to 1, with the rule gate. Default (nil): it holds nothing up.
	Threshold *float64 `yaml:"threshold"`
	// Marker is what stands before the answer; the last one counts. For auto, exact, numeric. Default "####".
	Marker string `yaml:"marker"`
	// Pattern is a regular expression (RE2 syntax) for kind regex. Default: the task's ground truth.
	Pattern string `yaml:"pattern"`
	// Normalize lists what is done to answer and ground truth before they are compared: trim (white space around), lower
	// (lower case), spaces (each run of white space is one space). For auto, exact, contains. Default (nil) all three; an
	// empty list compares byte for byte.
	Normalize []string `yaml:"normalize"`
	// Tolerance is how far the answer's number may be from the ground truth, in its own unit. For auto, numeric. Default
	// 0: equal as exact fractions.
	Tolerance float64 `yaml:"tolerance"`
	// From says which text is judged: final (what was submitted, else the last thing the model said) or content (the last
	// thing the model said, also when something was submitted). Default final.
	From string `yaml:"from"`
	// With holds the options of a kind given to New, a JSON object; ReadOptions decodes it. Built-in kinds take none.
	With json.RawMessage `yaml:"with"`
}

// Kinds of graders that come with the program.
const (
	KindAuto     = "auto"
	KindExact    = "exact"
	KindNumeric  = "numeric"
	KindContains = "contains"
	KindRegex    = "regex"
	KindNone     = "none"
)

// What Spec.From may say.
const (
	FromFinal   = "final"
	FromContent = "content"
)

const defaultMarker = "####"

// options lists, for each built-in kind, the options it takes.
func options() map[string][]string {
	return map[string][]string{
		KindAuto:     {"marker", "normalize", "tolerance"},
		KindExact:    {"marker", "normalize"},
		KindNumeric:  {"marker", "tolerance"},
		KindContains: {"normalize"},
		KindRegex:    {"pattern"},
		KindNone:     nil,
	}
}

// BuiltIn tells the kinds that come with this package.
func BuiltIn(kind string) bool {
	_, ok := options()[kind]
	return ok
}

// Validate reports every fault of the configuration at once. It knows the built-in kinds only; New also accepts the kinds
// it is given.
func (c Config) Validate() error {
	takes := options()
	for _, k := range groupKinds() {
		takes[k.Name] = []string{"with"}
	}
	return c.validate(takes)
}

func (c Config) validate(kinds map[string][]string) error {
	c = c.withDefaults()
	var errs []error
	names := make(map[string]bool, len(c.Graders))
	weight, gates := 0.0, false
	for i, s := range c.Graders {
		for _, err := range s.faults(kinds) {
			errs = append(errs, fmt.Errorf("graders[%d] (%s): %w", i, s.Name, err))
		}
		if names[s.Name] {
			errs = append(errs, fmt.Errorf("graders[%d]: a grader named %q is there already", i, s.Name))
		}
		if s.Kind == KindNone && len(c.Graders) > 1 {
			errs = append(errs, fmt.Errorf("graders[%d] (%s): kind none stands alone: the total would always be missing", i, s.Name))
		}
		names[s.Name] = true
		weight += *s.Weight
		gates = gates || s.Threshold != nil
	}
	errs = append(errs, c.nested()...)
	if weight == 0 {
		errs = append(errs, errors.New("graders: every weight is 0, expected one above 0"))
	}
	if !slices.Contains(Rules(), c.Total) {
		errs = append(errs, fmt.Errorf("total: %q, expected one of %s", c.Total, strings.Join(Rules(), ", ")))
	}
	switch {
	case gates && c.Total != Gate:
		errs = append(errs, fmt.Errorf("threshold: means nothing to total %s, only to %s", c.Total, Gate))
	case !gates && c.Total == Gate:
		errs = append(errs, errors.New("total: gate, expected a threshold on one grader or more"))
	}
	if c.Workers < 0 {
		errs = append(errs, fmt.Errorf("workers: %d, expected 1 or more, or 0 for the default", c.Workers))
	}
	if c.Waiters < 0 {
		errs = append(errs, fmt.Errorf("waiters: %d, expected 1 or more, or 0 for the default", c.Waiters))
	}
	if c.Queue < 0 {
		errs = append(errs, fmt.Errorf("queue: %d, expected 1 or more, or 0 for the default", c.Queue))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout: %s, expected more than 0s, or 0s for the default", c.Timeout))
	}
	if c.Pause < 0 {
		errs = append(errs, fmt.Errorf("pause: %s, expected more than 0s, or 0s for the default", c.Pause))
	}
	if c.MaxAbandoned < 0 {
		errs = append(errs, fmt.Errorf("max_abandoned: %d, expected 1 or more, or 0 for the default", c.MaxAbandoned))
	}
	return errors.Join(errs...)
}

// Rules are those that Config.Total takes.
func Rules() []string { return []string{WeightedSum, Gate, Product, Minimum} }

// nested refuses names under which parts of another component may be stored.
func (c Config) nested() (errs []error) {
	for _, s := range c.Graders {
		for _, of := range c.Graders {
			if strings.HasPrefix(s.Name, of.Name+".") {
				errs = append(errs, fmt.Errorf("graders: the name %q is kept for parts of %q", s.Name, of.Name))
			}
		}
	}
	return errs
}

// faults lists what is wrong with one spec, defaults filled in.
func (s Spec) faults(kinds map[string][]string) (errs []error) {
	takes, known := kinds[s.Kind]
	if !known {
		return []error{fmt.Errorf("kind: %q, expected one of %s", s.Kind, strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))}
	}
	given := map[string]bool{
		"marker": s.Marker != "", "pattern": s.Pattern != "", "normalize": s.Normalize != nil, "tolerance": s.Tolerance != 0, "with": len(s.With) > 0,
	}
	for _, opt := range slices.Sorted(maps.Keys(given)) {
		if given[opt] && !slices.Contains(takes, opt) {
			errs = append(errs, fmt.Errorf("%s: means nothing to kind %s", opt, s.Kind))
		}
	}
	if w := *s.Weight; !(w >= 0) || math.IsInf(w, 0) {
		errs = append(errs, fmt.Errorf("weight: %v, expected 0 or more", w))
	}
	if t := s.Threshold; t != nil && !isScore(*t) {
		errs = append(errs, fmt.Errorf("threshold: %v, expected 0 to 1", *t))
	}
	if t := s.Tolerance; !(t >= 0) || math.IsInf(t, 0) {
		errs = append(errs, fmt.Errorf("tolerance: %v, expected 0 or more", t))
	}
	if _, err := regexp.Compile(s.Pattern); err != nil {
		errs = append(errs, fmt.Errorf("pattern: %w (RE2 syntax)", err))
	}
	for _, n := range s.Normalize {
		if !slices.Contains([]string{trim, lower, spaces}, n) {
			errs = append(errs, fmt.Errorf("normalize: %q, expected trim, lower or spaces", n))
		}
	}
	if s.From != FromFinal && s.From != FromContent {
		errs = append(errs, fmt.Errorf("from: %q, expected %s or %s", s.From, FromFinal, FromContent))
	}
	return errs
}

func (c Config) withDefaults() Config {
	if len(c.Graders) == 0 {
		c.Graders = []Spec{{Name: "answer"}}
	}
	c.Graders = slices.Clone(c.Graders)
	for i := range c.Graders {
		c.Graders[i] = c.Graders[i].withDefaults()
	}
	if c.Workers == 0 {
		c.Workers = runtime.NumCPU()
	}
	if c.Waiters == 0 {
		c.Waiters = 256
	}
	if c.Queue == 0 {
		c.Queue = 16 * c.Workers
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.Retries == 0 {
		c.Retries = 2
	}
	if c.Pause == 0 {
		c.Pause = 100 * time.Millisecond
	}
	if c.MaxAbandoned == 0 {
		c.MaxAbandoned = 16
	}
	if c.Total == "" {
		c.Total = WeightedSum
	}
	return c
}

// filled sets the options of a built-in kind that were not given.
func (s Spec) filled() Spec {
	takes := options()[s.Kind]
	if s.Marker == "" && slices.Contains(takes, "marker") {
		s.Marker = defaultMarker
	}
	if s.Normalize == nil && slices.Contains(takes, "normalize") {
		s.Normalize = []string{trim, lower, spaces}
	}
	return s
}

// withDefaults leaves Marker and Normalize alone: whether they were given tells a mistake.
func (s Spec) withDefaults() Spec {
	if s.Kind == "" {
		s.Kind = KindAuto
	}
	if s.Name == "" {
		s.Name = s.Kind
	}
	if s.Weight == nil {
		weight := 1.0
		if s.Kind == KindMajority || s.Kind == KindGroupLength {
			weight = 0
		}
		s.Weight = &weight
	}
	if s.From == "" {
		s.From = FromFinal
	}
	return s
}
