// Package codetools is the tools that run code a model wrote: python and bash, each a session that keeps its state, and read_file and
// write_file beside them. All of one episode work in one sandbox, which opens at the first call and ends with the episode.
//
// A Desk holds what they share: the back end, a sandbox an episode, and two budgets. Memory is held by every open sandbox from its
// first call to its episode's end; a run token is held only while a call runs. What waits for either is not in a worker yet and not
// under its time limit. Whatever the program does is told to the model; what the sandbox cannot do fails the episode. The package names
// no back end. Open desk.go, then tools.go.
package codetools
