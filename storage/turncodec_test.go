package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tranche/episode"
)

// played draws turns for an episode the way a server and tools may make them, and adds them. It returns their steps.
type played struct {
	*rapid.T
	e     *episode.Episode
	steps []episode.Step
}

func openEpisode(run string, task, sample int) *episode.Episode {
	t := &episode.Task{ID: fmt.Sprint("t", task), Hash: "h", Messages: []episode.Message{
		{Role: episode.RoleSystem, Content: episode.Ptr("Use the tools.")}, {Role: episode.RoleUser, Content: episode.Ptr(fmt.Sprint("question ", task))},
	}}
	s := episode.Sampling{Temperature: episode.Ptr(0.7), Seed: episode.Ptr(int64(sample)), TokenIDs: true, Logprobs: true}
	return episode.New(run, episode.Draw{Task: t, Samples: 2}, sample, s, episode.Budget{TurnTokens: 100}, time.Unix(1_800_000_000, 123).UTC())
}

func (p *played) text(label string) string {
	return rapid.SampledFrom([]string{"", "a", "<b>&\u2028", "日本\ufffd", "line\nline", "{\"x\": 1}", strings.Repeat("long ", 50)}).Draw(p.T, label)
}

func (p *played) maybe(label string) *string {
	if rapid.Bool().Draw(p.T, label+"?") {
		return nil
	}
	return episode.Ptr(p.text(label))
}

func (p *played) count(label string) *int32 {
	if rapid.Bool().Draw(p.T, label+"?") {
		return nil
	}
	return episode.Ptr(rapid.Int32Range(0, 100).Draw(p.T, label))
}

func (p *played) ids(label string, least int) []int32 {
	return rapid.SliceOfN(rapid.Int32Range(0, 3), least, 9).Draw(p.T, label)
}

// prompt is what the server says it saw: nothing, what there was and more, or something else from some place on.
func (p *played) prompt() []int32 {
	seq := p.e.Tokens.IDs
	switch rapid.IntRange(0, 4).Draw(p.T, "prompt") {
	case 0:
		return nil
	case 1:
		return p.ids("other prompt", 0)
	case 2:
		return slices.Concat(seq[:rapid.IntRange(0, len(seq)).Draw(p.T, "kept")], p.ids("rewritten", 1))
	}
	return slices.Concat(seq, p.ids("grown", 1))
}

func (p *played) message() episode.Message {
	m := episode.Message{Role: episode.RoleAssistant, Content: p.maybe("content"), ReasoningContent: p.maybe("reasoning"), Name: p.maybe("name")}
	if m.ReasoningContent != nil && rapid.Bool().Draw(p.T, "tagged") {
		m.Tagged = &episode.Tagged{Open: p.text("tag"), Closed: rapid.Bool().Draw(p.T, "closed")}
	}
	if rapid.Bool().Draw(p.T, "written") {
		m.Written = &episode.Written{Call: p.call(), Unread: p.text("unread")}
		if rapid.Bool().Draw(p.T, "empty calls") {
			m.ToolCalls = []episode.ToolCall{}
		}
		return m
	}
	for range rapid.IntRange(1, 2).Draw(p.T, "calls") {
		m.ToolCalls = append(m.ToolCalls, p.call())
	}
	return m
}

func (p *played) call() episode.ToolCall {
	return episode.ToolCall{ID: p.text("id"), Type: "function", Function: episode.Function{Name: p.text("tool"), Arguments: p.text("arguments")}}
}

