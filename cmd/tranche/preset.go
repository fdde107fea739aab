package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/goccy/go-yaml"

	"tranche/inference/enginesim"
)

// preset is an engine as a file: what calibrate writes and engine, bench sched and bench real read. Times in seconds.
type preset struct {
	Model         string     `yaml:"model" json:"model"`
	ContextTokens int        `yaml:"context_tokens" json:"context_tokens"`
	KVTokens      int        `yaml:"kv_tokens" json:"kv_tokens"`
	BlockTokens   int        `yaml:"block_tokens" json:"block_tokens"`
	NullBlock     bool       `yaml:"null_block" json:"null_block"` // one block is reserved
	MaxSeqs       int        `yaml:"max_seqs" json:"max_seqs"`
	StepBudget    int        `yaml:"step_budget" json:"step_budget"`
	Step          stepPreset `yaml:"step" json:"step"`
	Request       float64    `yaml:"request" json:"request"` // what a call costs beside its steps
}

// stepPreset is enginesim.StepTime, seconds.
type stepPreset struct {
	Base     float64 `yaml:"base" json:"base"`
	Floor    float64 `yaml:"floor" json:"floor"`
	PerToken float64 `yaml:"per_token" json:"per_token"`
	PerSeq   float64 `yaml:"per_sequence" json:"per_sequence"`
	PerRead  float64 `yaml:"per_read" json:"per_read"`
	PerPair  float64 `yaml:"per_pair" json:"per_pair"`
}

// config is the simulated engine of the preset.
func (p preset) config() enginesim.Config {
	return enginesim.Config{
		Model: p.Model, ContextTokens: p.ContextTokens, KVTokens: p.KVTokens, BlockTokens: p.BlockTokens, NullBlock: p.NullBlock,
		MaxSeqs: p.MaxSeqs, StepBudget: p.StepBudget, Step: enginesim.StepTime(p.Step),
	}
}

func (p preset) request() time.Duration { return time.Duration(p.Request * float64(time.Second)) }

// text is the preset as YAML, behind lines of comment.
func (p preset) text(about string) (string, error) {
	raw, err := yaml.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("write the preset: %w", err)
	}
	return about + string(raw), nil
}

// readPreset reads the file; the error says what is wrong with it.
func readPreset(path string) (preset, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return preset{}, fmt.Errorf("read the preset: %w", err)
	}
	var p preset
	if err := yaml.NewDecoder(bytes.NewReader(raw), yaml.Strict()).Decode(&p); err != nil {
		return preset{}, fmt.Errorf("%s: expected what `tranche calibrate` writes: %s", path, yaml.FormatError(err, false, false))
	}
	c := p.config()
	var errs []error
	for _, f := range []struct {
		name  string
		value int
	}{{"context_tokens", c.ContextTokens}, {"kv_tokens", c.KVTokens}, {"block_tokens", c.BlockTokens}, {"max_seqs", c.MaxSeqs}, {"step_budget", c.StepBudget}} {
		if f.value < 1 {
			errs = append(errs, fmt.Errorf("%s: %s is %d, expected at least 1", path, f.name, f.value))
		}
	}
	if c.Step.Base+c.Step.Floor <= 0 || p.Request < 0 {
		errs = append(errs, fmt.Errorf("%s: step.base + step.floor is %g s and request %g s: expected above zero and not below", path, c.Step.Base+c.Step.Floor, p.Request))
	}
	if err := errors.Join(errs...); err != nil {
		return preset{}, err
	}
	if err := c.Validate(); err != nil {
		return preset{}, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}
