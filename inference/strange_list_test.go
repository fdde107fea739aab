package inference

import (
	"net/http"
	"strings"
	"testing"
)

// A model's name cannot write lines of its own, and a redirect is told with where it leads.
func TestRefusedListsAreToldInOneLine(t *testing.T) {
	_, err := pickModel(Config{}, KindGeneric, []modelCard{named("a\nerror: b"), named("c")})
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), `"a\nerror: b", c`) {
		t.Errorf("%q", err)
	}
	e := &Endpoint{cfg: Config{Name: "x"}}
	_, err = e.readModels("http://x/v1/models", said{status: 302, header: http.Header{"Location": {"http://y/\nz"}}, body: []byte{}})
	if err == nil || !strings.Contains(err.Error(), `"http://y/\nz"`) {
		t.Errorf("%q", err)
	}
}

func named(id string) (c modelCard) {
	c.ID = id
	return c
}
