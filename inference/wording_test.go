package inference

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"tranche/episode"
	"tranche/internal/mock"
)

func TestPatternTakesNumbersOut(t *testing.T) {
	for message, want := range map[string]struct {
		pattern string
		numbers string
	}{
		"The prompt has 8193 tokens, at most 8192": {"the prompt has # tokens, at most #", "[8193 8192]"},
		"8,193 > 8_192":                              {"# > #", "[8193 8192]"},
		"n_ctx=512 (parameter=p, value=9)":           {"n_ctx=# (parameter=p, value=#)", "[512 9]"},
		"limit 4096tokens":                           {"limit #tokens", "[4096]"},
		"request req_01khrvt2r6e9rb7e8q is too long": {"request * is too long", "[]"},
		"99999999999999999999 tokens":                {"# tokens", "[-1]"},
		"a  line\nbreak":                             {"a line break", "[]"},
		"":                                           {"", "[]"},
	} {
		if got, numbers := pattern(message); got != want.pattern || fmt.Sprint(numbers) != want.numbers {
			t.Errorf("%q gives %q %v, want %q %s", message, got, numbers, want.pattern, want.numbers)
		}
	}
}

// A pattern is the same for all numbers of a message, and has as many # as there are numbers.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{"The prompt has 8193 tokens", "8,192_000 of 1.5", "req_01khrvt2r6e9 n_ctx=1", "\xff\u212a9", "٣ tokens"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, message string) {
		worded, numbers := pattern(message)
		if strings.Count(worded, "#") != len(numbers)+strings.Count(message, "#") {
			t.Fatalf("%q: %q and %d numbers", message, worded, len(numbers))
		}
		if strings.ContainsAny(worded, "0123456789") {
			t.Fatalf("%q: a number is left in %q", message, worded)
		}
	})
}

// positional is an engine that nobody knows: it says in words of its own that a prompt is too long. Its context has 512 places.
func positional(says func(length int) (status int, body string)) map[string]mock.Handler {
	routes := vllm(true)
	delete(routes, "GET /metrics")
	delete(routes, "GET /version")
	routes["GET /v1/models"] = fixed(200, `{"data":[{"id":"q","owned_by":"acme","max_model_len":512}]}`)
	answer := routes["POST /v1/completions"]
	routes["POST /v1/completions"] = func(r *mock.Request, w *mock.Reply) {
		var prompt []int32
		if json.Unmarshal(r.Field("prompt"), &prompt) == nil && len(prompt) > 512 {
			w.JSON(says(len(prompt)))
			return
		}
		answer(r, w)
	}
	return routes
}

// unlisted refuses lists of prompts with what says would say.
func unlisted(next mock.Handler, says func(int) (int, string)) mock.Handler {
	return func(r *mock.Request, w *mock.Reply) {
		var list [][]int32
		if json.Unmarshal(r.Field("prompt"), &list) == nil {
			w.JSON(says(0))
			return
		}
		next(r, w)
	}
}

