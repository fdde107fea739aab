// Package output reads what a program prints: always, so that the program never waits for its reader, and into bounded memory:
// beginning and end are kept, the rest is counted. It never waits for a pipe that something else holds open. It knows no process. Open
// output.go.
package output
