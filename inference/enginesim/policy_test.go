package enginesim

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const calcTools = `[{"type":"function","function":{"name":"calculator","description":"compute","parameters":{"type":"object","properties":{"expression":{"type":"string"}},"required":["expression"]}}},
 {"type":"function","function":{"name":"submit","parameters":{"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"]}}}]`

func tools(t testing.TB, text string) []toolDef {
	t.Helper()
	var out []toolDef
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func says(role, text string, calls ...toolCall) chatMessage {
	return chatMessage{Role: role, Content: contents{[]string{text}}, ToolCalls: calls}
}

// reply asks the policy and takes its answer apart as the chat route does.
func reply(p *policy, messages []chatMessage, defs []toolDef, draw uint64) (chatMessage, *answer) {
	prompt := p.tokens.render(script(messages, defs), true)
	a := p.compose(prompt, mix(draw^hashTokens(0, prompt)), want{none: len(defs) == 0}, limits{max: 4000})
	turn := chatTurn{choice: want{none: len(defs) == 0}, request: &chatRequest{}}
	m := turn.whole(0, a).Message
	out := chatMessage{Role: "assistant", ToolCalls: m.ToolCalls}
	if m.Content != nil {
		out.Content.parts = []string{*m.Content}
	}
	return out, a
}

// play runs one calculator episode; it returns what was submitted.
func play(t testing.TB, p *policy, question string, defs []toolDef, draw uint64) (string, int) {
	messages := []chatMessage{says("user", question)}
	for turn := range 10 {
		m, _ := reply(p, messages, defs, draw)
		messages = append(messages, m)
		if len(m.ToolCalls) == 0 {
			t.Fatalf("draw %d, turn %d: no tool call in %q", draw, turn, m.Content.text())
		}
		for _, c := range m.ToolCalls {
			var args map[string]string
			if err := json.Unmarshal([]byte(c.Function.Arguments), &args); err != nil {
				t.Fatalf("arguments %q: %v", c.Function.Arguments, err)
			}
			if c.Function.Name == "submit" {
				return args["answer"], turn
			}
			f, ok := findFormula(args["expression"])
			if !ok {
				t.Fatalf("no expression in %q", args["expression"])
			}
			messages = append(messages, says("tool", decimal(f.value)))
		}
	}
	t.Fatalf("draw %d: nothing submitted in 10 turns", draw)
	return "", 0
}

func TestPolicySolvesAtItsRate(t *testing.T) {
	tok := NewTokenizer()
	defs := tools(t, calcTools)
	const n = 700
	for _, rate := range []float64{0, 0.3, 0.7, 1} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			p := testPolicy(tok)
			p.solve = rate
			right, turns := 0, map[int]int{}
			for i := range uint64(n) {
				got, turn := play(t, p, fmt.Sprintf("What is %d * (%d + 7) - 3?", 12+i%50, i%9), defs, i)
				turns[turn]++
				if want := (12+int(i)%50)*(int(i)%9+7) - 3; got == fmt.Sprint(want) {
					right++
				}
			}
			if off := math.Abs(float64(right)/n - rate); off > 4*math.Sqrt(rate*(1-rate)/n) {
				t.Errorf("%d of %d right, want a share of %g", right, n, rate)
			}
			if turns[0] == 0 || turns[1] == 0 {
				t.Errorf("turns before submitting %v: want some at once and some after the calculator", turns)
			}
		})
	}
}