// The probe goes over the limit once, on purpose: whatever it is told then, it knows again with other numbers. Where the words do not tell an overflow from any other
// fault, nothing is learned.
func TestProbeLearnsWordsThatNobodyKnows(t *testing.T) {
	flat := func(format string, numbers func(n int) []any) func(int) (int, string) {
		return func(n int) (int, string) {
			return 400, `{"error":{"message":` + strconv.Quote(fmt.Sprintf(format, numbers(n)...)) + `,"type":"acme_error","code":17}}`
		}
	}
	for name, c := range map[string]struct {
		says          func(n int) (int, string)
		limit, prompt int // as understood of a later refusal of 700 tokens; -1 = it is none that is understood
	}{
		"both numbers":     {flat("Sequence of %d positions exceeds the %d available", func(n int) []any { return []any{n, 512} }), 512, 700},
		"the limit alone":  {flat("no more than %d positions, please", func(int) []any { return []any{512} }), 512, 0},
		"no number":        {flat("the input is too large for this deployment", func(int) []any { return nil }), 0, 0},
		"status 413":       {func(int) (int, string) { return 413, `{"detail":"payload of the sequence is too long"}` }, 0, 0},
		"nothing about it": {flat("computer says no", func(int) []any { return nil }), -1, -1},
		"its 400 for all":  {func(int) (int, string) { return 400, `{"error":{"message":"too long or otherwise invalid"}}` }, -1, -1},
		"its 400 for some": {func(int) (int, string) { return 400, `{"error":{"message":"input too long or otherwise invalid"}}` }, -1, -1},
		"no excess":        {flat("invalid input", func(int) []any { return nil }), -1, -1},
	} {
		t.Run(name, func(t *testing.T) {
			routes := positional(c.says)
			switch name { // its refusal of another request reads the same
			case "its 400 for all":
				routes["POST /v1/chat/completions"] = fixed(c.says(0))
			case "its 400 for some": // of the same round
				routes["POST /v1/completions"] = unlisted(routes["POST /v1/completions"], c.says)
			}
			s := mock.New(t, mock.Config{Routes: routes})
			e := open(t, s, nil)
			record := probed(t, e, ProbeOptions{})
			status, body := c.says(700)
			routes["POST /v1/chat/completions"] = fixed(status, body)
			check := func(e *Endpoint) {
				t.Helper()
				_, err := e.Generate(t.Context(), call("x"), 0, 8)
				f := faultOf(t, err)
				if want := map[bool]episode.Class{true: episode.ClassOverflow, false: episode.ClassBadRequest}[c.limit >= 0]; f.Class != want {
					t.Errorf("class %s, want %s; record %+v", f.Class, want, record.Overflow)
				}
				if c.limit >= 0 && (f.Limit != c.limit || f.Prompt != c.prompt) {
					t.Errorf("limit %d, prompt %d, want %d and %d", f.Limit, f.Prompt, c.limit, c.prompt)
				}
			}
			check(e)
			if record.Calls > MostCalls || record.Overflow.Value.Recognised != (c.limit >= 0) {
				t.Errorf("%d calls, %+v", record.Calls, record.Overflow)
			}

			raw, err := json.Marshal(record) // what a resume of the run reads
			var kept Capabilities
			if err != nil || json.Unmarshal(raw, &kept) != nil {
				t.Fatal(err)
			}
			later := open(t, s, nil)
			if !later.Adopt(kept) {
				t.Fatal("the record is not taken to be this server's")
			}
			check(later)
		})
	}
}

// A server that takes no token ids is asked by words: more than it has tokens. One that answers all the same, and counts no more than its limit, cuts prompts.
func TestProbeGoesOverTheLimitByWords(t *testing.T) {
	for name, c := range map[string]struct {
		long mock.Handler
		want fact
		says bool // a later refusal in these words is understood
	}{
		"refuses":              {fixed(422, `{"error":"Input validation error: inputs must have less than 64 tokens. Given: 97","error_type":"validation"}`), fact{"HTTP 422, recognised, names the limit 64", Proved, "96 words"}, true},
		"cuts":                 {fixed(200, `{"choices":[{"index":0,"message":{"content":"a"}}],"usage":{"prompt_tokens":64,"completion_tokens":1}}`), fact{"HTTP 200: the prompt is cut", Proved, "96 words"}, false},
		"takes it":             {fixed(200, `{"choices":[{"index":0,"message":{"content":"a"}}],"usage":{"prompt_tokens":99,"completion_tokens":1}}`), fact{"", Unknown, "does not say that it was cut"}, false},
		"refuses without word": {fixed(400, ``), fact{"HTTP 400, not told from other refusals", Proved, "96 words"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := mock.New(t, mock.Config{
				Chat: func(r *mock.Request, w *mock.Reply) {
					if strings.Count(string(r.Body), "one ") > 64 {
						c.long(r, w)
						return
					}
					mock.Text("ok").Send(r, w)
				},
				Routes: map[string]mock.Handler{"GET /v1/models": fixed(200, `{"data":[{"id":"q","owned_by":"acme","max_model_len":64}]}`)},
			})
			e := open(t, s, nil)
			checkFacts(t, probed(t, e, ProbeOptions{}), map[string]fact{"overflow": c.want, "token-ids-in": {"no", Proved, "HTTP 404"}})
			if !c.says {
				return
			}
			_, err := e.Generate(t.Context(), call(strings.Repeat("one ", 200)), 0, 8)
			if f := faultOf(t, err); f.Class != episode.ClassOverflow || f.Limit != 64 {
				t.Errorf("%s, limit %d", f.Class, f.Limit)
			}
		})
	}
}

