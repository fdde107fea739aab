package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// settingsOf parses a command line as `tranche run` would, without running it.
func settingsOf(t *testing.T, args ...string) (Settings, error) {
	t.Helper()
	a := &app{stdout: os.Stderr, stderr: os.Stderr}
	inv, done, err := a.parse(append([]string{"run"}, args...))
	if err != nil {
		return Settings{}, err
	}
	if done {
		t.Fatal("the command line asked for help")
	}
	set, _, err := inv.cli.Run.settings(inv.given)
	return set, err
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlagsWinOverFileOverDefaults(t *testing.T) {
	file := write(t, "run.yaml", `
tasks: tasks.jsonl
samples: 8
temperature: 0.5
max_tokens: 300        # - and _ are the same
logprobs: false
stop: ["\n\nQuestion:", "<|im_end|>"]
drain-timeout: 1m30s
part-bytes: 64MiB
extra-body: {min_tokens: 3, ignore_eos: true, nested: {a: [1, 2.5, null, "x"]}}
`)
	s, err := settingsOf(t, "-c", file, "-n", "4", "--temperature", "0")
	if err != nil {
		t.Fatal(err)
	}
	check := func(name string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	check("samples (flag)", s.Samples, 4)
	check("temperature (flag, zero)", *s.Temperature, 0.0)
	check("max-tokens (file)", s.MaxTokens, 300)
	check("logprobs (file)", s.Logprobs, false)
	check("token-ids (default)", s.TokenIDs, true)
	check("stop (file)", s.Stop, []string{"\n\nQuestion:", "<|im_end|>"})
	check("drain-timeout", s.DrainTimeout, 90*time.Second)
	check("part-bytes", s.PartBytes, Bytes(64<<20))
	check("top-p (nobody)", s.TopP, (*float64)(nil))
	check("max-turns (default)", s.MaxTurns, 16)
	check("extra-body", string(s.ExtraBody["nested"]), `{"a":[1,2.5,null,"x"]}`)
	check("tasks are relative to the file", s.Tasks, []string{filepath.Join(filepath.Dir(file), "tasks.jsonl")})
}

func TestTasksOnTheCommandLineWin(t *testing.T) {
	file := write(t, "run.yaml", "tasks: [a.jsonl, b.jsonl]\n")
	s, err := settingsOf(t, "-c", file, "here.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"here.jsonl"}; !reflect.DeepEqual(s.Tasks, want) {
		t.Errorf("tasks = %q, want %q", s.Tasks, want)
	}
}

func TestEndpointForms(t *testing.T) {
	t.Setenv("KEY_B", "secret")
	file := write(t, "run.yaml", `
tasks: x.jsonl
endpoint:
  - http://a:8000/v1
  - {url: http://b:8000/v1, model: big, api_key_env: KEY_B, context: 4096, kv_tokens: 100000, concurrency: 32, extra_body: {cache_salt: x}}
`)
	s, err := settingsOf(t, "-c", file)
	if err != nil {
		t.Fatal(err)
	}
	want := []Endpoint{
		{URL: "http://a:8000/v1"},
		{URL: "http://b:8000/v1", Model: "big", APIKeyEnv: "KEY_B", Context: 4096, KVTokens: 100000, Concurrency: 32, ExtraBody: Object{"cache_salt": []byte(`"x"`)}},
	}
	if !reflect.DeepEqual(s.Endpoint, want) {
		t.Errorf("endpoints = %+v, want %+v", s.Endpoint, want)
	}
	if s, err = settingsOf(t, "x.jsonl", "--endpoint", "http://a:1/v1", "--endpoint", "http://b:1/v1"); err != nil || len(s.Endpoint) != 2 {
		t.Errorf("two flags gave %v, %v", s.Endpoint, err)
	}
}

func TestRewardForms(t *testing.T) {
	file := write(t, "run.yaml", "tasks: x\nreward:\n  - {kind: numeric, marker: '####', weight: 0.8}\n  - exact\n")
	s, err := settingsOf(t, "-c", file)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Reward) != 2 || s.Reward[0].Kind != "numeric" || s.Reward[0].Marker != "####" || *s.Reward[0].Weight != 0.8 || s.Reward[1].Kind != "exact" {
		t.Errorf("rewards = %+v", s.Reward)
	}
}

// Every fault of a file comes with its place, and all of them at once.
func TestFileFaultsNameTheirPlace(t *testing.T) {
	cases := []struct {
		name, text string
		want       []string
	}{
		{"unknown key", "tasks: x\ntemprature: 1\n", []string{`:2:1: unknown key "temprature"; did you mean "temperature"?`}},
		{"far from any key", "qqqqqqqqqq: 1\n", []string{`:1:1: unknown key "qqqqqqqqqq"; ` + "`tranche run --help` lists the keys"}},
		{"text for a number", "samples: many\n", []string{`:1:10: samples: expected a whole number, found the text "many"`}},
		{"fraction for a whole number", "samples: 1.5\n", []string{`:1:10: samples: expected a whole number, found the number 1.5`}},
		{"number for a time", "drain-timeout: 30\n", []string{`:1:16: drain-timeout: expected a time with its unit such as 30s, 5m or 1h30m, found the number 30`}},
		{"number for a text", "model: 70\n", []string{`:1:8: model: expected a text, found the number 70; put it in quotes: "70"`}},
		{"text for a switch", "stream: sure\n", []string{`:1:9: stream: expected true or false, found the text "sure"`}},
		{"list for a number", "seed: [1]\n", []string{`:1:7: seed: expected a whole number, found a list`}},
		{"nothing", "samples:\ntasks: x\n", []string{`:1:9: samples: expected a whole number, found nothing`}},
		{"size", "part-bytes: lots\n", []string{`:1:13: part-bytes: expected a size such as 256MiB or 64KiB, found "lots"`}},
		{"key in the file", "api_key: sk-verysecret\n", []string{`:1:1: api-key: a key must not stand in a file`}},
		{"endpoint without url", "endpoint:\n  - {model: m}\n", []string{`endpoint: url: is missing`}},
		{"endpoint with an unknown field", "endpoint:\n  - {url: http://a:1, modle: m}\n", []string{`:2:23: endpoint: unknown key "modle"; did you mean "model"?`}},
		{"key inside an endpoint", "endpoint: {url: http://a:1, api-key: sk-verysecret}\n", []string{`endpoint: api-key: a key must not stand in a file`}},
		{"reward without kind", "reward: [{weight: 1}]\n", []string{`reward: kind: is missing`}},
		{"the same key twice", "max-tokens: 1\nmax_tokens: 2\n", []string{`:2:1: max-tokens is given twice`}},
		{"template without quotes", "prompt: {{.question}}\n", []string{`:1:`, `a template must stand in quotes`}},
		{"broken syntax", "tasks: [a\n", []string{`:1:`}},
		{"a list at the top", "- a\n- b\n", []string{`:1:1: expected a map of settings`}},
		{"two documents", "a: 1\n---\nb: 2\n", []string{`2 YAML documents`}},
		{"an alias that holds itself", "extra-body: {a: &x [*x]}\n", []string{`an alias holds itself`}},
		{"an unknown alias", "samples: *nobody\n", []string{`found the unknown alias *nobody`}},
		{"three faults at once", "samples: x\nfoo: 1\nseed: y\n", []string{`:1:10: samples`, `:2:1: unknown key "foo"`, `:3:7: seed`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, "run.yaml", c.text)
			_, err := settingsOf(t, "-c", file)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
			if !strings.Contains(err.Error(), file) {
				t.Errorf("error does not name the file:\n%v", err)
			}
			if strings.Contains(err.Error(), "verysecret") {
				t.Errorf("error repeats a secret:\n%v", err)
			}
		})
	}
}

