package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"tranche/storage"
)

// Config says what is exported and in what shape. The zero value of every field but Shape is its default.
type Config struct {
	// Shape is the name of one of Shapes.
	Shape string
	// Format is JSONL or Parquet; default: the shape's first.
	Format string
	// Filter chooses the rows.
	Filter storage.Filter

	// Arguments is the form of tool arguments in messages: AsText (default) or AsObject, which Parquet cannot hold.
	Arguments string
	// Tools is the form of the tools: AsText, AsList, AsUnion or AsNone; default: the shape's. Ignored by a shape that has none.
	Tools string
	// Offer is what the model of a row was told it may call, a JSON list of definitions; nil = the row's own tools, where they are definitions. It is called
	// for one row after the other. An error leaves the row out.
	Offer func(*storage.Row) (json.RawMessage, error)

	// MaxLength leaves out rows with more token ids, in any of their sequences; 0 = no limit. A row whose ids are not known is left out too.
	MaxLength int
	// WholeGroups leaves out the rows of groups of which not all samples are taken.
	WholeGroups bool
	// DropBroken leaves out rows whose sequence was broken, in shapes that make several sequences of them.
	DropBroken bool
	// NoLogprobs writes no logprobs, and takes rows that lack them, in shapes that else need them.
	NoLogprobs bool

	// AllPairs makes a pair of any two samples of a group with different rewards. Default: of the best and the worst.
	AllPairs bool
	// MinGap is the least difference of the rewards of a pair; 0 = any.
	MinGap float64

	// Program names the program and its version, where a shape asks what made it. Default: tranche without a version.
	Program, Version string
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	shape, err := Named(c.Shape)
	if err != nil {
		return errors.Join(err, c.Filter.Validate())
	}
	c = c.withDefaults(shape)
	if !slices.Contains(shape.Formats, c.Format) {
		bad("format: %s is written as %s, not as %q", shape.Name, strings.Join(shape.Formats, " or "), c.Format)
	}
	if !slices.Contains([]string{AsText, AsObject}, c.Arguments) {
		bad("tool arguments: expected text or object, found %q", c.Arguments)
	}
	if c.Arguments == AsObject && c.Format == Parquet {
		bad("tool arguments: objects with other keys in every row have no one type in Parquet; write them as jsonl, or as text")
	}
	if !slices.Contains([]string{"", AsText, AsList, AsUnion, AsNone}, c.Tools) {
		bad("tools: expected text, list, union or none, found %q", c.Tools)
	}
	if c.MaxLength != 0 && shape.unit == eachTask {
		bad("maximum length: %s holds prompts, whose length is the trainer's to limit", shape.Name)
	}
	if c.WholeGroups && shape.unit == eachTask {
		bad("whole groups: %s holds one record a task", shape.Name)
	}
	if c.MaxLength < 0 {
		bad("maximum length: expected 0 or more, found %d", c.MaxLength)
	}
	if !shape.ids && (c.NoLogprobs || c.DropBroken) {
		bad("logprobs and broken prefixes: %s holds no token ids, so neither matters", shape.Name)
	}
	if shape.Name != "dpo" && (c.AllPairs || c.MinGap > 0) {
		bad("pairs and their gap: %s holds no pairs", shape.Name)
	}
	if c.MinGap < 0 || math.IsNaN(c.MinGap) {
		bad("least gap of a pair: expected 0 or more, found %v", c.MinGap)
	}
	return errors.Join(append(errs, c.Filter.Validate())...)
}

func (c Config) withDefaults(shape Shape) Config {
	set(&c.Format, shape.Formats[0])
	set(&c.Arguments, AsText)
	set(&c.Program, "tranche")
	if shape.Tools == "" {
		c.Tools = ""
	} else {
		set(&c.Tools, shape.Tools)
	}
	if c.Offer == nil {
		c.Offer = StatedTools
	}
	return c
}

func set(field *string, standard string) {
	if *field == "" {
		*field = standard
	}
}

// StatedTools are the tools as the row states them, where they are definitions: the name of a built-in tool says nothing to a trainer.
func StatedTools(r *storage.Row) (json.RawMessage, error) {
	if r.Tools == nil {
		return nil, nil
	}
	var list []map[string]json.RawMessage
	if err := json.Unmarshal([]byte(*r.Tools), &list); err != nil {
		return nil, fmt.Errorf("the tools of episode %s are no definitions: %w", r.EpisodeID, err)
	}
	return json.RawMessage(*r.Tools), nil
}

// encode is JSON without escapes for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
