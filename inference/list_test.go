package inference

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"tranche/episode"
	"tranche/inference/enginesim"
)

// Rows of a list are each what they are alone: begun from the server's own rendering, gone on with from their ids.
func TestListsAreTheirRows(t *testing.T) {
	e := simulated(t, enginesim.Config{Batching: enginesim.Static, MaxSeqs: 8})
	call := func(id, asked string) *episode.Call {
		return &episode.Call{
			ID: id, Episode: id, Messages: []episode.Message{{Role: episode.RoleUser, Content: &asked}},
			Sampling: episode.Sampling{TokenIDs: true, Logprobs: true, Temperature: episode.Ptr(0.0)},
		}
	}
	calls := []*episode.Call{call("a", "Tell me a story."), call("b", "Tell me of the sea."), call("c", "Tell me of 世界.")}
	var rows []episode.Row
	for _, c := range calls {
		rows = append(rows, episode.Row{Call: c, Attempt: 1})
	}
	for _, most := range []int{9, 30} { // begun, then gone on with
		replies, err := e.ExtendAll(t.Context(), rows, most)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range replies {
			rows[i].SoFar = r
		}
	}
	for i, c := range calls {
		want, err := e.Generate(t.Context(), c, 1, 39)
		if err != nil {
			t.Fatal(err)
		}
		got := rows[i].SoFar
		if got.Message.Text() != want.Message.Text() || !slices.Equal(got.SampledIDs, want.SampledIDs) || !slices.Equal(got.PromptIDs, want.PromptIDs) || !slices.Equal(got.Logprobs, want.Logprobs) ||
			*got.Usage.Prompt != *want.Usage.Prompt || *got.Usage.Completion != *want.Usage.Completion || got.Finish != want.Finish {
			t.Errorf("%s: %q of %d ids, ended by %q; alone %q of %d, %q", c.ID, got.Message.Text(), len(got.SampledIDs), got.Finish, want.Message.Text(), len(want.SampledIDs), want.Finish)
		}
	}
	if begins, err := e.ProveList(t.Context()); !begins || err != nil {
		t.Errorf("lists begin answers: %v, %v", begins, err)
	}
}

// A row whose prompt the server does not tokenise is left out, and the others are what they are.
func TestListsLeaveOutWhatCannotBeBegun(t *testing.T) {
	e := completing(t, http.StatusOK, `{"choices":[{"index":0,"text":"x","token_ids":[6],"prompt_token_ids":[1,2,3,4,5],"finish_reason":"stop"},
		{"index":1,"text":"y","token_ids":[7,8],"prompt_token_ids":[1,2,3,4,5],"finish_reason":"stop"}]}`, "", nil)
	e.noTokenize.Store(true)
	rows := []episode.Row{{Call: call("a"), Attempt: 1}, {Call: call("b"), SoFar: beginning("b"), Attempt: 1}, {Call: call("c"), Attempt: 1}, {Call: call("d"), SoFar: beginning("d"), Attempt: 1}}
	replies, err := e.ExtendAll(t.Context(), rows, 5)
	if err != nil || len(replies) != 4 || replies[0] != nil || replies[2] != nil {
		t.Fatalf("%v, %v", replies, err)
	}
	if a, b := replies[1].Message.Text(), replies[3].Message.Text(); a != "bx" || b != "dy" {
		t.Errorf("%q and %q", a, b)
	}
	if _, err := e.ExtendAll(t.Context(), rows[:1], 5); faultOf(t, err).Class != episode.ClassUnavailable {
		t.Error(err)
	}
}

// One row's fault is that of all, and what does not take lists is found out.
func TestListsFailWhole(t *testing.T) {
	for name, answer := range map[string]string{
		"a row is missing":   `{"choices":[{"index":0,"text":"x","token_ids":[6],"finish_reason":"stop"}]}`,
		"a row has no ids":   `{"choices":[{"index":0,"text":"x","token_ids":[6],"finish_reason":"stop"},{"index":1,"text":"x","finish_reason":"stop"}]}`,
		"a row was aborted":  `{"choices":[{"index":0,"text":"x","token_ids":[6],"finish_reason":"stop"},{"index":1,"text":"x","token_ids":[6],"finish_reason":"abort"}]}`,
		"refused altogether": `{"error":"no lists"}`,
	} {
		t.Run(name, func(t *testing.T) {
			rows := []episode.Row{{Call: &episode.Call{ID: "a"}, SoFar: beginning("x"), Attempt: 1}, {Call: &episode.Call{ID: "b"}, SoFar: beginning("y"), Attempt: 1}}
			replies, err := completing(t, http.StatusOK, answer, "", nil).ExtendAll(t.Context(), rows, 5)
			if f := episode.AsFault(episode.StageModel, err); replies != nil || f == nil {
				t.Errorf("%v, %v", replies, err)
			}
		})
	}
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	e, err := newEndpoint(Config{BaseURL: s.URL, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if _, err := e.ProveList(t.Context()); err == nil {
		t.Error("a server without any route is said to take lists")
	}
}

// A list begins answers only where they are what a chat's are.
func TestListsBeginWhatChatsWould(t *testing.T) {
	for name, c := range map[string]struct {
		message, prompt, ids string
		begins               bool
	}{
		"the same":                 {`{"content":"hm</think>yes"}`, "[1,2]", "[3,4]", true},
		"thinking is taken out":    {`{"reasoning_content":"hm","content":"yes"}`, "[1,2]", "[3,4]", false},
		"a tool call is taken out": {`{"content":"","tool_calls":[{"id":"x","type":"function","function":{"name":"hm","arguments":"{}"}}]}`, "[1,2]", "[3,4]", false},
		"another prompt":           {`{"content":"hm</think>yes"}`, "[1,7]", "[3,4]", false},
		"other tokens":             {`{"content":"hm</think>yes"}`, "[1,2]", "[3,5]", false},
		"no answer":                {"", "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			row := func(i int) string {
				return fmt.Sprintf(`{"index":%d,"text":"hm</think>yes","prompt_token_ids":[1,2],"token_ids":[3,4],"finish_reason":"stop"}`, i)
			}
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case r.URL.Path == "/tokenize":
					fmt.Fprint(w, `{"count":2,"tokens":[1,2]}`)
				case r.URL.Path == "/v1/completions":
					fmt.Fprintf(w, `{"choices":[%s,%s]}`, row(0), row(1))
				case c.message == "":
					w.WriteHeader(http.StatusServiceUnavailable)
				default:
					fmt.Fprintf(w, `{"prompt_token_ids":%s,"choices":[{"index":0,"message":%s,"token_ids":%s,"finish_reason":"stop"}],"usage":{"prompt_tokens":2,"completion_tokens":2}}`, c.prompt, c.message, c.ids)
				}
			}))
			defer s.Close()
			e, err := newEndpoint(Config{BaseURL: s.URL, Model: "m"})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if begins, err := e.ProveList(t.Context()); begins != c.begins || err != nil {
				t.Errorf("begins: %v, %v", begins, err)
			}
		})
	}
}
