//go:build linux

package plain

import (
	"tranche/action/sandbox"
	"tranche/action/sandbox/keeper"
)

// Config says where the work folders are made.
type Config struct {
	// Dir holds the work folders while they are in use. Default: the system's folder for temporary files.
	Dir string
}

// Init turns this process into a keeper where it was started as one, and then never returns. main calls it before all else.
func Init() { keeper.Init() }

// New returns the back end. The program that calls it must call Init first thing in its main.
func New(cfg Config) (*keeper.Executor, error) {
	return keeper.New(cfg.Dir, keeper.Kind{Can: capabilities(), Trusted: true})
}

const none = "plain runs programs without isolation; the back end ns has it"

// capabilities says how little this back end holds.
func capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{
		Backend: "plain", Tier: sandbox.TierNone,
		Promises: map[sandbox.Promise]sandbox.Strength{
			sandbox.PromiseMemory: sandbox.Absent, sandbox.PromisePids: sandbox.Absent, sandbox.PromiseCPU: sandbox.BestEffort,
			sandbox.PromiseNet: sandbox.Absent, sandbox.PromiseFiles: sandbox.Absent, sandbox.PromiseDisk: sandbox.Absent, sandbox.PromiseSyscalls: sandbox.Absent,
			sandbox.PromiseKill: sandbox.BestEffort, sandbox.PromiseSnapshot: sandbox.Enforced,
		},
		Why: map[sandbox.Promise]string{
			sandbox.PromiseMemory: none, sandbox.PromisePids: none, sandbox.PromiseNet: none, sandbox.PromiseFiles: none, sandbox.PromiseDisk: none, sandbox.PromiseSyscalls: none,
			sandbox.PromiseCPU:  "summed over the program's processes every 10 ms; one that nobody waits for takes its time with it",
			sandbox.PromiseKill: "what a program asks another program of the host to start is not seen",
		},
	}
}
