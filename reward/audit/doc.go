// Package audit tries graders before a run, on answers whose worth is known: the task's own right answer must score 1, and what no model
// should be paid for must score nothing. It tells tasks that are weak (a wrong answer scores), impossible (the right one does not), flaky (the
// same answer is judged in two ways) and ungradable (there is no verdict at all).
//
// It knows no file and no setting; it is given tasks and something that scores. No wrong answer is made with knowledge of the right one, but
// for the truncated one. Open probe.go first, then try.go.
package audit