func (p *played) reply() *episode.Reply {
	r := &episode.Reply{
		Message: p.message(), Finish: rapid.SampledFrom([]string{episode.FinishStop, episode.FinishToolCalls, ""}).Draw(p.T, "finish"), RawEnd: p.text("end"),
		StopSeq: p.maybe("stop"), PromptIDs: p.prompt(), Usage: episode.Usage{Prompt: p.count("prompt"), Completion: p.count("completion"), Cached: p.count("cached")},
		Version: p.count("version"), Exchange: episode.ExchangeIDs, LogprobsOf: episode.SpreadRaw, Endpoint: p.text("endpoint"), Model: p.text("model"),
		Service: time.Duration(rapid.Int64Range(0, 1e12).Draw(p.T, "service")),
	}
	if rapid.Bool().Draw(p.T, "ids") {
		r.SampledIDs = p.ids("sampled", 0)
	}
	for range rapid.IntRange(0, len(r.SampledIDs)).Draw(p.T, "logprobs") {
		lp := episode.Logprob{Known: rapid.Bool().Draw(p.T, "known")}
		if lp.Known {
			lp.Value = rapid.SampledFrom([]float32{0, -1.5, float32(math.Inf(-1)), -1e-30}).Draw(p.T, "logprob")
		}
		r.Logprobs = append(r.Logprobs, lp)
	}
	if n := len(r.SampledIDs); n > 1 && rapid.Bool().Draw(p.T, "spans") {
		r.Spans = []episode.Span{{Tokens: 1, Version: p.count("first")}, {Tokens: n - 1, Version: r.Version}}
	}
	if rapid.Bool().Draw(p.T, "flags") {
		r.Flags = []string{episode.FlagTextRepaired}
	}
	if rapid.Bool().Draw(p.T, "raw") {
		r.Raw = &episode.Raw{Status: 200, Bytes: 5, Held: 5, Deflated: []byte{0, 255, 1, 128}}
	}
	if rapid.Bool().Draw(p.T, "ttft") {
		r.TTFT = episode.Ptr(time.Duration(7))
	}
	return r
}

func (p *played) observation(act episode.Action) episode.Observation {
	o := episode.Observation{CallID: act.Call.ID, Name: act.Call.Function.Name, Text: p.text("result"), Status: episode.ActionOK, ExitCode: p.count("exit"),
		Wall: time.Duration(rapid.Int64Range(0, 1e12).Draw(p.T, "wall")), OutBytes: 9, Truncated: rapid.Bool().Draw(p.T, "truncated"), Tier: p.text("tier")}
	if act.Written {
		o.Told = &episode.Message{Role: episode.RoleUser, Content: episode.Ptr(p.text("told"))}
	}
	if rapid.Bool().Draw(p.T, "footprint") {
		o.Footprint = &episode.Footprint{Queue: 3, Setup: 4, PeakMemory: 5, OOMKills: 1, LeftBehind: 2}
	}
	return o
}

// turn plays one turn, at the end of which the episode is open.
func (p *played) turn() {
	r := p.reply()
	t := episode.Turn{
		PromptTokens: r.Usage.Prompt, CompletionTokens: r.Usage.Completion, CachedTokens: r.Usage.Cached, Finish: r.RawEnd, StopSeq: r.StopSeq, Endpoint: r.Endpoint,
		Queue: 11, TTFT: r.TTFT, Service: r.Service, Retries: 2, Class: 3, VersionStart: r.FirstVersion(), VersionEnd: r.Version, Hedged: true, Exchange: r.Exchange,
		LogprobsOf: r.LogprobsOf, Counted: rapid.IntRange(0, 40).Draw(p.T, "counted"),
	}
	s := p.e.Step(r, t)
	p.e.AddReply(r, t)
	for _, act := range p.e.PendingActions() {
		o := p.observation(act)
		p.e.AddObservation(o)
		s.Seen = append(s.Seen, o)
	}
	s.Spent = time.Duration(len(p.e.Turns)) * time.Second
	p.steps = append(p.steps, s)
}

// kept writes a step and reads it back, as a crash and a resume do.
func kept(e *episode.Episode, turn int, s *episode.Step) (*turnText, episode.Step, error) {
	h := turnHeader{seq: 7, key: keyOf(e.ID), attempt: uint32(e.Attempt), turn: uint32(turn), ends: len(s.Kept) > 0}
	frame, err := appendFrame(nil, frameTurn, func(b []byte) ([]byte, error) { return appendTurn(b, h, e, s) })
	if err != nil {
		return nil, episode.Step{}, err
	}
	_, payload, err := parseFrame(frame)
	if err != nil {
		return nil, episode.Step{}, err
	}
	if got, err := readTurnHeader(payload); err != nil || got != h {
		return nil, episode.Step{}, fmt.Errorf("header %+v, want %+v (%v)", got, h, err)
	}
	return decodeStep(payload)
}

