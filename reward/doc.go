// Package reward turns a closed episode into numbers: each grader of the run gives one component, and a declared rule makes
// the total of them.
//
// A Scorer is an episode.Scorer. "No verdict" and zero are two things: a component has a score only when a grader really
// judged the answer. A task without ground truth, a ground truth that cannot be read, an episode that failed, a grader that
// fails, panics or does not end: all these leave the score nil, with the reason in the outcome. An episode whose model said
// nothing is judged: it scores 0.
//
// It runs no code that a model wrote and asks no model: graders that do are kinds of the packages below this one. It never changes an
// episode. What says that it may help (Unjudged.Retry) is asked again a few times, nothing else. docs/rewards.md says how verdicts are
// made. Open scorer.go first, then kind.go (how a package offers a grader), group.go (graders that see all samples of a group), total.go, and
// number.go, which holds the rules of what counts as a number in an answer.
package reward
