// Package sandboxtest is what every back end of package sandbox must stand: a table of bounded attacks, each a subtest, and after
// each of them a look at what is left and at what the next program in the same slot finds. It holds no back end and takes any
// (Run); what a back end does not promise is not asked of it, and the test says so.
//
// The programs of the attacks are in testdata, the outcomes that they must have in attacks.go and probes.go. What is left is found
// by footprint.go, whose own tests plant leaks. Open suite.go first.
package sandboxtest
