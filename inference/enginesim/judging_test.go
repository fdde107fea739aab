package enginesim

import "testing"

// The simulated judge compares what stands in the prompt, and judges nothing that does not ask for it.
func TestJudged(t *testing.T) {
	const ends = "\nVerdict: yes\nVerdict: no"
	pair := func(a, b string) string {
		return "<answer_a>\n" + a + "\n</answer_a>\n<answer_b>\n" + b + "\n</answer_b>"
	}
	for _, c := range []struct{ prompt, want string }{
		{pair("7", "3 + 4 is 7.") + ends, "yes"},
		{pair("7", "3 + 4 is 8.") + ends, "no"},
		{pair("1,000", "1000.0") + ends, "yes"},
		{pair("7", ":") + ends, "no"},
		{pair("Rome", " rome ") + ends, "yes"},
		{pair("Rome", "Paris") + ends, "no"},
		{"<reference>\n7\n</reference>\n<answer>\n7\n</answer>" + ends, "yes"},
		{pair("7", "7"), ""},
		{"<answer>7</answer>" + ends, ""},
		{"What is 3 + 4?", ""},
	} {
		said, ok := judged(c.prompt)
		if ok != (c.want != "") || ok && said[len(said)-len("Verdict: ")-len(c.want):] != "Verdict: "+c.want {
			t.Errorf("%q: %q, %v, want %q", c.prompt, said, ok, c.want)
		}
	}
}
