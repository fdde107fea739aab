// Package storage makes a dataset of finished episodes: each goes to a checksummed journal, is durable there when Write
// returns, and moves group by group into Parquet parts that a manifest lists. After kill -9 at any moment every key that
// was acknowledged is in the dataset exactly once.
//
// It will not decide what is worth keeping, talk to a server, or change a row for a trainer. It knows no format but its own
// (docs/format.md is the contract) and the Parquet files of others, which ReadObjects reads row by row.
//
// Open writer.go first: Open, Write and Close are the whole life of a run directory. Then: schema.go (the row), journal.go
// (what makes a row durable), ledger.go (what is where, no I/O), seal.go (journal to parts), compact.go (small parts to larger ones), recover.go (what Open finds
// after a crash), run.go (reading while another process writes).
package storage