func TestPolicyWithoutTools(t *testing.T) {
	p := testPolicy(NewTokenizer())
	p.answer = AnswerTable(map[string]string{"How many apples has Tom?": "42", "Is it valid?": "yes", "Which option is right?": "(B)"})
	p.solve = 1
	for name, c := range map[string]struct{ question, want string }{
		"expression":          {"What is 6 * 7?", "#### 42"},
		"from the table":      {"Q: How many apples has Tom?\nEnd with ####.", "#### 42"},
		"word from the table": {"Is it valid?", "#### yes"},
		"letter":              {"Which option is right? (A) x (B) y", "#### (B)"},
	} {
		t.Run(name, func(t *testing.T) {
			m, a := reply(p, []chatMessage{says("user", c.question)}, nil, 1)
			if !strings.HasSuffix(m.Content.text(), c.want) {
				t.Errorf("said %q, want an end of %q", m.Content.text(), c.want)
			}
			if a.finish != "stop" || a.ids[len(a.ids)-1] != imEnd {
				t.Errorf("finish %q, last id %d", a.finish, a.ids[len(a.ids)-1])
			}
		})
	}
	p.solve = 0
	for question, right := range map[string]string{"What is 6 * 7?": "42", "Is it valid?": "yes", "Which option is right?": "(B)"} {
		for draw := range uint64(30) {
			m, _ := reply(p, []chatMessage{says("user", question)}, nil, draw)
			if strings.HasSuffix(m.Content.text(), "#### "+right) {
				t.Errorf("solve rate 0 answered %q right: %q", question, m.Content.text())
			}
		}
	}
}

func TestPolicyFreeText(t *testing.T) {
	p := testPolicy(NewTokenizer())
	sum := 0
	const n = 400
	for draw := range uint64(n) {
		m, a := reply(p, []chatMessage{says("user", "Tell me about the sea.")}, nil, draw)
		if strings.Contains(m.Content.text(), "####") {
			t.Fatalf("a marker nobody asked for: %q", m.Content.text())
		}
		sum += len(a.ids)
	}
	if mean := float64(sum) / n; mean < 0.7*p.mean || mean > 1.3*p.mean {
		t.Errorf("mean length %.1f tokens, want about %g", mean, p.mean)
	}
	m, _ := reply(p, []chatMessage{says("user", "How is the sea? End with #### and a number.")}, nil, 3)
	if _, tail, ok := strings.Cut(m.Content.text(), "\n#### "); !ok || tail == "" {
		t.Errorf("no marked number in %q", m.Content.text())
	}
}

func TestPolicyForeignTool(t *testing.T) {
	p := testPolicy(NewTokenizer())
	defs := tools(t, `[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":
	 {"city":{"type":"string"},"days":{"type":"integer"},"unit":{"enum":["C","F"]},"tags":{"type":"array","items":{"type":"boolean"}},"at":{"type":["object","null"],"required":["lat"],"properties":{"lat":{"type":"number"}}}},
	 "required":["city","days","unit","tags","at"]}}}]`)
	prompt := p.tokens.render(script([]chatMessage{says("user", "Weather in Rome?")}, defs), true)
	for draw := range uint64(50) {
		_, calls := parseSpoken(p.say(prompt, draw, want{must: true}))
		if len(calls) != 1 || calls[0].name != "get_weather" {
			t.Fatalf("draw %d: calls %+v", draw, calls)
		}
		text := p.say(prompt, draw, want{must: true})
		var args struct {
			City string
			Days int
			Unit string
			Tags []bool
			At   struct{ Lat float64 }
		}
		if err := json.Unmarshal([]byte(text[calls[0].args:calls[0].stop]), &args); err != nil || args.City == "" || len(args.Tags) != 1 {
			t.Fatalf("arguments %s: %v", text[calls[0].args:calls[0].stop], err)
		}
	}
	if text := p.say(prompt, 1, want{none: true}); strings.Contains(text, callOpen) {
		t.Errorf("tool_choice none, and yet %q", text)
	}
}

func TestPolicyUnderstandsObservations(t *testing.T) {
	p := testPolicy(NewTokenizer())
	p.solve = 1
	defs := tools(t, calcTools)
	call := toolCall{Type: "function"}
	call.Function.Name, call.Function.Arguments = "calculator", `{"expression": "6 * 7"}`
	for observation, want := range map[string]string{
		"42": "42", "42.0": "42.0", "= 42": "42", `{"result": 42}`: "42", "6 * 7 = 42": "42", "The result is 42.": "42",
		"43": "43", // a wrong expression's result is believed
	} {
		m, _ := reply(p, []chatMessage{says("user", "What is 6 * 7?"), says("assistant", "", call), says("tool", observation)}, defs, 5)
		if len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Arguments != fmt.Sprintf(`{"answer": %q}`, want) {
			t.Errorf("after %q: %+v, want %s submitted", observation, m.ToolCalls, want)
		}
	}
	m, _ := reply(p, []chatMessage{says("user", "What is 6 * 7?"), says("assistant", "", call), says("tool", "error: timed out")}, defs, 5)
	if len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Name != "calculator" {
		t.Errorf("after an error: %+v, want another try", m.ToolCalls)
	}
}

