package enginesim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// request sends a request to an engine without a network.
func request(ctx context.Context, e *Engine, method, path, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	e.Handler().ServeHTTP(w, req)
	return w
}

// inBackground sends a generate request and returns where its answer will be.
func inBackground(t *testing.T, e *Engine, path, body string) <-chan *httptest.ResponseRecorder {
	out := make(chan *httptest.ResponseRecorder, 1)
	go func() { out <- request(t.Context(), e, http.MethodPost, path, body) }()
	synctest.Wait()
	return out
}

func must[T any](t *testing.T, w *httptest.ResponseRecorder) T {
	t.Helper()
	var out T
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != http.StatusOK {
		t.Fatalf("status %d, %v: %s", w.Code, err, w.Body)
	}
	return out
}

const longStory = `{"prompt": "Tell me a story", "max_tokens": 1000, "ignore_eos": true, "return_token_ids": true}`

// Kept calls stand still during a pause and end as if nothing had been; those that come meanwhile wait.
func TestPauseKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alone, err := New(Config{Speed: 1})
		if err != nil {
			t.Fatal(err)
		}
		want := must[completionReply](t, request(t.Context(), alone, http.MethodPost, "/v1/completions", longStory))
		e, err := New(Config{Speed: 1, DevRoutes: true, WeightVersion: "1"})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		first := inBackground(t, e, "/v1/completions", longStory)
		time.Sleep(time.Second)
		request(t.Context(), e, http.MethodPost, "/pause?mode=keep", "")
		if got := request(t.Context(), e, http.MethodGet, "/is_paused", "").Body.String(); got != `{"is_paused":true}` {
			t.Errorf("is_paused: %s", got)
		}
		late := inBackground(t, e, "/v1/completions", `{"prompt": "Hello", "max_tokens": 3}`)
		time.Sleep(time.Hour)
		if s := e.Stats(); s.GeneratedTokens < 100 || s.GeneratedTokens > 200 || s.Running != 1 || s.Waiting != 1 {
			t.Errorf("after an hour of pause: %+v", s)
		}
		request(t.Context(), e, http.MethodPost, "/update_weight_version", `{"new_version": "2"}`)
		request(t.Context(), e, http.MethodPost, "/resume", "")
		got := must[completionReply](t, <-first)
		if fmt.Sprint(got.Choices[0].TokenIDs) != fmt.Sprint(want.Choices[0].TokenIDs) || *got.Choices[0].Finish != "length" {
			t.Error("the kept call has another answer than without a pause")
		}
		if got.Metadata == nil || got.Metadata.WeightVersion != "2" || want.Metadata != nil {
			t.Errorf("weight version %+v, without one %+v", got.Metadata, want.Metadata)
		}
		if took := time.Since(began); took < time.Hour+1000*6800*time.Microsecond {
			t.Errorf("took %v, less than the pause and 1,000 steps", took)
		}
		must[completionReply](t, <-late)
	})
}

func TestPauseAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Config{Speed: 1, DevRoutes: true})
		if err != nil {
			t.Fatal(err)
		}
		plain := inBackground(t, e, "/v1/completions", longStory)
		stream := inBackground(t, e, "/v1/completions", strings.Replace(longStory, "{", `{"stream": true, "stream_options": {"include_usage": true}, `, 1))
		chat := inBackground(t, e, "/v1/chat/completions", `{"messages": [{"role": "user", "content": "Tell me a story"}], "max_tokens": 1000, "ignore_eos": true, "stream": true}`)
		time.Sleep(time.Second)
		if w := request(t.Context(), e, http.MethodPost, "/pause", ""); w.Code != http.StatusOK {
			t.Fatalf("pause: %d %s", w.Code, w.Body)
		}
		got := must[completionReply](t, <-plain)
		n := len(got.Choices[0].TokenIDs)
		if *got.Choices[0].Finish != "abort" || n < 100 || n > 200 || got.Usage.CompletionTokens != n {
			t.Errorf("finish %s with %d tokens, usage %+v; want abort with what a second gives", *got.Choices[0].Finish, n, got.Usage)
		}
		if text := e.tokens.Decode(got.Choices[0].TokenIDs); text != got.Choices[0].Text {
			t.Errorf("text %q is not that of the tokens, %q", got.Choices[0].Text, text)
		}
		for name, w := range map[string]*httptest.ResponseRecorder{"completions": <-stream, "chat": <-chat} {
			body := w.Body.String()
			if strings.Count(body, `"finish_reason":"abort"`) != 1 || !strings.HasSuffix(body, "data: [DONE]\n\n") {
				t.Errorf("%s stream ends with …%s", name, body[max(0, len(body)-400):])
			}
		}
		request(t.Context(), e, http.MethodPost, "/resume", "")
		must[completionReply](t, request(t.Context(), e, http.MethodPost, "/v1/completions", `{"prompt": "Hello", "max_tokens": 3}`))
		if s := e.Stats(); s.Aborted != 3 || s.Done != 1 || s.Running+s.Waiting+s.BlocksUsed != 0 {
			t.Errorf("stats %+v, want three aborted, one done and no block held", s)
		}
	})
}