// A call's own refusal teaches as well: once words that nobody knows name the limit and more than that, they are known by themselves, also where they name no number.
func TestARefusalOfACallTeachesWords(t *testing.T) {
	routes := map[string]mock.Handler{"GET /v1/models": fixed(200, `{"data":[{"id":"q","owned_by":"acme","max_model_len":512}]}`)}
	s := mock.New(t, mock.Config{Routes: routes})
	e := open(t, s, nil)
	prompt := "x"
	ask := func(body string) *episode.Fault {
		routes["POST /v1/chat/completions"] = fixed(400, body)
		_, err := e.Generate(t.Context(), call(prompt), 0, 8)
		return faultOf(t, err)
	}
	said := func(n, most int) string {
		return fmt.Sprintf(`{"error":{"message":"%d positions of input were given, %d are there"}}`, n, most)
	}
	if f := ask(said(600, 500)); f.Class != episode.ClassBadRequest {
		t.Errorf("%s of words that nobody knows and another limit", f.Class)
	}
	if f := ask(`{"error":{"message":"token id 600 is beyond the vocabulary of 512"}}`); f.Class != episode.ClassBadRequest {
		t.Errorf("%s of a request that is shorter than the limit", f.Class)
	}
	prompt = strings.Repeat("one ", 600)
	if f := ask(said(600, 512)); f.Class != episode.ClassOverflow || f.Limit != 512 {
		t.Errorf("%s, limit %d", f.Class, f.Limit)
	}
	if f := ask(said(600, 500)); f.Class != episode.ClassOverflow || f.Limit != 500 { // it has shrunk, say
		t.Errorf("%s, limit %d of words that were learned", f.Class, f.Limit)
	}
	if f := ask(`{"error":{"message":"600 is more than 512 crates"}}`); f.Class != episode.ClassBadRequest {
		t.Errorf("%s of something that speaks of no length", f.Class)
	}
	c := e.Capabilities().Overflow
	if c.Proof != Proved || !c.Value.Recognised || len(c.Value.Wordings) != 1 || !strings.Contains(c.From, "a call") {
		t.Errorf("the record says %+v", c)
	}
	for i := range 3 * mostWordings {
		ask(fmt.Sprintf(`{"error":{"message":"maximum context length is 512 tokens, said the %s"}}`, strings.Repeat("x", i)))
	}
	if n := len(e.Capabilities().Overflow.Value.Wordings); n != mostWordings {
		t.Errorf("%d wordings are kept, want %d", n, mostWordings)
	}
}

// Where the probe's refusal told nothing and a call's did, the record says that overflows are recognised.
func TestACallTeachesWhatTheProbeWasNotTold(t *testing.T) {
	routes := positional(func(int) (int, string) { return 400, `{"error":{"message":"computer says no"}}` })
	e := open(t, mock.New(t, mock.Config{Routes: routes}), nil)
	if o := probed(t, e, ProbeOptions{}).Overflow; o.Proof != Proved || o.Value.Recognised {
		t.Fatalf("the probe says %+v", o)
	}
	routes["POST /v1/chat/completions"] = fixed(400, `{"error":{"message":"600 positions of input were given, 512 are there"}}`)
	if _, err := e.Generate(t.Context(), call(strings.Repeat("one ", 600)), 0, 8); faultOf(t, err).Class != episode.ClassOverflow {
		t.Fatal(err)
	}
	if o := e.Capabilities().Overflow.Value; !o.Recognised || len(o.Wordings) != 1 {
		t.Errorf("the record says %+v", o)
	}
}

