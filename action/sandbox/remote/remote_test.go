//go:build linux

package remote

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"tranche/action/sandbox"
)

// A far side that sends on to another host gets neither the key nor a program there.
func TestNoKeyForAnotherHost(t *testing.T) {
	for _, client := range []*http.Client{nil, {}} {
		for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
			var told atomic.Int64
			other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { told.Add(1) }))
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, other.URL+r.URL.Path, status)
			}))
			x, err := New(Config{URL: server.URL, Dialect: SWEReX, Key: "key", Client: client})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := x.Open(context.Background(), sandbox.Spec{}); err == nil {
				t.Error("it was opened")
			}
			if err := x.Close(); err != nil {
				t.Error(err)
			}
			if n := told.Load(); n > 0 {
				t.Errorf("HTTP %d: another host was asked %d times", status, n)
			}
			server.Close()
			other.Close()
		}
	}
}
