package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tranche/episode"
	"tranche/storage"
)

func ptr[T any](v T) *T { return &v }

// chat is one row of two turns with a tool between, ids and logprobs.
func chat(change ...func(*storage.Row)) *storage.Row {
	r := &storage.Row{
		SchemaVersion: 1, RunID: "r", EpisodeID: "e1", GroupID: "g1", TaskID: "t1", GroupSize: 2, DataSource: "math", Split: "train", NumPromptMessages: 2,
		Messages: []storage.Message{
			{Role: ptr("system"), Content: ptr("s")}, {Role: ptr("user"), Content: ptr("2+2? <&>")},
			{Role: ptr("assistant"), ReasoningContent: ptr("hm"), ToolCalls: []storage.ToolCall{{ID: "c1", Type: "function", Function: storage.Function{Name: "calc", Arguments: `{"e": "2+2", "a": 1.0}`}}}},
			{Role: ptr("tool"), Content: ptr("4"), Name: ptr("calc"), ToolCallID: ptr("c1")},
			{Role: ptr("assistant"), Content: ptr("4")},
		},
		Tools:    ptr(`[{"type": "function", "function": {"name": "calc", "parameters": {"type": "object"}}}]`),
		TokenIDs: []int32{1, 2, 3, 10, 11, 4, 5, 12}, LossMask: []int8{0, 0, 0, 1, 1, 0, 0, 1}, PromptLen: 3, Versions: []int32{-1, -1, -1, 7, 7, -1, -1, 8},
		Logprobs: []*float32{nil, nil, nil, ptr[float32](-0.5), ptr[float32](-0.25), nil, nil, ptr[float32](-1)},
		Turns: []storage.Turn{
			{PromptTokens: ptr[int32](3), CompletionTokens: ptr[int32](2), CachedTokens: ptr[int32](0), FinishReason: ptr("tool_calls"), VersionStart: ptr[int32](7), VersionEnd: ptr[int32](7)},
			{PromptTokens: ptr[int32](7), CompletionTokens: ptr[int32](1), CachedTokens: ptr[int32](4), FinishReason: ptr("stop"), VersionStart: ptr[int32](8), VersionEnd: ptr[int32](8)},
		},
		Reward: ptr(1.0), Status: ptr("completed"), StopReason: ptr("stop"), NumTurns: 2, NumInputTokens: ptr[int32](10), NumOutputTokens: ptr[int32](3),
		Model: ptr("m"), Sampling: ptr(`{"temperature":1}`), RewardModel: storage.RewardModel{GroundTruth: ptr("4")}, CreatedAt: time.Unix(1_700_000_000, 0).UTC(),
	}
	for _, c := range change {
		c(r)
	}
	return r
}

// sibling is another answer to the same prompt.
func sibling(sample int32, reward *float64, answer string) func(*storage.Row) {
	return func(r *storage.Row) {
		r.EpisodeID, r.SampleIndex, r.Reward = fmt.Sprintf("e%d", sample+1), sample, reward
		r.Messages = append(slices.Clone(r.Messages[:2]), storage.Message{Role: ptr("assistant"), Content: &answer})
		r.Turns, r.TokenIDs, r.LossMask, r.Versions, r.Logprobs = r.Turns[:1], r.TokenIDs[:5], r.LossMask[:5], r.Versions[:5], r.Logprobs[:5]
	}
}

// linesOf is what a shape makes of a unit, as lines.
func linesOf(t *testing.T, cfg Config, rows ...*storage.Row) (out []string, left []string) {
	t.Helper()
	cfg.Format = JSONL
	shape, err := Named(cfg.Shape)
	if err != nil {
		t.Fatal(err)
	}
	cfg = cfg.withDefaults(shape)
	m := shape.open(&cfg)
	if k, ok := m.(knower); ok {
		var s standing
		for _, r := range rows {
			s.count(r)
		}
		k.know(s)
	}
	records, left := m.make(rows)
	for _, rec := range records {
		text, err := encode(rec)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(text))
	}
	return out, left
}

