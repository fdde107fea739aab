// Package taskfile reads task files (JSON Lines and Parquet; our own rows, verl's, SkyRL's, OpenAI batch requests, or any
// columns through templates) and turns each row into an episode.Task.
//
// Check is the whole first pass: it validates every row before a run sends its first request and reports all faults with
// file, line and field. A Reader then streams the same tasks in the order of the files. Both make the same decisions about
// bad rows and duplicates, in constant memory but for 24 bytes a task that remember which ids were seen.
//
// It will not choose an order, draw samples, fetch anything over a network, or guess what a broken row meant. Nothing in a
// row is lost without a word: a column without a home in episode.Task goes to Task.Extra.
//
// Open reader.go first, then row.go for what a row may look like.
package taskfile
