package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Bytes is a size in bytes, written 268435456, 256MiB, 64KiB, 1GiB, 10MB.
type Bytes int64

var byteUnits = []struct {
	suffix string
	size   int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// UnmarshalText reads a number with an optional unit.
func (b *Bytes) UnmarshalText(text []byte) error {
	s, size := strings.TrimSpace(string(text)), int64(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			s, size = strings.TrimSpace(rest), u.size
			break
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f < 0 || math.IsNaN(f) || f*float64(size) > math.MaxInt64/2 {
		return fmt.Errorf("expected a size such as 256MiB or 64KiB, found %q", text)
	}
	*b = Bytes(f * float64(size))
	return nil
}

// String writes the size with the largest binary unit that divides it.
func (b Bytes) String() string {
	for _, u := range []struct {
		suffix string
		size   int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if b != 0 && int64(b)%u.size == 0 {
			return strconv.FormatInt(int64(b)/u.size, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// MarshalText writes what UnmarshalText reads.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// Endpoint is one inference server as the user named it. A zero field takes the run's own setting.
type Endpoint struct {
	URL         string `json:"url"`
	Model       string `json:"model,omitempty"`
	APIKeyEnv   string `json:"api-key-env,omitempty"`
	CAFile      string `json:"ca-file,omitempty"`     // PEM; for https
	Context     int    `json:"context,omitempty"`     // tokens; overrides what the server says
	KVTokens    int    `json:"kv-tokens,omitempty"`   // tokens; overrides what the server says
	Concurrency int    `json:"concurrency,omitempty"` // calls at once
	ExtraBody   Object `json:"extra-body,omitempty"`
	Batching    string `json:"batching,omitempty"` // continuous, static or shaped; "" = static with --padded, else continuous
	Rows        int    `json:"rows,omitempty"`     // calls of one batch, where it is static or shaped; 0 = --padded
	Shapes      []int  `json:"shapes,omitzero"`    // tokens, rising: what prompts are padded to, where it is shaped

	Capabilities Object `json:"capabilities,omitempty"` // overrides what the probe finds, by the names `tranche probe --json` has
}

// Kinds of batching of an endpoint.
const (
	batchContinuous = "continuous" // calls come and go at every step
	batchStatic     = "static"     // a batch is padded to its longest prompt and waits for its longest answer
	batchShaped     = "shaped"     // the same, padded to fixed shapes
)

// padded is how many rows the endpoint's batches have, 0 = it does not pad, and the shapes its prompts are padded to.
func (e Endpoint) padded(run int) (rows int, shapes []int) {
	if e.Batching == batchContinuous || e.Batching == "" && e.Rows == 0 && run == 0 {
		return 0, nil
	}
	if rows = e.Rows; rows == 0 {
		rows = run
	}
	if e.Batching == batchShaped {
		shapes = e.Shapes
	}
	return rows, shapes
}

// UnmarshalText takes the URL form that a flag has.
func (e *Endpoint) UnmarshalText(text []byte) error {
	e.URL = string(text)
	return nil
}

// Object is a JSON object of request fields, sent as it is.
type Object map[string]json.RawMessage

// UnmarshalText reads the JSON form that a flag has.
func (o *Object) UnmarshalText(text []byte) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(text, &m); err != nil || m == nil {
		return errors.New(`expected a JSON object such as {"repetition_penalty": 1.1}`)
	}
	*o = m
	return nil
}

// canonical returns the object with every value compacted, so that spelling does not change a digest.
func (o Object) canonical() Object {
	if o == nil {
		return nil
	}
	c := make(Object, len(o))
	for k, v := range o {
		var b bytes.Buffer
		if json.Compact(&b, v) != nil {
			b.Reset()
			b.Write(v)
		}
		c[k] = b.Bytes()
	}
	return c
}

// text is the object as JSON, nil for none.
func (o Object) text() json.RawMessage {
	if o == nil {
		return nil
	}
	return encode(o)
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
