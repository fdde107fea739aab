package storage

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"tranche/episode"
)

func closed(e *episode.Episode) *episode.Episode {
	e.Close(episode.StatusCompleted, episode.StopStop)
	return e
}

// TL-o1
func TestMissingLogprobIsNullNotZero(t *testing.T) {
	e := made{run: "r"}.episode(1, 0)
	e.Tokens = episode.Tokens{}
	e.Tokens.Extend(nil, []int32{11, 12, 13, 14, 15}, []episode.Logprob{{Value: -1, Known: true}, {Value: 0, Known: true}, {}, {Value: -2, Known: true}, {Value: -3, Known: true}}, nil)
	r := RowOf(e)
	if len(r.TokenIDs) != 5 || len(r.Logprobs) != 5 || r.Logprobs[2] != nil || r.Logprobs[1] == nil || *r.Logprobs[1] != 0 {
		t.Errorf("ids %v, logprobs %v", r.TokenIDs, r.Logprobs)
	}
	if !slices.Contains(r.Flags, episode.FlagLogprobNull) {
		t.Errorf("flags %v", r.Flags)
	}
	if !slices.Equal(r.Versions, []int32{-1, -1, -1, -1, -1}) {
		t.Errorf("unknown versions are stored as %v", r.Versions)
	}
}

// UN-o1, the stored half
func TestInvalidTextIsRepairedAndFlagged(t *testing.T) {
	e := made{run: "r"}.episode(1, 0)
	surrogate := "a\xed\xa0\xbdb" // U+D83D alone, as WTF-8
	e.Messages = append(e.Messages, episode.Message{Role: episode.RoleAssistant, Content: &surrogate,
		ToolCalls: []episode.ToolCall{{ID: "c", Function: episode.Function{Name: "f", Arguments: "{\"x\":\"\xff\"}"}}}})
	ids := slices.Clone(e.Tokens.IDs)
	r := RowOf(e)
	last := r.Messages[len(r.Messages)-1]
	if !utf8.ValidString(*last.Content) || *last.Content != "a\uFFFDb" || !utf8.ValidString(last.ToolCalls[0].Function.Arguments) {
		t.Errorf("stored %q, %q", *last.Content, last.ToolCalls[0].Function.Arguments)
	}
	if !slices.Contains(r.Flags, episode.FlagTextRepaired) || !slices.Equal(r.TokenIDs, ids) {
		t.Errorf("flags %v, ids %v", r.Flags, r.TokenIDs)
	}
	if slices.Contains(RowOf(made{run: "r"}.episode(1, 0)).Flags, episode.FlagTextRepaired) {
		t.Error("a clean row is flagged")
	}
}

func TestNullIsNotEmpty(t *testing.T) {
	e := made{run: "r"}.episode(1, 0)
	e.Messages = []episode.Message{{Role: "user", Content: nil}, {Role: "user", Content: episode.Ptr("")}, {Role: "assistant", ToolCalls: []episode.ToolCall{}}}
	e.Submitted = episode.Ptr("")
	r := RowOf(e)
	if r.Messages[0].Content != nil || r.Messages[1].Content == nil || *r.Messages[1].Content != "" {
		t.Error("content: null and empty are mixed up")
	}
	if r.Messages[0].ToolCalls != nil || r.Messages[2].ToolCalls == nil {
		t.Error("tool_calls: null and empty are mixed up")
	}
	if r.Submitted == nil || *r.Submitted != "" || r.Partial != nil || r.Tools != nil {
		t.Error("submitted, partial or tools are mixed up")
	}
}

