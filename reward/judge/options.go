package judge

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"tranche/reward"
)

// KindName is what Spec.Kind says.
const KindName = "judge"

// Forms of judging.
const (
	Equal  = "equal"  // answer and reference state the same: yes or no
	Prefer = "prefer" // which of answer and reference is better
	YesNo  = "yes_no" // the answer is right: yes or no
	Scale  = "scale"  // a whole number from 0 to Options.Scale
	Rubric = "rubric" // yes or no for each of Options.Items
)

// What Options.Disagree may say.
const (
	DisagreeNone = "no_verdict"
	DisagreeZero = "zero"
)

// Options are those of the kind.
type Options struct {
	// Form is how it judges. Default equal.
	Form string `json:"form"`
	// Template is a file with a text/template in the place of the form's own. Default none.
	Template string `json:"template"`
	// Votes is how often the judge is asked, an odd number; each time with a seed of its own. Default 1.
	Votes int `json:"votes"`
	// Swap asks twice for each vote, with the two answers the other way round; a vote counts where both say the same. For equal and
	// prefer. Default true.
	Swap *bool `json:"swap"`
	// Disagree is what a judge gets that comes to no majority: no_verdict, or zero. Default no_verdict.
	Disagree string `json:"disagree"`
	// Tie is the score of an answer that is as good as the reference, with prefer. Default 0.5.
	Tie *float64 `json:"tie"`
	// Scale is the highest number of the form scale. Default 10.
	Scale int `json:"scale"`
	// Items are those of a rubric.
	Items []Item `json:"items"`
	// Temperature of the judge. Default 0.
	Temperature float64 `json:"temperature"`
	// MaxTokens bounds the judge's answer, its thinking included. Default 2048.
	MaxTokens int `json:"max-tokens"`
	// Timeout is for all votes on one answer, waits in the queue included. Default 5m.
	Timeout time.Duration `json:"timeout"`
	// Endpoints are servers of the judge's own. Default: the run's.
	Endpoints []Endpoint `json:"endpoint"`
	// Probe is the trial before the run.
	Probe Probe `json:"probe"`
}

// Item is one question of a rubric.
type Item struct {
	Name   string   `json:"name"`
	Ask    string   `json:"ask"`
	Weight *float64 `json:"weight"` // among the items. Default 1
}

// Endpoint is a server of the judge's own.
type Endpoint struct {
	URL         string `json:"url"`
	Model       string `json:"model"`
	APIKeyEnv   string `json:"api-key-env"`
	Concurrency int    `json:"concurrency"` // calls at once; 0 = as for any endpoint
}

// Probe says how a judge is tried before a run begins.
type Probe struct {
	// Tasks is how many tasks it is tried on; 0 = none. Default 8.
	Tasks int `json:"tasks"`
	// Most is the share of trivial answers that may be judged right. Default 0.05.
	Most float64 `json:"most"`
}

// ReadOptions reads the options of a spec and fills in defaults. It reports every fault at once.
func ReadOptions(s reward.Spec) (Options, error) {
	o := Options{Form: Equal, Votes: 1, Disagree: DisagreeNone, Scale: 10, MaxTokens: 2048, Timeout: 5 * time.Minute, Probe: Probe{Tasks: 8, Most: 0.05}}
	if err := reward.ReadOptions(s, &o); err != nil {
		return o, err
	}
	err := o.Validate()
	swap, tie := o.compares(), 0.5
	if o.Swap == nil {
		o.Swap = &swap
	}
	if o.Tie == nil {
		o.Tie = &tie
	}
	for i := range o.Items {
		if weight := 1.0; o.Items[i].Weight == nil {
			o.Items[i].Weight = &weight
		}
	}
	return o, err
}

func (o Options) compares() bool { return o.Form == Equal || o.Form == Prefer }

