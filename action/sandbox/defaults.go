package sandbox

// DefaultKeep is how many bytes of a stream are kept where Cmd.Keep is 0.
const DefaultKeep = 128 << 10

// DefaultLimits are the limits of a sandbox where its Spec names none.
func DefaultLimits() Limits {
	return Limits{Memory: 512 << 20, Pids: 64, Disk: 256 << 20, FileSize: 128 << 20, OpenFiles: 256}
}
