// Package bench measures scheduling: it plays workloads through a policy on a simulated fleet in virtual time, compares the policy
// with what other systems do, and with a bound that nothing can beat.
//
// A run is Fleet.Play(workload, policy): deterministic, one goroutine, no clock. The replicas are enginesim.Model, the machine
// that also serves HTTP; the policy is the scheduler's own core (core.go) or a baseline, one file each (flood.go, caps.go,
// aimd.go, primerl.go, thunder.go, walls.go; padded engines: padded.go). Workloads come from traces on disk (traces.go) or from
// seeded distributions (synthetic.go).
//
// It will not measure real servers, and its seconds are those of a linear model of a GPU: ratios between policies carry over,
// absolute times do not. Open workload.go for what is played, fleet.go for how.
package bench
