package storage

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"tranche/episode"
)

// Filter chooses rows. The zero value takes every good row and none of failures/. A list that is not empty takes the rows that have one of its
// values; fields are joined by "and".
type Filter struct {
	// DataSources, Splits and Tasks are values of data_source, split and task_id; "" stands for rows that have none.
	DataSources, Splits, Tasks []string
	// Status and Stops are values of status and stop_reason. A status of failures/ that is named (failed, cancelled) takes those rows, also without Failures.
	Status, Stops []string
	// MinReward and MaxReward are the least and the most reward, both taken. A row without a verdict has none and is not taken. nil = no bound.
	MinReward, MaxReward *float64
	// Scored takes rows with a verdict only.
	Scored bool
	// Flags must all be on a row, NotFlags must none be.
	Flags, NotFlags []string
	// Failures takes the rows of failures/ too, failed and cut ones.
	Failures bool
}

// Match reports whether the filter takes the row.
func (f Filter) Match(r *Row) bool { return f.Refusal(r) == "" }

// Refusal is the first condition that does not take the row, in the words of a report: "failures", "data_source", "reward" …; "" = it is taken.
func (f Filter) Refusal(r *Row) string {
	switch {
	case r.failed() && !f.Failures && !slices.Contains(f.Status, text(r.Status)):
		return "failures"
	case !among(f.Status, text(r.Status)):
		return "status"
	case !among(f.Stops, text(r.StopReason)):
		return "stop_reason"
	case !among(f.DataSources, r.DataSource):
		return "data_source"
	case !among(f.Splits, r.Split):
		return "split"
	case !among(f.Tasks, r.TaskID):
		return "task_id"
	case !f.takesReward(r.Reward):
		return "reward"
	case !f.takesFlags(r.Flags):
		return "flags"
	}
	return ""
}

// TakesFailures reports whether the filter can take rows of failures/.
func (f Filter) TakesFailures() bool { return f.Failures || slices.ContainsFunc(f.Status, IsLost) }

func among(wanted []string, value string) bool {
	return len(wanted) == 0 || slices.Contains(wanted, value)
}

func (f Filter) takesReward(reward *float64) bool {
	if reward == nil {
		return !f.Scored && f.MinReward == nil && f.MaxReward == nil
	}
	return (f.MinReward == nil || *reward >= *f.MinReward) && (f.MaxReward == nil || *reward <= *f.MaxReward)
}

func (f Filter) takesFlags(flags []string) bool {
	for _, want := range f.Flags {
		if !slices.Contains(flags, want) {
			return false
		}
	}
	return !slices.ContainsFunc(f.NotFlags, func(not string) bool { return slices.Contains(flags, not) })
}

// Validate reports every fault at once. A status, stop reason or flag that no row can have is one: it would take nothing, or leave nothing out, in
// silence.
func (f Filter) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	known := func(what string, values, all []string) {
		for _, v := range values {
			if !slices.Contains(all, v) {
				bad("%s: no row has %q; expected %s", what, v, strings.Join(all, ", "))
			}
		}
	}
	known("status", f.Status, statuses())
	known("stop reason", f.Stops, stops())
	known("flag", f.Flags, rowFlags())
	known("flag", f.NotFlags, rowFlags())
	for _, flag := range f.Flags {
		if slices.Contains(f.NotFlags, flag) {
			bad("flag: %s is wanted and not wanted", flag)
		}
	}
	for _, bound := range []*float64{f.MinReward, f.MaxReward} {
		if bound != nil && math.IsNaN(*bound) {
			bad("reward: expected a number, found NaN")
		}
	}
	if f.MinReward != nil && f.MaxReward != nil && *f.MinReward > *f.MaxReward {
		bad("reward: the least, %v, is over the most, %v", *f.MinReward, *f.MaxReward)
	}
	return errors.Join(errs...)
}

func statuses() []string {
	return words(episode.StatusCompleted, episode.StatusTruncated, episode.StatusFailed, episode.StatusCancelled)
}

func stops() []string {
	return words(episode.StopStop, episode.StopUnknown, episode.StopOther, episode.StopSubmit, episode.StopToolCalls, episode.StopLength, episode.StopContextFull,
		episode.StopMaxTurns, episode.StopBudget, episode.StopFault, episode.StopQuorum)
}

// rowFlags are all flags that a row can have; docs/format.md lists the same.
func rowFlags() []string {
	return []string{
		episode.FlagTextRepaired, episode.FlagLogprobNull, episode.FlagLogprobsMissing, episode.FlagTokenIDsMissing,
		episode.FlagTokenCountDiffers, episode.FlagPromptIDsMissing, episode.FlagUsageMissing, episode.FlagFinishMissing, episode.FlagCallIDsMade, episode.FlagPromptCut, episode.FlagThinkingTagged, episode.FlagThinkingCut,
		episode.FlagRefused, episode.FlagResumed, FlagNonFinite, FlagZeroVariance,
	}
}

func words[T ~string](list ...T) []string {
	out := make([]string, len(list))
	for i, w := range list {
		out[i] = string(w)
	}
	return out
}
