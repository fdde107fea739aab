// Package objectstore keeps datasets in object stores: a run directory is pushed under a URL (s3://, gs://, az://, file://) and
// pulled from there, whole or not at all as far as readers can see. What a reader trusts is manifest.json, which is replaced
// last and only where it is still the one that was read.
//
// It never writes into a run directory that it pushes, holds no credentials (those of the environment and of the services' own
// profiles are used and never kept), and does not read rows.
//
// Open store.go first: Store is what a service must do. s3.go, gs.go, az.go and file.go do it, with their requests tried again
// by retry.go alone. push.go says in which order a run goes out, pull.go how it comes back, follow.go how it goes out while it
// is written.
package objectstore
