// Package enginesim is a simulated OpenAI-compatible inference server: real HTTP, real token ids, a seeded policy in the
// place of a model, and the memory and timing of a continuous-batching engine, or of one that pads. It lets the whole pipeline run on a
// machine without a GPU, lets a test ask for any answer, error or delay that a real server gives, and plays whole fleets in virtual time.
//
// Three parts that do not know one another: the policy decides what is said (policy.go: text depends on the engine's seed,
// the rendered prompt and the sample key, never on timing), the Model decides when each token comes (model.go: a pure state
// machine without goroutine, clock or I/O), and the HTTP face joins them (engine.go, chat.go, completions.go). A simulation leaves
// policy and HTTP aside and drives Replicas (replica.go), with texts that are named instead of written (Segment).
//
// The Model in files: step.go are the rules of a step, blocks.go the KV memory and its prefix cache, content.go how texts are compared,
// glide.go many steps at once, padded.go engines that pad, presets.go published step times, calibrate.go step times from measurements.
// What it does can be followed by hand in testdata/model.
//
// Beside chat and completions it serves as much of the embeddings and responses routes as a client of batch files needs: vectors that are
// drawn from the ids and mean nothing (embeddings.go), and chat's answer in the other shape (responses.go).
//
// It will not constrain its output to a schema or a grammar, echo prompts, beam-search, or score text that it was given: it
// refuses what it cannot do instead of ignoring it. Its text is no language model's; its step times are a linear model with
// published or fitted parameters. Open model.go first.
package enginesim
