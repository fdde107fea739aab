// Package sampler decides which task comes next and with what knobs: the order of tasks, the groups of samples, domain mixtures, difficulty,
// held-out evaluations, sampling parameters, prompt variants. A Source goes through the input; a Plan chooses, by domain and by what came of
// earlier draws. Both implement episode.Source. Groups and Evaluations say what the rewards of a run come to.
//
// It will not read files (its sub-package taskfile does, and any other Tasks will do), send requests, or know what is stored: the run loop
// skips draws that are finished. What a Source decides depends on the seed and the tasks alone, never on time or on how fast draws are
// taken. So does a Plan, unless it decides by results: then each decision is in its Record first (docs/decisions/0039).
//
// Open source.go first, then params.go; plan.go, then pool.go for the rest.
package sampler
