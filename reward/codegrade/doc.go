// Package codegrade judges programs that a model wrote, by tests. The program runs alone in a sandbox of its own. What goes in are the
// arguments of a call, or a test's input; what comes out is one value for each, over a private descriptor; what is expected of it stays in
// this process. A program may do to its own process what it likes: it can only change what it itself says.
//
// Tests that are code (HumanEval's check, MBPP's asserts) are taken apart in another sandbox, without the program, into calls and expected
// values; a test that cannot be taken apart is run there, and the program's functions are called from it through this process. Tests of a
// repository are weaker: there the program and its tests share one process (repo.go says what is done about it).
//
// Whatever the program does is a score. What the sandbox or this package fails to do is no verdict, never a zero. Open grader.go first, then
// suite.go for where tests come from, player.go and trial.go for the two sandboxes, equal.go for what counts as equal.
package codegrade