func TestShapes(t *testing.T) {
	const (
		prompt = `{"role":"system","content":"s"},{"role":"user","content":"2+2? <&>"}`
		call   = `{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"calc","arguments":"{\"e\": \"2+2\", \"a\": 1.0}"}}]}`
		tool   = `{"role":"tool","content":"4","name":"calc","tool_call_id":"c1"}`
		answer = `{"role":"assistant","content":"4"}`
		list   = `[{"type":"function","function":{"name":"calc","parameters":{"type":"object"}}}]`
		text   = `"[{\"type\": \"function\", \"function\": {\"name\": \"calc\", \"parameters\": {\"type\": \"object\"}}}]"`
	)
	group := []*storage.Row{chat(), chat(sibling(1, ptr(0.0), "5")), chat(sibling(2, nil, "6"))}
	for _, c := range []struct {
		name string
		cfg  Config
		rows []*storage.Row
		want []string
		left []string
	}{
		{"trl-sft", Config{Shape: "trl-sft"}, group[:1], []string{`{"input_ids":[1,2,3,10,11,4,5,12],"labels":[-100,-100,-100,10,11,-100,-100,12]}`}, []string{""}},
		{"messages", Config{Shape: "messages"}, group[:1], []string{`{"messages":[` + prompt + "," + call + "," + tool + "," + answer + `],"tools":` + text + `}`}, []string{""}},
		{"messages with lists of tools", Config{Shape: "messages", Tools: AsList}, group[1:2], []string{`{"messages":[` + prompt + `,{"role":"assistant","content":"5"}],"tools":` + list + `}`}, []string{""}},
		{"messages without tools", Config{Shape: "messages", Tools: AsNone}, group[1:2], []string{`{"messages":[` + prompt + `,{"role":"assistant","content":"5"}]}`}, []string{""}},
		{"arguments as objects", Config{Shape: "messages", Tools: AsNone, Arguments: AsObject}, group[:1], []string{`{"messages":[` + prompt + "," + strings.Replace(call, `"{\"e\": \"2+2\", \"a\": 1.0}"`, `{"e":"2+2","a":1.0}`, 1) + "," + tool + "," + answer + `]}`}, []string{""}},
		{"prompt-completion", Config{Shape: "prompt-completion", Tools: AsNone}, group[:1], []string{`{"prompt":[` + prompt + `],"completion":[` + call + "," + tool + "," + answer + `]}`}, []string{""}},
		{"dpo", Config{Shape: "dpo", Tools: AsNone}, group, []string{`{"prompt":[` + prompt + `],"chosen":[` + call + "," + tool + "," + answer + `],"rejected":[{"role":"assistant","content":"5"}],"score_chosen":1.0,"score_rejected":0.0}`}, []string{"", "", "no_verdict"}},
		{"verl-rl", Config{Shape: "verl-rl"}, group[:1], []string{`{"data_source":"math","prompt":[` + prompt + `],"ability":"math","reward_model":{"style":"rule","ground_truth":"4"},"extra_info":{"index":0,"split":"train","task_id":"t1","samples":1,"scored":1,"pass_rate":1.0,"mean_reward":1.0,"task":null}}`}, []string{""}},
		{"skyrl", Config{Shape: "skyrl"}, group[:1], []string{`{"data_source":"math","prompt":[` + prompt + `],"env_class":"","reward_spec":{"method":"rule","ground_truth":"4"},"extra_info":{"index":0,"split":"train","task_id":"t1","samples":1,"scored":1,"pass_rate":1.0,"mean_reward":1.0,"task":null}}`}, []string{""}},
		{"skyrl-sft", Config{Shape: "skyrl-sft"}, group[:1], []string{`{"input_ids":[1,2,3,10,11,4,5,12],"loss_mask":[0,0,0,1,1,0,0,1]}`}, []string{""}},
		{"slime", Config{Shape: "slime", Tools: AsNone}, group[:1], []string{`{"group_index":0,"index":0,"rollout_id":0,"prompt":[` + prompt + `],"tokens":[1,2,3,10,11,4,5,12],"response":"4","response_length":5,"label":"4","reward":1.0,"loss_mask":[1,1,0,0,1],"weight_versions":["7","8"],"rollout_log_probs":[-0.5,-0.25,0,0,-1],"status":"completed","metadata":{"source_name":"math","task_id":"t1","episode_id":"e1"}}`}, []string{""}},
		{"atropos", Config{Shape: "atropos"}, group[1:], []string{`{"tokens":[[1,2,3,10,11]],"masks":[[-100,-100,-100,10,11]],"scores":[0.0],"messages":[[` + prompt + `,{"role":"assistant","content":"5"}]],"generation_params":{"temperature":1},"inference_logprobs":[[1,1,1,-0.5,-0.25]]}`}, []string{"", "no_verdict"}},
		{"areal", Config{Shape: "areal"}, group[:1], []string{`{"input_ids":[1,2,3,10,11,4,5,12],"loss_mask":[0,0,0,1,1,0,0,1],"logprobs":[0,0,0,-0.5,-0.25,0,0,-1],"versions":[-1,-1,-1,7,7,-1,-1,8],"attention_mask":[true,true,true,true,true,true,true,true],"rewards":1.0,"task_id":"t1","sample_idx":0}`}, []string{""}},
		{"atif", Config{Shape: "atif", Version: "v1"}, group[:1], []string{`{"schema_version":"ATIF-v1.6","session_id":"e1","agent":{"name":"tranche","version":"v1","model_name":"m","tool_definitions":` + list + `},"steps":[` +
			`{"step_id":1,"source":"system","message":"s"},{"step_id":2,"source":"user","message":"2+2? <&>"},` +
			`{"step_id":3,"source":"agent","message":"","reasoning_content":"hm","tool_calls":[{"tool_call_id":"c1","function_name":"calc","arguments":{"e":"2+2","a":1.0}}],"observation":{"results":[{"source_call_id":"c1","content":"4"}]},"metrics":{"prompt_tokens":3,"completion_tokens":2,"cached_tokens":0,"completion_token_ids":[10,11],"logprobs":[-0.5,-0.25]},"extra":{"null_content":true,"finish_reason":"tool_calls"}},` +
			`{"step_id":4,"source":"agent","message":"4","metrics":{"prompt_tokens":7,"completion_tokens":1,"cached_tokens":4,"completion_token_ids":[12],"logprobs":[-1]},"extra":{"finish_reason":"stop"}}],` +
			`"final_metrics":{"total_prompt_tokens":10,"total_completion_tokens":3,"total_cached_tokens":4,"total_steps":4},` +
			`"extra":{"run_id":"r","task_id":"t1","group_id":"g1","sample_index":0,"data_source":"math","status":"completed","stop_reason":"stop","reward":1.0}}`}, []string{""}},
		{"openai-batch", Config{Shape: "openai-batch"}, group[:1], []string{`{"id":"batch_req_e1","custom_id":"t1/0/0","response":{"status_code":200,"request_id":"e1","body":{"id":"chatcmpl-e1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":` + answer + `,"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":1,"total_tokens":8}}},"error":null}`}, []string{""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.cfg.Validate(); err != nil {
				t.Fatal(err)
			}
			got, left := linesOf(t, c.cfg, c.rows...)
			if !slices.Equal(got, c.want) {
				t.Errorf("made\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if !slices.Equal(left, c.left) {
				t.Errorf("left out %q, want %q", left, c.left)
			}
		})
	}
}

// The same sample of the same task in two runs of a dataset has two ids.
func TestBatchIDsOfSeveralRuns(t *testing.T) {
	other := func(r *storage.Row) { r.RunID, r.EpisodeID, r.GroupSize = "r2", "e2", 1 }
	shape, err := Named("openai-batch")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Shape: shape.Name}.withDefaults(shape)
	m := shape.open(&cfg)
	var ids []string
	for _, r := range []*storage.Row{chat(func(r *storage.Row) { r.GroupSize = 1 }), chat(other), chat(), chat(other, func(r *storage.Row) { r.Round = 1 })} {
		records, _ := m.make([]*storage.Row{r})
		ids = append(ids, records[0].(batchRecord).CustomID)
	}
	if want := []string{"t1", "r2/t1", "t1/0/0", "r2/t1/1/0"}; !slices.Equal(ids, want) {
		t.Errorf("%q, want %q", ids, want)
	}
}

