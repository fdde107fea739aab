package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tranche/episode"
)

// parrot is a model whose answer to each episode is fixed, token by token, whether it is made at one go or in parts. It counts what it is asked.
type parrot struct {
	version   atomic.Int32
	reasons   bool // its text is taken apart by a parser
	requests  atomic.Int64
	extended  atomic.Int64
	mu        sync.Mutex
	fails     map[string]int // attempts to go on that fail, by episode
	overflows bool           // they do so for the context
	forbidden error          // something that must not be
}

func (m *parrot) tokens(c *episode.Call) int {
	h := fnv.New32()
	h.Write([]byte(c.Episode))
	return 1 + int(h.Sum32()%5)*int(h.Sum32()%700)
}

func (m *parrot) answer(c *episode.Call, from, maxTokens int) *episode.Reply {
	n := m.tokens(c)
	to := min(n, from+maxTokens)
	r := &episode.Reply{Message: episode.Message{Role: episode.RoleAssistant}, Finish: episode.FinishStop, RawEnd: "stop", Version: episode.Ptr(m.version.Load()), Service: time.Second}
	if to < n {
		r.Finish, r.RawEnd = episode.FinishLength, "length"
	}
	var text strings.Builder
	for i := from; i < to; i++ {
		r.SampledIDs = append(r.SampledIDs, int32(i))
		r.Logprobs = append(r.Logprobs, episode.Logprob{Value: -float32(i), Known: true})
		fmt.Fprintf(&text, "%d ", i)
	}
	r.Message.Content = episode.Ptr(text.String())
	r.PromptIDs = []int32{1000, 1001, 1002}
	r.Usage = episode.Usage{Prompt: episode.Ptr(int32(3 + from)), Completion: episode.Ptr(int32(to - from))}
	if m.reasons {
		r.Message.ReasoningContent, r.Message.Content = r.Message.Content, nil
	}
	return r
}

func (m *parrot) Generate(_ context.Context, c *episode.Call, _ int, maxTokens int) (*episode.Reply, error) {
	m.requests.Add(1)
	time.Sleep(time.Second)
	r := m.answer(c, 0, maxTokens)
	if !c.Sampling.TokenIDs {
		r.PromptIDs, r.SampledIDs = nil, nil
	}
	return r, nil
}

func (m *parrot) Extend(_ context.Context, c *episode.Call, soFar *episode.Reply, _ int, maxTokens int) (*episode.Reply, error) {
	m.extended.Add(1)
	time.Sleep(time.Second)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, id := range soFar.SampledIDs {
		if id != int32(i) {
			m.forbidden = fmt.Errorf("%s goes on from %v", c.Episode, soFar.SampledIDs)
		}
	}
	if m.fails[c.Episode] > 0 {
		m.fails[c.Episode]--
		if m.overflows {
			return nil, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassOverflow, Cause: fmt.Errorf("scripted")}
		}
		return nil, &episode.Fault{Stage: episode.StageModel, Class: episode.ClassServerError, Retry: true, Cause: fmt.Errorf("scripted")}
	}
	return soFar.Join(m.answer(c, len(soFar.SampledIDs), maxTokens)), nil
}

