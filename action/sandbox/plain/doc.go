// Package plain is the sandbox that is none: it runs programs as ordinary processes of this user, and refuses every Spec that is not
// Trusted. It is for one's own programs, for hosts that offer nothing better, and for tests of what stands above the seam.
//
// Each program has a keeper, this same binary started again (Init), to which everything that the program starts falls when its
// parents die: so its end can be told from the end of what it started, and all of it can be killed, also when the host process is
// killed. What a program asks somebody else to start (cron, systemd, a daemon) is out of its reach. Nothing keeps a program from the
// host's files, network and memory. Open plain.go, then keeper.go.
package plain
