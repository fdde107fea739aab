package inference

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"tranche/episode"
	"tranche/inference/enginesim"
	"tranche/internal/mock"
)

// One priority, higher = sooner, goes out as each server reads it, and not at all to one that has none.
func TestPriorityGoesOutInTheServersDirection(t *testing.T) {
	owned := func(kind string) string { return `{"data":[{"id":"m","owned_by":"` + kind + `"}]}` }
	for name, c := range map[string]struct {
		models  string
		info    string // SGLang's
		set     string // capabilities: priority
		give    int
		want    string // as sent; "" = not
		says    string // why it is not
		refuses string // with what, once it is sent
	}{
		"vllm":                         {models: owned("vllm"), give: 7, want: "-7"},
		"vllm, later":                  {models: owned("vllm"), give: -2, want: "2"},
		"none is wanted":               {models: owned("vllm"), give: 0},
		"sglang as it is":              {models: owned("sglang"), info: `{"max_total_num_tokens":9,"enable_priority_scheduling":true}`, give: 7, want: "7"},
		"sglang the other way":         {models: owned("sglang"), info: `{"max_total_num_tokens":9,"enable_priority_scheduling":true,"schedule_low_priority_values_first":true}`, give: 7, want: "-7"},
		"sglang without":               {models: owned("sglang"), info: `{"max_total_num_tokens":9,"enable_priority_scheduling":false}`, give: 7, says: "enable_priority_scheduling false"},
		"sglang without, overridden":   {models: owned("sglang"), info: `{"max_total_num_tokens":9,"enable_priority_scheduling":false}`, set: `"low-first"`, give: 7, want: "-7"},
		"llama-server":                 {models: owned("llamacpp"), give: 7, says: "usual for llama-server"},
		"tensorrt-llm":                 {models: owned("tensorrt_llm"), give: 3, want: "0.875"},
		"tensorrt-llm, later":          {models: owned("tensorrt_llm"), give: -3, want: "0.125"},
		"nobody knows":                 {models: owned("mock"), give: 7, says: "not known"},
		"nobody knows, but the user":   {models: owned("mock"), set: `"high-first"`, give: 7, want: "7"},
		"one that refuses the field":   {models: owned("vllm"), give: 7, want: "-7", refuses: `400 {"error":{"message":"Extra inputs are not permitted: priority"}}`},
		"sglang that aborts for it":    {models: owned("sglang"), give: 7, want: "7", refuses: `503 {"object":"error","message":"Using priority is disabled for this server. Please send a new request without a priority.","code":503}`},
		"vllm, overridden to no order": {models: owned("vllm"), set: `"none"`, give: 7, says: "config"},
	} {
		t.Run(name, func(t *testing.T) {
			routes := map[string]mock.Handler{"GET /v1/models": fixed(200, c.models)}
			if c.info != "" {
				routes["GET /server_info"] = fixed(200, c.info)
			}
			chat := func(r *mock.Request, w *mock.Reply) {
				if status, body, ok := strings.Cut(c.refuses, " "); ok && r.Field("priority") != nil {
					n, _ := strconv.Atoi(status)
					w.JSON(n, body)
					return
				}
				mock.Text("ok").Send(r, w)
			}
			s := mock.New(t, mock.Config{Routes: routes, Chat: chat})
			e := open(t, s, func(cfg *Config) {
				if c.set != "" {
					cfg.Capabilities = map[string]json.RawMessage{"priority": json.RawMessage(c.set)}
				}
			})
			for range 2 {
				one := call("x")
				one.Sampling.Priority = c.give
				generate(t, e, one)
			}
			chats := s.Chats()
			if got := string(chats[0].Field("priority")); got != c.want {
				t.Errorf("priority %d went out as %q, want %q", c.give, got, c.want)
			}
			if said := e.PriorityUnsent(); (said == "") != (c.says == "") || !strings.Contains(said, c.says) {
				t.Errorf("it is not sent for %q, want %q", said, c.says)
			}
			if last := chats[len(chats)-1]; c.refuses != "" && (len(chats) != 3 || last.Field("priority") != nil || !strings.Contains(strings.Join(e.Notes(), " "), "refuses the field priority")) {
				t.Errorf("%d requests, the last with priority %s; notes %q", len(chats), last.Field("priority"), e.Notes())
			}
		})
	}
}

// A priority that the user put into the body is the user's: as it stands, and a refusal of it is the request's fault, told at once.
func TestPriorityInTheBodyIsTheUsers(t *testing.T) {
	s := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		w.JSON(400, `{"error":{"message":"Extra inputs are not permitted: priority"}}`)
	}, Routes: map[string]mock.Handler{"GET /v1/models": fixed(200, `{"data":[{"id":"m","owned_by":"vllm"}]}`)}})
	c := call("x")
	c.Sampling.Priority, c.Sampling.Extra = 5, map[string]json.RawMessage{"priority": json.RawMessage("9")}
	_, err := open(t, s, nil).Generate(t.Context(), c, 0, 8)
	if f := faultOf(t, err); f.Class != episode.ClassBadRequest || len(s.Chats()) != 1 || string(s.Chats()[0].Field("priority")) != "9" {
		t.Errorf("%v after %d requests with priority %s", f, len(s.Chats()), s.Chats()[0].Field("priority"))
	}
}