// A pause forgets the prefix cache unless told to keep it.
func TestPauseClearsCache(t *testing.T) {
	for query, hits := range map[string]bool{"": false, "&clear_cache=false": true} {
		t.Run(query, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, err := New(Config{DevRoutes: true})
				if err != nil {
					t.Fatal(err)
				}
				for i := range 2 {
					request(t.Context(), e, http.MethodPost, "/v1/completions", `{"prompt": "`+strings.Repeat("over and over ", 40)+`", "max_tokens": 3}`)
					if i == 0 {
						request(t.Context(), e, http.MethodPost, "/pause?mode=keep"+query, "")
						request(t.Context(), e, http.MethodPost, "/resume", "")
					}
				}
				if s := e.Stats(); s.PrefixHits > 0 != hits {
					t.Errorf("%d prefix hits", s.PrefixHits)
				}
			})
		})
	}
}

func TestDevRoutesNeedTheirSwitch(t *testing.T) {
	e, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/pause", "/resume", "/update_weight_version"} {
		if w := request(t.Context(), e, http.MethodPost, path, "{}"); w.Code != http.StatusNotFound {
			t.Errorf("%s: status %d", path, w.Code)
		}
	}
	dev, err := New(Config{DevRoutes: true})
	if err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{"/pause?mode=maybe": "", "/update_weight_version": "{}"} {
		if w := request(t.Context(), dev, http.MethodPost, path, body); w.Code != http.StatusBadRequest {
			t.Errorf("%s: status %d: %s", path, w.Code, w.Body)
		}
	}
}

func TestStrict(t *testing.T) {
	for name, c := range map[string]struct {
		path, body, refuses string
	}{
		"chat, OpenAI fields alone":        {"/v1/chat/completions", `{"messages": [{"role": "user", "content": "Hi"}], "max_completion_tokens": 3, "logprobs": true, "user": "u"}`, ""},
		"chat, a field of vLLM":            {"/v1/chat/completions", `{"messages": [{"role": "user", "content": "Hi"}], "return_token_ids": true}`, "body.return_token_ids"},
		"completions, OpenAI fields alone": {"/v1/completions", `{"prompt": "Hi", "max_tokens": 3, "best_of": 1}`, ""},
		"completions, two fields of vLLM":  {"/v1/completions", `{"prompt": "Hi", "top_k": 3, "cache_salt": "a"}`, "body.cache_salt, body.top_k"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, strict := range []bool{false, true} {
				e, err := New(Config{Strict: strict})
				if err != nil {
					t.Fatal(err)
				}
				w := request(t.Context(), e, http.MethodPost, c.path, c.body)
				if refused := strict && c.refuses != ""; refused != (w.Code == http.StatusBadRequest) || refused && !strings.Contains(w.Body.String(), c.refuses) {
					t.Errorf("strict %v: status %d: %s", strict, w.Code, w.Body)
				}
			}
		})
	}
}

// With priorities on, the urgent call overtakes those that wait; with priorities off the field means nothing.
func TestPriorityOverHTTP(t *testing.T) {
	for _, priority := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e, err := New(Config{Speed: 1, MaxSeqs: 1, Priority: priority})
			if err != nil {
				t.Fatal(err)
			}
			order := make(chan string, 3)
			for _, c := range []struct {
				name string
				rank int
			}{{"first", 5}, {"second", 5}, {"urgent", -1}} {
				go func() {
					request(t.Context(), e, http.MethodPost, "/v1/completions", fmt.Sprintf(`{"prompt": "Hello", "max_tokens": 50, "ignore_eos": true, "priority": %d}`, c.rank))
					order <- c.name
				}()
				synctest.Wait()
			}
			got := []string{<-order, <-order, <-order}
			want := "[first second urgent]"
			if priority {
				want = "[first urgent second]"
			}
			if fmt.Sprint(got) != want {
				t.Errorf("priority %v: done in order %v, want %v", priority, got, want)
			}
		})
	}
}

func TestWaitHistograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Config{Speed: 1, MaxSeqs: 1})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan int)
		for range 3 { // one after the other, 0.68 s each
			go func() {
				done <- request(t.Context(), e, http.MethodPost, "/v1/completions", `{"prompt": "Hello", "max_tokens": 100, "ignore_eos": true}`).Code
			}()
		}
		for range 3 {
			<-done
		}
		text := request(t.Context(), e, http.MethodGet, "/metrics", "").Body.String()
		for _, line := range []string{
			"# TYPE vllm:time_to_first_token_seconds histogram",
			`vllm:time_to_first_token_seconds_bucket{engine="0",model_name="sim",le="0.01"} 1`,
			`vllm:time_to_first_token_seconds_bucket{engine="0",model_name="sim",le="0.5"} 1`,
			`vllm:time_to_first_token_seconds_bucket{engine="0",model_name="sim",le="0.75"} 2`,
			`vllm:time_to_first_token_seconds_count{engine="0",model_name="sim"} 3`,
			`vllm:request_queue_time_seconds_bucket{engine="0",model_name="sim",le="0.3"} 1`,
			`vllm:request_queue_time_seconds_bucket{engine="0",model_name="sim",le="0.8"} 2`,
			`vllm:request_queue_time_seconds_bucket{engine="0",model_name="sim",le="+Inf"} 3`,
			`vllm:e2e_request_latency_seconds_bucket{engine="0",model_name="sim",le="0.5"} 0`,
			`vllm:e2e_request_latency_seconds_bucket{engine="0",model_name="sim",le="1.5"} 2`,
			`vllm:e2e_request_latency_seconds_count{engine="0",model_name="sim"} 3`,
		} {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("/metrics lacks %s", line)
			}
		}
		if strings.Count(text, "# TYPE vllm:time_to_first_token_seconds ") != 1 {
			t.Error("the type of a histogram is told once")
		}
	})
}

// One block is reserved: the memory the metrics tell is not all usable.
func TestNullBlock(t *testing.T) {
	c := Config{ContextTokens: 16384, KVTokens: 129 * 128, BlockTokens: 128, NullBlock: true}
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	text := request(t.Context(), e, http.MethodGet, "/metrics", "").Body.String()
	if !strings.Contains(text, `kv_cache_size_tokens="16512",num_gpu_blocks="129"`) {
		t.Errorf("/metrics does not tell 129 blocks of 16,512 tokens:\n%s", text)
	}
	if s := e.Stats(); s.Blocks != 128 {
		t.Errorf("%d blocks can be held, want 128", s.Blocks)
	}
	c.ContextTokens = 16512
	if _, err := New(c); err == nil || !strings.Contains(err.Error(), "16384 in usable blocks") {
		t.Errorf("a context of all 129 blocks: %v", err)
	}
}

func TestPresets(t *testing.T) {
	for _, m := range Presets() {
		got, err := Preset(strings.ToUpper(m.Name))
		if err != nil || got.Name != m.Name {
			t.Errorf("Preset(%s): %v", m.Name, err)
		}
		if err := m.Config().Validate(); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
	for name, floor := range map[string]time.Duration{"llama-3.1-8b-h100": 6800, "llama-3.1-8b-a100": 10500, "qwen2.5-7b-h100": 6300, "qwen2.5-7b-a100": 9800} {
		m, err := Preset(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if d := m.Step.duration(work{tokens: 1, seqs: 1}); (d - floor*time.Microsecond).Abs() > 10*time.Microsecond {
			t.Errorf("%s: shortest step %v, published %v", name, d, floor*time.Microsecond)
		}
	}
	if _, err := Preset("gpt-9"); err == nil || !strings.Contains(err.Error(), "llama-3.1-8b-h100") {
		t.Errorf("unknown preset: %v", err)
	}
}

// In a static batch the short answer comes with the long one.
func TestStaticBatchOverHTTP(t *testing.T) {
	for _, c := range []struct {
		batching Batching
		together bool
	}{{Continuous, false}, {Shaped, false}, {Static, true}} {
		synctest.Test(t, func(t *testing.T) {
			e, err := New(Config{Speed: 1, Batching: c.batching})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			ends := make(chan time.Duration, 3)
			for _, tokens := range []int{1, 10, 200} { // the first makes the others wait, and so come into one batch
				go func() {
					request(t.Context(), e, http.MethodPost, "/v1/completions", fmt.Sprintf(`{"prompt": "Hello", "max_tokens": %d, "ignore_eos": true}`, tokens))
					ends <- time.Since(began)
				}()
				synctest.Wait()
			}
			<-ends
			if short, long := <-ends, <-ends; (short == long) != c.together || long < time.Second {
				t.Errorf("%s: short answer after %v, long after %v", c.batching, short, long)
			}
		})
	}
}