func cutting(t *testing.T, m *parrot, trace Trace) *Scheduler {
	t.Helper()
	s, err := New(Config{Endpoints: []Endpoint{
		{Name: "a", Model: m, Extender: m, Rows: 8}, {Name: "b", Model: m, Extender: m, Rows: 4},
	}, Trace: trace})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// An answer that is cut and gone on with, over endpoints and failures, is one reply: every token once and in order, one usage, one turn, and
// no more than was asked for.
func TestCutAnswersAreOneReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var again, cuts int
		var mu sync.Mutex
		m := &parrot{fails: map[string]int{"e3": 2, "e9": 1}}
		s := cutting(t, m, Trace{Continued: func(_ string, tokens int) {
			mu.Lock()
			defer mu.Unlock()
			again, cuts = again+tokens, cuts+1
			m.version.Store(int32(cuts / 20))
		}})
		defer s.Close()
		const want = 2000
		var all sync.WaitGroup
		versions := map[int32]bool{}
		for i := range 60 {
			all.Go(func() {
				c := &episode.Call{ID: fmt.Sprint(i), Episode: fmt.Sprint("e", i), Group: fmt.Sprint(i), Want: want, PromptTokens: 3, PromptExact: true, Sampling: episode.Sampling{TokenIDs: i%2 == 0}}
				r, turn, err := s.Generate(t.Context(), c, episode.Budget{})
				if err != nil {
					t.Errorf("%s: %v", c.Episode, err)
					return
				}
				n := min(m.tokens(c), want)
				if (r.Finish == episode.FinishLength) != (m.tokens(c) > want) || *r.Usage.Completion != int32(n) || *turn.CompletionTokens != int32(n) || *turn.PromptTokens != 3 {
					t.Errorf("%s of %d tokens: %d tokens of a prompt of %d, ended by %q", c.Episode, m.tokens(c), *r.Usage.Completion, *turn.PromptTokens, r.Finish)
				}
				if got := strings.Fields(r.Message.Text()); len(got) != n || got[n-1] != fmt.Sprint(n-1) {
					t.Errorf("%s: the text has %d words of %d", c.Episode, len(got), n)
				}
				if len(r.Logprobs) != n || r.Logprobs[n-1].Value != -float32(n-1) {
					t.Errorf("%s: %d logprobs of %d tokens", c.Episode, len(r.Logprobs), n)
				}
				if turn.Queue < 0 || turn.Service < time.Second || turn.Retries > 0 != (i == 3 || i == 9) && n > 100 {
					t.Errorf("%s: waited %v, served %v, %d retries", c.Episode, turn.Queue, turn.Service, turn.Retries)
				}
				if !c.Sampling.TokenIDs {
					if r.SampledIDs != nil || r.PromptIDs != nil {
						t.Errorf("%s: ids that were not asked for", c.Episode)
					}
					return
				}
				e := &episode.Episode{}
				e.AddReply(r, turn)
				if e.Tokens.Sampled() != n || e.Tokens.Len() != 3+n || e.Tokens.IDs[2+n] != int32(n-1) || e.Tokens.Versions[2+n] != *turn.VersionEnd || e.Tokens.Versions[3] != *turn.VersionStart {
					t.Errorf("%s: %+v", c.Episode, e.Tokens)
				}
				mu.Lock()
				defer mu.Unlock()
				versions[*turn.VersionEnd-*turn.VersionStart] = true
			})
		}
		all.Wait()
		if m.forbidden != nil {
			t.Error(m.forbidden)
		}
		if cuts < 30 || again < 1000 || int(m.extended.Load()) != cuts+3 || len(versions) < 2 {
			t.Errorf("%d cuts, %d goings on, %d tokens computed again, versions that passed within an answer: %v", cuts, m.extended.Load(), again, versions)
		}
	})
}

// Where a part of an answer turns out to be more than text, it is made again at one go, and no other is cut any more.
func TestWhatCannotBeGoneOnWithIsMadeWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wasted atomic.Int64
		m := &parrot{reasons: true}
		s := cutting(t, m, Trace{Remade: func(_ string, tokens int) { wasted.Add(int64(tokens)) }})
		defer s.Close()
		for round := range 2 {
			before := m.requests.Load()
			var all sync.WaitGroup
			for i := range 30 {
				all.Go(func() {
					c := &episode.Call{ID: fmt.Sprint(round, i), Episode: fmt.Sprint("e", i), Group: fmt.Sprint(round, i), Want: 4000, PromptTokens: 3, PromptExact: true}
					c.Episode += strings.Repeat("x", round)
					r, _, err := s.Generate(t.Context(), c, episode.Budget{})
					if err != nil || len(strings.Fields(*r.Message.ReasoningContent)) != m.tokens(c) || r.Finish != episode.FinishStop {
						t.Errorf("%s of %d tokens: %v, %v", c.Episode, m.tokens(c), r, err)
					}
				})
			}
			all.Wait()
			if n := m.requests.Load() - before; round == 0 && n <= 30 || round == 1 && n != 30 {
				t.Errorf("round %d: %d requests for 30 calls", round, n)
			}
		}
		if wasted.Load() == 0 || m.extended.Load() != 0 {
			t.Errorf("%d tokens wasted, %d goings on", wasted.Load(), m.extended.Load())
		}
	})
}

// What is left of a call that is given up while its answer waits to be gone on with: the model was at it, and all there was is wasted.
func TestCutAnswersAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &parrot{fails: map[string]int{}}
		s := cutting(t, m, Trace{})
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var all sync.WaitGroup
		var held, cut atomic.Int64
		for i := range 40 {
			m.fails[fmt.Sprint("e", i)] = 1 << 20
			all.Go(func() {
				c := &episode.Call{ID: fmt.Sprint(i), Episode: fmt.Sprint("e", i), Group: fmt.Sprint(i), Want: 4000, PromptTokens: 3, PromptExact: true}
				_, _, err := s.Generate(ctx, c, episode.Budget{})
				if err == nil {
					return
				}
				if f := episode.AsFault(episode.StageModel, err); strings.HasPrefix(f.Partial, "0 1 2 ") {
					held.Add(1)
					if n := len(strings.Fields(f.Partial)); f.Stage != episode.StageModel || f.Wasted != n {
						t.Errorf("%s: %d tokens of an answer are held, %d said to be wasted, at stage %s", c.Episode, n, f.Wasted, f.Stage)
					}
					if f.Class == episode.ClassCancelled {
						cut.Add(1)
					}
				}
			})
		}
		all.Wait()
		if n := m.extended.Load(); n == 0 || held.Load() == 0 || cut.Load() == 0 {
			t.Errorf("%d goings on, all of which fail; %d faults hold what there was of the answer, %d of calls given up", n, held.Load(), cut.Load())
		}
	})
}