// The prompt of each turn is the prompt of the turn before, then what was sampled, then the new messages: over random
// conversations with tools, when the client sends back exactly what it got.
func TestPromptsExtend(t *testing.T) {
	tok := NewTokenizer()
	defs := tools(t, calcTools)
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := testPolicy(tok)
		messages := []chatMessage{says("user", fmt.Sprintf("What is %d + %d * %d? %s", r.IntN(99), r.IntN(99), r.IntN(99), randomText(r, 40)))}
		if r.IntN(2) == 0 {
			messages = append([]chatMessage{says("system", randomText(r, 60))}, messages...)
		}
		d := defs
		if r.IntN(4) == 0 {
			d = nil
		}
		var before []int32
		for range 6 {
			prompt := tok.render(script(messages, d), true)
			if len(before) > len(prompt) || !slices.Equal(before, prompt[:len(before)]) {
				t.Fatalf("seed %d: prompt does not extend the turn before\n got %q\nwant %q", seed, tok.Decode(prompt), tok.Decode(before))
			}
			m, a := reply(p, messages, d, r.Uint64())
			before = append(slices.Clone(prompt), a.ids...)
			messages = append(messages, m)
			for range m.ToolCalls {
				messages = append(messages, says("tool", fmt.Sprint(r.IntN(1000), randomText(r, 30))))
			}
			if len(m.ToolCalls) == 0 {
				messages = append(messages, says("user", randomText(r, 60)))
			}
		}
	}
}

func TestPromptReadsBack(t *testing.T) {
	tok := NewTokenizer()
	defs := tools(t, calcTools)
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		messages := []chatMessage{says("system", randomText(r, 30)), says("user", randomText(r, 50)), says("assistant", randomText(r, 50)), says("tool", randomText(r, 50))}
		lines := script(messages, defs)
		c := tok.read(tok.render(lines, true))
		if !slices.Equal(c.lines, lines) {
			t.Fatalf("seed %d: read back %q, want %q", seed, c.lines, lines)
		}
		if len(c.tools) != 2 || c.tools[0].name != "calculator" {
			t.Fatalf("seed %d: tools %+v", seed, c.tools)
		}
	}
}

func TestParseSpoken(t *testing.T) {
	whole := "Hm.\n" + callText("a", `{"x": "}\\n</tool_call>"}`) + "\n" + callText("b", "{}")
	end, calls := parseSpoken(whole)
	if whole[:end] != "Hm." || len(calls) != 2 {
		t.Fatalf("content %q, %d calls", whole[:end], len(calls))
	}
	for i, want := range []struct{ name, args string }{{"a", `{"x": "}\\n</tool_call>"}`}, {"b", "{}"}} {
		if c := calls[i]; c.name != want.name || whole[c.args:c.stop] != want.args {
			t.Errorf("call %d: %s %s", i, c.name, whole[c.args:c.stop])
		}
	}
	for n := range whole { // any cut: what is told is a beginning of the whole
		end, calls := parseSpoken(whole[:n])
		if len(calls) == 0 && end != n {
			t.Errorf("cut at %d: content ends at %d", n, end)
		}
		for _, c := range calls {
			if c.args > c.stop || c.stop > n {
				t.Errorf("cut at %d: arguments at [%d, %d)", n, c.args, c.stop)
			}
		}
	}
}

func FuzzParseSpoken(f *testing.F) {
	f.Add("Hm.\n" + callText("a", `{"x": 1}`))
	f.Add(callOpen + `"a"` + callArgs + `{"x": `)
	f.Fuzz(func(t *testing.T, text string) {
		end, calls := parseSpoken(text)
		if end < 0 || end > len(text) {
			t.Fatalf("content ends at %d of %d", end, len(text))
		}
		at := end
		for _, c := range calls {
			if c.named < at || c.args < c.named || c.stop < c.args || c.stop > len(text) {
				t.Fatalf("call %+v after %d of %q", c, at, text)
			}
			at = c.stop
		}
	})
}

