package enginesim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// An answer that is made in parts, each going on from the ids of those before, is the answer that is made at one go: ids, log-probabilities and
// the reason for which it ends.
func TestAnswersGoOnFromTheirTokens(t *testing.T) {
	e, err := New(Config{Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		prompt := e.tokens.render([]line{{"user", rapid.SampledFrom([]string{"What is 17 + 25?", "Tell me of the sea.", "héllo 世界"}).Draw(t, "asked")}}, true)
		r, _ := http.NewRequest(http.MethodPost, "/", strings.NewReader(""))
		r.Header.Set("X-Session-ID", fmt.Sprint(rapid.IntRange(0, 1000).Draw(t, "session")))
		l := limits{max: rapid.IntRange(1, 600).Draw(t, "max")}
		whole := e.completion(prompt, &knobs{}, r, 0, l)
		var ids []int32
		var last *answer
		for len(ids) < len(whole.ids) {
			at := limits{max: min(rapid.IntRange(1, 100).Draw(t, "part"), l.max-len(ids))}
			last = e.completion(slices.Concat(prompt, ids), &knobs{}, r, 0, at)
			for i := range last.ids {
				got, _ := last.logprob(i, 0)
				if want, _ := whole.logprob(len(ids)+i, 0); got != want {
					t.Fatalf("token %d has logprob %g, at one go %g", len(ids)+i, got, want)
				}
			}
			if ids = append(ids, last.ids...); last.finish == "stop" {
				break
			}
		}
		if !slices.Equal(ids, whole.ids) || last.finish != whole.finish {
			t.Fatalf("%d tokens, finish %q; at one go %d, finish %q", len(ids), last.finish, len(whole.ids), whole.finish)
		}
	})
}

// What is no beginning of an answer of its own is a prompt like any other.
func TestForeignBeginningsArePrompts(t *testing.T) {
	e, err := New(Config{Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	asked := e.tokens.render([]line{{"user", "Tell me of the sea."}}, true)
	for name, prompt := range map[string][]int32{
		"nothing said":      asked,
		"foreign words":     slices.Concat(asked, e.tokens.Encode("no such answer is ever given")),
		"a turn that ended": slices.Concat(asked, e.tokens.Encode("yes<|im_end|>")),
		"no template":       e.tokens.Encode("once upon a time"),
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := http.NewRequest(http.MethodPost, "/", strings.NewReader(""))
			r.Header.Set("X-Session-ID", "s")
			got := e.completion(prompt, &knobs{}, r, 0, limits{max: 50})
			want := e.policy.compose(prompt, e.draw(prompt, &knobs{}, "s", 0), want{}, limits{max: 50})
			if !slices.Equal(got.ids, want.ids) {
				t.Errorf("%v, expected %v", got.ids, want.ids)
			}
		})
	}
}