func TestRowsThatAreLeftOut(t *testing.T) {
	flag := func(f string) func(*storage.Row) { return func(r *storage.Row) { r.Flags = []string{f} } }
	cut := func(r *storage.Row) {
		r.Breaks = []storage.Broken{{Turn: 1, At: 4, TokenIDs: []int32{9}, LossMask: []int8{1}, Logprobs: []*float32{ptr[float32](-2)}, Versions: []int32{7}}}
	}
	for _, c := range []struct {
		name, shape string
		change      func(*storage.Row)
		cfg         func(*Config)
		want        string
	}{
		{"no ids", "trl-sft", func(r *storage.Row) { r.TokenIDs, r.LossMask, r.Logprobs, r.Versions = nil, nil, nil, nil }, nil, leftNoIDs},
		{"an answer without ids", "trl-sft", flag(episode.FlagTokenIDsMissing), nil, leftPartIDs},
		{"a prompt without ids", "skyrl-sft", flag(episode.FlagPromptIDsMissing), nil, leftPartIDs},
		{"a prompt that was cut", "areal", flag(episode.FlagPromptCut), nil, leftCutPrompt},
		{"nothing sampled", "trl-sft", func(r *storage.Row) { r.LossMask = make([]int8, 8) }, nil, leftUnsampled},
		{"broken, and not wanted", "trl-sft", cut, func(c *Config) { c.DropBroken = true }, leftBroken},
		{"broken, for Atropos", "atropos", cut, nil, leftBroken},
		{"a break that does not fit", "trl-sft", func(r *storage.Row) { cut(r); r.Breaks[0].At = 99 }, nil, leftBroken},
		{"a logprob is missing", "areal", func(r *storage.Row) { r.Logprobs[4] = nil }, nil, leftLogprobs},
		{"a logprob is no number", "slime", func(r *storage.Row) { r.Logprobs[4] = ptr(float32(1) / float32(0*len(r.Flags))) }, nil, leftLogprobs},
		{"logprobs are not wanted", "areal", func(r *storage.Row) { r.Logprobs[4] = nil }, func(c *Config) { c.NoLogprobs = true }, ""},
		{"SFT needs none", "trl-sft", func(r *storage.Row) { r.Logprobs[4] = nil }, nil, ""},
		{"no verdict is not zero", "areal", func(r *storage.Row) { r.Reward = nil }, nil, leftNoVerdict},
		{"SFT needs no verdict", "trl-sft", func(r *storage.Row) { r.Reward = nil }, nil, ""},
		{"zero is a verdict", "slime", func(r *storage.Row) { r.Reward = ptr(0.0) }, nil, ""},
		{"a prompt alone", "messages", func(r *storage.Row) { r.Messages = r.Messages[:2] }, nil, leftSilent},
		{"no prompt at all", "verl-rl", func(r *storage.Row) { r.NumPromptMessages = 0 }, nil, leftPromptCall},
		{"arguments that are no object", "messages", func(r *storage.Row) { r.Messages[2].ToolCalls[0].Function.Arguments = "2+2" }, func(c *Config) { c.Arguments = AsObject }, leftArguments},
		{"arguments that are no object, as text", "messages", func(r *storage.Row) { r.Messages[2].ToolCalls[0].Function.Arguments = "2+2" }, nil, ""},
		{"tools by name alone", "messages", func(r *storage.Row) { r.Tools = ptr(`["calculator"]`) }, nil, leftTools},
		{"tools by name, not wanted", "messages", func(r *storage.Row) { r.Tools = ptr(`["calculator"]`) }, func(c *Config) { c.Tools = AsNone }, ""},
		{"a group of one", "dpo", nil, nil, leftAlone},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{Shape: c.shape}
			if c.cfg != nil {
				c.cfg(&cfg)
			}
			row := chat()
			if c.change != nil {
				c.change(row)
			}
			out, left := linesOf(t, cfg, row)
			if !slices.Equal(left, []string{c.want}) || (len(out) == 0) != (c.want != "") {
				t.Errorf("left %q with %d records, want %q", left, len(out), c.want)
			}
		})
	}
}