// All faults of the values come at once too, one line each, and none repeats a secret.
func TestValueFaultsAllAtOnce(t *testing.T) {
	_, err := settingsOf(t, "-n", "0", "--top-p", "1.5", "--min-useful", "0", "--endpoint", "http://u:hunter2@h:1/v1", "--endpoint", "ftp://x",
		"--api-key-env", "sk-abc-123", "--classes", "512,512", "--attempt-timeout", "0s")
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"tasks: no task file", "samples: expected 1", "top-p: expected 0 to 1, found 1.5", "min-useful", "would be stored", `found "ftp://x"`,
		"NAME of an environment variable", "classes: class bounds must ascend", "attempt-timeout"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("lacks %q:\n%v", want, err)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 9 {
		t.Errorf("%d lines, want 9:\n%v", n, err)
	}
	for _, secret := range []string{"hunter2", "sk-abc"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("repeats the secret %q:\n%v", secret, err)
		}
	}
}

func TestAPIKeyComesOnlyFromANamedVariable(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	if _, err := settingsOf(t, "x", "--api-key-env", "OPENAI_API_KEY"); err == nil || !strings.Contains(err.Error(), "OPENAI_API_KEY is not set") {
		t.Errorf("an empty variable: %v", err)
	}
	for _, args := range [][]string{{"x", "--api-key", "sk-verysecret"}, {"x", "--api-key=sk-verysecret"}} {
		_, err := settingsOf(t, args...)
		if err == nil || !strings.Contains(err.Error(), "--api-key-env NAME") || strings.Contains(err.Error(), "verysecret") {
			t.Errorf("%v: %v", args[1:], err)
		}
	}
}

