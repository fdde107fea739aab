package taskfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"tranche/episode"
)

// Format names the shape of the rows.
type Format string

// Formats. Auto takes each row by its own shape; the others refuse rows that lack what the format demands.
const (
	FormatAuto    Format = "auto"         // an OpenAI batch row where custom_id, url and body are there, else any of the others
	FormatTranche Format = "tranche"      // id, prompt or messages, system, tools, answer, data_source, …
	FormatVerl    Format = "verl"         // data_source, prompt (messages), reward_model{style, ground_truth}, extra_info
	FormatSkyRL   Format = "skyrl"        // prompt (messages), env_class, reward_spec{method, ground_truth}, extra_info
	FormatBatch   Format = "openai-batch" // custom_id, method, url, body; chat completions only
)

// Formats lists every format, for help texts and messages.
func Formats() []string {
	return []string{string(FormatAuto), string(FormatTranche), string(FormatVerl), string(FormatSkyRL), string(FormatBatch)}
}

// DefaultMaxLineBytes is the line cap when Config.MaxLineBytes is 0.
const DefaultMaxLineBytes = 64 << 20

// Config says what to read and how.
type Config struct {
	// Paths are the task files, read in this order as one input. JSON Lines (plain or gzip) and Parquet are told apart by
	// content, not by name. At least one; each must be a regular file, because it is read twice.
	Paths []string
	// Templates make fields from any columns; an empty one is not used.
	Templates Templates
	// Format of the rows. Default "" = auto.
	Format Format
	// SkipBad turns a bad row into a counted, listed skip. Default false: a bad row is an error. Faults of a whole file (missing,
	// empty, corrupt compression) are errors either way.
	SkipBad bool
	// Offset is how many tasks to pass over first, bad rows and duplicates not counted. Default 0.
	Offset int64
	// Limit is how many tasks to give at most, tasks. Default 0 = all. Rows after the last one given are not read.
	Limit int64
	// MaxLineBytes is the longest line accepted, bytes. Default 0 = 64 MiB. A longer one is a bad row.
	MaxLineBytes int
	// Distinct says that no two rows have the same id, as Check found (Report.Distinct): then a Reader remembers none, 24 bytes a
	// task less. Default false: ids are compared.
	Distinct bool
	// Sound says what else is wrong with a task, which makes its row a bad one. Default nil: nothing.
	Sound func(*episode.Task) error
	// OpenRows reads a Parquet file row by row as JSON objects; it is called once a pass. Default nil: Parquet files are refused.
	OpenRows func(path string) iter.Seq2[json.RawMessage, error]
}

// Templates are text/template texts over the columns of a row: {{.question}}. Besides the string, list, number and JSON functions
// of slim-sprig (nothing that reads the environment, the clock, the network or a random source) there are after, afterLast and
// before: {{.answer | afterLast "####"}}. A column that a row lacks is an error; {{if hasKey . "hint"}} asks first.
type Templates struct {
	// ID makes Task.ID; must not come out blank.
	ID string
	// Prompt makes the one user message, in place of the row's own prompt or messages; must not come out blank.
	Prompt string
	// System makes the system message, in place of the row's own. Blank = none.
	System string
	// Answer makes Task.Answer, in place of the row's own, spaces around it removed. Blank = the task states no answer.
	Answer string
	// DataSource and EnvClass make the labels of those names.
	DataSource, EnvClass string
}

// Validate reports every fault of the settings at once, those of the templates included. It does not look at the files.
func (c Config) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Paths) == 0 {
		fault("tasks: no file named; expected at least one task file")
	}
	if f := c.format(); !slices.Contains(Formats(), string(f)) {
		fault("format %q: expected one of %s", f, strings.Join(Formats(), ", "))
	}
	if c.Offset < 0 {
		fault("offset %d: expected 0 or more tasks", c.Offset)
	}
	if c.Limit < 0 {
		fault("limit %d: expected 0 (all) or more tasks", c.Limit)
	}
	if c.MaxLineBytes < 0 {
		fault("longest line %d: expected 0 (64 MiB) or more bytes", c.MaxLineBytes)
	}
	if _, err := compileAll(c.Templates); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c Config) format() Format {
	if c.Format == "" {
		return FormatAuto
	}
	return c.Format
}

func (c Config) maxLineBytes() int {
	if c.MaxLineBytes == 0 {
		return DefaultMaxLineBytes
	}
	return c.MaxLineBytes
}
