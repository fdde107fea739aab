// Package scheduler decides which model call goes to which endpoint and when, carries that out, and walks an episode through
// its life.
//
// core.go is the decision: a state machine without goroutine, clock or I/O, the same in production and in simulation.
// scheduler.go is the shell that owns one core and carries its launches out. rollout.go is an episode's life on one screen.
// run.go feeds episodes to rollouts and drains them. Retries live here and nowhere else: an endpoint makes one attempt.
//
// It does not know HTTP, tools, graders or files; it sees them through the seams of package episode. Open rollout.go first.
package scheduler