func TestEverySettingIsDocumented(t *testing.T) {
	typ := reflect.TypeFor[Settings]()
	names := map[string]bool{}
	for _, k := range keys() {
		f := typ.Field(k.index)
		if names[k.name] {
			t.Errorf("%s: two keys of that name", k.name)
		}
		names[k.name] = true
		switch k.scope {
		case scopeResult, scopeOperation, scopeSession:
		default:
			t.Errorf("%s: scope is %q", k.name, k.scope)
		}
		if k.name == "tasks" {
			continue
		}
		help := f.Tag.Get("help")
		if help == "" || !strings.HasSuffix(help, ".") || f.Tag.Get("group") == "" {
			t.Errorf("%s: help %q, group %q", k.name, help, f.Tag.Get("group"))
		}
		if f.Type.Kind() != reflect.Bool && !strings.Contains(help, "Default:") {
			t.Errorf("%s: help does not tell the default", k.name)
		}
	}
	for _, want := range []string{"json", "id", "token-ids", "api-key-env", "kv-budget", "max-episode-tokens", "stop-on-failed-share"} {
		if !names[want] {
			t.Errorf("no key %q", want)
		}
	}
}

// What run.yaml holds gives back the settings it was written from, whatever text is in them.
func TestRunFileRoundTrip(t *testing.T) {
	dir := t.TempDir()
	base := defaults()
	rapid.Check(t, func(rt *rapid.T) {
		s := base
		text := rapid.String()
		s.Prompt, s.System, s.Name = text.Draw(rt, "prompt"), text.Draw(rt, "system"), text.Draw(rt, "name")
		s.Stop = rapid.SliceOfN(text, 1, 4).Draw(rt, "stop")
		s.Tasks = []string{"/" + text.Draw(rt, "task")}
		s.Samples = rapid.Int().Draw(rt, "samples")
		s.Seed = rapid.Int64().Draw(rt, "seed")
		s.Temperature = ptrTo(rapid.Float64Range(0, 1e6).Draw(rt, "temperature"))
		s.EngineSolveRate = rapid.Float64Range(0, 1).Draw(rt, "rate")
		s.PartBytes = Bytes(rapid.Int64Range(0, 1<<50).Draw(rt, "bytes"))
		s.DrainTimeout = time.Duration(rapid.Int64Range(0, 1<<60).Draw(rt, "drain"))
		s.Logprobs = rapid.Bool().Draw(rt, "logprobs")
		s.ExtraBody = Object{"k" + rapid.StringMatching(`[a-z]*`).Draw(rt, "k"): encode(text.Draw(rt, "v"))}
		s.Endpoint = []Endpoint{{URL: "http://" + text.Draw(rt, "url"), Concurrency: rapid.IntRange(0, 99).Draw(rt, "c")}}
		file := runFile{RunID: "0123456789abcdef", Digest: "d", TasksDigest: text.Draw(rt, "digest"), TasksCount: 3, Created: time.Unix(1e9, 0).UTC(), Settings: s}
		var got runFile
		path := filepath.Join(dir, runFileName)
		if err := os.WriteFile(path, file.bytes(), 0o644); err != nil {
			rt.Fatal(err)
		}
		if err := got.parse(path, file.bytes()); err != nil {
			rt.Fatalf("%v\n%s", err, file.bytes())
		}
		was, is := identity(&file.Settings, file.TasksDigest, nil), identity(&got.Settings, got.TasksDigest, nil)
		if c := changes(was, is); len(c) > 0 {
			rt.Fatalf("changed: %+v\n%s", c, file.bytes())
		}
		for _, k := range keys() {
			if k.scope != scopeSession && !reflect.DeepEqual(file.Settings.field(k).Interface(), got.Settings.field(k).Interface()) {
				rt.Fatalf("%s: wrote %#v, read %#v\n%s", k.name, file.Settings.field(k).Interface(), got.Settings.field(k).Interface(), file.bytes())
			}
		}
	})
}

