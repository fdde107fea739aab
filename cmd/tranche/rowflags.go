package main

import (
	"fmt"
	"reflect"

	"tranche/storage"
)

// rowFlags choose rows of a run; the commands that read rows share them: a field `Rows rowFlags` with the tag embed:"".
type rowFlags struct {
	Conditions rowConditions `embed:""`
	Failures   bool          `group:"rows" help:"Rows of failures/ too. Default: only good rows."`
}

// rowConditions are those of them that a command takes which counts failed rows in any case.
type rowConditions struct {
	Domain      []string `sep:"none" group:"rows" placeholder:"NAME" help:"Only rows with this data_source; may be repeated. \"\" = rows that have none."`
	Split       []string `sep:"none" group:"rows" placeholder:"NAME" help:"Only rows with this split; may be repeated."`
	Task        []string `sep:"none" group:"rows" placeholder:"ID" help:"Only rows of this task_id; may be repeated."`
	Status      []string `sep:"none" group:"rows" placeholder:"NAME" help:"Only rows with this status: completed, truncated, failed, cancelled; may be repeated."`
	Stop        []string `sep:"none" group:"rows" placeholder:"NAME" help:"Only rows with this stop_reason, as stop or length; may be repeated."`
	MinReward   *float64 `group:"rows" placeholder:"R" help:"Only rows with a reward of R or more; a row without a verdict has none."`
	MaxReward   *float64 `group:"rows" placeholder:"R" help:"Only rows with a reward of R or less; a row without a verdict has none."`
	Scored      bool     `group:"rows" help:"Only rows with a verdict."`
	Flag        []string `sep:"none" group:"rows" placeholder:"NAME" help:"Only rows with this flag, as zero_variance; repeated: with all of them."`
	WithoutFlag []string `sep:"none" group:"rows" placeholder:"NAME" help:"Only rows without this flag; repeated: without any of them."`
}

// filter is what the flags ask for. Its Validate says what is wrong with them.
func (f *rowFlags) filter() storage.Filter {
	filter := f.Conditions.filter()
	filter.Failures = f.Failures
	return filter
}

// filter takes good rows.
func (f *rowConditions) filter() storage.Filter {
	return storage.Filter{
		DataSources: f.Domain, Splits: f.Split, Tasks: f.Task, Status: f.Status, Stops: f.Stop,
		MinReward: f.MinReward, MaxReward: f.MaxReward, Scored: f.Scored, Flags: f.Flag, NotFlags: f.WithoutFlag,
	}
}

// text is what was asked for, for people: ", " and a flag, for each that was given.
func (f *rowFlags) text(given map[string]bool) string {
	text := f.Conditions.text(given)
	if given["failures"] {
		text += ", --failures " + string(encode(f.Failures))
	}
	return text
}

func (f *rowConditions) text(given map[string]bool) (text string) {
	flags := reflect.ValueOf(*f)
	for i := range flags.NumField() {
		if name := kebab(flags.Type().Field(i).Name); given[name] {
			text += fmt.Sprintf(", --%s %s", name, encode(flags.Field(i).Interface()))
		}
	}
	return text
}
