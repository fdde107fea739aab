package main

import (
	"slices"
	"strings"
	"testing"
)

func endpointsAt(urls ...string) (list []Endpoint) {
	for _, u := range urls {
		list = append(list, Endpoint{URL: u})
	}
	return list
}

// Endpoints behind one gateway are told apart by their paths; all others go by host and port.
func TestEndpointsOfOneHostHaveNamesOfTheirOwn(t *testing.T) {
	got := namesOf(endpointsAt("http://gw:8000/a/v1", "http://gw:8000/b", "http://other:8000/v1", "unix:///run/a.sock", "unix:///run/b.sock"))
	if want := []string{"gw:8000/a", "gw:8000/b", "", "", ""}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// One server under two spellings is one.
func TestAnEndpointIsListedOnce(t *testing.T) {
	for _, c := range []struct {
		urls  []string
		twice bool
	}{
		{[]string{"http://a:8000/v1", "http://a:8000/v1/"}, true},
		{[]string{"http://a:8000", "http://A:8000/v1"}, true},
		{[]string{"http://a/v1", "http://a:80"}, true},
		{[]string{"https://a/v1", "https://a:443/v1/chat/completions"}, true},
		{[]string{"unix:///run/a.sock", "unix:///run/a.sock"}, true},
		{[]string{"http://a:8000/x", "http://a:8000/y"}, false},
		{[]string{"http://a:8000/v1", "http://a:8000/v2"}, false},
		{[]string{"http://a:8000", "http://b:8000"}, false},
	} {
		s := Settings{Endpoint: endpointsAt(c.urls...)}
		var f faults
		s.validateServers(&f)
		said := ""
		if err := f.err(); err != nil {
			said = err.Error()
		}
		if strings.Contains(said, "listed twice") != c.twice {
			t.Errorf("%q: %s", c.urls, said)
		}
	}
}
