// Package bench measures scheduling: it plays workloads through a policy on a simulated fleet in virtual time, compares the policy
// with what other systems do, and with a bound that nothing can beat.
//
// A run is Fleet.Play(workload, policy): deterministic, one goroutine, no clock. The replicas are enginesim.Model, the machine
// that also serves HTTP; the policy is the scheduler's own core (core.go) or a baseline, one file each (flood.go, caps.go,
// aimd.go, primerl.go, thunder.go, walls.go; padded engines: padded.go). Workloads come from traces on disk (traces.go) or from
// seeded distributions (synthetic.go).
//
// The same policies play on a real server, in real time (Real, real.go; realfile.go keeps the runs), and the model's step times are fitted to one (Measure,
// measure.go). What is simulated has the seconds of a linear model of a GPU: ratios between policies carry over, absolute times do
// not. Open workload.go for what is played, fleet.go for what on, play.go for how.
package bench
