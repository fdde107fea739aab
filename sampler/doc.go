// Package sampler decides which task comes next and with what knobs: the order of tasks, the groups of samples, the sampling
// parameters of each episode. A Source implements episode.Source.
//
// It will not read files (its sub-package taskfile does, and any other Tasks will do), send requests, or know what was done
// before: the run loop skips draws that are finished. Everything it decides depends on the seed and the tasks alone, never on
// time or on how fast draws are taken.
//
// Open source.go first, then params.go.
package sampler
