//go:build race

package inference

// raceEnabled loosens wall-clock limits: the race detector costs several times the CPU.
const raceEnabled = true