func TestPairs(t *testing.T) {
	rewards := func(values ...*float64) (rows []*storage.Row) {
		for i, v := range values {
			rows = append(rows, chat(sibling(int32(i), v, fmt.Sprint("answer ", i))))
		}
		return rows
	}
	one, half, none := ptr(1.0), ptr(0.5), ptr(0.0)
	for _, c := range []struct {
		name  string
		cfg   Config
		rows  []*storage.Row
		pairs [][2]float64
		left  []string
	}{
		{"best against worst", Config{}, rewards(half, none, one), [][2]float64{{1, 0}}, []string{leftBetween, "", ""}},
		{"the first of equals", Config{}, rewards(one, one, none, none), [][2]float64{{1, 0}}, []string{"", leftBetween, "", leftBetween}},
		{"all equal", Config{}, rewards(one, one, one), nil, []string{leftTie, leftTie, leftTie}},
		{"no verdict is in no pair", Config{}, rewards(nil, none, one), [][2]float64{{1, 0}}, []string{leftNoVerdict, "", ""}},
		{"one verdict", Config{}, rewards(nil, one), nil, []string{leftNoVerdict, leftAlone}},
		{"all pairs", Config{AllPairs: true}, rewards(half, none, one), [][2]float64{{0.5, 0}, {1, 0.5}, {1, 0}}, []string{"", "", ""}},
		{"all pairs leave ties out", Config{AllPairs: true}, rewards(one, one, none), [][2]float64{{1, 0}, {1, 0}}, []string{"", "", ""}},
		{"a gap", Config{AllPairs: true, MinGap: 0.6}, rewards(half, none, one), [][2]float64{{1, 0}}, []string{leftGap, "", ""}},
		{"a gap that none has", Config{MinGap: 2}, rewards(none, one), nil, []string{leftGap, leftGap}},
		{"a gap is met", Config{MinGap: 1}, rewards(none, one), [][2]float64{{1, 0}}, []string{"", ""}},
		{"the same answer", Config{}, []*storage.Row{chat(sibling(0, one, "x")), chat(sibling(1, none, "x"))}, nil, []string{leftSameAnswer, leftSameAnswer}},
		{"other words", Config{}, []*storage.Row{chat(sibling(0, one, "x")), chat(sibling(1, none, "y"), func(r *storage.Row) { r.Messages[0].Content = ptr("other") })}, nil, []string{leftPrompts, leftPrompts}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Shape = "dpo"
			out, left := linesOf(t, c.cfg, c.rows...)
			var got [][2]float64
			for _, text := range out {
				var p struct {
					Chosen   float64 `json:"score_chosen"`
					Rejected float64 `json:"score_rejected"`
				}
				if err := json.Unmarshal([]byte(text), &p); err != nil {
					t.Fatal(err)
				}
				got = append(got, [2]float64{p.Chosen, p.Rejected})
			}
			if !slices.Equal(got, c.pairs) || !slices.Equal(left, c.left) {
				t.Errorf("pairs %v, want %v; left out %q, want %q", got, c.pairs, left, c.left)
			}
		})
	}
}

