package textgrade

import (
	"context"
	"strings"
	"testing"

	"tranche/episode"
)

const shapes = "What does it draw?\nOptions:\n(A) circle\n(B) heptagon\n(C) a line\n(D) line of A"

func TestChoices(t *testing.T) {
	for name, c := range map[string]struct {
		prompt, truth, text string
		want                float64
	}{
		"letter in brackets":          {shapes, "(B)", "(B)", 1},
		"letter alone":                {shapes, "(B)", "B", 1},
		"small letter alone":          {shapes, "(B)", "b.", 1},
		"truth without brackets":      {shapes, "B", "(B)", 1},
		"wrong letter":                {shapes, "(B)", "(A)", 0},
		"letter not offered":          {shapes, "(B)", "(E)", 0},
		"letter and text":             {shapes, "(B)", "(B) heptagon", 1},
		"letter and another's text":   {shapes, "(B)", "(B) circle", 0},
		"text":                        {shapes, "(B)", "Heptagon.", 1},
		"another text":                {shapes, "(B)", "circle", 0},
		"text that begins with a":     {shapes, "(C)", "The answer is a line", 1},
		"longest text":                {shapes, "(D)", "answer: line of A, I think", 1},
		"answer is":                   {shapes, "(B)", "It has seven sides. So the answer is (B).", 1},
		"answer is, bold":             {shapes, "(B)", "**Answer:** **B**", 1},
		"answer is, explained":        {shapes, "(B)", "The answer is B because it has seven sides", 1},
		"answer is, explained by A":   {shapes, "(B)", "The answer is (B), because (A) is round.", 1},
		"correct option":              {shapes, "(B)", "The correct option is: option B", 1},
		"last answer counts":          {shapes, "(B)", "The answer is (A). No, the answer is (B).", 1},
		"called correct":              {shapes, "(B)", "It has seven sides.\nOption B is correct.", 1},
		"a letter called correct":     {shapes, "(B)", "B is correct", 1},
		"called the right answer":     {shapes, "(B)", "So (B) is the right answer.", 1},
		"another called correct":      {shapes, "(B)", "Option A is correct.", 0},
		"called wrong":                {shapes, "(B)", "Option B is incorrect.", 0},
		"not called correct":          {shapes, "(B)", "Option B is not correct.", 0},
		"chosen":                      {shapes, "(B)", "I choose B.", 1},
		"another chosen":              {shapes, "(B)", "I choose A, not B.", 0},
		"must be":                     {shapes, "(B)", "It must be (B) heptagon.", 1},
		"must be another":             {shapes, "(B)", "B looks fine, but it must be (A).", 0},
		"in LaTeX":                    {shapes, "(B)", `The answer is \(B\).`, 1},
		"its text in brackets":        {shapes, "(B)", "The answer is B (heptagon).", 1},
		"another's in brackets":       {shapes, "(B)", "The answer is B (circle).", 0},
		"curly quotes":                {shapes, "(B)", "“B”", 1},
		"two answers":                 {shapes, "(B)", "The answer is A or B", 0},
		"two answers, the other way":  {shapes, "(B)", "The answer is (B) and (C)", 0},
		"both by comma":               {shapes, "(B)", "(B), (C)", 0},
		"not that one":                {shapes, "(B)", "The answer is not (B)", 0},
		"marker":                      {shapes, "(B)", "(A) is round.\n#### B", 1},
		"marker, wrong":               {shapes, "(B)", "the answer is (B)\n#### A", 0},
		"boxed":                       {shapes, "(B)", `so \boxed{\text{B}}`, 1},
		"boxed with brackets":         {shapes, "(B)", `so $\boxed{(B)}$.`, 1},
		"last line":                   {shapes, "(B)", "It has seven sides.\n\n(B)", 1},
		"all options said again":      {shapes, "(A)", "(A) circle\n(B) heptagon\n(C) a line", 0},
		"all options, the last right": {shapes, "(D)", "(A) circle\n(B) heptagon\n(C) a line\n(D) line of A", 0},
		"the question said again":     {shapes, "(D)", shapes, 0},
		"options weighed, then one":   {shapes, "(B)", "(A) circle: it is round.\n(B)", 1},
		"all options in a line":       {shapes, "(A)", "(A) circle (B) heptagon", 0},
		"a sentence that begins so":   {shapes, "(A)", "A heptagon has seven sides", 0},
		"nothing":                     {shapes, "(B)", "  ", 0},
		"no option":                   {shapes, "(B)", "I cannot tell.", 0},
		"yes of dashes":               {"Is it?\nOptions:\n- Yes\n- No", "Yes", "yes", 1},
		"no of dashes":                {"Is it?\nOptions:\n- Yes\n- No", "Yes", "The answer is no", 0},
		"answer is yes, since":        {"Is it?\nOptions:\n- Yes\n- No", "Yes", "So the answer is Yes, since it is.", 1},
		"valid is not invalid":        {"Options:\n- valid \n- invalid", "valid", "The answer is invalid", 0},
		"free text":                   {"Is True and False", "False", "False", 1},
		"free text after":             {"not True is", "False", "Let's see. The answer is False.", 1},
		"free text on the last line":  {"not True is", "False", "Let's see.\nFalse", 1},
		"number is no prefix":         {"1 + 7?", "8", "the answer is 8.5", 0},
		"free text wrong":             {"not True is", "False", "True", 0},
		"letters by points":           {"Which?\nA. red\nB. blue", "B", "B. blue", 1},
		"examples before":             {"Which?\n(A) one\n(B) two\nAnswer: (A)\n\nWhich?\n(A) red\n(B) blue", "(B)", "blue", 1},
		"no letter truth":             {"Which?\nOptions:\n(A) wind\n(B) & fire\n(C) & fire", "dearth, wind, & fire", "dearth, wind, & fire", 1},
		"two options of one text":     {"Which?\nOptions:\n(A) wind\n(B) & fire\n(C) & fire", "(B)", "& fire", 0},
		"or maybe":                    {shapes, "(B)", "The answer is B or maybe C", 0},
		"comma, or":                   {shapes, "(B)", "The answer is B, or C", 0},
		"one behind the other":        {shapes, "(B)", "The answer is (B)(C)", 0},
		"or in brackets":              {shapes, "(B)", "The answer is B (or C)", 0},
		"and also":                    {shapes, "(B)", "The answer is (B) and also (A)", 0},
		"a dash and another's text":   {shapes, "(B)", "The answer is B - circle", 0},
		"a dash and its own text":     {shapes, "(B)", "The answer is B - heptagon", 1},
		"two texts":                   {shapes, "(B)", "The answer is heptagon, circle", 0},
		"several texts":               {shapes, "(B)", "The answer is heptagon and circle and a line", 0},
		"a text is wrong":             {shapes, "(B)", "The answer is heptagon, no, circle", 0},
		"it isn't right":              {shapes, "(B)", "The answer is B isn't right", 0},
		"it is wrong":                 {shapes, "(B)", "The answer is B is wrong, C", 0},
		"it is correct":               {shapes, "(B)", "The answer is B is correct.", 1},
		"another is meant":            {shapes, "(B)", "The answer is B but I really mean A", 0},
		"taken back":                  {shapes, "(B)", "The answer is B, no wait, C", 0},
		"taken back in a sentence":    {shapes, "(B)", "The answer is B. Wait, C", 0},
		"because of a letter alone":   {shapes, "(B)", "The answer is B because C", 0},
		"since another is right":      {shapes, "(B)", "The answer is B since C is right", 0},
		"marker, because of another":  {shapes, "(B)", "#### B because C", 0},
		"box, because of another":     {shapes, "(B)", `\boxed{B because C}`, 0},
		"box, because of a text":      {shapes, "(B)", `\boxed{B because circle is round}`, 0},
		"marker, because":             {shapes, "(B)", "#### B because it has seven sides", 1},
		"free text or another":        {"not True is", "False", "The answer is False or True", 0},
		"a letter that is a word too": {shapes, "(A)", "The answer is A-flat", 0},
	} {
		if got := score(t, grader(t, "choice", ""), answered(asked(c.prompt, c.truth, ""), c.text)); got != c.want {
			f, _ := grader(t, "choice", "").Grade(context.Background(), answered(asked(c.prompt, c.truth, ""), c.text))
			t.Errorf("%s: %q scores %v, want %v (%s)", name, c.text, got, c.want, f.Evidence)
		}
	}
}

