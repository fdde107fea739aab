package ns

import (
	"os"

	"tranche/action/sandbox"
)

// Launch is how another program (bubblewrap) builds the sandbox that an init runs in. It has to give it: a process namespace whose first process
// the init is, one user and group that are called Guest in there, no capability, /proc, /dev and the three folders of WritableFolders.
type Launch struct {
	// Backend is the name of this back end in capabilities and results.
	Backend string
	// Command is the whole command line that builds a sandbox and starts the program of the order in it, and files that go with it: the
	// first of them gets the number of the order's FirstFile.
	Command func(LaunchOrder) (args []string, files []*os.File, err error)
}

// LaunchOrder is what is to be started in which sandbox.
type LaunchOrder struct {
	Spec      sandbox.Spec
	Program   []string // with its arguments; it can be reached once /proc is there
	FirstFile int
}

// Guest is the user and group that programs are in a sandbox.
const Guest = 1000

// WritableFolder is a folder in memory that a sandbox must have.
type WritableFolder struct {
	Path string
	Mode uint32
	Size int64 // bytes it may hold
}

// ownFile is the number of our own program's file where another program starts it.
const ownFile = socketNumber + 1

// socketNumber is the number of an init's end of the socket.
const socketNumber = 3
