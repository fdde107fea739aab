package inference

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

func decodeText(t testing.TB, lit string) string {
	t.Helper()
	var s text
	if err := json.Unmarshal([]byte(lit), &s); err != nil {
		t.Fatalf("%s: %v", lit, err)
	}
	return string(s)
}

func TestTextRepair(t *testing.T) {
	for name, c := range map[string]struct {
		pieces []string // JSON literals, as they come
		want   string
		broken bool
	}{
		"plain":                           {[]string{`"abc"`}, "abc", false},
		"escapes":                         {[]string{`"\"\\\/\b\f\n\r\tAé"`}, "\"\\/\b\f\n\r\tAé", false},
		"pair":                            {[]string{`"\ud83d\ude00"`}, "😀", false},
		"lone high":                       {[]string{`"a\ud83db"`}, "a\uFFFDb", true},
		"lone low":                        {[]string{`"\ude00"`}, "\uFFFD", true},
		"two highs then low":              {[]string{`"\ud83d\ud83d\ude00"`}, "\uFFFD😀", true},
		"pair split over two pieces":      {[]string{`"a\ud83d"`, `"\ude00b"`}, "a😀b", false},
		"raw bytes split over two pieces": {[]string{"\"\xF0\"", "\"\x9F\x98\x80\""}, "😀", false},
		"raw bytes that stay broken":      {[]string{"\"\xF0\x9F\""}, "\uFFFD\uFFFD", true},
		"high surrogate at the very end":  {[]string{`"x\ud800"`}, "x\uFFFD", true},
		"the server's own U+FFFD":         {[]string{`"\ufffd"`}, "\uFFFD", false},
		"a list":                          {[]string{`[{"text":"a"}]`}, `[{"text":"a"}]`, false},
		"an object":                       {[]string{`{"q":"x"}`}, `{"q":"x"}`, false},
		"null":                            {[]string{`null`}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			var joined string
			for _, p := range c.pieces {
				joined += decodeText(t, p)
			}
			got, broken := repair(joined)
			if got != c.want || broken != c.broken {
				t.Fatalf("got %q broken %v, want %q broken %v", got, broken, c.want, c.broken)
			}
		})
	}
}

// FuzzText: whatever a JSON string holds, the repaired text is valid UTF-8, and it is what encoding/json makes of it
// wherever nothing is broken.
func FuzzText(f *testing.F) {
	for _, s := range []string{`"a"`, `"\ud83d\ude00"`, `"\ud83d"`, "\"\xff\"", `"é\n"`, `"\ud83d\u0041"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, lit []byte) {
		var std string
		if len(lit) == 0 || lit[0] != '"' || json.Unmarshal(lit, &std) != nil {
			t.Skip()
		}
		got, broken := repair(decodeText(t, strings.TrimSpace(string(lit))))
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not valid UTF-8", got)
		}
		if !broken && got != std {
			t.Fatalf("%s: got %q, encoding/json says %q", lit, got, std)
		}
	})
}

func TestNumbersThatJSONDoesNotKnow(t *testing.T) {
	var got struct {
		A, B, C *nats
		S       string
	}
	if err := decode([]byte(`{"a":-Infinity,"b":NaN,"c":-0.5,"s":"NaN -Infinity \" NaN"}`), &got); err != nil {
		t.Fatal(err)
	}
	if a := logprob(got.A); !a.Known || !math.IsInf(float64(a.Value), -1) {
		t.Fatalf("-Infinity became %+v", a)
	}
	if b, c := logprob(got.B), logprob(got.C); b.Known || !c.Known || c.Value != -0.5 {
		t.Fatalf("NaN became %+v, -0.5 became %+v", b, c)
	}
	if got.S != `NaN -Infinity " NaN` {
		t.Fatalf("a string was changed: %q", got.S)
	}
}
