package secret

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"
)

func TestSpellings(t *testing.T) {
	for _, c := range []struct {
		secret, text string
		want         bool
	}{
		{"sk-ab/cd", `bad key sk-ab/cd.`, true}, {"sk-ab/cd", `bad key sk-ab\/cd.`, true}, {"sk-ab/cd", `\u0073k-ab\u002fcd`, true}, {"sk-ab/cd", `\u0073k-ab\u002Fcd`, true},
		{"sk-ab/cd", `sk-ab cd`, false}, {"sk-ab/cd", `SK-AB/CD`, false}, {"a.c", `abc`, false}, {`q"\`, `q\"\\`, true}, {"ö😀", `\u00f6\ud83d\ude00`, true}, {"ö😀", `ö😀`, true},
	} {
		if got := Spelled(c.secret).MatchString(c.text); got != c.want {
			t.Errorf("%q in %s: %v", c.secret, c.text, got)
		}
	}
}

// Whatever a secret is, however a writer of JSON chooses among its spellings, it is found whole.
func TestEverySpellingIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringN(1, 20, 60).Draw(t, "secret")
		var b strings.Builder
		for _, r := range secret {
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				for _, unit := range utf16.Encode([]rune{r}) {
					fmt.Fprintf(&b, `\u%04x`, unit)
				}
			case 1:
				plain, err := json.Marshal(string(r))
				if err != nil {
					t.Fatal(err)
				}
				b.Write(plain[1 : len(plain)-1])
			default:
				b.WriteRune(r)
			}
		}
		if got := Spelled(secret).FindString(b.String()); got != b.String() {
			t.Fatalf("%q in %s: %s", secret, b.String(), got)
		}
	})
}
