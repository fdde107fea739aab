// Package session keeps an interpreter alive in a sandbox between calls: python with its variables, bash with its folder, variables
// and functions. It stands on any back end, over Process.Control.
//
// A call's end is told on the program's private descriptor with a number that the host sends after the code and that the interpreter
// reads only when the code has ended: what a program prints can never be taken for the end of a call. A hostile program in the same
// interpreter can still find the descriptor, read the number and answer for itself. It then lies about nothing but its own call: how
// it ended and when. Verdicts on such a program must not be read out of it, here as anywhere.
//
// Zygote forks single python runs off a process that has imported what they need. Open session.go, then driver.py and driver.sh.
package session
