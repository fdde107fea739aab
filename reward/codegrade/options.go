package codegrade

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Options of kind code, as a settings file writes them beside name and weight. Zero fields take the defaults.
type Options struct {
	// Form says what the tests are: asserts (Python code), function (arguments and results), stdin (input and output), repo (a file tree
	// with its own tests). Default auto: by the columns that a task has.
	Form string `json:"form"`
	// Tests is the column with tests that are code, a text or a list of texts. Default: test, test_list, or the ground truth.
	Tests string `json:"tests"`
	// Entry is the column that names the function to be tested; Function names it for all tasks. Default entry_point, fn_name or func_name.
	Entry    string `json:"entry"`
	Function string `json:"function"`
	// Setup is the column with code that runs behind the answer and before the tests; it holds no expected value. Default test_setup_code.
	Setup string `json:"setup"`
	// Prompt is the column with the code that the answer goes on from (HumanEval). Default prompt, else the task's last message.
	Prompt string `json:"prompt"`
	// Inputs and Outputs are columns with lists: the arguments of each test and what is expected. Default inputs and outputs, in the row or in
	// the ground truth.
	Inputs  string `json:"inputs"`
	Outputs string `json:"outputs"`
	// Checker is the column of form stdin with Python code that decides on outputs: check(input, expected, output), True or False. Default checker;
	// a task without one has its outputs compared.
	Checker string `json:"checker"`
	// Syntax of Inputs and Outputs of form function: json, or python (texts of Python: "1, 'a'" and "[2]"). Default json.
	Syntax string `json:"syntax"`
	// Reference is the column with a solution that is known to be right. Where it is set, an answer that passes all tests is measured against
	// it: component NAME.speed, raw = CPU time of the answer over that of the reference, in the same kind of slot. Default: not measured.
	Reference string `json:"reference"`

	// Extract says which part of the answer is the program: fence (the last fenced block, or all of it where there is none), all, or only
	// (the last fenced block; none is no program). Default fence.
	Extract string `json:"extract"`
	// Join puts the prompt before the program: always, never, or auto: where the task has an entry point and a prompt that is code.
	Join string `json:"join"`

	// Sample is how many tests are run, chosen by Seed and the task's id. 0 = all.
	Sample int    `json:"sample"`
	Seed   uint64 `json:"seed"`
	// Tiers are the weights of what an answer reached, in the score: compiles, runs, share (of the tests), all (of them). Default {all: 1}.
	Tiers map[string]float64 `json:"tiers"`
	// Compare is how values are compared: typed, json, python. Default python for asserts, json for function.
	Compare string `json:"compare"`
	// Tolerance is how far a float may be from the expected one, absolute and relative to it. Default 0.
	Tolerance float64 `json:"tolerance"`
	// Output is how the output of form stdin is compared: tokens (words, whatever is between them), lines (without spaces at their ends and
	// empty lines at the end), exact. Default tokens.
	Output string `json:"output"`

	// CPU is the CPU time of all tests of an answer together, TestCPU that of one test. Default 10s or half of Wall, and 4s or CPU where that is less.
	CPU     time.Duration `json:"cpu"`
	TestCPU time.Duration `json:"test-cpu"`
	// Wall is the time of all tests of an answer together, twice CPU or more: of a program that works more than half of its time the machine is taken to be
	// too busy, and there is no verdict. The reward timeout has to be longer. Default 20s, or twice CPU.
	Wall time.Duration `json:"wall"`

	// Repo are the options of form repo.
	Repo RepoOptions `json:"repo"`
}

// Forms of tests.
const (
	FormAuto     = "auto"
	FormAsserts  = "asserts"
	FormFunction = "function"
	FormStdin    = "stdin"
	FormRepo     = "repo"
)

// tiers in their order.
func tierNames() []string { return []string{"compiles", "runs", "share", "all"} }

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		field   *string
		standin string
	}{{&o.Form, FormAuto}, {&o.Syntax, "json"}, {&o.Extract, "fence"}, {&o.Join, "auto"}, {&o.Output, "tokens"}} {
		if *d.field == "" {
			*d.field = d.standin
		}
	}
	if o.Tiers == nil {
		o.Tiers = map[string]float64{"all": 1}
	}
	if o.Wall == 0 {
		o.Wall = max(20*time.Second, 2*o.CPU)
	}
	if o.CPU == 0 {
		o.CPU = min(10*time.Second, o.Wall/2)
	}
	if o.TestCPU == 0 {
		o.TestCPU = min(4*time.Second, o.CPU)
	}
	o.Repo = o.Repo.withDefaults()
	return o
}

// Validate reports every fault at once.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	for _, c := range []struct {
		name, value string
		known       []string
	}{
		{"form", o.Form, []string{FormAuto, FormAsserts, FormFunction, FormStdin, FormRepo}},
		{"syntax", o.Syntax, []string{"json", "python"}},
		{"extract", o.Extract, []string{"fence", "all", "only"}},
		{"join", o.Join, []string{"auto", "always", "never"}},
		{"compare", o.Compare, []string{"", CompareTyped, CompareJSON, ComparePython}},
		{"output", o.Output, []string{"tokens", "lines", "exact"}},
	} {
		if !slices.Contains(c.known, c.value) {
			errs = append(errs, fmt.Errorf("%s: %q, expected %s", c.name, c.value, strings.TrimPrefix(strings.Join(c.known, ", "), ", ")))
		}
	}
	if o.Sample < 0 {
		errs = append(errs, fmt.Errorf("sample: %d, expected 1 or more, or 0 for all tests", o.Sample))
	}
	if !(o.Tolerance >= 0) || math.IsInf(o.Tolerance, 0) {
		errs = append(errs, fmt.Errorf("tolerance: %v, expected 0 or more", o.Tolerance))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"cpu", o.CPU}, {"test-cpu", o.TestCPU}, {"wall", o.Wall}} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("%s: %s, expected more than 0s", d.name, d.value))
		}
	}
	if o.CPU > 0 && o.TestCPU > o.CPU {
		errs = append(errs, fmt.Errorf("test-cpu: %s, expected no more than cpu, which is %s", o.TestCPU, o.CPU))
	}
	if o.Wall > 0 && o.CPU > o.Wall/2 {
		errs = append(errs, fmt.Errorf("cpu: %s, expected no more than half of wall, which is %s", o.CPU, o.Wall))
	}
	return errors.Join(slices.Concat(errs, o.tierFaults(), o.Repo.faults())...)
}

func (o Options) tierFaults() (errs []error) {
	if len(o.Tiers) == 0 {
		return []error{fmt.Errorf("tiers: there is none, expected some of %s with their weights", strings.Join(tierNames(), ", "))}
	}
	sum := 0.0
	for _, name := range sortedKeys(o.Tiers) {
		w := o.Tiers[name]
		if !slices.Contains(tierNames(), name) {
			errs = append(errs, fmt.Errorf("tiers: %q, expected %s", name, strings.Join(tierNames(), ", ")))
		}
		if !(w >= 0) || math.IsInf(w, 0) {
			errs = append(errs, fmt.Errorf("tiers: %s: %v, expected 0 or more", name, w))
		}
		sum += w
	}
	if len(errs) == 0 && !(sum > 0 && sum <= math.MaxFloat64) {
		errs = append(errs, errors.New("tiers: every weight is 0, expected one above 0"))
	}
	return errs
}
