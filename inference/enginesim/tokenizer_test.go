package enginesim

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestTokenizerRoundTrip(t *testing.T) {
	tok := NewTokenizer()
	for name, text := range map[string]string{
		"empty":            "",
		"english":          "What is 12 * (3 + 4)? Let me work this out step by step.",
		"digits":           "1234567 0042",
		"json":             `{"name": "calculator", "arguments": {"expression": "1 + 2"}}`,
		"unicode":          "naïve 🙂 日本語",
		"broken utf-8":     "a\xff\xfe\x80b",
		"special tokens":   "<|im_start|>user\nhi<|im_end|>",
		"half a special":   "<|im_sta <|im_end| <|endoftext|><|",
		"nul and controls": "\x00\x01\r\n\t",
	} {
		t.Run(name, func(t *testing.T) {
			for kind, ids := range map[string][]int32{"Encode": tok.Encode(text), "EncodePlain": tok.EncodePlain(text)} {
				if got := tok.Decode(ids); got != text {
					t.Errorf("Decode(%s(x)) = %q, want %q", kind, got, text)
				}
				if err := tok.Check(ids); err != nil {
					t.Errorf("%s: %v", kind, err)
				}
			}
		})
	}
}

func TestTokenizerSpecials(t *testing.T) {
	tok := NewTokenizer()
	if got := tok.Encode("<|im_start|>a<|im_end|>"); !slices.Equal(got, []int32{imStart, 'a', imEnd}) {
		t.Errorf("Encode = %v", got)
	}
	for _, id := range tok.EncodePlain("<|im_start|>a<|im_end|>") {
		if special(id) {
			t.Errorf("EncodePlain made special token %d of user text", id)
		}
	}
}

func TestTokenizerCompresses(t *testing.T) {
	tok := NewTokenizer()
	text := "Each student in the class has three books and two pencils, how many items are there together?"
	if n := len(tok.EncodePlain(text)); n > len(text)/3 {
		t.Errorf("%d bytes of English became %d tokens, want at most a third", len(text), n)
	}
}

// An encoding cut after any token encodes to the same cut: what a length limit cut off can be sent back exactly.
func TestTokenizerCutsStable(t *testing.T) {
	tok := NewTokenizer()
	d := newDice(1)
	p := testPolicy(tok)
	for range 50 {
		ids := tok.EncodePlain(p.prose(d, 40) + callText("calculator", `{"expression": "12 + 345 * 6"}`))
		for n := range ids {
			if got := tok.EncodePlain(tok.Decode(ids[:n])); !slices.Equal(got, ids[:n]) {
				t.Fatalf("cut after %d tokens encodes to %v, want %v", n, got, ids[:n])
			}
		}
	}
}

func TestTokenizerCheck(t *testing.T) {
	tok := NewTokenizer()
	for _, bad := range []int32{-1, int32(tok.Size()), 1 << 30} {
		if err := tok.Check([]int32{1, bad}); err == nil || !strings.Contains(err.Error(), "position 1") {
			t.Errorf("Check(%d) = %v, want an error that names position 1", bad, err)
		}
	}
}

func FuzzTokenizer(f *testing.F) {
	tok := NewTokenizer()
	f.Add([]byte("hello <|im_end|> 123\xff"))
	f.Add([]byte("<tool_call>\n{\"name\": \"x\"}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		text := string(b)
		if got := tok.Decode(tok.Encode(text)); got != text {
			t.Fatalf("Decode(Encode(%q)) = %q", text, got)
		}
		ids := tok.EncodePlain(text)
		if got := tok.Decode(ids); got != text {
			t.Fatalf("Decode(EncodePlain(%q)) = %q", text, got)
		}
		n := len(ids) / 2
		if got := tok.EncodePlain(tok.Decode(ids[:n])); !slices.Equal(got, ids[:n]) {
			t.Fatalf("cut of %q is not stable", text)
		}
	})
}

func testPolicy(tok *Tokenizer) *policy {
	return &policy{tokens: tok, words: strings.Fields(commonWords), solve: 0.7, mean: 60, sigma: 0.6}
}

func BenchmarkEncode(b *testing.B) {
	tok := NewTokenizer()
	text := testPolicy(tok).prose(newDice(7), 8000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tok.EncodePlain(text)
	}
}

func randomText(r *rand.Rand, n int) string {
	const letters = "abc <|>_{}\":,\n/toolcal123 é🙂"
	runes := []rune(letters)
	out := make([]rune, r.IntN(n+1))
	for i := range out {
		out[i] = runes[r.IntN(len(runes))]
	}
	return string(out)
}
