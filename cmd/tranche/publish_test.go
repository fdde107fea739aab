package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tranche/internal/fakestore"
)

// A store that takes no more costs the run nothing; its status says so, and push goes on.
func TestAStoreThatLacksSomethingAtTheEnd(t *testing.T) {
	store := fakestore.New(t, "s3")
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": store.URL(), "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "topsecret"} {
		t.Setenv(name, value)
	}
	store.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, ".parquet") {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	s, dir := newShell(t), filepath.Join(t.TempDir(), "x")
	s.do(codeDisk, "run", "../../examples/arithmetic/tasks.jsonl", "--limit", "10", "-o", dir, "--publish", "s3://bucket/x")
	for _, want := range []string{"10 of 10 stored", "not all is published to s3://bucket/x: put parts/part-00000.parquet: not allowed: HTTP 403 AccessDenied: Access Denied.; `tranche push " + dir + " 's3://bucket/x'` goes on"} {
		if !strings.Contains(s.out.String(), want) {
			t.Errorf("%q is not in\n%s", want, s.out.String())
		}
	}
	if text := s.err.String(); !strings.Contains(text, "publish: s3://bucket/x: put parts/part-00000.parquet: not allowed") || strings.Contains(text, "topsecret") {
		t.Errorf("said %s", text)
	}
	if store.Data("x/manifest.json") != nil {
		t.Error("the store has a manifest without its parts")
	}
	if text, err := os.ReadFile(filepath.Join(dir, "run.yaml")); err != nil || strings.Contains(string(text), "topsecret") {
		t.Errorf("run.yaml: %v\n%s", err, text)
	}
	store.Intercept(nil)
	s.do(codeOK, "push", dir, "s3://bucket/x")
	if store.Data("x/manifest.json") == nil {
		t.Error("the store has no manifest")
	}
	store.Intercept(func(w http.ResponseWriter, r *http.Request) bool { w.WriteHeader(http.StatusForbidden); return true })
	s.do(codeEndpoint, "resume", dir)
	store.Intercept(nil)
	s.do(codeOK, "resume", dir) // the one that was refused left no lock
	if !strings.Contains(s.out.String(), "published to s3://bucket/x: 10 rows") {
		t.Errorf("resume said\n%s", s.out.String())
	}
}
