// Package bucketing sorts lengths into KV-cost classes and keeps what is ordered and learned by class: a Ladder picks the
// class of a length, Queues hold waiting work in first-in-first-out order per class, Lengths learns how long things of one
// kind get.
//
// A class says how much KV-cache memory a call is expected to hold. It orders and admits work; it never gates completion and
// is no wall between replicas. Only engines that pad want walls: LeastPadding finds where they cost least. The package is pure: no clock, no I/O, no goroutine, standard library only. Open ladder.go
// first.
package bucketing