// An episode that is made again from the records of its turns is the very same: messages with all their forms, sequence with its breaks, flags, sums, and
// what the next call goes on from.
func TestRebuiltEpisodeIsTheVerySame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &played{T: t, e: openEpisode("r", 1, 0)}
		opening := p.e.Opening()
		for range rapid.IntRange(1, 5).Draw(t, "turns") {
			p.turn()
		}
		b := &episode.Begun{Attempt: 2, Opening: opening}
		for i := range p.steps {
			text, s, err := kept(p.e, i, &p.steps[i])
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				b.Created = time.Unix(0, text.Created).UTC()
			}
			b.Steps = append(b.Steps, s)
		}
		again := openEpisode("r", 1, 0)
		again.Created, again.Begun = time.Now(), b
		if err := again.Rebuild(); err != nil {
			t.Fatal(err)
		}
		want := p.e
		want.Attempt, want.Timing.Total = 2, time.Duration(len(p.steps))*time.Second
		want.Flag(episode.FlagResumed)
		if !reflect.DeepEqual(again, want) {
			t.Fatalf("rebuilt\n got %s\nwant %s", shown(again), shown(want))
		}
		next, ok := again.NextCall()
		wantNext, wantOK := want.NextCall()
		if ok != wantOK || !reflect.DeepEqual(next, wantNext) {
			t.Fatalf("the next call is %s, want %s", shown(next), shown(wantNext))
		}
		if opening != again.Opening() {
			t.Fatal("the opening changed while the episode went on")
		}
	})
}

func shown(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%+v", v)
	}
	return string(text)
}

// A turn adds what it added: the records of a conversation that only grows are as long together as the conversation, not as its square.
func TestTurnRecordsGrowWithTheConversation(t *testing.T) {
	e := openEpisode("r", 1, 0)
	var sizes []int
	for turn := range 50 {
		prompt := slices.Concat(e.Tokens.IDs, make([]int32, 200))
		r := &episode.Reply{Message: episode.Message{Role: episode.RoleAssistant, ToolCalls: []episode.ToolCall{{ID: "c"}}}, Finish: episode.FinishToolCalls,
			PromptIDs: prompt, SampledIDs: make([]int32, 100), Logprobs: make([]episode.Logprob, 100)}
		s := e.Step(r, episode.Turn{})
		e.AddReply(r, episode.Turn{})
		s.Seen = []episode.Observation{{CallID: "c", Text: strings.Repeat("x", 400)}}
		e.AddObservation(s.Seen[0])
		b, err := appendTurn(nil, turnHeader{turn: uint32(turn)}, e, &s)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, len(b))
	}
	if first, last := sizes[1], sizes[len(sizes)-1]; last > first+first/10 {
		t.Errorf("the record of turn 1 has %d bytes, that of turn %d has %d", first, len(sizes)-1, last)
	}
}

// What JSON cannot hold as it is is refused, so that no rebuilt episode differs from what it was.
func TestTurnsThatCannotBeKeptExactly(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		exact bool
	}{
		"no UTF-8":                 {"a\xffb", false},
		"a lone half of a pair":    {"\xed\xa0\x80", false},
		"the replacement itself":   {"a\ufffdb", true},
		"its escape":               {`a\ufffdb \\ufffd \ufffd`, true},
		"its escape and no UTF-8":  {"\\ufffd \\\\\xff", false},
		"line separators and html": {"<&>\u2028\u2029\x00\x7f", true},
	} {
		t.Run(name, func(t *testing.T) {
			e := openEpisode("r", 1, 0)
			r := &episode.Reply{Message: episode.Message{Role: episode.RoleAssistant, Content: &c.text}}
			s := e.Step(r, episode.Turn{})
			e.AddReply(r, episode.Turn{})
			_, got, err := kept(e, 0, &s)
			if !c.exact {
				if !errors.Is(err, errInexact) {
					t.Errorf("%v, want errInexact", err)
				}
				return
			}
			if err != nil || *got.Reply.Message.Content != c.text {
				t.Errorf("%q came back as %q (%v)", c.text, *got.Reply.Message.Content, err)
			}
		})
	}
}

