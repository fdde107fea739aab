// Package textgrade holds the graders that judge an answer as text, each by a published formula: f1, choice, json_schema,
// tool_match, ifeval, format, length_ramp and repetition. docs/rewards.md has a section on each.
//
// They look at nothing but the episode and its task, are the same on every machine, need no clock and no randomness, and take time in
// proportion to the text. What a task leaves out or states wrongly is no verdict (*reward.Unjudged), never a zero; a model that says
// nothing is judged: 0.
//
// It will not run code, ask a model or compare numbers: those are other packages. Open kinds.go first, then the file of a kind.
package textgrade
