package episode

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func task() *Task {
	return &Task{ID: "t", Messages: []Message{{Role: RoleUser, Content: Ptr("q")}}}
}

func begin(b Budget) *Episode {
	return New("run", Draw{Task: task(), Samples: 1}, 0, Sampling{TokenIDs: true}, b, time.Time{})
}

func TestIDsDependOnEveryPart(t *testing.T) {
	seen := map[string]bool{}
	for _, parts := range [][]string{{"ab", "c"}, {"a", "bc"}, {"abc"}, {"abc", ""}, {}} {
		id := ID(parts...)
		if seen[id] || len(id) != 32 {
			t.Errorf("ID(%q) = %s: seen before, or not 32 hex digits", parts, id)
		}
		seen[id] = true
	}
	if a, b := begin(Budget{}), begin(Budget{}); a.ID != b.ID {
		t.Error("the same run, task and sample gave two ids")
	}
}

// Lengths of the four lists are equal, the mask counts sampled ids, and the sequence ends as the last call saw it, whatever
// prompts a server reports.
func TestTokensStayAligned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Int32Range(0, 3), 0, 12)
		var tk Tokens
		for range rapid.IntRange(1, 5).Draw(t, "turns") {
			var prompt []int32
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0: // extends, as it should
				prompt = append(slices.Clone(tk.IDs), ids.Draw(t, "new")...)
			case 1: // anything
				prompt = ids.Draw(t, "other")
			}
			sampled := ids.Draw(t, "sampled")
			tk.Extend(prompt, sampled, make([]Logprob, rapid.IntRange(0, 12).Draw(t, "logprobs")), nil)
			if len(tk.Mask) != len(tk.IDs) || len(tk.Logprobs) != len(tk.IDs) || len(tk.Versions) != len(tk.IDs) {
				t.Fatalf("lengths %d %d %d %d", len(tk.IDs), len(tk.Mask), len(tk.Logprobs), len(tk.Versions))
			}
			if prompt != nil && !slices.Equal(tk.IDs, append(slices.Clone(prompt), sampled...)) {
				t.Fatalf("sequence %v, the call saw %v and sampled %v", tk.IDs, prompt, sampled)
			}
			if first := slices.Index(tk.Mask, 1); first >= 0 && first < tk.PromptLen {
				t.Fatalf("id %d is sampled, before PromptLen %d", first, tk.PromptLen)
			}
		}
	})
}

// TL-o2: turn 2's prompt differs from turn 1's prompt + answer at index 41.
func TestPrefixBreakIsRecorded(t *testing.T) {
	prompt, answer := make([]int32, 40), []int32{7, 8, 9}
	second := append(slices.Clone(prompt), 7, 99, 100)
	var tk Tokens
	tk.Extend(prompt, answer, nil, nil)
	tk.Extend(second, []int32{5, 6}, nil, Ptr(int32(3)))
	if tk.Break == nil || *tk.Break != 41 {
		t.Fatalf("break %v, want 41", tk.Break)
	}
	if want := append(slices.Clone(second), 5, 6); !slices.Equal(tk.IDs, want) {
		t.Errorf("ids %v, want %v", tk.IDs, want)
	}
	if tk.Sampled() != 3 || tk.Mask[40] != 1 || tk.Mask[41] != 0 {
		t.Errorf("mask %v: want the surviving first sampled id and the two of the second turn", tk.Mask)
	}
	if tk.Versions[len(tk.Versions)-1] != 3 || tk.Versions[40] != UnknownVersion {
		t.Errorf("versions %v", tk.Versions)
	}
}

func TestSendableReplacesBrokenArgumentsInACopy(t *testing.T) {
	m := Message{Role: RoleAssistant, ToolCalls: []ToolCall{
		{ID: "a", Function: Function{Arguments: `{"x": 1}`}}, {ID: "b", Function: Function{Arguments: `{"n": 7`}}, {ID: "c", Function: Function{Name: "f", Arguments: `[1]`}},
	}}
	got := m.Sendable()
	for i, want := range []string{`{"x": 1}`, "{}", "{}"} {
		if got.ToolCalls[i].Function.Arguments != want {
			t.Errorf("call %d: %s, want %s", i, got.ToolCalls[i].Function.Arguments, want)
		}
	}
	if got.ToolCalls[0].Function.Name != Unnamed || got.ToolCalls[2].Function.Name != "f" {
		t.Errorf("names %q and %q", got.ToolCalls[0].Function.Name, got.ToolCalls[2].Function.Name)
	}
	if m.ToolCalls[1].Function.Arguments != `{"n": 7` {
		t.Error("the stored message was changed")
	}
}

func TestNullAndEmptyContentDifferOnTheWire(t *testing.T) {
	null, _ := json.Marshal(Message{Role: RoleAssistant})
	empty, _ := json.Marshal(Message{Role: RoleAssistant, Content: Ptr("")})
	if string(null) != `{"role":"assistant","content":null}` || string(empty) != `{"role":"assistant","content":""}` {
		t.Errorf("%s and %s", null, empty)
	}
}