func ptrTo[T any](v T) *T { return &v }

// The id changes with every result key and with no other.
func TestRunIDDependsOnResultKeysAlone(t *testing.T) {
	base := defaults()
	base.Endpoint = []Endpoint{{URL: "http://a:1/v1"}}
	id := func(s Settings, tasks, model string) string {
		return runIDOf(digestOf(identity(&s, tasks, []string{model})))
	}
	was := id(base, "t", "m")
	if !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(was) {
		t.Fatalf("id is %q", was)
	}
	for _, k := range keys() {
		s := base
		v := s.field(k)
		switch v.Interface().(type) {
		case string:
			v.SetString("other")
		case bool:
			v.SetBool(!v.Bool())
		case int, int64, Bytes, time.Duration:
			v.SetInt(v.Int() + 7)
		case float64:
			v.SetFloat(v.Float() + 0.01)
		case *float64:
			v.Set(reflect.ValueOf(ptrTo(0.25)))
		case *int:
			v.Set(reflect.ValueOf(ptrTo(3)))
		case []string:
			v.Set(reflect.ValueOf([]string{"other"}))
		case []int:
			v.Set(reflect.ValueOf([]int{99}))
		case []Endpoint:
			v.Set(reflect.ValueOf([]Endpoint{{URL: "http://b:2/v1", Concurrency: 3}}))
		case RewardSpecs:
			v.Set(reflect.ValueOf(RewardSpecs{{Kind: "exact"}}))
		case Object:
			v.Set(reflect.ValueOf(Object{"a": []byte("1")}))
		case CommandTools:
			v.Set(reflect.ValueOf(CommandTools{{Name: "x"}}))
		case HTTPTools:
			v.Set(reflect.ValueOf(HTTPTools{{Name: "x"}}))
		case MCPServers:
			v.Set(reflect.ValueOf(MCPServers{{Name: "x"}}))
		case Calls:
			v.Set(reflect.ValueOf(Calls{Format: "fenced"}))
		case Pairs:
			v.SetString("a=1")
		case PromptVariants:
			v.Set(reflect.ValueOf(PromptVariants{{Name: "x"}}))
		case SandboxSpec:
			v.Set(reflect.ValueOf(SandboxSpec{Net: true}))
		default:
			t.Fatalf("%s: the test does not know the type %s", k.name, v.Type())
		}
		changed := id(s, "t", "m") != was
		engine := strings.HasPrefix(k.name, "engine-") // with endpoints nobody asks the embedded engine
		want := k.scope == scopeResult && k.name != "model" && !engine
		if changed != want {
			t.Errorf("%s (%s): id changed = %v", k.name, k.scope, changed)
		}
	}
	if id(base, "other tasks", "m") == was || id(base, "t", "other model") == was {
		t.Error("the id does not depend on the tasks or the model")
	}
	embedded := base
	embedded.Endpoint = nil
	first := id(embedded, "t", "m")
	embedded.EngineSeed++
	if first == was || id(embedded, "t", "m") == first {
		t.Error("the id does not depend on the embedded engine")
	}
}

