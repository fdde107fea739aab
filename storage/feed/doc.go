// Package feed serves the rows of a run over HTTP while it is written: Arrow IPC streams in the order of publication, with cursors, durable
// acknowledgements and filters, so that a trainer samples while the run goes on.
//
// It will not write the dataset or know a trainer; what it serves is what is published, whole groups only. Open server.go first, for the
// routes and who owns what; then query.go (what can be asked), stream.go (one answer), choose.go (which rows of a group are taken).
package feed
