package mathgrade

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Options are the options of kind math. The zero value is valid and has every default.
type Options struct {
	// Extract lists the ways in which the answer is looked for in a text, in order: boxed (the last \boxed{}), marked (behind the last
	// of Markers), whole (all of a short text), last (the last mathematics between dollar signs and the like, or the last number). The
	// first that finds one counts. Default all four.
	Extract []string `json:"extract"`
	// Markers are what may stand before an answer; large and small letters are the same. Default "####", "final answer:", "final answer
	// is", "answer is", "answer:".
	Markers []string `json:"markers"`
	// Boxes says what several boxes that differ mean: agree (the answer hedges: it is ambiguous and scores 0) or last (the last counts).
	// Default agree.
	Boxes string `json:"boxes"`
	// Comma says what a comma between digits is: thousands (1,234 is 1234; it may also part two numbers) or decimal (1,5 is 1.5 and 1.234,5 is
	// 1234.5; a semicolon parts numbers). Default thousands.
	Comma string `json:"comma"`
	// Tolerance is how far a number may be from the truth. Default 0.
	Tolerance float64 `json:"tolerance"`
	// Relative is the same as a share of the truth: 0.01 is one per cent. Default 0.
	Relative float64 `json:"relative"`
	// Digits is how many significant digits a decimal must show to stand for a value that it rounds (0.333333 for 1/3); 0 = a decimal is only
	// ever itself. Between two decimals nothing is rounded. Default (nil) 6.
	Digits *int `json:"digits"`
	// Units: compatible (what both state must agree, 5 m is 500 cm; one alone is passed over), strict (an answer must state the truth's),
	// ignore. Default compatible.
	Units string `json:"units"`
	// Percent: same (50% is 50 and 0.5) or strict (50% is 0.5 alone). Default same.
	Percent string `json:"percent"`
	// Simplify: required (where the truth is a number, 2^3 or 3+5 is no answer) or any. Default required.
	Simplify string `json:"simplify"`
	// Inequality says when an inequality answers a truth that is an interval: solved (x < 3, the variable alone), never, any. Default
	// solved.
	Inequality string `json:"inequality"`
	// Echo: refuse (an expression, equation or inequality that stands in the task as it is, and not in the truth, scores 0) or allow.
	// Default refuse.
	Echo string `json:"echo"`
}

const defaultDigits = 6

func (o Options) digits() int {
	if o.Digits == nil {
		return defaultDigits
	}
	return *o.Digits
}

// Validate reports every fault at once.
func (o Options) Validate() error {
	var errs []error
	o = o.withDefaults()
	for i, w := range o.Extract {
		if !slices.Contains([]string{Boxed, Marked, Whole, Last}, w) {
			errs = append(errs, fmt.Errorf("extract[%d]: %q, expected boxed, marked, whole or last", i, w))
		}
	}
	for i, m := range o.Markers {
		if strings.TrimSpace(m) == "" {
			errs = append(errs, fmt.Errorf("markers[%d]: is empty", i))
		}
	}
	for name, v := range map[string]float64{"tolerance": o.Tolerance, "relative": o.Relative} {
		if !(v >= 0) || math.IsInf(v, 0) {
			errs = append(errs, fmt.Errorf("%s: %v, expected 0 or more", name, v))
		}
	}
	if d := o.digits(); d < 0 || d > maxDigits {
		errs = append(errs, fmt.Errorf("digits: %d, expected 0 to %d", d, maxDigits))
	}
	for _, c := range []struct {
		name, value string
		of          []string
	}{
		{"boxes", o.Boxes, []string{"agree", "last"}},
		{"comma", o.Comma, []string{"thousands", "decimal"}},
		{"units", o.Units, []string{"compatible", "strict", "ignore"}},
		{"percent", o.Percent, []string{"same", "strict"}},
		{"simplify", o.Simplify, []string{"required", "any"}},
		{"inequality", o.Inequality, []string{"solved", "never", "any"}},
		{"echo", o.Echo, []string{"refuse", "allow"}},
	} {
		if !slices.Contains(c.of, c.value) {
			errs = append(errs, fmt.Errorf("%s: %q, expected one of %s", c.name, c.value, strings.Join(c.of, ", ")))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

func (o Options) withDefaults() Options {
	if len(o.Extract) == 0 {
		o.Extract = []string{Boxed, Marked, Whole, Last}
	}
	if len(o.Markers) == 0 {
		o.Markers = []string{"####", "final answer:", "final answer is", "answer is", "answer:"}
	}
	for _, f := range []struct {
		to    *string
		value string
	}{
		{&o.Boxes, "agree"}, {&o.Comma, "thousands"}, {&o.Units, "compatible"}, {&o.Percent, "same"}, {&o.Simplify, "required"}, {&o.Inequality, "solved"}, {&o.Echo, "refuse"},
	} {
		if *f.to == "" {
			*f.to = f.value
		}
	}
	return o
}