// What a request wants counts where its prompt is short: the two together may be over the limit.
func TestTokensWanted(t *testing.T) {
	for body, want := range map[string]int{
		`{"messages":[],"max_tokens":64}`: 64, `{"max_completion_tokens":65}`: 65, `{"n_predict":66}`: 66, `{"sampling_params":{"max_new_tokens":67}}`: 67,
		`{"sampling_params":{"max_tokens":68}}`: 68, `{"max_tokens":"many"}`: 0, `{}`: 0, ``: 0,
	} {
		if n := tokensWanted([]byte(body)); n != want {
			t.Errorf("%s wants %d, want %d", body, n, want)
		}
	}
}

// Every recorded refusal for the length of a prompt is recognised, and by what is learned from it with other numbers too; no other recorded refusal is one.
func TestRecordedOverflows(t *testing.T) {
	known := 0
	for _, rec := range responses(t) {
		if rec.Status < 400 {
			continue
		}
		body, _ := rec.wire(t)
		f := classify(failure{reach: reachAnswer, status: rec.Status, body: []byte(body)}, time.Time{})
		about := strings.Contains(body, "context length") || strings.Contains(body, "context_length") || strings.Contains(body, "max_model_len")
		if (f.Class == episode.ClassOverflow) != about {
			t.Errorf("%s: class %s: %s", rec.ID, f.Class, body)
		}
		if !about {
			continue
		}
		known++
		w := wordingOf(rec.Status, readRefusal([]byte(body)), f.Limit, f.Prompt)
		other := strings.NewReplacer("requested 4096", "requested 1000", "only 4096", "only 2048", "894", "70001").Replace(body)
		if other == body || strings.Contains(other, "4096") {
			t.Errorf("%s: its numbers are not where they were: %s", rec.ID, body)
		}
		again := classify(failure{reach: reachAnswer, status: rec.Status, body: []byte(other), wordings: []Wording{w}}, time.Time{})
		if again.Class != episode.ClassOverflow || f.Limit != 4096 || again.Limit != 2048 {
			t.Errorf("%s: with other numbers %s, limit %d; learned %+v", rec.ID, again.Class, again.Limit, w)
		}
	}
	if known == 0 {
		t.Error("no recorded overflow was looked at")
	}
}

// What is learned of one form holds for the same form with other numbers, for every form that is known of servers.
func TestKnownOverflowsAreLearned(t *testing.T) {
	for message, numbers := range map[string][4]int{ // limit and prompt, then others in their places
		"This model's maximum context length is %d tokens. However, your messages resulted in %d tokens.": {8192, 10014, 4000, 5000},
		"request (%[2]d tokens) exceeds the available context size (%[1]d tokens), try increasing it":     {1024, 8916, 512, 600},
		"The input (%[2]d tokens) is longer than the model's context length (%[1]d tokens).":              {4096, 5000, 100, 101},
		"This model's maximum prompt length is %d but the request contains %d tokens.":                    {131072, 537812, 9, 10},
		"The decoder prompt (length %[2]d) is longer than the maximum model length of %[1]d.":             {4096, 5000, 256, 300},
		"prompt is too long: %[2]d tokens > %[1]d maximum":                                                {200000, 210000, 10, 20},
	} {
		said := func(limit, prompt int) failure {
			return failure{reach: reachAnswer, status: 400, body: []byte(`{"error":{"message":` + strconv.Quote(fmt.Sprintf(message, limit, prompt)) + `}}`)}
		}
		f := classify(said(numbers[0], numbers[1]), time.Time{})
		if f.Class != episode.ClassOverflow || f.Limit != numbers[0] || f.Prompt != numbers[1] {
			t.Errorf("%s: %s, limit %d, prompt %d", message, f.Class, f.Limit, f.Prompt)
		}
		next := said(numbers[2], numbers[3])
		w := wordingOf(400, readRefusal(said(numbers[0], numbers[1]).body), f.Limit, f.Prompt)
		if limit, prompt, ok := wordedAs([]Wording{w}, 400, readRefusal(next.body)); !ok || limit != numbers[2] || prompt != numbers[3] {
			t.Errorf("%s: learned %+v gives %v %d %d", message, w, ok, limit, prompt)
		}
	}
}

