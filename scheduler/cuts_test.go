package scheduler

import (
	"context"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
	"tranche/episode"
)

func asks(texts ...string) *episode.Call {
	c := &episode.Call{}
	for _, s := range texts {
		c.Messages = append(c.Messages, episode.Message{Role: episode.RoleUser, Content: episode.Ptr(s)})
	}
	c.PromptTokens = callBytes(c)/4 + 1
	return c
}

// TestEqualBeginningsAreCutAlike: two prompts have in common the marks that lie within what they have in common, all but the last few tokens
// of it, and none behind it.
func TestEqualBeginningsAreCutAlike(t *testing.T) {
	s := &Scheduler{seed: maphash.MakeSeed()}
	rapid.Check(t, func(t *rapid.T) {
		same := strings.Repeat("lorem ipsum ", rapid.IntRange(0, 8000).Draw(t, "words"))
		tails := rapid.SliceOfNDistinct(rapid.StringN(1, 3000, -1), 2, 2, func(s string) string { return s }).Draw(t, "tails")
		split := rapid.Bool().Draw(t, "split")
		ask := func(tail string) []Mark {
			if split {
				return s.marks(asks(same, "x"+tail))
			}
			return s.marks(asks(same + tail))
		}
		a, b := ask(tails[0]), ask(tails[1])
		common := 0
		for common < min(len(a), len(b)) && a[common].Hash == b[common].Hash {
			common++
		}
		for _, m := range a[common:] {
			for _, o := range b[common:] {
				if m.Hash == o.Hash {
					t.Fatalf("the prompts differ after mark %d and have a later one in common", common)
				}
			}
		}
		if n := len(same) + 4; n >= 2*firstCut && !split {
			if common == 0 || float64(a[common-1].Tokens)*4 < float64(n)/1.6 {
				t.Fatalf("%d bytes in common, seen of them: %d marks of %v", n, common, a)
			}
		}
		if n := len(same); n >= 2*firstCut && split && (common == 0 || a[common-1].Tokens*4 < n*7/8) {
			t.Fatalf("a message of %d bytes in common, seen of it: %d marks of %v", n, common, a)
		}
		for k, m := range a {
			if k > 0 && m.Tokens < a[k-1].Tokens {
				t.Fatalf("marks go back: %v", a)
			}
		}
	})
}

// TestSamplesShareTheWholePrompt: the last mark of a prompt is all of it.
func TestSamplesShareTheWholePrompt(t *testing.T) {
	s := &Scheduler{seed: maphash.MakeSeed()}
	text := strings.Repeat("a question ", 700)
	a, b := asks("be brief", text), asks("be brief", text)
	ma, mb := s.marks(a), s.marks(b)
	if len(ma) == 0 || fmt.Sprint(ma) != fmt.Sprint(mb) || ma[len(ma)-1].Tokens != a.PromptTokens {
		t.Errorf("%v, %v; the prompt has %d tokens", ma, mb, a.PromptTokens)
	}
	if m := s.marks(asks("short")); m != nil {
		t.Errorf("a short prompt is cut: %v", m)
	}
	if len(ma) > 20 {
		t.Errorf("%d marks", len(ma))
	}
}

// TestSharersGoToOneEndpoint: through the whole scheduler, from text to endpoint.
func TestSharersGoToOneEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		seen := map[string]map[string]int{} // calls by text and endpoint
		model := func(name string) *scripted {
			return &scripted{think: func(c *episode.Call, _, _ int) (*episode.Reply, time.Duration, error) {
				mu.Lock()
				defer mu.Unlock()
				doc := c.Messages[0].Text()[:4]
				if seen[doc] == nil {
					seen[doc] = map[string]int{}
				}
				seen[doc][name]++
				return says("ok", 20), 3 * time.Second, nil
			}}
		}
		var es []Endpoint
		for _, n := range []string{"a", "b", "c"} {
			es = append(es, Endpoint{Name: n, Model: model(n), Capacity: episode.Capacity{KVTokens: 400_000, ContextTokens: 100_000}})
		}
		s, err := New(Config{Endpoints: es})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for k := range 48 {
			doc := strings.Repeat(fmt.Sprintf("doc%d, a long text. ", k%6), 3000)
			c := asks(doc, fmt.Sprint("question ", k))
			c.Episode, c.Group, c.Want = fmt.Sprint(k), fmt.Sprint(k), 100
			wg.Go(func() {
				if _, _, err := s.Generate(context.Background(), c, episode.Budget{}); err != nil {
					t.Error(err)
				}
				s.Leave(c.Episode)
			})
			time.Sleep(100 * time.Millisecond)
		}
		wg.Wait()
		s.Close()
		homes := map[string]bool{}
		for doc, at := range seen {
			if len(at) != 1 {
				t.Errorf("%s was read by %v", doc, at)
			}
			for e := range at {
				homes[e] = true
			}
		}
		if len(seen) != 6 || len(homes) != 3 {
			t.Errorf("%d texts on %d endpoints: %v", len(seen), len(homes), seen)
		}
	})
}