// Every way by which a call goes as token ids says the priority too, in the same direction.
func TestPriorityGoesWithTokenIDs(t *testing.T) {
	for name, c := range map[string]struct {
		engine enginesim.Config
		want   map[way]string
	}{
		"vllm":   {enginesim.Config{}, map[way]string{wayGenerate: "-4", wayCompletions: "-4"}},
		"sglang": {enginesim.Config{Speaks: enginesim.SpeaksSGLang}, map[way]string{waySGLang: "4", waySGLangChat: "4"}},
		"llama":  {enginesim.Config{Speaks: enginesim.SpeaksLlama}, map[way]string{wayLlama: ""}},
	} {
		e := simulated(t, c.engine)
		one := call("x")
		one.Sampling.Priority, one.Sampling.TokenIDs = 4, true
		for w, want := range c.want {
			ready := map[string]json.RawMessage{"sampling_params": json.RawMessage(`{}`)}
			out, err := e.sendingBy(w, &idCall{call: one, prompt: []int32{300}, ready: ready, id: "x", limit: 4})
			if err != nil {
				t.Fatal(err)
			}
			if got := string(fields(t, out.body)["priority"]); got != want {
				t.Errorf("%s by %s: priority %q, want %q", name, w, got, want)
			}
		}
	}
}

// A server that refuses the priority of a call that goes as token ids gets it without, at once and from then on, as in chat.
func TestARefusedPriorityIsLeftOutWithTokenIDs(t *testing.T) {
	routes := sglang()
	delete(routes, "GET /server_info")
	answer := routes["POST /generate"]
	var seen []string
	routes["POST /generate"] = func(r *mock.Request, w *mock.Reply) {
		seen = append(seen, r.ID+" "+string(r.Field("priority")))
		if r.Field("priority") != nil {
			w.JSON(503, `{"object":"error","message":"Using priority is disabled for this server. Please send a new request without a priority.","code":503}`)
			return
		}
		answer(r, w)
	}
	e := open(t, mock.New(t, mock.Config{Routes: routes}), nil)
	one := call("x")
	one.Sampling.Priority = 4
	for attempt := range 2 {
		a, err := e.send(t.Context(), waySGLang, &idCall{call: one, prompt: []int32{300}, limit: 4}, &sendings{call: one, attempt: attempt})
		if err != nil {
			t.Fatal(err)
		}
		e.clear(a)
	}
	if got, want := strings.Join(seen, ", "), "ep/0/0 4, ep/0/0.1 , ep/0/1 "; got != want {
		t.Errorf("sent %q, want %q", got, want)
	}
}

// An engine that serves by priority does so in the order meant, whichever its direction is: what is more urgent is answered first.
func TestPriorityIsObeyed(t *testing.T) {
	for _, speaks := range []enginesim.Speaks{enginesim.SpeaksVLLM, enginesim.SpeaksSGLang} {
		e := simulated(t, enginesim.Config{Speaks: speaks, Priority: true, MaxSeqs: 1, Speed: 1})
		type ended struct {
			priority int
			err      error
		}
		done := make(chan ended, 3)
		ask := func(priority int) {
			c := call("Tell me a story.")
			c.ID, c.Episode, c.Sampling.Priority = fmt.Sprint("p", priority), fmt.Sprint("p", priority), priority
			c.Sampling.Extra = map[string]json.RawMessage{"ignore_eos": json.RawMessage("true")}
			_, err := e.Generate(t.Context(), c, 0, 60)
			done <- ended{priority, err}
		}
		load := func(of func(episode.Load) *int) func() bool {
			return func() bool { l, err := e.Load(t.Context()); return err == nil && of(l) != nil && *of(l) == 1 }
		}
		go ask(0) // runs, while the others come
		waitFor(t, "one call runs", load(func(l episode.Load) *int { return l.Running }))
		go ask(-5)
		waitFor(t, "the others wait", load(func(l episode.Load) *int { return l.Waiting }))
		go ask(5)
		var order []int
		for range 3 {
			one := <-done
			if one.err != nil {
				t.Fatal(one.err)
			}
			order = append(order, one.priority)
		}
		if at := fmt.Sprint(order); at != "[0 5 -5]" && at != "[5 0 -5]" { // the urgent one may even push the running one out
			t.Errorf("%s answers in the order %v", speaks, order)
		}
	}
}