func TestTokenCounts(t *testing.T) {
	n := func(v int32) *int32 { return &v }
	known := episode.Turn{PromptTokens: n(10), CompletionTokens: n(500)}
	unknown := episode.Turn{}
	for name, c := range map[string]struct {
		turns   []episode.Turn
		ids     []int32
		ask     bool
		brk     bool
		missing bool
		in, out *int32
	}{
		"the server's count":                      {[]episode.Turn{known, known}, []int32{1}, true, false, false, n(20), n(1000)},
		"no usage, no ids":                        {[]episode.Turn{unknown}, nil, false, false, false, nil, nil},
		"one turn without usage":                  {[]episode.Turn{known, unknown}, nil, false, false, false, nil, nil},
		"no usage, all ids":                       {[]episode.Turn{unknown}, []int32{1, 2, 3}, true, false, false, nil, n(3)},
		"no usage, ids of some turns":             {[]episode.Turn{unknown, unknown}, []int32{1, 2, 3}, true, false, true, nil, nil},
		"no usage, ids cut off at a break":        {[]episode.Turn{unknown, unknown}, []int32{1, 2, 3}, true, true, false, nil, nil},
		"no turn at all: zero, and that is known": {nil, nil, false, false, false, n(0), n(0)},
	} {
		e := made{run: "r"}.episode(1, 0)
		e.Turns, e.Tokens, e.Flags = c.turns, episode.Tokens{}, nil
		e.Sampling.TokenIDs = c.ask
		e.Tokens.Extend(nil, c.ids, nil, nil)
		if c.brk {
			e.Tokens.Break = n(0)
		}
		if c.missing {
			e.Flag(episode.FlagTokenIDsMissing)
		}
		r := RowOf(e)
		if !reflect.DeepEqual(r.NumInputTokens, c.in) || !reflect.DeepEqual(r.NumOutputTokens, c.out) {
			t.Errorf("%s: in %v, out %v", name, text32(r.NumInputTokens), text32(r.NumOutputTokens))
		}
	}
}

func text32(p *int32) any {
	if p == nil {
		return "unknown"
	}
	return *p
}