func TestFindFormula(t *testing.T) {
	for text, want := range map[string]string{
		"What is 3 + 4?":                      "3 + 4 = 7",
		"Compute 12*(3+4)-5.":                 "12 * (3 + 4) - 5 = 79",
		"2 ^ 10 % 1000":                       "2 ^ 10 % 1000 = 24",
		"7 × 8 ÷ 2":                           "7 * 8 / 2 = 28",
		"1,234 * 2, please":                   "1234 * 2 = 2468",
		"-3 - -4":                             "-3 - -4 = 1",
		"Is 1/3 more?":                        "1 / 3 = 0.3333333333",
		"5 + apples, but 2 x 3 pears":         "2 * 3 = 6",
		"1+1=2 is an example.\n\nNow: 20 / 8": "20 / 8 = 2.5",
		"((1 + 2) * (3 - 1)":                  "(1 + 2) * (3 - 1) = 6",
		"4 / 0 + 1":                           "",
		"no numbers":                          "",
		"1 2 3":                               "",
		"v2-3beta":                            "",
		strings.Repeat("(", 5000) + "1 + 1":   "1 + 1 = 2",
		"9 ^ 9 ^ 9 ^ 9":                       "9 ^ 9 ^ 9 = ",
		"12345678901234567890123456789 * 2 and 2 * 2": "2 * 2 = 4",
	} {
		f, ok := findFormula(text)
		got := ""
		if ok {
			got = f.text + " = " + decimal(f.value)
		}
		if strings.HasSuffix(want, " = ") {
			ok = strings.HasPrefix(got, "9 ^ 9")
		} else {
			ok = got == want
		}
		if !ok {
			t.Errorf("%.60q: got %q, want %q", text, got, want)
		}
	}
}

func FuzzFindFormula(f *testing.F) {
	f.Add("What is 3 + 4 * (2 - 1)?")
	f.Add("((((1-")
	f.Fuzz(func(t *testing.T, text string) {
		if g, ok := findFormula(text); ok {
			again, ok := findFormula(g.text)
			if !ok || again.value.Cmp(g.value) != 0 {
				t.Fatalf("%q: %q = %v reads back as %q = %v", text, g.text, g.value, again.text, again.value)
			}
		}
		lastNumber(text)
		twoNumbers(text)
	})
}

func TestLastNumber(t *testing.T) {
	for text, want := range map[string]string{
		"42": "42", "-7.5": "-7.5", "x = 1,234": "1234", "1e3": "1e3", "a 1 b 2.": "2", "1.5e+20": "1.5e+20", "": "", "none": "", "3e": "3",
	} {
		got, v, ok := lastNumber(text)
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", text, got, ok)
		}
		if ok {
			if w, _ := new(big.Rat).SetString(want); w.Cmp(v) != 0 {
				t.Errorf("%q: value %v", text, v)
			}
		}
	}
}

func TestAnswerTable(t *testing.T) {
	find := AnswerTable(map[string]string{
		"What is the colour of the sky?": "blue", "What is the colour of grass?": "green", "sky": "short", "": "never",
	})
	for text, want := range map[string]string{
		"What is the colour of the sky?": "blue",
		"Q: What is the colour of grass?\nA: green\nQ: What is the colour of the sky?\nA:": "blue",
		"Q: What is the colour of the sky?\nA: blue\nQ: What is the colour of grass?\nA:":  "green",
		"the sky is":   "short",
		"nothing here": "",
	} {
		got, ok := find(text)
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, got, ok, want)
		}
	}
}

