package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tranche/inference"
	"tranche/internal/mock"
)

// versioned is a vLLM whose version changes, with chat and nothing else; until it is healed it fails every call but the probe's.
type versioned struct {
	*mock.Server
	version atomic.Value
	ill     atomic.Bool
	refuses atomic.Bool // fields that no server knows
}

func newVersioned(t *testing.T) *versioned {
	v := &versioned{}
	v.version.Store("0.32.0")
	v.Server = mock.New(t, mock.Config{
		Chat: func(r *mock.Request, w *mock.Reply) {
			if v.ill.Load() && !isProbe(r) {
				w.JSON(500, `{"error":{"message":"something went wrong"}}`)
				return
			}
			if v.refuses.Load() && r.Field("tranche_probe") != nil {
				w.JSON(400, `{"error":{"message":"tranche_probe: Extra inputs are not permitted"}}`)
				return
			}
			mock.Text("fine").Send(r, w)
		},
		Routes: map[string]mock.Handler{
			"GET /v1/models": func(_ *mock.Request, w *mock.Reply) { w.JSON(200, `{"data":[{"id":"q","owned_by":"vllm"}]}`) },
			"GET /version":   func(_ *mock.Request, w *mock.Reply) { w.JSON(200, `{"version":"`+v.version.Load().(string)+`"}`) },
		},
	})
	return v
}

func isProbe(r *mock.Request) bool { return strings.Contains(string(r.Body), "Count: one two three") }

// probes counts the generating requests of probes.
func (v *versioned) probes() (n int) {
	for _, r := range v.Chats() {
		if isProbe(r) {
			n++
		}
	}
	return n
}

// recordsIn are the files of records of a run with one endpoint: that of its server now, and those of earlier ones.
func recordsIn(t *testing.T, dir string) (now string, earlier []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "endpoints", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if earlierRecord.MatchString(f) {
			earlier = append(earlier, f)
		} else if now != "" {
			t.Fatalf("two records: %v", files)
		} else {
			now = f
		}
	}
	return now, earlier
}

var earlierRecord = regexp.MustCompile(`\.[0-9]+\.json$`)

// recordIn is the record of a run's one endpoint.
func recordIn(t *testing.T, dir string) inference.Capabilities {
	t.Helper()
	now, _ := recordsIn(t, dir)
	return readRecord(t, now)
}

func readRecord(t *testing.T, file string) (c inference.Capabilities) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &c); err != nil || c.Check() != nil {
		t.Fatalf("%v %v\n%s", err, c.Check(), text)
	}
	return c
}

func TestProbeCommand(t *testing.T) {
	up := newVersioned(t)
	dead := mock.New(t, mock.Config{Routes: map[string]mock.Handler{"GET /v1/models": func(_ *mock.Request, w *mock.Reply) { w.JSON(503, `{"error":"loading"}`) }}})
	file := write(t, "fleet.yaml", "endpoint:\n  - url: "+up.URL()+"\n    capabilities: {priority: high-first, token-ids-in: false}\n")
	for name, c := range map[string]struct {
		args     []string
		want     code
		out, err []string
		gets     bool // nothing but GET requests
	}{
		"a table": {args: []string{up.URL()}, out: []string{"vllm 0.32.0, model q", "n > 1", "proved", "GET /version", "chat gives token ids"}},
		"quick":   {args: []string{"--quick", up.URL()}, out: []string{"vllm 0.32.0", "claimed", "usual for vllm"}, gets: true},
		"one of two": {args: []string{dead.URL(), up.URL()}, want: codeEndpoint, out: []string{"vllm 0.32.0"},
			err: []string{"not ready", "loading"}},
		"overrides of a file": {args: []string{"-c", file}, out: []string{"high-first", "set", "config"}},
		"a wrong override": {args: []string{"-c", write(t, "wrong.yaml", "endpoint:\n  - url: "+up.URL()+"\n    capabilities: {token-ids: true, n: 3}\n")}, want: codeUsage,
			err: []string{"capabilities: n: expected true or false, found 3", "capabilities: token-ids: unknown; there are"}},
		"none":             {args: nil, want: codeUsage, err: []string{"no server given"}},
		"no URL":           {args: []string{"localhost:8000"}, want: codeUsage, err: []string{"http://host:8000/v1"}},
		"a key for a name": {args: []string{"--api-key-env", "sk-not-a-name", up.URL()}, want: codeUsage, err: []string{"the NAME of an environment variable"}},
		"another model":    {args: []string{"--model", "nobody", up.URL()}, want: codeEndpoint, err: []string{"does not serve the model", "q"}},
		"no time":          {args: []string{"--timeout", "0s", up.URL()}, want: codeUsage, err: []string{"--timeout"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t)
			before := len(up.Requests())
			s.do(c.want, append([]string{"probe"}, c.args...)...)
			for _, part := range c.out {
				if !strings.Contains(s.out.String(), part) {
					t.Errorf("no %q in\n%s", part, s.out.String())
				}
			}
			for _, part := range c.err {
				if !strings.Contains(s.err.String(), part) {
					t.Errorf("no %q in\n%s", part, s.err.String())
				}
			}
			for _, r := range up.Requests()[before:] {
				if c.gets && r.Method != "GET" {
					t.Errorf("%s %s", r.Method, r.Path)
				}
			}
			if n := len(up.Requests()) - before; n > inference.MostCalls {
				t.Errorf("%d requests", n)
			}
			if strings.Contains(s.out.String()+s.err.String(), "sk-not-a-name") {
				t.Error("the key is shown")
			}
		})
	}
	t.Run("JSON of one that does not answer", func(t *testing.T) {
		s := newShell(t)
		s.do(codeEndpoint, "probe", "--quick", "--json", dead.URL(), up.URL())
		var list []map[string]any
		if err := json.Unmarshal(s.out.Bytes(), &list); err != nil || len(list) != 2 || list[0]["url"] != dead.URL() || !strings.Contains(fmt.Sprint(list[0]["error"]), "not ready") || list[1]["error"] != nil {
			t.Fatalf("%v\n%s", err, s.out.String())
		}
	})
	t.Run("JSON", func(t *testing.T) {
		s := newShell(t)
		s.do(codeOK, "probe", "--json", up.URL())
		var list []inference.Capabilities
		if err := json.Unmarshal(s.out.Bytes(), &list); err != nil || len(list) != 1 || list[0].Check() != nil || list[0].Version.Value != "0.32.0" || list[0].N.Proof != inference.Proved {
			t.Fatalf("%v\n%s", err, s.out.String())
		}
	})
}