// The limit goes out as inference sends it: an extra field names it and can lower it, never raise it.
func TestSamplingHoldsTheTokenLimit(t *testing.T) {
	for name, c := range map[string]struct {
		turn  int
		extra string
		want  string
	}{
		"of the turn":         {77, `{}`, `{"max_tokens":77}`},
		"none":                {0, `{}`, `{}`},
		"extra lowers it":     {77, `{"max_tokens":5}`, `{"max_tokens":5}`},
		"extra cannot raise":  {77, `{"max_tokens":500}`, `{"max_tokens":77}`},
		"extra names it":      {77, `{"max_completion_tokens":500}`, `{"max_completion_tokens":77}`},
		"extra alone":         {0, `{"max_tokens":9}`, `{"max_tokens":9}`},
		"both":                {77, `{"max_tokens":9,"max_completion_tokens":8}`, `{"max_completion_tokens":8}`},
		"null says nothing":   {77, `{"max_tokens":null}`, `{"max_tokens":77}`},
		"no whole number":     {77, `{"max_tokens":"x"}`, `{"max_tokens":"x"}`},
		"others are not lost": {77, `{"x":1}`, `{"max_tokens":77,"x":1}`},
	} {
		e := made{run: "r"}.episode(1, 0)
		e.Sampling, e.Budget.TurnTokens = episode.Sampling{}, c.turn
		if err := json.Unmarshal([]byte(c.extra), &e.Sampling.Extra); err != nil {
			t.Fatal(err)
		}
		if got := *RowOf(e).Sampling; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestSamplingIsWhatWasSent(t *testing.T) {
	e := made{run: "r"}.episode(1, 0)
	for name, c := range map[string]struct {
		s    episode.Sampling
		want string
	}{
		"nothing":      {episode.Sampling{}, `{}`},
		"zero is sent": {episode.Sampling{Temperature: episode.Ptr(0.0), TopK: episode.Ptr(0)}, `{"temperature":0,"top_k":0}`},
		"all": {episode.Sampling{Temperature: episode.Ptr(0.7), TopP: episode.Ptr(0.9), MinP: episode.Ptr(0.05), Seed: episode.Ptr[int64](1 << 60), Stop: []string{"\n"}, Logprobs: true, TokenIDs: true},
			`{"logprobs":true,"min_p":0.05,"return_token_ids":true,"seed":1152921504606846976,"stop":["\n"],"temperature":0.7,"top_p":0.9}`},
		"extra wins":    {episode.Sampling{Temperature: episode.Ptr(0.7), Extra: map[string]json.RawMessage{"temperature": json.RawMessage("1"), "x": json.RawMessage(`{"a":[1]}`)}}, `{"temperature":1,"x":{"a":[1]}}`},
		"NaN":           {episode.Sampling{Temperature: episode.Ptr(math.NaN())}, `{"temperature":"NaN"}`},
		"extra no JSON": {episode.Sampling{Extra: map[string]json.RawMessage{"x": json.RawMessage(`{`)}}, `{"x":"{"}`},
	} {
		e.Sampling = c.s
		r := RowOf(e)
		if *r.Sampling != c.want {
			t.Errorf("%s: %s, want %s", name, *r.Sampling, c.want)
		}
		if !reflect.DeepEqual(r.Seed, c.s.Seed) {
			t.Errorf("%s: seed", name)
		}
	}
}

func TestScoresAreFiniteOrNull(t *testing.T) {
	e := made{run: "r"}.episode(1, 0)
	e.Verdict = episode.Verdict{Total: episode.Ptr(math.NaN()), Rewards: []episode.Reward{{Name: "a", Score: episode.Ptr(math.Inf(1)), Weight: math.NaN()}, {Name: "b", Weight: 1}}}
	r := RowOf(e)
	if r.Reward != nil || r.Rewards[0].Score != nil || r.Rewards[0].Weight != 0 || r.Rewards[1].Score != nil || !slices.Contains(r.Flags, FlagNonFinite) {
		t.Errorf("%+v, flags %v", r.Rewards, r.Flags)
	}
	e.Verdict = episode.Verdict{}
	if r := RowOf(e); r.Rewards != nil || r.Reward != nil {
		t.Error("an episode that was not scored has rewards")
	}
}

func TestDurationsAndFault(t *testing.T) {
	e := made{run: "r", failing: func(int, int) bool { return true }}.episode(1, 0)
	e.Timing = episode.Timing{Queue: 1500 * time.Millisecond, Total: 2 * time.Second}
	e.Turns[0].TTFT = episode.Ptr(2500 * time.Microsecond)
	r := RowOf(e)
	if r.Timing.Queue != 1.5 || r.Timing.Total != 2 || *r.Turns[0].TTFTMS != 2.5 || *r.Turns[0].QueueMS != 1 {
		t.Errorf("%+v, %v ms", r.Timing, *r.Turns[0].TTFTMS)
	}
	if *r.Status != "failed" || *r.FaultStage != "model" || *r.FaultClass != "timeout" || *r.FaultDetail != "no answer in 2s" || *r.Partial != "It" ||
		len(r.FaultAttempts) != 1 || *r.FaultAttempts[0].Cause != "slow" || !r.FaultAttempts[0].Began.Equal(e.Created) {
		t.Errorf("fault: %+v", r)
	}
	e.Fault.Attempts[0].Began = time.Time{}
	e.Created = time.Time{}
	if r := RowOf(e); r.FaultAttempts[0].Began != nil || !r.CreatedAt.Equal(time.Unix(0, 0)) {
		t.Errorf("times that nobody set: %v, %v", r.FaultAttempts[0].Began, r.CreatedAt)
	}
}

func TestARowTakesNoMemoryOfTheEpisode(t *testing.T) {
	e := closed(made{run: "r"}.episode(1, 0))
	r := RowOf(e)
	before, _ := json.Marshal(r)
	e.Tokens.IDs[0], e.Tokens.Mask[0], e.Tokens.Versions[0] = 9, 9, 9
	*e.Turns[0].PromptTokens = 99
	*e.Verdict.Total = 99
	e.Messages[0] = episode.Message{}
	if after, _ := json.Marshal(r); string(after) != string(before) {
		t.Error("the row changed with the episode")
	}
}

func FuzzDecodeRow(f *testing.F) {
	for task := range 3 {
		r := RowOf(made{run: "r", failing: func(task, _ int) bool { return task == 2 }}.episode(task, 0))
		b, err := appendRow(nil, 5, keyOf(r.EpisodeID), &r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(formerRow(f, 5, &r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRow(b)
		if err != nil {
			return
		}
		again, err := appendRow(nil, 5, keyOf(r.EpisodeID), r)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeRow(again)
		if n := len(r.TokenIDs); err != nil || len(r.LossMask) != n || len(r.Logprobs) != n || len(r.Versions) != n {
			t.Fatalf("a decoded row does not survive: %v; %d %d %d %d", err, n, len(r.LossMask), len(r.Logprobs), len(r.Versions))
		}
		if x, _ := appendRow(nil, 5, keyOf(r.EpisodeID), back); string(x) != string(again) {
			t.Fatalf("a decoded row changes:\n%q\n%q", again, x)
		}
	})
}

// Whatever a segment holds: the scan ends, frames and gaps do not overlap, are in order and cover it all.
func FuzzScanFrames(f *testing.F) {
	whole := []byte(segmentMagic)
	for i := range 3 {
		row := RowOf(made{run: "r", text: 10 * i}.episode(i, 0))
		var err error
		whole, err = appendFrame(whole, frameRow, func(b []byte) ([]byte, error) { return appendRow(b, uint64(i+1), keyOf(row.EpisodeID), &row) })
		if err != nil {
			f.Fatal(err)
		}
	}
	f.Add(whole, 0, byte(0))
	f.Add(whole[:len(whole)-3], 0, byte(0))
	f.Add(whole, 30, byte(4))
	f.Add([]byte{}, 0, byte(0))
	f.Fuzz(func(t *testing.T, b []byte, at int, x byte) {
		b = slices.Clone(b)
		if at >= 0 && at < len(b) {
			b[at] ^= x
		}
		r := bytesAt(b)
		next := int64(0)
		if hasMagic(r, int64(len(b))) {
			next = int64(len(segmentMagic))
		}
		covered := next
		gaps, err := scanFrames(r, int64(len(b)), func(off int64, frame []byte) error {
			if off < next {
				t.Fatalf("frame at %d after one that ends at %d", off, next)
			}
			if _, _, err := parseFrame(b[off : off+int64(len(frame))]); err != nil {
				t.Fatal(err)
			}
			next = off + int64(len(frame))
			covered += int64(len(frame))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, g := range gaps {
			covered += g.bytes
			if g.torn && (g.offset+g.bytes != int64(len(b)) || i < len(gaps)-1) || g.bytes <= 0 {
				t.Fatalf("gap %+v of %d bytes", g, len(b))
			}
		}
		if covered != int64(len(b)) {
			t.Fatalf("%d of %d bytes accounted for", covered, len(b))
		}
	})
}

// Behind a damaged row the next one is found without a checksum for every number in it that looks like a length.
func TestDamageIsPassedQuickly(t *testing.T) {
	const tokens = 20_000
	row := Row{EpisodeID: "e", TokenIDs: make([]int32, tokens), LossMask: make([]int8, tokens), Logprobs: make([]*float32, tokens), Versions: make([]int32, tokens)}
	for i := range tokens {
		row.TokenIDs[i], row.LossMask[i], row.Logprobs[i], row.Versions[i] = int32(i%300), 1, new(float32), 1
	}
	now, err := appendFrame(nil, frameRow, func(b []byte) ([]byte, error) { return appendRow(b, 1, keyOf("e"), &row) })
	if err != nil {
		t.Fatal(err)
	}
	for form, frame := range map[string][]byte{"": now, " of a former program": formerFrame(t, 1, &row)} {
		first := int64(len(segmentMagic) + len(frame))
		segment := slices.Concat([]byte(segmentMagic), frame, frame)
		for name, at := range map[string]int{"a token": len(segmentMagic) + 1000, "the length": len(segmentMagic) + 2, "the kind": len(segmentMagic) + 8} {
			t.Run(name+form, func(t *testing.T) {
				damaged := slices.Clone(segment)
				damaged[at] ^= 3
				r := &countedAt{b: damaged}
				found := int64(0)
				_, err := scanFrames(r, 64<<20, func(offset int64, _ []byte) error { found = offset; return io.EOF })
				if err != io.EOF || found != first || r.read > 8<<20 {
					t.Errorf("a frame at %d, want %d; %d bytes were read, %v", found, first, r.read, err)
				}
			})
		}
	}
}

// countedAt is a file that is sparse behind its bytes. It fails after a GiB.
type countedAt struct {
	b    []byte
	read int64
}

func (c *countedAt) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off < int64(len(c.b)) {
		copy(p, c.b[off:])
	}
	if c.read += int64(len(p)); c.read > 1<<30 {
		return 0, errors.New("too much was read")
	}
	return len(p), nil
}

type bytesAt []byte

func (b bytesAt) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(b).ReadAt(p, off)
}
