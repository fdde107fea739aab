package inference

import (
	"slices"
	"strings"
	"testing"

	"tranche/episode"
	"tranche/internal/mock"
)

// A server that refuses logprobs is asked without them, from then on; the rows say what they lack.
func TestALogprobRefusalIsLearned(t *testing.T) {
	for _, words := range []string{
		`{"error":{"message":"'logprobs' is not supported with reasoning models","param":"logprobs"}}`,
		`{"error":{"message":"Unsupported parameter: 'logprobs' is not supported with this model."}}`,
		`{"detail":[{"type":"extra_forbidden","loc":["body","logprobs"],"msg":"Extra inputs are not permitted"}]}`,
	} {
		s := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
			if r.Field("logprobs") != nil {
				w.JSON(400, words)
				return
			}
			mock.Text("42").Send(r, w)
		}})
		e := open(t, s, nil)
		for range 2 {
			c := call("x")
			c.Sampling.Logprobs = true
			if r := generate(t, e, c); r.Message.Text() != "42" || r.Logprobs != nil || !slices.Contains(r.Flags, episode.FlagLogprobsMissing) {
				t.Errorf("%q, logprobs %v, flags %v", r.Message.Text(), r.Logprobs, r.Flags)
			}
		}
		if n := len(s.Chats()); n != 3 || !strings.Contains(strings.Join(e.Notes(), " "), "--no-logprobs") {
			t.Errorf("%d requests; notes %q", n, e.Notes())
		}
	}
}

// An answer that a server cannot write for its logprobs is asked for once more without them; the next call asks for them again.
func TestAnAnswerWithInfiniteLogprobsIsAskedForWithoutThem(t *testing.T) {
	for _, always := range []bool{false, true} {
		s := mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
			if always || r.Field("logprobs") != nil {
				w.JSON(500, `{"error":{"message":"Out of range float values are not JSON compliant: -inf","type":"InternalServerError","code":500}}`)
				return
			}
			mock.Text("42").Send(r, w)
		}})
		e := open(t, s, nil)
		for range 2 {
			c := call("x")
			c.Sampling.Logprobs = true
			r, err := e.Generate(t.Context(), c, 0, 64)
			if always {
				if f := faultOf(t, err); f.Class != episode.ClassServerError || !f.Retry {
					t.Errorf("%v", f)
				}
				continue
			}
			if err != nil || r.Message.Text() != "42" || !slices.Contains(r.Flags, episode.FlagLogprobsMissing) {
				t.Errorf("%+v, %v", r, err)
			}
		}
		if n := len(s.Chats()); n != 4 {
			t.Errorf("%d requests for two calls", n)
		}
	}
}
