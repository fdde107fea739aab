// Package enginesim is a simulated OpenAI-compatible inference server: real HTTP, real token ids, a seeded policy in the
// place of a model, and the memory and timing of a continuous-batching engine. It lets the whole pipeline run on a machine
// without a GPU, and lets a test ask for any answer, error or delay that a real server gives.
//
// Three parts that do not know one another: the policy decides what is said (policy.go: text depends on the engine's seed,
// the rendered prompt and the sample key, never on timing), the Model decides when each token comes (model.go: a pure state
// machine without goroutine, clock or I/O), and the HTTP face joins them (engine.go, chat.go, completions.go).
//
// It will not constrain its output to a schema or a grammar, echo prompts, beam-search, or score text that it was given: it
// refuses what it cannot do instead of ignoring it. Its text is no language model's; its step times are a linear model with
// published parameters, not a measurement. Open model.go first.
package enginesim
