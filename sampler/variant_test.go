package sampler

import (
	"fmt"
	"strings"
	"testing"

	"tranche/episode"
)

// TestVariants: each group gets one by chance, the same every time; the task itself is not touched; evaluations get none.
func TestVariants(t *testing.T) {
	k := Knobs{Config{Variants: []Variant{{Name: "terse", System: "Be brief."}, {Name: "wordy", Prompt: "Think. {prompt} Think again: {prompt}"}}}.filled()}
	user := func(text string) episode.Message { return episode.Message{Role: episode.RoleUser, Content: &text} }
	task := &episode.Task{ID: "t", Messages: []episode.Message{{Role: episode.RoleSystem, Content: episode.Ptr("old")}, user("first"), user("question")}}
	seen := map[string]int{}
	for round := range 400 {
		d := episode.Draw{Task: task, Round: round}
		name, prompt := k.Vary(d)
		again, _ := k.Vary(d)
		var text []string
		for _, m := range prompt {
			text = append(text, *m.Content)
		}
		want := map[string]string{"terse": "Be brief.|first|question", "wordy": "old|first|Think. question Think again: question"}[name]
		if got := strings.Join(text, "|"); got != want || again != name {
			t.Fatalf("%s: %s, then %s", name, got, again)
		}
		seen[name]++
	}
	if seen["terse"] < 150 || seen["wordy"] < 150 {
		t.Errorf("drawn %v", seen)
	}
	if name, _ := k.Vary(episode.Draw{Task: task, HeldOut: true}); name != "" || *task.Messages[0].Content != "old" || len(task.Messages) != 3 {
		t.Errorf("an evaluation got %q; the task has %d messages", name, len(task.Messages))
	}
	for want, list := range map[string][]Variant{"blank": {{}}, "has that name": {{Name: "a"}, {Name: "a"}}, "holds no {prompt}": {{Name: "a", Prompt: "x"}}} {
		if err := checkVariants(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q in it", list, err, want)
		}
	}
}

// TestKnobsTurnWithTheDraws: schedules win over the run's parameters, a task's own win over both, and evaluations have theirs.
func TestKnobsTurnWithTheDraws(t *testing.T) {
	falling, err := ParseSchedule("linear:1:0.5:10")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Sampling: episode.Sampling{Temperature: episode.Ptr(9.0), TopP: episode.Ptr(0.9)}, TemperatureSchedule: falling, HeldOut: HeldOutSampling{Temperature: episode.Ptr(0.0)}}
	k := Knobs{cfg.filled()}
	own := &episode.Task{ID: "own", Params: []byte(`{"temperature":0.1}`)}
	for _, c := range []struct {
		draw episode.Draw
		want string
	}{
		{episode.Draw{Task: &episode.Task{}, Number: 0}, "1 0.9"}, {episode.Draw{Task: &episode.Task{}, Number: 4}, "0.8 0.9"}, {episode.Draw{Task: &episode.Task{}, Number: 99}, "0.5 0.9"},
		{episode.Draw{Task: own, Number: 4}, "0.1 0.9"}, {episode.Draw{Task: &episode.Task{}, Number: 4, HeldOut: true}, "0 0.9"},
	} {
		p, err := k.Params(c.draw, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(*p.Temperature, *p.TopP); got != c.want {
			t.Errorf("%+v: %s, want %s", c.draw, got, c.want)
		}
	}
	bad := cfg
	bad.TopPSchedule = falling
	bad.TemperatureSchedule, _ = ParseSchedule("steps:0=1,4=-1")
	if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), "temperature schedule: -1 at draw 4") || strings.Contains(err.Error(), "top_p schedule") {
		t.Errorf("%v", err)
	}
}
