package inference

import (
	"encoding/json"
	"strings"
	"testing"
)

// A value that nothing here would act on is refused, by its name and what is expected.
func TestOverridesThatNoServerHasAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ key, value, says string }{
		"a figure":                   {"metrics", `["running", "kv used"]`, ""},
		"no figure":                  {"metrics", `[]`, ""},
		"a figure nobody knows":      {"metrics", `["bogus"]`, `unknown figure "bogus"; there are running`},
		"a route":                    {"tokenize-text", `"/tokenize"`, ""},
		"no route":                   {"render", `""`, ""},
		"a route without its slash":  {"tokenize-text", `"tokenize"`, "expected one of /tokenize"},
		"a known route of each kind": {"generate", `"/inference/v1/generate"`, ""},
		"a route nobody knows":       {"generate", `"/foo"`, "expected one of /completion, /generate, /inference/v1/generate"},
		"a text that is no route":    {"version", `"1.0"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckOverrides(map[string]json.RawMessage{c.key: json.RawMessage(c.value)})
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), "capabilities: "+c.key+": "+c.says) {
				t.Errorf("%s: %s gives %v, want %q", c.key, c.value, err, c.says)
			}
		})
	}
}

func TestSocketAddressNeedsAFile(t *testing.T) {
	for base, ok := range map[string]bool{"unix:///run/server.sock": true, "unix:///": false, "unix:///run/": false, "unix://run": false, "unix://": false} {
		if _, err := addressOf(base); (err == nil) != ok {
			t.Errorf("%s: %v", base, err)
		}
	}
}
