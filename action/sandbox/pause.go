package sandbox

import "context"

// Pauser is a Sandbox whose programs can be held: those that a call left in the background use nothing until the next one.
type Pauser interface {
	// Pause stops every program of the sandbox where it stands; none can prevent it. It returns how many processes are held besides those
	// that Start began. Files can be put and got meanwhile; Start needs Resume first. Again it changes nothing. After an error something may
	// go on: close the sandbox.
	Pause(ctx context.Context) (others int, err error)
	// Resume lets all go on.
	Resume(ctx context.Context) error
}
