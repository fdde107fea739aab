// Package judge is the grader that asks a model. It makes a prompt of a fixed template, the question, the reference and the answer, asks
// an odd number of times, where two answers are compared in both orders, and makes a verdict of what comes back.
//
// The judge sees what was said, not what was thought. What stands in the answer cannot end the tags around it, and what a judge says is
// read strictly: anything but the asked form is no verdict. So is a judge that fails, does not answer or does not agree with itself.
//
// It sends nothing itself: a Model does, which is the run's own scheduler and client. Open judge.go first, then ballot.go (from replies to a
// verdict) and probe.go (what a judge must not fall for before a run begins).
package judge
