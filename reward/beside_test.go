package reward

import "testing"

// What stands beside a number may make another one of it; units, currencies and words do not.
func TestWhatStandsBesideANumber(t *testing.T) {
	s := newScorer(t, Config{Graders: []Spec{{Kind: KindNumeric}}})
	defer requireClose(t, s)
	for _, c := range []struct{ truth, said, want string }{
		{"5", "#### 5 + 2", "0"}, {"5", "#### 5*2", "0"}, {"5", "#### 5x", "0"}, {"5", "#### 5 x", "0"}, {"5", "#### ≥5", "0"}, {"5", `#### \ge 5`, "0"},
		{"5", "#### 5 thousand", "0"}, {"5", "#### 5 dozen", "0"}, {"5", "#### 5k", "0"}, {"5", "#### 5 to 6", "0"}, {"5", "#### 5 (or 6)", "0"}, {"5", "#### 5,6", "0"},
		{"5", "#### 5 or more", "0"}, {"5", "#### 5 - 2", "0"}, {"5", "#### 5-6", "0"}, {"5", "#### 5:30", "0"}, {"5", "#### 5 and 6", "0"}, {"5", "#### ±5", "0"}, {"5", `#### 5\pi`, "0"},
		{"5", `#### 5\sqrt{2}`, "0"}, {"5", "#### 5 < x", "0"}, {"5", "#### 5_7", "0"},
		{"5", `\boxed{x\ne 5}`, "0"}, {"5", `\boxed{x>5}`, "0"}, {"5", `\boxed{\pm 5}`, "0"}, {"5", `\boxed{-x+5}`, "0"}, {"5", `\boxed{\log 5}`, "0"}, {"5", `\boxed{f(5)}`, "0"},
		{"5", `\boxed{5_7}`, "0"}, {"5", `\boxed{5\text{ or six}}`, "0"}, {"1", `\boxed{1/x}`, "0"}, {"2", `\boxed{2\cdot x}`, "0"}, {"5", `\boxed{x-5}`, "0"}, {"5", `\boxed{5i}`, "0"},
		{"5", `\boxed{\text{not }5}`, "0"}, {"2", `\boxed{2^x}`, "0"},

		{"5", "#### 5", "1"}, {"5", "#### 5.", "1"}, {"5", "#### 5!", "1"}, {"5", "#### $5", "1"}, {"5", "#### 5 dollars", "1"}, {"5", "#### 5%", "1"}, {"5", "#### **5**", "1"},
		{"5", "#### 5km", "1"}, {"5", "#### 5 m", "1"}, {"5", "#### 5 miles/hour", "1"}, {"5", "#### 5 hours and a bit", "1"}, {"5", "#### 5 (five)", "1"}, {"5", "#### 5 total", "1"},
		{"5", "#### x = 5", "1"}, {"5", "#### 2 + 3 = 5", "1"}, {"5", "#### ≈ 5", "1"}, {"5", `#### \boxed{5}`, "1"}, {"5", "#### 5 apples, all red", "1"}, {"5", "#### - 5 apples", "1"},
		{"5", `\boxed{5\text{ cm}}`, "1"}, {"5", `\boxed{5\,\text{m}^2}`, "1"}, {"5", `\boxed{x = 5}`, "1"}, {"5", `\boxed{\text{Total: }5}`, "1"}, {"5", `\boxed{\left(5\right)}`, "1"}, {"5", `\boxed{5^\circ}`, "1"}, {"90", `#### $90^{\circ}$`, "1"}, {"5", `\boxed{5^2}`, "0"},
		{"5 thousand", "#### 5 thousand", "1"}, {"#### 3:30", "#### 3:30", "1"}, {"5 or more", "#### 5 or more", "1"}, {"-5", "#### -5", "1"}, {"-5", `\boxed{-5}`, "1"},
		{"1234", "#### 1,234", "1"}, {"1.5", "#### 1 1/2", "1"}, {"5", "not 4 but 5", "1"},
		{"18", "答案是 １８", "1"}, {"18", "#### ＝１８", "1"}, {"18", "#### １８＋２", "0"},
	} {
		v := score(t, s, said(answer(c.truth), c.said))
		if text(v.Total) != c.want {
			t.Errorf("truth %q, said %q: %s, want %s (%s)", c.truth, c.said, text(v.Total), c.want, v.Rewards[0].Evidence)
		}
	}
}