// played is a row of random turns, and for every id that the policy sampled the ids that stood before it when it was. Sampled ids are all different.
func played(t *rapid.T) (row *storage.Row, before map[int32][]int32) {
	e := &episode.Episode{Task: &episode.Task{ID: "t"}}
	next, before := int32(1000), map[int32][]int32{}
	for turn := range rapid.IntRange(1, 5).Draw(t, "turns") {
		seen := slices.Clone(e.Tokens.IDs)
		if turn > 0 && rapid.Bool().Draw(t, "broken") { // a template that rewrites what was there
			seen = seen[:rapid.IntRange(0, len(seen)).Draw(t, "common")]
		}
		prompt := slices.Concat(seen, rapid.SliceOfN(rapid.Int32Range(1, 9), 1, 4).Draw(t, "prompt"))
		var sampled []int32
		lps := []episode.Logprob{}
		for range rapid.IntRange(1, 4).Draw(t, "sampled") {
			before[next] = slices.Concat(prompt, sampled)
			sampled = append(sampled, next)
			lps = append(lps, episode.Logprob{Value: -float32(next), Known: true})
			next++
		}
		breaks := len(e.Tokens.Breaks)
		e.Tokens.Extend(prompt, sampled, lps, ptr(int32(turn)))
		if len(e.Tokens.Breaks) > breaks {
			e.Tokens.Breaks[breaks].Turn = turn
		}
		e.Turns = append(e.Turns, episode.Turn{PromptTokens: ptr(int32(len(prompt))), CompletionTokens: ptr(int32(len(sampled)))})
	}
	e.Verdict.Total = ptr(1.0)
	r := storage.RowOf(e)
	return &r, before
}