// What was learned of one refusal does not go before what is known of its words: the limit and a max_tokens as large stand in one message, numbers in no message.
func TestWhatIsKnownGoesBeforeWhatWasLearned(t *testing.T) {
	const (
		vllm  = `{"error":{"message":"You passed 5000 input tokens and requested %d output tokens. However, the model's context length is only %d tokens.","code":400}}`
		llama = `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":%[2]d,"n_ctx":%[1]d}}`
	)
	for name, c := range map[string]struct {
		first, then   string
		limit, prompt int
	}{
		"max_tokens as large as the limit": {fmt.Sprintf(vllm, 4096, 4096), fmt.Sprintf(vllm, 1000, 4096), 4096, 5000},
		"numbers in fields":                {fmt.Sprintf(llama, 512, 600), fmt.Sprintf(llama, 512, 700), 512, 700},
	} {
		t.Run(name, func(t *testing.T) {
			body := c.first
			e := open(t, mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) { w.JSON(400, body) }}), nil)
			var f *episode.Fault
			for _, body = range []string{c.first, c.then} {
				_, err := e.Generate(t.Context(), call("x"), 0, 8)
				f = faultOf(t, err)
			}
			if f.Class != episode.ClassOverflow || f.Limit != c.limit || f.Prompt != c.prompt {
				t.Errorf("%s, limit %d, prompt %d, want %d and %d", f.Class, f.Limit, f.Prompt, c.limit, c.prompt)
			}
		})
	}
}

// Where a number stands twice nobody knows which of the two it will be next time.
func TestNoPlaceIsLearnedOfANumberThatStandsTwice(t *testing.T) {
	w := wordingOf(400, readRefusal([]byte(`{"error":{"message":"4096 wanted, 5000 given, 4096 there"}}`)), 4096, 5000)
	if w.Limit != 0 || w.Prompt != 2 {
		t.Errorf("limit at %d, prompt at %d, want 0 and 2", w.Limit, w.Prompt)
	}
}

// A server that comes back as another is not known by the words of the one before.
func TestWordsAreForgottenWithTheServer(t *testing.T) {
	routes := positional(func(n int) (int, string) {
		return 400, fmt.Sprintf(`{"error":{"message":"Sequence of %d positions exceeds the %d available"}}`, n, 512)
	})
	s := mock.New(t, mock.Config{Routes: routes})
	e := open(t, s, nil)
	probed(t, e, ProbeOptions{})
	if e.wordings.Load() == nil {
		t.Fatal("nothing was learned")
	}
	fresh := maps.Clone(routes)
	fresh["GET /v1/models"] = fixed(200, `{"data":[{"id":"q","owned_by":"acme","max_model_len":256}]}`)
	fresh["POST /v1/completions"] = fixed(404, `{"detail":"Not Found"}`)
	e.address, _ = addressOf(mock.New(t, mock.Config{Routes: fresh}).URL())
	if _, err := e.Recheck(t.Context(), ProbeOptions{}); err != nil {
		t.Fatal(err)
	}
	if w := e.wordings.Load(); w != nil {
		t.Errorf("still known: %+v", *w)
	}
}
