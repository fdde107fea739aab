package reward

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// all lists every number of a text, as fractions.
func all(s string) []string {
	var out []string
	for i := 0; ; {
		f, ok := nextNumber(s, i)
		if !ok {
			return out
		}
		i = f.end
		if v, ok := f.value(); ok {
			out = append(out, v.RatString())
		} else {
			out = append(out, "?")
		}
	}
}

func TestNumbersInText(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"integer", "18", "18"},
		{"end of sentence", "It is 18.", "18"},
		{"decimals", "18.50", "37/2"},
		{"leading point", "about .5 of it", "1/2"},
		{"thousands", "1,234,567.89", "123456789/100"},
		{"no thousands", "1,23", "1 23"},
		{"list", "1, 234", "1 234"},
		{"four digits after a comma", "1,2345", "1 2345"},
		{"LaTeX thousands", `1{,}234\,567`, "1234567"},
		{"thin space", "1\u202f234", "1234"},
		{"currency", "$1,000 and €5 and £6", "1000 5 6"},
		{"LaTeX dollar", `\$18`, "18"},
		{"currency code", "USD18, Rs.500, Rs 7", "18 500 7"},
		{"percent", "50% or 12.5\\%", "50 25/2"},
		{"units", "18km, 5 dollars, 60 miles/hour, 9 m^2, 4 m²", "18 5 60 9 4"},
		{"fraction", "3/4", "3/4"},
		{"decimals over integer", "1.5/2", "3/4"},
		{"LaTeX fraction", `\frac{3}{4} \dfrac{1}{2} \frac34 \frac{-1}{2}`, "3/4 1/2 3/4 -1/2"},
		{"negative LaTeX fraction", `-\frac{3}{4}`, "-3/4"},
		{"mixed", "1 3/4", "7/4"},
		{"negative mixed", "-1 3/4", "-7/4"},
		{"LaTeX mixed", `2\frac{1}{2}`, "5/2"},
		{"fraction of letters", `\frac{x}{2} is 7`, "7"},
		{"zero below", "3/0 then 4", "4"},
		{"date", "on 1/2/2024 he had 5", "5"},
		{"version", "v 1.2.3 of 4", "4"},
		{"exponent", "1.5e3 2E-2", "1500 1/50"},
		{"times ten", `1.5 x 10^3, 2 \times 10^{-2}, 3×10^2, 4*10^(1)`, "1500 1/50 300 40"},
		{"power of ten", "10^6", "1000000"},
		{"other power", "2^10 = 1024", "1024"},
		{"negative", "-5 and (-6) and =-7 and −8 and -$9 and $-10", "-5 -6 -7 -8 -9 -10"},
		{"minus", "10-5 and x-5 and 10 - 5 and (a)-5", "10 5 5 10 5 5"},
		{"list item", "- 5 apples", "5"},
		{"bold", "**18** and **-18**", "18 -18"},
		{"in a word", "x1 H2O x_1 m^2", ""},
		{"ordinals", "1st 2nd 3rd 4th 5things", "5"},
		{"calculator marks", "16-3=<<16-3=13>>13", "16 3 16 3 13 13"},
		{"command", `\approx5`, "5"},
		{"exponent out of range", "1e999 2", "2"},
		{"too many digits", strings.Repeat("9", 2000) + " 2", "2"},
		{"other scripts", "٣ 三", ""},
		{"time", "3:30", "3 30"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strings.Join(all(c.text), " "); got != c.want {
				t.Fatalf("%q: got %q, want %q", c.text, got, c.want)
			}
		})
	}
}

func TestAnswerNumber(t *testing.T) {
	for _, c := range []struct{ name, text, want, where string }{
		{"after the marker", "2 + 3 is\n#### 5\nI checked 7 times", "5", `after "####"`},
		{"last marker", "#### 4\nno,\n#### 5", "5", `after "####"`},
		{"next line", "####\n5", "5", `after "####"`},
		{"units after", "#### 5 dollars in 3 days", "5", `after "####"`},
		{"equation", "#### x = 2 + 3 = 5", "5", `after "####"`},
		{"formatted", "#### **$1,234.50**", "2469/2", `after "####"`},
		{"box after the marker", `#### \boxed{\text{5 dollars}}`, "5", `after "####"`},
		{"heading is no answer", "#### Step 2\nso it is 9", "9", "last number"},
		{"earlier marker when the last is a heading", "#### 5\n#### Check\n3 + 2 is right", "5", `after "####"`},
		{"box", `so \boxed{5}, in 3 steps`, "5", `in \boxed{}`},
		{"last box", `\boxed{4} or \boxed{5}`, "5", `in \boxed{}`},
		{"nested box", `\boxed{\frac{3}{4}}`, "3/4", `in \boxed{}`},
		{"box with an equation", `\boxed{x = 5}`, "5", `in \boxed{}`},
		{"box with a unit", `\boxed{5 \text{ cm}^2}`, "5", `in \boxed{}`},
		{"box with a root", `5 \boxed{5\sqrt{2}}`, "", `no plain number in \boxed{}`},
		{"box with a list", `\boxed{3, 5}`, "", `several numbers in \boxed{}`},
		{"box with words", `5 \boxed{none}`, "", `no number in \boxed{}`},
		{"box left open", `\boxed{5`, "5", `in \boxed{}`},
		{"last number", "I have 3 and you have 5 apples.", "5", "last number"},
		{"nothing", "I do not know", "", "no number in the text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := answerNumber(c.text, "####")
			have := ""
			if got.value != nil {
				have = got.value.RatString()
			}
			if have != c.want || got.where != c.where {
				t.Fatalf("got %q %q, want %q %q", have, got.where, c.want, c.where)
			}
		})
	}
}

