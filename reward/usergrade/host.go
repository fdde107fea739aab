package usergrade

import (
	"context"
	"encoding/json"
	"net/http"

	"tranche/action/sandbox"
	"tranche/reward"
)

// Host is what these graders use that is wired elsewhere: the same rules as for users' own tools hold.
type Host struct {
	// Environment is what a program gets of ours: what every program needs, and what is named. hide takes secrets out of a text.
	Environment func(names []string) (env []string, hide func(string) string, err error)
	// CanStart says why a program cannot be started in a directory.
	CanStart func(program, dir string) error
	// Headers puts environment variables into the values of headers.
	Headers func(given map[string]string) (put func(*http.Request), hide func(string) string, err error)
	// Follow is the http.Client's CheckRedirect.
	Follow func(next *http.Request, before []*http.Request) error
	// Boxes gives the back end of sandboxes, or gives up when ctx is done; and Spec says what they are.
	Boxes func(ctx context.Context) (sandbox.Executor, error)
	Spec  sandbox.Spec
}

// Kinds offers the graders.
func Kinds(h Host) []reward.Kind {
	return []reward.Kind{
		{Name: KindCommand, Make: func(s reward.Spec) (reward.Grader, error) { return newCommand(s, h) }},
		{Name: KindHTTP, Waits: true, Make: func(s reward.Spec) (reward.Grader, error) { return newWeb(s, h) }},
		{Name: KindPython, Make: func(s reward.Spec) (reward.Grader, error) { return newPython(s, h) }},
	}
}

// Reasons for there being no verdict, beside those that the graders give themselves.
const (
	Died   = "grader_died"   // the program ended, or was ended by a signal, without an answer
	Unable = "grader_unable" // it says, or its service does, that it could not do its job now
)

// digestable writes what decides a grader's verdicts.
func digestable(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("usergrade: " + err.Error()) // made of texts and of JSON that was read
	}
	return string(text)
}
