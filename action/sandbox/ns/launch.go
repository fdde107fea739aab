package ns

import (
	"context"
	"os"

	"tranche/action/sandbox"
)

// Launch is how another program builds the sandbox that an init runs in. It has to give it: a process namespace whose first process
// the init is, one user and group, no capability, /proc, /dev and the three folders of WritableFolders. One of Command and Start is set.
type Launch struct {
	// Backend is the name of this back end in capabilities and results.
	Backend string
	// Command is the whole command line that builds a sandbox and starts the program of the order in it, and files that go with it: the
	// first of them gets the number of the order's FirstFile.
	Command func(LaunchOrder) (args []string, files []*os.File, err error)
	// Start has somebody else build the sandbox (a container engine) and start our own program there, with InitArgs. It gives up when ctx is done.
	Start func(context.Context, LaunchOrder) (Launched, error)
	// Held are the promises that who builds the sandbox holds in the place of our tiers, in which case Tier is their name; nil = ours are used.
	Held map[sandbox.Promise]sandbox.Strength
	Why  map[sandbox.Promise]string
	Tier sandbox.Tier
}

// LaunchOrder is what is to be started in which sandbox.
type LaunchOrder struct {
	Spec      sandbox.Spec
	Number    int      // of the slot; no other that is open has it
	Program   []string // of Command, with its arguments; it can be reached once /proc is there
	FirstFile int
}

// Launched is an init that somebody else started.
type Launched struct {
	Socket *os.File // connected to it: one of sequenced packets
	Kill   func() error
	Wait   func() error // until the sandbox and all in it are gone; an error says that they may not be
}

// InitArgs are the arguments with which our own program, started as the first process of a sandbox, connects to a socket and becomes its init.
func InitArgs(socket string) []string { return []string{initName, socket} }

// initName is the name under which our own binary is started to be the init of a slot.
const initName = "tranche: init of a sandbox"

// WritableFolder is a folder in memory that a sandbox must have.
type WritableFolder struct {
	Path  string
	Mode  uint32
	Size  int64 // bytes it may hold
	Files int64 // how many it may hold
}

// ownFile is the number of our own program's file where another program starts it.
const ownFile = socketNumber + 1

// socketNumber is the number of an init's end of the socket.
const socketNumber = 3
