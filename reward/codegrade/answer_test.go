package codegrade

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTheProgramInAnAnswer(t *testing.T) {
	cases := []struct {
		name, text, want string
		found            bool
	}{
		{"none", "just words", "", false},
		{"one", "so:\n```python\nx = 1\n```\nthat is it", "x = 1\n", true},
		{"the last", "```python\nx = 1\n```\nno:\n```python\nx = 2\n```", "x = 2\n", true},
		{"output behind it", "```python\nx = 1\n```\nprints\n```text\n1\n```", "x = 1\n", true},
		{"unmarked output behind it", "```python\nx = 1\n```\nOutput:\n```\n1\n```", "x = 1\n", true},
		{"unmarked output before it", "```\n1\n```\nby\n```py3\nx = 1\n```", "x = 1\n", true},
		{"unmarked, and another language behind it", "```\nx = 1\n```\n```text\n1\n```", "x = 1\n", true},
		{"only another language", "```c\nint x;\n```", "int x;\n", true},
		{"unmarked", "```\nx = 1\n```", "x = 1\n", true},
		{"not closed", "```py\nx = 1\n", "x = 1\n", true},
		{"longer fence around one", "````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''\n", true},
		{"tildes", "~~~python\nx\n~~~", "x\n", true},
		{"indented", "  ```python\n  x = 1\n  ```", "  x = 1\n", true},
		{"inline is none", "```x = 1``` is code", "", false},
		{"attributes", "```{.python}\nx\n```", "x\n", true},
		{"empty", "```python\n```", "", true},
		{"windows line ends", "```python\r\nx = 1\r\n```\r\n", "x = 1\r\n", true},
	}
	for _, c := range cases {
		if got, found := fenced(c.text, pythonMarks()...); got != c.want || found != c.found {
			t.Errorf("%s: %q, %v, want %q, %v", c.name, got, found, c.want, c.found)
		}
	}
}

func FuzzFences(f *testing.F) {
	f.Add("```python\nx\n```\n", "~~~\n")
	f.Fuzz(func(t *testing.T, before, code string) {
		if got, ok := fenced(before, pythonMarks()...); ok && !strings.Contains(before, got) {
			t.Fatalf("%q is no part of %q", got, before)
		}
		if strings.ContainsAny(code, "`~\r") || strings.ContainsAny(before, "`~") {
			return
		}
		got, ok := fenced(before+"\n```python\n"+code+"\n```", pythonMarks()...)
		if !ok || got != code+"\n" {
			t.Fatalf("%q, %v, want %q", got, ok, code)
		}
	})
}

func TestWhatAProgramToldIsCutAtARune(t *testing.T) {
	for n := range 5 {
		for _, r := range []string{"x", "é", "€", "𝄞"} {
			s := strings.Repeat("a", n) + strings.Repeat(r, 61)
			got := clip(s)
			if !utf8.ValidString(got) || !strings.HasPrefix(s, got) || len(got) > 60 || len(got) < 57 {
				t.Errorf("%d and %s: %d bytes, %q", n, r, len(got), got)
			}
		}
	}
	if got := clip("aé"); got != "aé" {
		t.Errorf("%q, want all of it", got)
	}
}

func TestPromptAndAnswerAreJoined(t *testing.T) {
	const prompt = "import math\n\n\ndef f(x):\n    \"\"\"Doc.\"\"\"\n"
	s := &suite{form: FormAsserts, entry: "f", prompt: prompt}
	for _, c := range []struct{ name, join, text, want string }{
		{"goes on", "auto", "    return x\n", prompt + "    return x\n"},
		{"whole function", "auto", "def f(x):\n    return x\n", prompt + "    pass\ndef f(x):\n    return x\n"},
		{"never", "never", "    return x\n", "    return x\n"},
	} {
		got, ok := Options{Extract: "all", Join: c.join}.program(c.text, s)
		if !ok || got != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	words := &suite{form: FormAsserts, entry: "f", prompt: "Write a function f."}
	if got, _ := (Options{Extract: "all", Join: "auto"}).program("def f(x): pass", words); got != "def f(x): pass" {
		t.Errorf("a prompt in words went into the program: %q", got)
	}
}
