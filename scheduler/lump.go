package scheduler

import "math"

// A small cache holds few episodes, and few do not average out: what is projected of ten is off by more than what is projected of a
// hundred, a block that is half empty is a larger part of each, and one that gives up its place costs more of what all do. This file is
// what is done about it.

// lumpiness is the margin for one episode alone, as a share of its memory.
const lumpiness = 0.3

// lumpy is the factor by which the memory that n episodes are projected to need is taken to be larger: the error of a sum of n
// falls with the root of n, relative to it.
func lumpy(n int) float64 { return 1 + lumpiness/math.Sqrt(float64(max(n, 1))) }

// halfBlock is what an open episode wastes at the end of its context, on the replica with the largest blocks; 0 = none tells.
func halfBlock(replicas []ReplicaConfig) float64 {
	most := 0
	for _, r := range replicas {
		most = max(most, r.Capacity.BlockTokens)
	}
	return float64(most) / 2
}

// patientTimes is how many times the mean of its kind an action may take before it counts as one that will not end soon: of
// exponential times one in fifty is longer.
const patientTimes = 4

// usual is how long an action of a kind may take and still be an ordinary one. Giving a place up before that gains nothing: the
// episode is about to come back for it.
func (c *Core) usual(kind string) Time {
	return Time(patientTimes * c.actions.Mean(kind) * float64(timeUnit))
}
