package inference

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"tranche/episode"
)

// Every kind of attempt ends by its deadlines, on a server that never answers and on one that stops inside its answer.
func TestEveryAttemptHasItsDeadlines(t *testing.T) {
	asked := "hi"
	plain := &episode.Call{ID: "e/0", Episode: "e", Messages: []episode.Message{{Role: episode.RoleUser, Content: &asked}}}
	kinds := map[string]func(context.Context, *Endpoint) error{
		"a chat": func(ctx context.Context, e *Endpoint) error {
			_, err := e.Generate(ctx, plain, 1, 8)
			return err
		},
		"a request as it is": func(ctx context.Context, e *Endpoint) error {
			_, err := e.Generate(ctx, &episode.Call{ID: "e/0", Episode: "e", Request: &episode.Request{Route: "/embeddings", Body: []byte(`{}`)}}, 1, 0)
			return err
		},
		"going on": func(ctx context.Context, e *Endpoint) error {
			_, err := e.Extend(ctx, plain, beginning("a"), 1, 8)
			return err
		},
		"a list": func(ctx context.Context, e *Endpoint) error {
			_, err := e.ExtendAll(ctx, []episode.Row{{Call: plain, SoFar: beginning("a"), Attempt: 1}, {Call: plain, SoFar: beginning("b"), Attempt: 1}}, 8)
			return err
		},
		"a continuation": func(ctx context.Context, e *Endpoint) error {
			_, err := e.Continue(ctx, episode.Continuation{ID: "e/0", Episode: "e", Prompt: []int32{1, 2}, Tokens: 8})
			return err
		},
	}
	for name, send := range kinds {
		for class, cfg := range map[episode.Class]Config{
			episode.ClassTimeout: {AttemptTimeout: 50 * time.Millisecond},
			episode.ClassIdle:    {IdleTimeout: 50 * time.Millisecond},
		} {
			t.Run(name+", "+string(class), func(t *testing.T) {
				t.Parallel()
				over := make(chan struct{})
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if class == episode.ClassIdle {
						w.Header().Set("Content-Type", "application/json")
						fmt.Fprint(w, `{"choices":[`)
						w.(http.Flusher).Flush()
					}
					<-over
				}))
				defer s.Close()
				defer close(over)
				cfg.BaseURL, cfg.Model = s.URL, "m"
				e, err := newEndpoint(cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if f := faultOf(t, send(ctx, e)); f.Class != class || !f.Retry {
					t.Errorf("%v, expected %s", f, class)
				}
			})
		}
	}
}
