package main

import (
	"strings"
	"testing"
)

func TestMoreCallsThanConnectionsAreRefused(t *testing.T) {
	two := &fleet{members: []member{{calls: 200}, {calls: 200}}}
	for limit, want := range map[uint64]string{500: "", 499: "ulimit -n 500", 300: "--concurrency 100", 50: "--concurrency 1"} {
		err := two.checkFiles(limit, true)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d files: %v, want %q", limit, err, want)
		}
	}
	if err := two.checkFiles(0, false); err != nil {
		t.Error(err)
	}
}
