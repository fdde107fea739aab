package episode

import "time"

// Action is one tool call to be carried out.
type Action struct {
	ID   string // unique per (episode, turn, position): an action is never run twice under one id
	Call ToolCall
	Turn int

	Written bool   // the call stood in the text: so must the observation
	Unread  string // why such a call could not be read, told to the model; "" = it could
}

// Action statuses.
const (
	ActionOK       = "ok"
	ActionError    = "error"     // the tool ran and reported an error: the model's to handle
	ActionBadArgs  = "bad_args"  // arguments were no valid JSON or broke the schema: told to the model
	ActionNoTool   = "no_tool"   // no tool of that name: told to the model
	ActionTimeout  = "timeout"   // cut at its deadline: told to the model
	ActionPanic    = "panic"     // the tool's own code panicked: fails the episode
	ActionHarness  = "harness"   // the tool set could not do its job: fails the episode, reward null
	ActionCanceled = "cancelled" // the run is stopping
)

// Observation is what an action gave back. Every tool call of a reply gets exactly one, in the order of the calls.
type Observation struct {
	CallID    string // the tool call it answers
	Name      string
	Text      string // what the model sees, already cut to the cap
	Status    string
	Done      bool    // the episode ends here (submit)
	Submitted *string // what was submitted, when Done
	ExitCode  *int32
	Wall      time.Duration
	CPU       *time.Duration
	OutBytes  int64 // bytes the tool produced before cutting
	Truncated bool
	Tier      string // limit tier in force; "" where none applies
	Rootfs    string // digest of the root file system that was declared; "" = none was
	Footprint *Footprint
	Fault     *Fault // set for ActionPanic and ActionHarness
	// Told is the message that tells it to the model; nil = a tool message of Text.
	Told *Message
}

// ActionRecord is an action as it is stored.
type ActionRecord struct {
	Turn      int16
	CallID    string
	Name      string
	Status    string
	ExitCode  *int32
	Wall      time.Duration
	CPU       *time.Duration
	OutBytes  int64
	Truncated bool
	Tier      string
	Rootfs    string
	Footprint *Footprint
}

// Footprint is what an action in a sandbox waited for, needed and left; nil where it ran in none.
type Footprint struct {
	Queue time.Duration // waited for its turn, for memory and for a run token
	Setup time.Duration // opening the sandbox and starting what the action runs in
	// PeakMemory is in bytes; 0 = not known. Of a session it is the peak so far.
	PeakMemory   int64
	OOMKills     int // processes killed for memory, where the tier counts them
	RefusedForks int // processes that there was no place for, likewise
	LeftBehind   int // processes that were still there at its end: held until the next action, or killed with what they ran in
}
