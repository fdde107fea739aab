package action

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"tranche/episode"
)

// scarce is a tool that waits before its runs.
type scarce struct {
	fake
	wait func(ctx context.Context) (func(), error)
}

func (s scarce) Wait(ctx context.Context, _ Env) (func(), error) { return s.wait(ctx) }

// What an action waits for is no part of its time limit, holds no worker, and is let go of once.
func TestWaitingIsNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := 0
		slow := fake{name: "slow", run: func(ctx context.Context, _ json.RawMessage, _ Env) (Result, error) {
			time.Sleep(time.Second / 2)
			return Result{Text: "ran"}, nil
		}}
		s := newSet(t, Config{Workers: 1, Timeout: time.Second}, scarce{slow, func(context.Context) (func(), error) {
			time.Sleep(time.Hour)
			return func() { let++ }, nil
		}})
		defer requireClose(t, s)
		began := time.Now()
		o := do(s, call{"slow", "{}"})[0]
		if o.Status != episode.ActionOK || o.Wall != time.Second/2 || time.Since(began) != time.Hour+time.Second/2 || let != 1 {
			t.Errorf("%+v after %v, let go of %d times", o, time.Since(began), let)
		}
		if n := s.Stats().Running; n != 0 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestWaitThatFails(t *testing.T) {
	for _, c := range []struct {
		name string
		wait func(ctx context.Context) (func(), error)
		want string
	}{
		{"error", func(context.Context) (func(), error) { return nil, errors.New("no room, ever") }, episode.ActionHarness},
		{"panic", func(context.Context) (func(), error) { panic("boom") }, episode.ActionHarness},
		{"cancelled", func(ctx context.Context) (func(), error) { <-ctx.Done(); return nil, ctx.Err() }, episode.ActionCanceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSet(t, Config{}, scarce{says("x", "never"), c.wait})
			defer requireClose(t, s)
			patience := time.Minute
			if c.name == "cancelled" {
				patience = 20 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			act := episode.Action{ID: "a", Call: episode.ToolCall{ID: "c", Function: episode.Function{Name: "x", Arguments: "{}"}}}
			o := s.Do(ctx, anEpisode("e", ""), []episode.Action{act})[0]
			if o.Status != c.want || (o.Fault != nil) != (c.want == episode.ActionHarness) {
				t.Errorf("%+v, want %s", o, c.want)
			}
			if len(s.going) != 0 {
				t.Error("the action is still claimed")
			}
		})
	}
}

// A tool that ends its run at the time limit itself is observed as one that was stopped there.
func TestToolThatTimesItself(t *testing.T) {
	s := newSet(t, Config{}, fake{name: "x", run: func(context.Context, json.RawMessage, Env) (Result, error) {
		return Result{Text: "part"}, &ToolError{Text: "stopped", TimedOut: true}
	}})
	defer requireClose(t, s)
	if o := do(s, call{"x", "{}"})[0]; o.Status != episode.ActionTimeout || o.Text != "part\nerror: stopped" {
		t.Errorf("%+v", o)
	}
}