// A number, written in any of the accepted ways, at any place that is not inside a word, is found again.
func TestFormattedNumberIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1e15).Draw(t, "n")
		decimals := rapid.IntRange(0, 6).Draw(t, "decimals")
		want := new(big.Rat).SetFrac(big.NewInt(n), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(decimals)), nil))
		text := want.FloatString(decimals)
		switch rapid.IntRange(0, 4).Draw(t, "form") {
		case 1:
			text = grouped(text, rapid.SampledFrom([]string{",", "{,}", "\u00a0"}).Draw(t, "separator"))
		case 2:
			d := rapid.Int64Range(1, 1e6).Draw(t, "den")
			want.Quo(want, new(big.Rat).SetInt64(d))
			text = rapid.SampledFrom([]string{text + "/" + fmt.Sprint(d), `\frac{` + text + "}{" + fmt.Sprint(d) + "}"}).Draw(t, "fraction")
		case 3:
			e := rapid.IntRange(-30, 30).Draw(t, "exponent")
			scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(e, -e))), nil))
			if e < 0 {
				scale.Inv(scale)
			}
			want.Mul(want, scale)
			text += fmt.Sprintf(rapid.SampledFrom([]string{"e%d", " x 10^%d", `\times 10^{%d}`}).Draw(t, "power"), e)
		case 4:
			a, d := rapid.Int64Range(1, 99).Draw(t, "a"), rapid.Int64Range(1, 99).Draw(t, "d")
			want.SetInt64(n).Add(want, big.NewRat(a, d))
			text = fmt.Sprintf("%d %d/%d", n, a, d)
		}
		if rapid.Bool().Draw(t, "negative") {
			want.Neg(want)
			text = rapid.SampledFrom([]string{"-", "−", "-$"}).Draw(t, "minus") + text
		}
		before := rapid.SampledFrom([]string{"", "it is ", "= ", "(", "**", "12 apples and 7 pears: ", "\n"}).Draw(t, "before")
		after := rapid.SampledFrom([]string{"", ".", " dollars", "%", "**", ")", ", I think.", "\n"}).Draw(t, "after")
		f, ok := lastNumber(before + text + after)
		v, worked := f.value()
		if !ok || !worked || v.Cmp(want) != 0 {
			t.Fatalf("%q: got %v, want %s", before+text+after, v, want.RatString())
		}
	})
}

func grouped(text, sep string) string {
	whole, part, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + sep + whole[i:]
	}
	if part != "" {
		whole += "." + part
	}
	return whole
}

// Answers made to be slow take time in proportion to their length: no grading depends on its deadline for them.
func TestHostileAnswersAreReadInLinearTime(t *testing.T) {
	for _, c := range []struct{ name, unit string }{
		{"thousands without end", ",000"},
		{"dots", "1."},
		{"slashes", "1/"},
		{"spaced digits", "1 "},
		{"open fractions", `\frac{`},
		{"open boxes", `\boxed{`},
		{"markers", "####"},
		{"markers with words", "#### a1\n"},
		{"minus", "-"},
		{"digits", "9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := "1" + strings.Repeat(c.unit, 1<<20/len(c.unit))
			began := time.Now()
			answerNumber(text, "####")
			if took := time.Since(began); took > 30*time.Second {
				t.Fatalf("1 MiB took %s", took)
			}
		})
	}
}

func FuzzNumbers(f *testing.F) {
	for _, s := range []string{"1,234.5e3", `\frac{1}{2}`, "1 3/4", `-$\frac12`, "10^{", "2 x 10^", "1.2.3", "Rs.5", `\boxed{`, "####", "−"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for i := 0; ; {
			n, ok := nextNumber(s, i)
			if !ok {
				break
			}
			if n.start < 0 || n.end <= i || n.end > len(s) || n.start >= n.end {
				t.Fatalf("%q: number at [%d:%d] after %d", s, n.start, n.end, i)
			}
			n.value()
			i = n.end
		}
		answerNumber(s, "####")
		wholeNumber(s)
	})
}

func BenchmarkLastNumber(b *testing.B) {
	text := strings.Repeat("She eats 3 for breakfast and sells 16 - 3 = <<16-3=13>>13 for $2, then rests. ", 1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, ok := lastNumber(text); !ok {
			b.Fatal("no number")
		}
	}
}