func TestChoicesOfAColumn(t *testing.T) {
	for name, c := range map[string]struct {
		extra, truth, text string
		want               float64
	}{
		"texts, truth a letter":  {`{"choices": ["red", "blue"]}`, "B", "blue", 1},
		"texts, truth an index":  {`{"choices": ["red", "blue"]}`, "1", "B", 1},
		"texts, truth a text":    {`{"choices": ["red", "blue"]}`, "blue", "(B)", 1},
		"texts that are numbers": {`{"choices": ["3", "1"]}`, "1", "B", 1},
		"ARC":                    {`{"choices": {"label": ["A", "B"], "text": ["red", "blue"]}}`, "A", "the answer is red", 1},
		"braces that are text":   {`{"choices": ["x \\} y", "x \\"]}`, "A", `so \boxed{x \} y}`, 1},
		"and not their half":     {`{"choices": ["x \\} y", "x \\"]}`, "B", `so \boxed{x \} y}`, 0},
		"wrong":                  {`{"choices": ["red", "blue"]}`, "1", "A", 0},
	} {
		if got := score(t, grader(t, "choice", ""), answered(asked("Which?", c.truth, c.extra), c.text)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	for extra, truth := range map[string]string{`{"choices": 3}`: "A", `{"choices": {"label": ["A"], "text": []}}`: "A", `{}`: "**"} {
		if got := reason(t, grader(t, "choice", ""), answered(asked("Which?", truth, extra), "A")); got != "bad_ground_truth" {
			t.Errorf("%s, truth %q: %q, want bad_ground_truth", extra, truth, got)
		}
	}
	if got := reason(t, grader(t, "choice", ""), answered(asked("Which?", "", ""), "A")); got != "missing_ground_truth" {
		t.Errorf("no truth: %q", got)
	}
}

// BIG-Bench Hard: the gold answer scores 1 in every form that models write it in, every other letter 0.
func TestGoldAnswersOfBBH(t *testing.T) {
	type row struct{ Task, Input, Target string }
	n, domains, g := 0, map[string]bool{}, grader(t, "choice", "")
	for _, r := range rows[row](t, "tasks-bbh/bbh.firsthalf.jsonl") {
		if r.Task == "" { // the canary
			continue
		}
		n++
		domains[r.Task] = true
		if testing.Short() && n%5 != 0 {
			continue
		}
		task := asked(r.Input, r.Target, "")
		for _, text := range []string{r.Target, "So the answer is " + r.Target + ".", "Let's think step by step.\n" + r.Target} {
			if score(t, g, answered(task, text)) != 1 {
				t.Errorf("%s: %q scores 0, the gold answer is %q", r.Task, text, r.Target)
			}
		}
		checkWrongAnswers(t, g.(choice), task, r.Target)
	}
	if n != 3255 || len(domains) != 27 {
		t.Errorf("%d rows of %d domains, want 3255 of 27", n, len(domains))
	}
}

func checkWrongAnswers(t *testing.T, g choice, task *episode.Task, target string) {
	t.Helper()
	options := promptOptions(task.Messages[0].Text())
	for _, o := range options {
		wrong := o.text
		if o.label != "" {
			wrong = "(" + o.label + ")"
		}
		if !strings.EqualFold(strings.TrimSpace(wrong), target) && score(t, g, answered(task, wrong)) != 0 {
			t.Errorf("%q scores 1, the gold answer is %q", wrong, target)
		}
	}
	if score(t, g, answered(task, "zzz")) != 0 {
		t.Errorf("%q: nonsense scores 1", target)
	}
}
