// Package plain is the sandbox that is none: it runs programs as ordinary processes of this user, and refuses every Spec that is not
// Trusted. It is for one's own programs, for hosts that offer nothing better, and for tests of what stands above the seam.
//
// Each program has a keeper (package keeper), so that its end and that of all it started can be told and brought about. What a program asks
// somebody else to start (cron, systemd, a daemon) is out of its reach. Nothing keeps a program from the host's files, network and
// memory. Open plain.go, then package keeper.
package plain