func TestBudgetsCloseTheEpisode(t *testing.T) {
	reply := &Reply{Message: Message{Role: RoleAssistant, ToolCalls: []ToolCall{{ID: "c"}}}, Finish: FinishToolCalls}
	turn := Turn{PromptTokens: Ptr(int32(10)), CompletionTokens: Ptr(int32(40))}
	for name, c := range map[string]struct {
		budget Budget
		turns  int
		stop   Stop
		want   []int
	}{
		"turns":            {Budget{TurnTokens: 50, Turns: 2}, 2, StopMaxTurns, []int{50, 50}},
		"episode tokens":   {Budget{TurnTokens: 50, EpisodeTokens: 100, MinUseful: 8}, 3, StopBudget, []int{50, 50, 20}},
		"too little to do": {Budget{TurnTokens: 50, EpisodeTokens: 84, MinUseful: 8}, 2, StopBudget, []int{50, 44}},
		"only episode":     {Budget{EpisodeTokens: 60, MinUseful: 1}, 2, StopBudget, []int{60, 20}},
	} {
		t.Run(name, func(t *testing.T) {
			e := begin(c.budget)
			var wants []int
			for call, ok := e.NextCall(); ok; call, ok = e.NextCall() {
				wants = append(wants, call.Want)
				e.AddReply(reply, turn)
				e.AddObservation(Observation{CallID: "c"})
			}
			if e.Stop != c.stop || e.Status != StatusTruncated || len(e.Turns) != c.turns || !slices.Equal(wants, c.want) {
				t.Errorf("stop %s, %d turns, budgets %v; want %s, %d, %v", e.Stop, len(e.Turns), wants, c.stop, c.turns, c.want)
			}
		})
	}
}

func TestFaultsOutrankAndStay(t *testing.T) {
	e := begin(Budget{})
	e.Close(StatusCompleted, StopStop)
	e.Close(StatusTruncated, StopLength)
	if e.Stop != StopStop {
		t.Errorf("a second end replaced the first: %s", e.Stop)
	}
	e.Fail(&Fault{Stage: StageReward, Class: ClassInternal})
	e.Fail(&Fault{Stage: StageModel, Class: ClassTimeout})
	if e.Status != StatusFailed || e.Fault.Class != ClassInternal {
		t.Errorf("%s, %v", e.Status, e.Fault)
	}
	c := begin(Budget{})
	c.Fail(&Fault{Class: ClassCancelled})
	if c.Status != StatusCancelled {
		t.Errorf("a cancelled episode has status %s", c.Status)
	}
}

func TestSubmitEndsAfterItsSiblings(t *testing.T) {
	e := begin(Budget{})
	e.AddReply(&Reply{Message: Message{Role: RoleAssistant, ToolCalls: []ToolCall{{ID: "a"}, {ID: "b"}}}, Finish: FinishToolCalls}, Turn{})
	acts := e.PendingActions()
	if len(acts) != 2 || acts[0].ID == acts[1].ID {
		t.Fatalf("actions %+v", acts)
	}
	e.AddObservation(Observation{CallID: "a", Done: true, Submitted: Ptr("42")})
	e.AddObservation(Observation{CallID: "b"})
	if e.Stop != StopSubmit || len(e.Actions) != 2 || len(e.Messages) != 4 {
		t.Errorf("stop %s, %d actions, %d messages", e.Stop, len(e.Actions), len(e.Messages))
	}
	if got, ok := e.Final(); !ok || got != "42" {
		t.Errorf("final %q", got)
	}
}

func TestMissingFactsAreFlagged(t *testing.T) {
	for name, c := range map[string]struct {
		reply Reply
		turn  Turn
		flag  string
	}{
		"no usage":       {Reply{}, Turn{}, FlagUsageMissing},
		"no ids":         {Reply{}, Turn{}, FlagTokenIDsMissing},
		"no prompt ids":  {Reply{SampledIDs: []int32{1}}, Turn{}, FlagPromptIDsMissing},
		"an id too few":  {Reply{SampledIDs: []int32{1}}, Turn{CompletionTokens: Ptr[int32](2)}, FlagTokenCountDiffers},
		"an id too many": {Reply{SampledIDs: []int32{1, 2}}, Turn{CompletionTokens: Ptr[int32](1)}, FlagTokenCountDiffers},
		"a null logprob": {Reply{SampledIDs: []int32{1, 2}, Logprobs: []Logprob{{-0.5, true}, {}}}, Turn{}, FlagLogprobNull},
	} {
		t.Run(name, func(t *testing.T) {
			e := begin(Budget{})
			e.AddReply(&c.reply, c.turn)
			if !slices.Contains(e.Flags, c.flag) {
				t.Errorf("flags %v lack %s", e.Flags, c.flag)
			}
		})
	}
}

// A stop string's tokens are counted and their ids left out; more ids than were counted are told all the same.
func TestIDsAreHeldToTheCount(t *testing.T) {
	stops, extra := Sampling{Stop: []string{"\n"}}, Sampling{Extra: map[string]json.RawMessage{"stop": json.RawMessage(`"x"`)}}
	for name, c := range map[string]struct {
		asked        Sampling
		ids, counted int
		want         bool
	}{
		"as many":                     {Sampling{}, 3, 3, true},
		"fewer":                       {Sampling{}, 2, 3, false},
		"more":                        {Sampling{}, 4, 3, false},
		"fewer, with stops":           {stops, 2, 3, true},
		"more, with stops":            {stops, 4, 3, false},
		"fewer, with stops as extras": {extra, 2, 3, true},
	} {
		if got := c.asked.counts(c.ids, c.counted); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAsFault(t *testing.T) {
	f := &Fault{Stage: StageModel, Class: ClassReset}
	if got := AsFault(StageReward, errors.Join(errors.New("x"), f)); got != f {
		t.Errorf("got %v", got)
	}
	if got := AsFault(StageReward, errors.New("x")); got.Class != ClassInternal || got.Stage != StageReward {
		t.Errorf("got %v", got)
	}
	if AsFault(StageReward, nil) != nil {
		t.Error("no error became a fault")
	}
}
