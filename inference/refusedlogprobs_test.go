package inference

import (
	"slices"
	"strings"
	"testing"

	"tranche/episode"
	"tranche/internal/mock"
)

// withoutLogprobs answers calls that ask for no logprobs, and others, or all, with a refusal.
func withoutLogprobs(t *testing.T, status int, refusal string, all bool) *mock.Server {
	return mock.New(t, mock.Config{Chat: func(r *mock.Request, w *mock.Reply) {
		if all || r.Field("logprobs") != nil {
			w.JSON(status, refusal)
			return
		}
		mock.Text("42").Send(r, w)
	}})
}

// A server that refuses logprobs is asked without them, from then on; the rows say what they lack.
func TestALogprobRefusalIsLearned(t *testing.T) {
	for _, words := range []string{
		`{"error":{"message":"'logprobs' is not supported with reasoning models","param":"logprobs"}}`,
		`{"error":{"message":"Unsupported parameter: 'logprobs' is not supported with this model."}}`,
		`{"detail":[{"type":"extra_forbidden","loc":["body","logprobs"],"msg":"Extra inputs are not permitted"}]}`,
	} {
		s := withoutLogprobs(t, 400, words, false)
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
		s := withoutLogprobs(t, 500, `{"error":{"message":"Out of range float values are not JSON compliant: -inf","type":"InternalServerError","code":500}}`, always)
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
