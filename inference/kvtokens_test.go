package inference

import (
	"encoding/json"
	"strings"
	"testing"

	"tranche/internal/mock"
)

// Memory below one context is no server's: a figure that says so is a mistake, told with both numbers. With a lower context beside it, it is right.
func TestKVTokensBelowTheContextAreRefused(t *testing.T) {
	s := mock.New(t, mock.Config{Routes: vllm(true)})
	for name, c := range map[string]struct {
		kv      string
		context int
		says    string
	}{
		"below":                     {"4096", 0, "kv-tokens is set to 4096, below the context limit of 8192 tokens"},
		"the context itself":        {"8192", 0, ""},
		"below, and the context is": {"4096", 2048, ""},
		"below that too":            {"1024", 2048, "kv-tokens is set to 1024, below the context limit of 2048 tokens"},
		"not known":                 {"0", 0, ""},
	} {
		cfg := Config{BaseURL: s.URL(), Capabilities: map[string]json.RawMessage{"kv-tokens": json.RawMessage(c.kv)}}
		cfg.Capacity.ContextTokens = c.context
		e, err := Open(t.Context(), cfg)
		if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || strings.Count(err.Error(), "kv-tokens") != 1) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		if err == nil {
			e.Close()
		}
	}
}