// The names of the fields are the format: one that is renamed in package episode would silently be lost from records that are there.
func TestTurnTextIsPinned(t *testing.T) {
	e := openEpisode("r", 1, 0)
	r := &episode.Reply{Message: episode.Message{Role: episode.RoleAssistant, ToolCalls: []episode.ToolCall{{ID: "c", Type: "function"}}}, Finish: "tool_calls", Spans: []episode.Span{{Tokens: 1}}}
	s := e.Step(r, episode.Turn{Counted: 4})
	e.AddReply(r, episode.Turn{})
	s.Seen, s.Spent = []episode.Observation{{CallID: "c", Told: &episode.Message{}, Footprint: &episode.Footprint{}}}, time.Second
	text, err := appendTurnText(nil, textOf(turnHeader{}, e, &s))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"v":1,"episode":"ID","task":"t1","created":1800000000000000123,"opening":"OPENING","spent":1000000000,` +
		`"reply":{"Finish":"tool_calls","RawEnd":"","StopSeq":null,"PromptIDs":null,"SampledIDs":null,"Logprobs":null,"LogprobsOf":"","Version":null,` +
		`"Spans":[{"Tokens":1,"Version":null}],"Exchange":"","Usage":{"Prompt":null,"Completion":null,"Cached":null},"Answer":null,"Endpoint":"","Model":"",` +
		`"TTFT":null,"Service":0,"Flags":null,"Raw":null,"Message":{"Role":"assistant","Content":null,"ReasoningContent":null,"Name":null,"ToolCallID":null,` +
		`"ToolCalls":[{"id":"c","type":"function","function":{"name":"","arguments":""}}],"Tagged":null,"Written":null}},` +
		`"turn":{"PromptTokens":null,"CompletionTokens":null,"CachedTokens":null,"Finish":"","StopSeq":null,"Endpoint":"","Queue":0,"TTFT":null,"Service":0,` +
		`"Retries":0,"Class":0,"VersionStart":null,"VersionEnd":null,"Hedged":false,"Exchange":"","LogprobsOf":"","Counted":4},` +
		`"seen":[{"CallID":"c","Name":"","Text":"","Status":"","Done":false,"Submitted":null,"ExitCode":null,"Wall":0,"CPU":null,"OutBytes":0,"Truncated":false,` +
		`"Tier":"","Rootfs":"","Footprint":{"Queue":0,"Setup":0,"PeakMemory":0,"OOMKills":0,"RefusedForks":0,"LeftBehind":0},"Fault":null,` +
		`"Told":{"Role":"","Content":null,"ReasoningContent":null,"Name":null,"ToolCallID":null,"ToolCalls":null,"Tagged":null,"Written":null}}]}` + "\n"
	got := strings.NewReplacer(e.ID, "ID", e.Opening(), "OPENING").Replace(string(text))
	if got != want {
		t.Errorf("the text of a turn changed: raise turnVersion where records of before cannot be read any more\n got %s\nwant %s", got, want)
	}
}

func FuzzTurnRecord(f *testing.F) {
	e := openEpisode("r", 1, 0)
	r := &episode.Reply{Message: episode.Message{Role: episode.RoleAssistant, Content: episode.Ptr("x")}, PromptIDs: []int32{1, 2}, SampledIDs: []int32{3}, Logprobs: []episode.Logprob{{Value: -1, Known: true}},
		Raw: &episode.Raw{Deflated: []byte{1}}}
	s := e.Step(r, episode.Turn{})
	e.AddReply(r, episode.Turn{})
	for _, keeps := range [][]string{nil, {"python"}} {
		s.Kept = keeps
		payload, err := appendTurn(nil, turnHeader{ends: keeps != nil}, e, &s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		_, _ = foundAt(recordAt{}, append(make([]byte, frameHead), payload...)) // no frame, whatever it says
		if _, _, err := readTurnText(payload); err != nil {
			_, _, err := decodeStep(payload)
			if err == nil {
				t.Fatal("a step was made of a text that cannot be read")
			}
			return
		}
		_, s, err := decodeStep(payload)
		if err != nil {
			return
		}
		again := &episode.Episode{Task: &episode.Task{}, Begun: &episode.Begun{Steps: []episode.Step{s}}}
		again.Begun.Opening = again.Opening()
		if err := again.Rebuild(); err != nil && again.Attempt != 1 { // it either goes on or begins again
			t.Fatalf("attempt %d after %v", again.Attempt, err)
		}
	})
}
