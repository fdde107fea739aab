package main

import "tranche/storage"

// rowFlags choose rows of a run; the commands that read rows share them: a field `Rows rowFlags` with the tag embed:"".
type rowFlags struct {
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
	Failures    bool     `group:"rows" help:"Rows of failures/ too. Default: only good rows."`
}

// filter is what the flags ask for. Its Validate says what is wrong with them.
func (f *rowFlags) filter() storage.Filter {
	return storage.Filter{
		DataSources: f.Domain, Splits: f.Split, Tasks: f.Task, Status: f.Status, Stops: f.Stop,
		MinReward: f.MinReward, MaxReward: f.MaxReward, Scored: f.Scored, Flags: f.Flag, NotFlags: f.WithoutFlag, Failures: f.Failures,
	}
}