// Whatever a chat template did to the prefix: in the records of a row each sampled id is learned once, at the place where it was sampled, behind exactly the
// ids that the server saw then, with its own logprob and version; and ATIF tells which turn it is of.
func TestEachSampledIDIsLearnedOnceBehindWhatItSaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row, before := played(t)
		cfg := Config{Shape: "areal"}
		learned := map[int32]bool{}
		all, why := cfg.sequences(row)
		if why != "" {
			t.Fatalf("left out: %s", why)
		}
		for _, s := range all {
			if len(s.mask) != len(s.ids) || len(s.logprobs) != len(s.ids) || len(s.versions) != len(s.ids) || s.promptLen() == 0 {
				t.Fatalf("lengths %d, %d, %d, %d", len(s.ids), len(s.mask), len(s.logprobs), len(s.versions))
			}
			labels, lps := s.labels(ignored), slices.Clone(s.logprobs)
			for i, id := range s.ids {
				if (labels[i] == id) != (s.mask[i] == 1) || s.mask[i] == 0 && labels[i] != ignored {
					t.Fatalf("label %d of id %d, mask %d", labels[i], id, s.mask[i])
				}
				if s.mask[i] == 0 {
					continue
				}
				if learned[id] {
					t.Fatalf("%d is learned twice", id)
				}
				learned[id] = true
				if !slices.Equal(s.ids[:i], before[id]) || *lps[i] != -float32(id) {
					t.Fatalf("%d stands behind %v with logprob %v, it was sampled behind %v", id, s.ids[:i], *lps[i], before[id])
				}
			}
		}
		if len(learned) != len(before) {
			t.Fatalf("%d ids are learned, %d were sampled", len(learned), len(before))
		}
		answers, id := turnAnswers(row), int32(1000)
		if len(answers) != len(row.Turns) {
			t.Fatalf("answers of %d turns, there were %d", len(answers), len(row.Turns))
		}
		for turn, a := range answers {
			for i := range a.ids {
				if a.ids[i] != id || a.versions[i] != int32(turn) {
					t.Fatalf("turn %d: id %d of version %d, want %d", turn, a.ids[i], a.versions[i], id)
				}
				id++
			}
		}
	})
}

