package action

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tranche/episode"
)

func secretsOf(values ...string) (s Secrets) {
	for _, v := range values {
		s.add(v)
	}
	return s
}

func TestSecretsAreTakenOut(t *testing.T) {
	for _, c := range []struct {
		name          string
		secrets       []string
		text          string
		before, after bool // it was cut there
		want          string
	}{
		{name: "each time", secrets: []string{"hunter2"}, text: "hunter2, hunter2hunter2", want: "[secret], [secret][secret]"},
		{name: "one that begins with another", secrets: []string{"abc", "abcdef"}, text: "abcdef abc", want: "[secret] [secret]"},
		{name: "one in the middle of another", secrets: []string{"cd", "abcdef"}, text: "abcdef", want: "[secret]"},
		{name: "one over the end of another", secrets: []string{"abcd", "cdef"}, text: "-abcdef-", want: "-[secret]-"},
		{name: "one over itself", secrets: []string{"aaaa"}, text: "baaaaaab", want: "b[secret]b"},
		{name: "cut behind", secrets: []string{"hunter2"}, text: "so hunter", after: true, want: "so [secret]"},
		{name: "cut before", secrets: []string{"hunter2"}, text: "nter2 so", before: true, want: "[secret] so"},
		{name: "cut behind one and in the next", secrets: []string{"abcdab"}, text: "abcdabcdab", after: true, want: "[secret]"},
		{name: "cut, with too little left to tell", secrets: []string{"hunter2"}, text: "r2 so hun", before: true, after: true, want: "r2 so hun"},
		{name: "not cut", secrets: []string{"hunter2"}, text: "nter2 so hunter", want: "nter2 so hunter"},
		{name: "as PHP writes it", secrets: []string{"ab/cd+Ef<12>"}, text: `{"you":"ab\/cd+Ef<12>"}`, want: `{"you":"[secret]"}`},
		{name: "as Python writes it", secrets: []string{"schlüssel"}, text: `"schl\u00fcssel"`, want: `"[secret]"`},
		{name: "none", text: "hunter2", want: "hunter2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := secretsOf(c.secrets...).redactPart(c.text, c.before, c.after); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// An error whose text is hidden is the same error.
func TestHiddenErrorsAreTheSame(t *testing.T) {
	err := secretsOf("hunter2").Hide(&fs.PathError{Op: "open", Path: "hunter2", Err: fs.ErrNotExist})
	if strings.Contains(err.Error(), "hunter2") || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if (Secrets{}).Hide(nil) != nil || secretsOf("x").Hide(nil) != nil {
		t.Error("no error became one")
	}
}

// What a program gets by name stands in nothing that it says, on whatever way; short values and paths of what is there are no secrets.
func TestCommandKeepsItsKeys(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("ITS_KEY", `hunter2"x`)
	t.Setenv("ITS_MODE", "debug")
	t.Setenv("ITS_FOLDER", folder)
	for _, c := range []struct{ name, script, output, status, text string }{
		{name: "output", script: `printf %s "$ITS_KEY $ITS_MODE $ITS_FOLDER"`, status: episode.ActionOK, text: "[secret] debug " + folder},
		{name: "standard error", script: `echo "no $ITS_KEY" >&2; exit 1`, status: episode.ActionError, text: "[secret]"},
		{name: "a failure", script: `echo "no $ITS_KEY" >&2; exit 75`, status: episode.ActionHarness, text: "[secret]"},
		{name: "a signal", script: `echo "no $ITS_KEY" >&2; kill -SEGV $$`, status: episode.ActionHarness, text: "[secret]"},
		{name: "json", output: OutputJSON, script: `echo '{"text":"hunter2\"x","submitted":"hunter2\u0022x"}'`, status: episode.ActionOK, text: "[secret]"},
		{name: "a json error", output: OutputJSON, script: `echo '{"error":"hunter2\"x"}'`, status: episode.ActionError, text: "error: [secret]"},
		{name: "json it is not", output: OutputJSON, script: `echo '{"hunter2\"x":1}'`, status: episode.ActionHarness, text: "wrote no object"},
		{name: "cut in the middle", script: `head -c 524285 /dev/zero | tr '\0' x; printf %s "$ITS_KEY"; head -c 2000000 /dev/zero | tr '\0' y`, status: episode.ActionOK, text: "bytes cut"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{MaxObservationBytes: 4 << 20}
			o := called(t, cfg, shell(t, c.script, func(cfg *CommandConfig) {
				cfg.Env, cfg.Output = []string{"ITS_KEY", "ITS_MODE", "ITS_FOLDER"}, c.output
			}), `{}`)
			all := o.Text
			if o.Submitted != nil {
				all += *o.Submitted
			}
			if o.Fault != nil {
				all += o.Fault.Error()
			}
			if o.Status != c.status || !strings.Contains(all, c.text) || strings.Contains(all, "hunt") {
				t.Errorf("observed %s %.300q, want %s with %q", o.Status, all, c.status, c.text)
			}
		})
	}
}

// An answer that is cut in the middle of a key shows no part of it.
func TestHTTPToolKeepsPartsOfItsKey(t *testing.T) {
	t.Setenv("WEB_KEY", "hunter2")
	tool := webTool(t, "/", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("it is hunter2")) }, func(cfg *HTTPConfig) {
		cfg.MaxBytes, cfg.Headers = int64(len("it is hunter")), map[string]string{"Authorization": "${WEB_KEY}"}
	})
	if o := called(t, Config{}, tool, `{"q":"x"}`); o.Text != "it is [secret]" || !o.Truncated {
		t.Errorf("observed %q, truncated %v", o.Text, o.Truncated)
	}
}

// A variable is a secret unless it is short or the path of something that is there.
func TestVariablesThatAreSecret(t *testing.T) {
	there := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]bool{"": false, "debug": false, "hunter": true, there: false, there + "2": true, "secrets_test.go": true} {
		var s Secrets
		if s.addVariable(value); (len(s.values) == 1) != want {
			t.Errorf("%q is secret: %v, want %v", value, !want, want)
		}
	}
}
