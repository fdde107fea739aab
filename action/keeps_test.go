package action

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"tranche/episode"
)

// notes is a tool that says of each episode whether it holds something of it.
type notes struct{ of map[string]bool }

func (notes) Name() string { return "notes" }
func (notes) Definition() json.RawMessage {
	return json.RawMessage(`{"type":"function","function":{"name":"notes","parameters":{"type":"object"}}}`)
}
func (notes) Run(context.Context, json.RawMessage, Env) (Result, error) { return Result{}, nil }
func (n notes) Keeps(episode string) bool                               { return n.of[episode] }

// silent is a tool that does not say.
type silent struct{ notes }

func (silent) Name() string { return "silent" }
func (silent) Definition() json.RawMessage {
	return json.RawMessage(`{"type":"function","function":{"name":"silent","parameters":{"type":"object"}}}`)
}

// mute hides that its tool can say what it keeps.
type mute struct{ Tool }

func TestKeeps(t *testing.T) {
	get, err := NewHTTP(HTTPConfig{Name: "get", URL: "http://localhost/x", Method: "GET"})
	if err != nil {
		t.Fatal(err)
	}
	post, err := NewHTTP(HTTPConfig{Name: "post", URL: "http://localhost/x", Idempotent: true})
	if err != nil {
		t.Fatal(err)
	}
	pure, err := NewHTTP(HTTPConfig{Name: "pure", URL: "http://localhost/x", Stateless: true})
	if err != nil {
		t.Fatal(err)
	}
	program, err := NewCommand(CommandConfig{Name: "program", Run: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	filter, err := NewCommand(CommandConfig{Name: "filter", Run: []string{"true"}, Stateless: true})
	if err != nil {
		t.Fatal(err)
	}
	set, err := New(Config{}, append(Builtins(), notes{map[string]bool{"e": true}}, mute{silent{}}, get, post, pure, program, filter)...)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	for name, c := range map[string]struct {
		episode string
		called  []string
		want    []string
	}{
		"nothing called":                     {"e", nil, nil},
		"built-in tools":                     {"e", []string{"calculator", "submit", "calculator"}, nil},
		"one that holds something of it":     {"e", []string{"calculator", "notes"}, []string{"notes"}},
		"one that holds something of others": {"f", []string{"notes"}, nil},
		"one that does not say":              {"f", []string{"silent", "notes", "silent"}, []string{"silent"}},
		"a tool that there is not":           {"e", []string{"nothing"}, nil},
		"web services":                       {"e", []string{"get", "post", "pure"}, []string{"post"}},
		"programs":                           {"e", []string{"program", "filter"}, []string{"program"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := &episode.Episode{ID: c.episode, Task: &episode.Task{}}
			for _, tool := range c.called {
				e.Actions = append(e.Actions, episode.ActionRecord{Name: tool})
			}
			if got := set.Keeps(e); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