// Validate reports every fault at once.
func (o Options) Validate() error {
	var errs []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	forms := []string{Equal, Prefer, YesNo, Scale, Rubric}
	fault(!slices.Contains(forms, o.Form), "form: %q, expected one of %s", o.Form, strings.Join(forms, ", "))
	fault(o.Votes < 1 || o.Votes%2 == 0, "votes: %d, expected an odd number, so that there is a majority", o.Votes)
	fault(o.Swap != nil && *o.Swap && !o.compares(), "swap: form %s compares no two answers", o.Form)
	fault(o.Tie != nil && o.Form != Prefer, "tie: means nothing to form %s", o.Form)
	fault(o.Tie != nil && !(*o.Tie >= 0 && *o.Tie <= 1), "tie: expected 0 to 1")
	fault(o.Disagree != DisagreeNone && o.Disagree != DisagreeZero, "disagree: %q, expected %s or %s", o.Disagree, DisagreeNone, DisagreeZero)
	fault(o.Scale < 1 || o.Scale > 1000, "scale: %d, expected 1 to 1000", o.Scale)
	fault(!(o.Temperature >= 0) || math.IsInf(o.Temperature, 0), "temperature: %v, expected 0 or more", o.Temperature)
	fault(o.MaxTokens < 1, "max-tokens: %d, expected 1 or more", o.MaxTokens)
	fault(o.Timeout <= 0, "timeout: %s, expected more than 0s", o.Timeout)
	fault(o.Probe.Tasks < 0 || o.Probe.Tasks > 1000, "probe.tasks: %d, expected 0 to 1000", o.Probe.Tasks)
	fault(!(o.Probe.Most >= 0 && o.Probe.Most < 1), "probe.most: %v, expected 0 to under 1", o.Probe.Most)
	for i, e := range o.Endpoints {
		fault(e.URL == "", "endpoint[%d].url: is missing", i)
		fault(e.Concurrency < 0, "endpoint[%d].concurrency: %d, expected 1 or more, or 0", i, e.Concurrency)
	}
	return errors.Join(append(errs, o.checkItems()...)...)
}

// itemName is what an item may be called: it is part of the name of a component and stands in the judge's answer.
var itemName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]*$`)

func (o Options) checkItems() (errs []error) {
	if (o.Form == Rubric) != (len(o.Items) > 0) {
		errs = append(errs, fmt.Errorf("items: %d with form %s; rubric alone takes items, and needs some", len(o.Items), o.Form))
	}
	seen, weight := map[string]bool{agreement: true}, 0.0
	for i, it := range o.Items {
		name := strings.ToLower(it.Name)
		if !itemName.MatchString(it.Name) || seen[name] {
			errs = append(errs, fmt.Errorf("items[%d].name: %q, expected letters, digits, - and _, a name of its own", i, it.Name))
		}
		if strings.TrimSpace(it.Ask) == "" {
			errs = append(errs, fmt.Errorf("items[%d].ask: is missing", i))
		}
		w := 1.0
		if it.Weight != nil {
			w = *it.Weight
		}
		if !(w >= 0) || math.IsInf(w, 0) {
			errs = append(errs, fmt.Errorf("items[%d].weight: %v, expected 0 or more", i, w))
		}
		seen[name], weight = true, weight+w
	}
	if len(o.Items) > 0 && !(weight > 0) {
		errs = append(errs, errors.New("items: every weight is 0, expected one above 0"))
	}
	return errs
}

//go:embed templates
var templates embed.FS

// text is the template in force.
func (o Options) text() (string, error) {
	if o.Template == "" {
		raw, err := templates.ReadFile("templates/" + o.Form + ".txt")
		return string(raw), err
	}
	raw, err := os.ReadFile(o.Template)
	if err != nil {
		return "", fmt.Errorf("template: %w", err)
	}
	return string(raw), nil
}

// decides is all that decides what is asked of which model, and what is made of it: not where servers and files are, nor how long it may take.
func (o Options) decides(template, model string) string {
	sum := sha256.Sum256([]byte(template))
	o.Template, o.Endpoints, o.Timeout, o.Probe = "", nil, 0, Probe{}
	text, err := json.Marshal(struct {
		Options
		Template, Model string
	}{o, hex.EncodeToString(sum[:]), model})
	if err != nil {
		panic("judge: " + err.Error()) // numbers that are not finite were refused
	}
	return string(text)
}
