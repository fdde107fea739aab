package action

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"testing"
)

// What a call of /bin/true costs as a tool, beside plain os/exec: the pool, the checks of the arguments, the pipes and the process group.
func BenchmarkCommandTool(b *testing.B) {
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("tool", func(b *testing.B) {
		c, err := NewCommand(CommandConfig{Name: "t", Run: []string{"true"}})
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := c.Run(context.Background(), []byte(`{}`), Env{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// What a call of a web service on loopback costs.
func BenchmarkHTTPTool(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	tool, err := NewHTTP(HTTPConfig{Name: "t", URL: server.URL})
	if err != nil {
		b.Fatal(err)
	}
	defer tool.Close()
	for b.Loop() {
		if _, err := tool.Run(context.Background(), []byte(`{"q":"x"}`), Env{}); err != nil {
			b.Fatal(err)
		}
	}
}