// A run asks who its endpoints are and no more, keeps the record, and a resume that finds the same server asks nothing again.
func TestRunKeepsARecordOfItsEndpoints(t *testing.T) {
	v := newVersioned(t)
	v.ill.Store(true)
	dir := newRunDir(t)
	common := []string{"--max-attempts", "1", "--no-logprobs", "--no-token-ids", "-q"}
	newShell(t).do(codePartial, append([]string{"run", taskFile(t, 2, ""), "--endpoint", v.URL(), "-o", dir}, common...)...)
	if v.probes() != 0 {
		t.Errorf("a run that was not asked to probed by %d generations", v.probes())
	}
	if c := recordIn(t, dir); c.Version.Value != "0.32.0" || c.N.Proof != inference.Claimed || len(c.Asked) != 0 || c.Calls != 3 {
		t.Errorf("%+v", c)
	}

	newShell(t).do(codePartial, append([]string{"resume", dir, "--retry-failed", "--probe", "full"}, common[:2]...)...)
	if c := recordIn(t, dir); v.probes() != 1 || c.N.Proof != inference.Proved || len(c.Asked) != 5 {
		t.Errorf("%d generations, %+v", v.probes(), c)
	}

	newShell(t).do(codePartial, "resume", dir, "--retry-failed", "--probe", "full")
	if c := recordIn(t, dir); v.probes() != 1 || c.N.Proof != inference.Proved {
		t.Errorf("%d generations after a resume with the same server, %+v", v.probes(), c.N)
	}

	v.version.Store("0.33.0")
	s := newShell(t)
	s.do(codePartial, "resume", dir, "--retry-failed")
	if c := recordIn(t, dir); v.probes() != 2 || c.Version.Value != "0.33.0" || c.N.Proof != inference.Proved {
		t.Errorf("%d generations after a new version, %+v %+v", v.probes(), c.Version, c.N)
	}
	if !strings.Contains(s.err.String(), "changed since this run was last at it: version was 0.32.0, now 0.33.0") {
		t.Errorf("not told:\n%s", s.err.String())
	}

	now, earlier := recordsIn(t, dir)
	if len(earlier) != 1 || readRecord(t, earlier[0]).Version.Value != "0.32.0" {
		t.Errorf("earlier records %v; want that of 0.32.0", earlier)
	}
	if err := os.WriteFile(now, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	v.ill.Store(false)
	s = newShell(t)
	s.do(codeOK, "resume", dir, "--retry-failed")
	if c := recordIn(t, dir); c.Version.Value != "0.33.0" || !strings.Contains(s.err.String(), "is asked anew") {
		t.Errorf("%+v\n%s", c.Version, s.err.String())
	}
}

// What a change of server alters in the data shows only when it is asked again: it is told then, and the record of the server that was
// there before stays, however often it changes.
func TestResumeTellsWhatAnotherServerDoes(t *testing.T) {
	v := newVersioned(t)
	v.ill.Store(true)
	dir := newRunDir(t)
	newShell(t).do(codePartial, "run", taskFile(t, 1, ""), "--endpoint", v.URL(), "-o", dir, "--probe", "full", "--max-attempts", "1", "--no-logprobs", "--no-token-ids", "-q")
	v.version.Store("0.33.0")
	v.refuses.Store(true)
	s := newShell(t)
	s.do(codePartial, "resume", dir, "--retry-failed")
	for _, part := range []string{"version was 0.32.0, now 0.33.0", "unknown fields was ignored, now refused"} {
		if !strings.Contains(s.err.String(), "changed since this run was last at it: "+part) {
			t.Errorf("not told: %s\n%s", part, s.err.String())
		}
	}
	v.version.Store("0.34.0")
	newShell(t).do(codePartial, "resume", dir, "--retry-failed", "-q")
	now, earlier := recordsIn(t, dir)
	var versions []string
	for _, f := range append(earlier, now) {
		versions = append(versions, readRecord(t, f).Version.Value)
	}
	if want := []string{"0.32.0", "0.33.0", "0.34.0"}; !slices.Equal(versions, want) {
		t.Errorf("records of %v, want %v", versions, want)
	}
}

// A server that goes down under errors and comes back as another version is looked at again while the run goes on.
func TestRunLooksAgainAtAServerThatWasDown(t *testing.T) {
	if testing.Short() {
		t.Skip("waits most of a minute until the endpoint is tried again")
	}
	t.Parallel()
	var chats atomic.Int64
	v := newVersioned(t)
	storm := mock.New(t, mock.Config{
		Chat: func(r *mock.Request, w *mock.Reply) {
			switch n := chats.Add(1); {
			case n > 10 && n <= 20:
				v.version.Store("0.33.0")
				w.JSON(500, `{"error":{"message":"EngineCore encountered an issue"}}`)
			default:
				w.Delay(10e6)
				mock.Text("fine").Send(r, w)
			}
		},
		Routes: map[string]mock.Handler{
			"GET /v1/models": func(_ *mock.Request, w *mock.Reply) { w.JSON(200, `{"data":[{"id":"q","owned_by":"vllm"}]}`) },
			"GET /version":   func(_ *mock.Request, w *mock.Reply) { w.JSON(200, `{"version":"`+v.version.Load().(string)+`"}`) },
		},
	})
	dir := newRunDir(t)
	s := newShell(t)
	s.do(codeOK, "run", taskFile(t, 60, ""), "--endpoint", storm.URL(), "--concurrency", "5", "--max-attempts", "8", "--no-logprobs", "--no-token-ids", "-o", dir)
	if said := s.err.String(); !strings.Contains(said, "answers again") || !strings.Contains(said, "came back as another: version was 0.32.0, now 0.33.0") {
		t.Errorf("not told:\n%s", said)
	}
	if c := recordIn(t, dir); c.Version.Value != "0.33.0" {
		t.Errorf("%+v", c.Version)
	}
}

// Overrides of a settings file hold in the run, stand in its run.yaml and hold in a resume.
func TestOverridesGoWithTheRun(t *testing.T) {
	v := newVersioned(t)
	v.ill.Store(true)
	file := write(t, "fleet.yaml", "endpoint:\n  - url: "+v.URL()+"\n    capabilities: {priority: high-first, unknown-fields: refused}\n")
	dir := newRunDir(t)
	newShell(t).do(codePartial, "run", taskFile(t, 1, ""), "-c", file, "--max-attempts", "1", "-o", dir, "-q")
	v.ill.Store(false)
	newShell(t).do(codeOK, "resume", dir, "--retry-failed", "-q")
	if c := recordIn(t, dir); c.Priority.Value != inference.HighFirst || c.Priority.Proof != inference.Set {
		t.Errorf("%+v", c.Priority)
	}
	for _, r := range v.Chats() {
		if r.Field("return_token_ids") != nil {
			t.Errorf("a field went out that is said to be refused: %s", r.Body)
		}
	}
}

// A server that answers nothing but 429 is named once, with what it asks for, and the row says what it waited for.
func TestRunTellsOfA429(t *testing.T) {
	server := mock.New(t, mock.Config{Chat: func(_ *mock.Request, w *mock.Reply) {
		w.Header("Retry-After", "1")
		w.JSON(429, `{"error":{"message":"slow down"}}`)
	}})
	dir := newRunDir(t)
	s := newShell(t)
	s.do(codePartial, "run", taskFile(t, 3, ""), "--endpoint", server.URL(), "--max-attempts", "2", "--episode-timeout", "2s", "--no-logprobs", "--no-token-ids", "-o", dir)
	if said := s.err.String(); strings.Count(said, "refuses calls with HTTP 429 and asks for 1s (Retry-After)") != 1 {
		t.Errorf("not told once:\n%s", said)
	}
	if row := rowsIn(t, dir)["t0/0"]; !strings.Contains(or(row.FaultDetail, ""), "rate_limited") {
		t.Errorf("the fault does not name its class: %q", or(row.FaultDetail, ""))
	}
}

// The first request of a probe obeys its times as the others do.
func TestProbeOfAServerThatHangsEndsInTime(t *testing.T) {
	server := mock.New(t, mock.Config{Routes: map[string]mock.Handler{"GET /v1/models": func(_ *mock.Request, w *mock.Reply) { w.Hang() }}})
	for _, flag := range []string{"--call-timeout", "--timeout"} {
		began := time.Now()
		s := newShell(t)
		s.do(codeEndpoint, "probe", flag, "300ms", server.URL())
		if took := time.Since(began); took > time.Minute || !strings.Contains(s.err.String(), "does not answer") {
			t.Errorf("%s 300ms: %v\n%s", flag, took, s.err.String())
		}
	}
}