// An answer that was cut and for which there is no more room is what there is of it, and its record says how long its call waited.
func TestCutAnswersMeetTheEndOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &parrot{fails: map[string]int{}, overflows: true}
		s := cutting(t, m, Trace{})
		defer s.Close()
		var all sync.WaitGroup
		var full atomic.Int64
		for i := range 40 {
			m.fails[fmt.Sprint("e", i)] = 1
			all.Go(func() {
				c := &episode.Call{ID: fmt.Sprint(i), Episode: fmt.Sprint("e", i), Group: fmt.Sprint(i), Want: 4000, PromptTokens: 3, PromptExact: true}
				began := time.Now()
				r, turn, err := s.Generate(t.Context(), c, episode.Budget{})
				if err != nil {
					t.Errorf("%s: %v", c.Episode, err)
					return
				}
				if r.Finish == episode.FinishLength {
					full.Add(1)
				}
				if tried := turn.Service + time.Duration(turn.Retries)*time.Second; turn.Queue != time.Since(began)-tried {
					t.Errorf("%s took %v, %v of it in attempts: %v in the queue", c.Episode, time.Since(began), tried, turn.Queue)
				}
			})
		}
		all.Wait()
		if full.Load() == 0 {
			t.Error("no answer met the end of the context")
		}
	})
}

// A call that is cut, found to be the poison and given up, all at once, ends once: as the one or as the other.
func TestCutCallsOfTheCondemned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *Scheduler
		var once sync.Once
		var condemned atomic.Value
		ctxs, cancels := map[string]context.Context{}, map[string]context.CancelFunc{}
		for i := range 40 {
			id := fmt.Sprint("e", i)
			ctxs[id], cancels[id] = context.WithCancel(t.Context())
		}
		m := &parrot{}
		s = cutting(t, m, Trace{Launched: func(_ string, l Launch) {
			if !l.Cut || m.tokens(&episode.Call{Episode: s.core.calls[l.Ticket].Episode}) <= l.MaxTokens {
				return
			}
			once.Do(func() {
				w := s.core.calls[l.Ticket]
				w.life.siblings.suspicion = &suspicion{deaths: 3, last: &death{}, proven: true}
				condemned.Store(w.Episode)
				cancels[w.Episode]()
			})
		}})
		defer s.Close()
		var all sync.WaitGroup
		for id, ctx := range ctxs {
			all.Go(func() {
				_, _, err := s.Generate(ctx, &episode.Call{ID: id, Episode: id, Group: id, Want: 4000, PromptTokens: 3, PromptExact: true}, episode.Budget{})
				if f := episode.AsFault(episode.StageModel, err); (f != nil) != (condemned.Load() == id) || f != nil && f.Class != episode.ClassPoison && f.Class != episode.ClassCancelled {
					t.Errorf("%s: %v; the poison is %v", id, err, condemned.Load())
				}
			})
		}
		all.Wait()
		if condemned.Load() == nil {
			t.Error("no call was cut")
		}
	})
}

// What makes an answer more than the sum of its parts keeps it from being cut.
func TestCuttable(t *testing.T) {
	for name, c := range map[string]struct {
		call episode.Call
		cut  bool
	}{
		"plain":             {episode.Call{}, true},
		"tools":             {episode.Call{Tools: []byte("[]")}, false},
		"stop string":       {episode.Call{Sampling: episode.Sampling{Stop: []string{"\n"}}}, false},
		"seed":              {episode.Call{Sampling: episode.Sampling{Seed: episode.Ptr(int64(1))}}, false},
		"temperature":       {episode.Call{Sampling: episode.Sampling{Temperature: episode.Ptr(0.7), TopK: episode.Ptr(5)}}, true},
		"penalty":           {episode.Call{Sampling: extra("presence_penalty")}, false},
		"grammar":           {episode.Call{Sampling: extra("response_format")}, false},
		"max_tokens":        {episode.Call{Sampling: extra("max_tokens")}, false},
		"template":          {episode.Call{Sampling: extra("chat_template_kwargs")}, true},
		"what no one knows": {episode.Call{Sampling: extra("frobnicate")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.call.Cuttable(); got != c.cut {
				t.Errorf("cuttable: %v", got)
			}
		})
	}
}

func extra(field string) episode.Sampling {
	return episode.Sampling{Extra: map[string]json.RawMessage{field: []byte("1")}}
}