func TestRefusalNamesEveryChangedKey(t *testing.T) {
	was := defaults()
	is := was
	is.Temperature, is.Samples = ptrTo(0.7), 3
	err := refuseChanges("runs/x", changes(identity(&was, "t", nil), identity(&is, "t2", nil)))
	if codeOf(err) != codeRefused {
		t.Fatalf("status %d: %v", codeOf(err), err)
	}
	for _, want := range []string{"temperature: was (none), now 0.7", "samples: was 1, now 3", "tasks (content): was t, now t2", "tranche resume runs/x"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("lacks %q:\n%v", want, err)
		}
	}
}

func TestByteSizes(t *testing.T) {
	for text, want := range map[string]Bytes{"0": 0, "12": 12, "64KiB": 64 << 10, "1.5 MiB": 3 << 19, "2GB": 2e9, "7B": 7} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%q = %d, %v; want %d", text, b, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "1XB", "NaN", "1e30GiB"} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was taken as %d", text, b)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		b := Bytes(rapid.Int64Range(0, 1<<52).Draw(rt, "b"))
		var back Bytes
		if err := back.UnmarshalText([]byte(b.String())); err != nil || back != b {
			rt.Fatalf("%d → %s → %d, %v", b, b, back, err)
		}
	})
}

func FuzzSettingsFile(f *testing.F) {
	f.Add("tasks: x\nsamples: 3\n")
	f.Add("endpoint: [{url: a, extra-body: {a: &x [1], b: *x}}]\nreward: [{kind: exact}]\n")
	f.Add("extra-body: {a: &x [*x]}\n")
	f.Add("stop: [\"\\n\", |\n  a\n]\n? x\n: y\n")
	f.Add("run-id: x\nsettings:\n  seed: 1\n")
	base := defaults()
	path := filepath.Join(f.TempDir(), "fuzz.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := base
		if _, err := readSettings(path, &s, nil); err != nil && !strings.HasPrefix(err.Error(), path) {
			t.Errorf("a fault without its file: %v", err)
		}
	})
}

// An endpoint that pads is told so by a flag for all of them or by its own keys, which win.
func TestPaddedEndpoints(t *testing.T) {
	file := write(t, "run.yaml", `
tasks: tasks.jsonl
padded: 16
endpoint:
  - http://a:1/v1
  - {url: "http://b:1/v1", batching: continuous}
  - {url: "http://c:1/v1", rows: 8}
  - {url: "http://d:1/v1", batching: shaped, shapes: [128, 256]}
`)
	s, err := settingsOf(t, "-c", file)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		rows   int
		shapes []int
	}{{16, nil}, {0, nil}, {8, nil}, {16, []int{128, 256}}}
	for i, e := range s.Endpoint {
		if rows, shapes := e.padded(s.Padded); rows != want[i].rows || !reflect.DeepEqual(shapes, want[i].shapes) {
			t.Errorf("%s: %d rows, shapes %v, expected %v", e.URL, rows, shapes, want[i])
		}
	}
	bad := write(t, "bad.yaml", `
tasks: tasks.jsonl
endpoint:
  - {url: "http://a:1/v1", batching: dynamic}
  - {url: "http://b:1/v1", batching: static}
  - {url: "http://c:1/v1", batching: continuous, rows: 4}
  - {url: "http://d:1/v1", batching: shaped, rows: 4, shapes: [256, 128]}
  - {url: "http://e:1/v1", batching: shaped, rows: 4}
`)
	_, err = settingsOf(t, "-c", bad)
	for _, part := range []string{`endpoint[0]: batching: expected`, "endpoint[1]: rows: is missing", "endpoint[2]: rows: 4", "endpoint[3]: shapes: expected rising", "endpoint[4]: shapes: is missing"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
}