// written is a run directory of some groups: failed samples, samples without a verdict, one group that is not whole.
func written(t *testing.T, groups, samples int) *storage.Run {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	w, err := storage.Open(storage.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var all []*episode.Episode
	for g := range groups {
		task := &episode.Task{ID: fmt.Sprint("task-", g), Hash: fmt.Sprint("h", g), DataSource: fmt.Sprint("d", g%2), Messages: []episode.Message{{Role: "user", Content: ptr(fmt.Sprint("q", g))}}}
		for s := range samples {
			if g == groups-1 && s == 0 {
				continue // never came
			}
			e := episode.New("run", episode.Draw{Task: task, Samples: samples}, s, episode.Sampling{TokenIDs: true, Logprobs: true}, episode.Budget{}, time.Unix(1, 0))
			ids := []int32{int32(100 + g), int32(200 + s)}
			e.AddReply(&episode.Reply{Message: episode.Message{Role: "assistant", Content: ptr(fmt.Sprint("a", s))}, Finish: "stop", PromptIDs: []int32{1, int32(g)}, SampledIDs: ids,
				Logprobs: []episode.Logprob{{Value: -1, Known: true}, {Value: -2, Known: true}}}, episode.Turn{PromptTokens: ptr[int32](2), CompletionTokens: ptr[int32](2)})
			if e.Verdict.Total = ptr(float64(s % 3)); s%4 == 3 {
				e.Verdict.Total = nil
			}
			if (g+s)%7 == 6 {
				e.Fail(&episode.Fault{Stage: episode.StageModel, Class: episode.ClassTimeout, Cause: errors.New("slow")})
			}
			all = append(all, e)
		}
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, e := range all {
		if err := w.Write(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	run, err := storage.OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func exported(t *testing.T, run *storage.Run, cfg Config) (string, Report) {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := e.Write(context.Background(), run, &out); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := e.Check(path); err != nil {
		t.Errorf("%s as %s: %v", cfg.Shape, cfg.Format, err)
	}
	if err := os.WriteFile(path, out.Bytes()[:out.Len()-3], 0o644); err != nil {
		t.Fatal(err)
	}
	if err := e.Check(path); err == nil {
		t.Errorf("%s as %s: a file without its end is not noticed", cfg.Shape, cfg.Format)
	}
	return out.String(), e.Report()
}

// For every shape and format: each row is taken or left out for a reason, the same run gives the same bytes, and Parquet and JSONL hold as many records.
func TestEveryRowIsAccountedFor(t *testing.T) {
	run := written(t, 8, 5)
	for _, shape := range Shapes() {
		var records []int64
		for _, format := range shape.Formats {
			for name, change := range map[string]func(*Config){
				"all":    func(*Config) {},
				"some":   func(c *Config) { c.Filter.DataSources, c.Filter.Scored = []string{"d1"}, true },
				"failed": func(c *Config) { c.Filter.Failures = true },
				"whole":  func(c *Config) { c.WholeGroups = true },
			} {
				if name == "whole" && shape.unit == eachTask { // refused
					continue
				}
				cfg := Config{Shape: shape.Name, Format: format}
				change(&cfg)
				text, r := exported(t, run, cfg)
				if name == "all" {
					if again, _ := exported(t, run, cfg); text != again {
						t.Errorf("%s as %s: other bytes the second time", shape.Name, format)
					}
				}
				left := int64(0)
				for _, n := range r.LeftOut {
					left += n
				}
				if r.RowsRead != 39 || r.RowsTaken+left != r.RowsRead || r.Records == 0 || r.RowsTaken == 0 {
					t.Errorf("%s as %s, %s: %+v", shape.Name, format, name, r)
				}
				if name == "whole" && r.LeftOut[leftGroup] == 0 {
					t.Errorf("%s: no group is found that is not whole: %v", shape.Name, r.LeftOut)
				}
				if name == "all" {
					records = append(records, r.Records)
				}
				if shape.ids && r.TrainedTokens != 2*r.RowsTaken {
					t.Errorf("%s: %d trained tokens of %d rows", shape.Name, r.TrainedTokens, r.RowsTaken)
				}
			}
		}
		if len(slices.Compact(records)) != 1 {
			t.Errorf("%s: %v records by format", shape.Name, records)
		}
	}
}

// Groups come whole, also where their rows are scattered over the journal.
func TestGroupsComeWhole(t *testing.T) {
	text, _ := exported(t, written(t, 8, 5), Config{Shape: "atropos", NoLogprobs: true})
	seen := map[int32]bool{}
	for line := range strings.Lines(text) {
		var g atroposRecord
		if err := json.Unmarshal([]byte(line), &g); err != nil {
			t.Fatal(err)
		}
		task := g.Tokens[0][1]
		if seen[task] {
			t.Errorf("task %d comes twice", task)
		}
		seen[task] = true
		for i, ids := range g.Tokens {
			if ids[1] != task || i > 0 && ids[3] <= g.Tokens[i-1][3] {
				t.Errorf("group %d holds %v", task, g.Tokens)
			}
		}
	}
	if len(seen) != 8 {
		t.Errorf("%d groups", len(seen))
	}
}

func TestMaxLengthLeavesOutAndNeverCuts(t *testing.T) {
	run := written(t, 3, 2)
	if _, r := exported(t, run, Config{Shape: "trl-sft", MaxLength: 4}); r.LeftOut[leftLong] != 0 || r.RowsTaken == 0 {
		t.Errorf("%+v", r)
	}
	e, err := New(Config{Shape: "messages", MaxLength: 3})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := e.Write(context.Background(), run, &out); err != nil || out.Len() != 0 || e.Report().LeftOut[leftLong] == 0 {
		t.Errorf("%v, %d bytes, %+v", err, out.Len(), e.Report())
	}
}

func TestAStoppedExportEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	cancel(why)
	for _, shape := range []string{"messages", "dpo", "verl-rl"} {
		e, err := New(Config{Shape: shape})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Write(ctx, written(t, 2, 2), &bytes.Buffer{}); !errors.Is(err, why) {
			t.Errorf("%s: %v", shape, err)
		}
	}
}

func TestConfigReportsEveryFault(t *testing.T) {
	err := Config{Shape: "verl-sft", Format: JSONL, Arguments: "maybe", Tools: "some", MaxLength: -1, MinGap: -1, Filter: storage.Filter{Status: []string{"odd"}}}.Validate()
	for _, want := range []string{"verl-sft is written as parquet", `found "maybe"`, `found "some"`, "found -1", `"odd"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	for _, cfg := range []Config{{Shape: "nothing"}, {Shape: "messages", Format: Parquet, Arguments: AsObject}, {Shape: "verl-rl", MaxLength: 9}, {Shape: "skyrl", WholeGroups: true}, {Shape: "messages", NoLogprobs: true}, {Shape: "areal", MinGap: 1}} {
		if err := cfg.Validate(); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
	if err := (Config{Shape: "nothing"}).Validate(); !strings.Contains(err.Error(), "trl-sft, messages") {
		t.Errorf("the shapes are not listed: %v", err)
	}
}
