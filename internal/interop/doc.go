// Package interop holds the tests in which programs of others meet ours: the official openai package and guidellm call the
// simulated engine; pyarrow, DuckDB, polars, pandas and Hugging Face datasets open what a run wrote; and the built binary
// plays a real model served by llama-server, is killed with SIGKILL and resumed.
//
// It holds no code that ships. What a test needs (scripts/pytools.sh, scripts/llama.sh, the real data) may be absent: then it
// is skipped with a line that says how to get it, and fails instead where TRANCHE_CI=1. The real
// model runs only there or with TRANCHE_ALONE=1: it takes minutes and all cores. Open harness_test.go first; the
// python folder holds the programs themselves, each of which also runs by hand.
package interop
