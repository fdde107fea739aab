package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tranche/episode"
)

// keeper is a tool that keeps a session for each episode.
type keeper struct {
	fake
	end func(ctx context.Context, episode string) error
}

func (k keeper) End(ctx context.Context, episode string) error { return k.end(ctx, episode) }

func anEpisode(id string, tools string) *episode.Episode {
	return &episode.Episode{ID: id, Task: &episode.Task{ID: "t", Tools: []byte(tools)}}
}

// Every tool that keeps something is told once of every episode that was offered it, and of no other.
func TestToolsAreToldOfTheEnd(t *testing.T) {
	var mu sync.Mutex
	var told []string
	tell := func(name string) keeper {
		return keeper{says(name, ""), func(_ context.Context, id string) error {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, name+" "+id)
			return nil
		}}
	}
	s, err := New(Config{Tools: []string{"always"}}, tell("always"), tell("asked"), says("plain", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer requireClose(t, s)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() { s.End(anEpisode(fmt.Sprint("a", i), "")) })
	}
	all.Wait()
	s.End(anEpisode("b", `["asked","plain"]`))
	s.End(anEpisode("bad", `["nothing known"]`)) // it was offered nothing
	slices.Sort(told)
	if once := slices.Compact(slices.Clone(told)); len(told) != 52 || len(once) != 52 {
		t.Errorf("told %d times, %d different, want 52: %v", len(told), len(once), told)
	}
	if !slices.Contains(told, "asked b") || !slices.Contains(told, "always b") || slices.Contains(told, "asked a1") {
		t.Errorf("told %v, want both of b and one of the others", told)
	}
	if all := s.Troubles(); len(all) != 0 {
		t.Errorf("troubles %+v", all)
	}
}

// A tool that cannot let go costs a bounded time, and is named; its neighbours are told all the same.
func TestToolsThatCannotLetGoAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		ways := map[string]func(context.Context, string) error{
			"fails":  func(context.Context, string) error { return errors.New("no such sandbox") },
			"panics": func(context.Context, string) error { panic("boom") },
			"slow":   func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() },
			"well":   func(context.Context, string) error { told++; return nil },
		}
		var tools []Tool
		for name, end := range ways {
			tools = append(tools, keeper{says(name, ""), end})
		}
		s := newSet(t, Config{Timeout: time.Second}, tools...)
		defer requireClose(t, s)
		began := time.Now()
		for range 2 {
			s.End(anEpisode("e", ""))
		}
		if took := time.Since(began); took != 2*time.Second || told != 2 {
			t.Errorf("took %v, the good one was told %d times; want 2s, 2", took, told)
		}
		want := map[string]string{"fails": "no such sandbox", "panics": "it panicked: boom at trouble_test.go:", "slow": "it took more than 1s"}
		for _, x := range s.Troubles() {
			if x.Unended != 2 || want[x.Tool] == "" || !strings.HasPrefix(x.Why, want[x.Tool]) {
				t.Errorf("%+v, want 2 because %q", x, want[x.Tool])
			}
			delete(want, x.Tool)
		}
		if len(want) > 0 {
			t.Errorf("nothing was said of %v", want)
		}
	})
}
