package storage

import (
	"errors"

	"tranche/episode"
)

// errTooLarge: a row is no record that the journal takes.
var errTooLarge = errors.New("its row is too large")

// leaveOut makes of an episode that is too large to be stored a failed one that is not: what was said and done in it is left out, and only what says
// which it was, when and why stays. So it hurts itself alone.
func leaveOut(e *episode.Episode, why error) {
	e.Messages = e.Messages[:min(e.NumPrompt, len(e.Messages))]
	e.Tokens, e.Turns, e.Actions, e.Verdict = episode.Tokens{}, nil, nil, episode.Verdict{}
	e.Submitted, e.Raw, e.Flags, e.Timing = nil, nil, nil, episode.Timing{Total: e.Timing.Total}
	if e.Fault != nil {
		e.Fault = &episode.Fault{Stage: e.Fault.Stage, Class: e.Fault.Class, Cause: errors.Join(e.Fault.Cause, why)}
	}
	e.Fail(&episode.Fault{Stage: episode.StageStorage, Class: episode.ClassDisk, Cause: why})
}
