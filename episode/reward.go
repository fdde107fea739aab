package episode

import "time"

// Reward outcomes. "No verdict" is never a zero.
const (
	Scored    = "scored"
	NoVerdict = "no_verdict"
	// GroupOpen: a grader that judges whole groups has not judged yet; it does when the group's rows are published.
	GroupOpen = NoVerdict + ": group_open"
)

// Reward is one named component of a verdict.
type Reward struct {
	Name     string
	Score    *float64 // in [0,1]; nil = no verdict
	Weight   float64
	Raw      *float64 // the grader's own figure on its own scale; nil = none
	Outcome  string   // Scored, or NoVerdict with ": " and the class of the fault
	Grader   string   // grader name and version
	Config   string   // digest of the grader's settings, 16 hex digits; "" = not known
	Evidence string   // what it looked at and found, short; "" = none
	Tier     string   // what held the code that was run; "" = none was run
	Tries    int      // how often the grader was asked; 0 = it was not
	Cost     Cost     // of all tries
	// Credit is a process grader's figure for each model turn, NaN = none for that one; nil = not such a grader.
	Credit []float64
}

// Cost is what judging cost.
type Cost struct {
	PromptTokens, CompletionTokens int // of a model that judged
	CPU, Wall                      time.Duration
}

// Plus adds two costs.
func (c Cost) Plus(o Cost) Cost {
	return Cost{c.PromptTokens + o.PromptTokens, c.CompletionTokens + o.CompletionTokens, c.CPU + o.CPU, c.Wall + o.Wall}
}

// Verdict is what scoring made of an episode. Total is nil when any component that counts has no score.
type Verdict struct {
	Total   *float64
	Rewards []Reward
	// Failed says that a grader which counts was asked for a verdict and gave none. A task that states no answer, or a run that
	// wants no grade, is no failure.
	Failed bool
	// Credit is that of the process graders which count, for each model turn: the mean by weight, NaN where one of them gave none;
	// nil = there is no such grader.
	Credit []float64
}
