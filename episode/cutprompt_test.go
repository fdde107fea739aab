package episode

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// turnOf is a turn of which the server counted so much.
func turnOf(prompt int) Turn {
	return Turn{PromptTokens: Ptr(int32(prompt)), CompletionTokens: Ptr(int32(3))}
}

func said(text string) *Reply {
	return &Reply{Message: Message{Role: RoleAssistant, Content: &text, ToolCalls: []ToolCall{{ID: "c"}}}, Finish: FinishToolCalls}
}

func opened(prompt string) *Episode {
	task := &Task{ID: "t", Messages: []Message{{Role: RoleUser, Content: &prompt}}}
	return New("run", Draw{Task: task, Samples: 1}, 0, Sampling{}, Budget{}, time.Time{})
}

// CO9: the server saw clearly less than was sent and says nothing: the row says it. A count that may be right is none.
func TestAPromptThatWasCutIsFlagged(t *testing.T) {
	words := strings.Repeat("one two three four five ", 200) // 1,000 words
	counted := func(n, saw int) Turn { t := turnOf(saw); t.Counted = n; return t }
	elsewhere := func(saw int) Turn { t := turnOf(saw); t.Endpoint = "b"; return t }
	cached := func(t Turn, n int) Turn { t.CachedTokens = Ptr(int32(n)); return t }
	thinking := func() *Reply { r := said("so"); r.Message.ReasoningContent = Ptr("hm"); return r }
	for name, c := range map[string]struct {
		prompt string
		turns  []Turn
		reply  func() *Reply
		cut    bool
	}{
		"all of it":                         {words, []Turn{turnOf(1100)}, nil, false},
		"a dense tokenizer":                 {words, []Turn{turnOf(760)}, nil, false},
		"fewer tokens than words can be":    {words, []Turn{turnOf(700)}, nil, true},
		"no spaces, so nothing is certain":  {strings.Repeat("字", 5000), []Turn{turnOf(700)}, nil, false},
		"not told":                          {words, []Turn{{}}, nil, false},
		"a count that was not made":         {words, []Turn{turnOf(0)}, nil, false},
		"the cached part is counted apart":  {words, []Turn{cached(turnOf(200), 900)}, nil, false},
		"a little is cached":                {words, []Turn{cached(turnOf(200), 100)}, nil, true},
		"as counted before":                 {"x", []Turn{counted(5000, 5000)}, nil, false},
		"a template's difference":           {"x", []Turn{counted(5000, 4750)}, nil, false},
		"less than counted before":          {"x", []Turn{counted(5000, 4096)}, nil, true},
		"short, and a few less":             {"x", []Turn{counted(30, 15)}, nil, false},
		"a prompt that grows":               {"x", []Turn{turnOf(100), turnOf(150), turnOf(210)}, nil, false},
		"a prompt that shrinks":             {"x", []Turn{turnOf(4000), turnOf(3000)}, nil, true},
		"another endpoint counts otherwise": {"x", []Turn{turnOf(4000), elsewhere(3000)}, nil, false},
		"at the third turn":                 {"x", []Turn{turnOf(4000), turnOf(5000), turnOf(4100)}, nil, true},
		"old thinking is dropped":           {"x", []Turn{turnOf(1000), turnOf(5000), turnOf(4100)}, thinking, false},
		"more than old thinking is dropped": {"x", []Turn{turnOf(1000), turnOf(5000), turnOf(600)}, thinking, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := opened(c.prompt)
			for i, turn := range c.turns {
				r := said("so")
				if c.reply != nil {
					r = c.reply()
				}
				e.AddReply(r, turn)
				if i < len(c.turns)-1 {
					e.AddObservation(Observation{CallID: "c", Text: "done"})
				}
			}
			if got := slices.Contains(e.Flags, FlagPromptCut); got != c.cut {
				t.Errorf("flagged %v, want %v: %v", got, c.cut, e.Flags)
			}
		})
	}
}

// What was sampled behind a cut prompt is no extension of what was there: the sequence begins anew with it, and what there was is kept with the break.
func TestACutPromptIsNoExtension(t *testing.T) {
	e := opened("x")
	first, second := said("a"), said("b")
	first.PromptIDs, first.SampledIDs = ids(1, 400), []int32{9, 8}
	second.SampledIDs = []int32{7, 6, 5} // and not a word of the prompt
	e.AddReply(first, turnOf(400))
	e.AddObservation(Observation{CallID: "c", Text: "done"})
	if c, ok := e.NextCall(); !ok || c.Past == nil {
		t.Fatal("the second call has nothing to go on from")
	}
	e.AddReply(second, turnOf(200))
	if !slices.Equal(e.Tokens.IDs, second.SampledIDs) || e.Tokens.Break == nil || *e.Tokens.Break != 0 || len(e.Tokens.Breaks) != 1 || e.Tokens.Breaks[0].Turn != 1 {
		t.Fatalf("ids %v, break %v, breaks %+v", e.Tokens.IDs, e.Tokens.Break, e.Tokens.Breaks)
	}
	if b := e.Tokens.Breaks[0]; len(b.IDs) != 401 || b.Sampled() != 2 {
		t.Errorf("%d ids are kept of the turn before, %d of them sampled", len(b.IDs), b.Sampled())
	}
	if !slices.Contains(e.Flags, FlagPromptCut) || !slices.Contains(e.Flags, FlagPromptIDsMissing) {
		t.Errorf("flags %v", e.Flags)
	}
	e.AddObservation(Observation{CallID: "c", Text: "done"})
	if c, ok := e.NextCall(); !ok || c.Past != nil {
		t.Error("the next call goes on from a prompt that was cut")
	}

	again := opened("x") // the server tells the ids it saw: they are what the sequence is
	again.AddReply(first, turnOf(400))
	again.AddObservation(Observation{CallID: "c", Text: "done"})
	second.PromptIDs = ids(300, 500)
	again.AddReply(second, turnOf(200))
	if want := append(ids(300, 500), 7, 6, 5); !slices.Equal(again.Tokens.IDs, want) || *again.Tokens.Break != 0 {
		t.Errorf("%d ids, break %v", len(again.Tokens.IDs), again.Tokens.Break)
	}
}

// ids are those from one number to before another.
func ids(from, to int32) []int32 {
	var list []int32
	for i := from; i < to; i++ {
		list = append(list, i)
	}
	return list
}

func BenchmarkPromptCut(b *testing.B) {
	e := opened(strings.Repeat("one two three four five ", 8000)) // 40,000 words
	r, turn := said("a"), turnOf(44_000)
	b.ReportAllocs()
	for b.Loop() {
		if e.promptCut(r, turn) {
			b.Fatal("cut")
		}
	}
}