func TestComposeLimits(t *testing.T) {
	p := testPolicy(NewTokenizer())
	prompt := p.tokens.render(script([]chatMessage{says("user", "What is 12 * 12?")}, nil), true)
	natural := p.compose(prompt, 9, want{}, limits{max: 1000})
	n := len(natural.ids)
	for name, c := range map[string]struct {
		l      limits
		ids    int
		finish string
		stop   any
		text   string // "" = a beginning of the natural text
	}{
		"all of it":         {limits{max: n}, n, "stop", nil, natural.text},
		"end token cut off": {limits{max: n - 1}, n - 1, "length", nil, natural.text},
		"cut":               {limits{max: 5}, 5, "length", nil, ""},
		"stop string":       {limits{max: 1000, stops: []string{"####"}}, 0, "stop", "####", strings.Split(natural.text, "####")[0]},
		"stop kept":         {limits{max: 1000, stops: []string{"####"}, keepStop: true}, 0, "stop", "####", strings.Split(natural.text, "####")[0] + "####"},
		"stop token":        {limits{max: 1000, stopIDs: []int32{natural.ids[3]}}, 4, "stop", natural.ids[3], p.tokens.Decode(natural.ids[:3])},
		"stop behind min":   {limits{max: 1000, min: n - 1, stops: []string{natural.text[:3]}}, n, "stop", nil, natural.text},
		"minimum":           {limits{max: 1000, min: 300}, 301, "stop", nil, "longer"},
		"ignore eos":        {limits{max: 300, ignoreEOS: true}, 300, "length", nil, "longer"},
	} {
		t.Run(name, func(t *testing.T) {
			a := p.compose(prompt, 9, want{}, c.l)
			if c.ids != 0 && len(a.ids) != c.ids || a.finish != c.finish || a.stop != c.stop {
				t.Errorf("%d ids, finish %s, stop %v; want %d, %s, %v", len(a.ids), a.finish, a.stop, c.ids, c.finish, c.stop)
			}
			switch {
			case c.text == "longer" && !strings.HasPrefix(a.text, natural.text):
				t.Errorf("padded text %q does not begin with %q", a.text, natural.text)
			case c.text == "" && (a.text == "" || !strings.HasPrefix(natural.text, a.text)):
				t.Errorf("text %q is no beginning of %q", a.text, natural.text)
			case c.text != "" && c.text != "longer" && a.text != c.text:
				t.Errorf("text %q, want %q", a.text, c.text)
			}
			var joined strings.Builder
			for i := range a.ids {
				joined.WriteString(a.piece(i))
			}
			if joined.String() != a.text {
				t.Errorf("pieces join to %q, text is %q", joined.String(), a.text)
			}
		})
	}
}

func TestComposeNeverSplitsRunes(t *testing.T) {
	p := testPolicy(NewTokenizer())
	p.answer = func(string) (string, bool) { return "crème 🙂 brûlée", true }
	p.solve = 1
	prompt := p.tokens.render([]line{{"user", "Dessert?"}}, true)
	whole := p.compose(prompt, 4, want{}, limits{max: 1000})
	for n := 1; n <= len(whole.ids); n++ {
		a := p.compose(prompt, 4, want{}, limits{max: n})
		var joined strings.Builder
		for i := range a.ids {
			piece := a.piece(i)
			if strings.ToValidUTF8(piece, "") != piece {
				t.Fatalf("max %d: piece %d is %q", n, i, piece)
			}
			joined.WriteString(piece)
		}
		if joined.String() != a.text || strings.ToValidUTF8(a.text, "") != a.text {
			t.Fatalf("max %d: pieces %q, text %q", n, joined.String(), a.text)
		}
	}
}

func TestLogprobsAreProbabilities(t *testing.T) {
	p := testPolicy(NewTokenizer())
	a := p.compose(p.tokens.Encode("Tell me a story."), 77, want{}, limits{max: 500})
	for i := range a.ids {
		own, others := a.logprob(i, maxTopCount)
		if plain, _ := a.logprob(i, 0); plain != own {
			t.Fatalf("token %d: %g with alternatives, %g without", i, own, plain)
		}
		sum, last := 0.0, 0.0
		seen := map[int32]bool{}
		for j, o := range others {
			sum += math.Exp(o.logprob)
			if o.logprob > last || seen[o.id] {
				t.Fatalf("token %d: alternative %d (%g after %g, id %d) out of order or twice", i, j, o.logprob, last, o.id)
			}
			last, seen[o.id] = o.logprob, true
		}
		if others[0].id != a.ids[i] || own > 0 || sum > 1+1e-5 || len(others) != maxTopCount {
			t.Fatalf("token %d: own %g, sum of probabilities %g, first alternative %d", i, own, sum, others[0].id)
		}
	}
}
