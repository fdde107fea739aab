package episode

// Reward outcomes. "No verdict" is never a zero.
const (
	Scored    = "scored"
	NoVerdict = "no_verdict"
)

// Reward is one named component of a verdict.
type Reward struct {
	Name     string
	Score    *float64 // in [0,1]; nil = no verdict
	Weight   float64
	Outcome  string // Scored, or NoVerdict with ": " and the class of the fault
	Grader   string // grader name and version
	Evidence string // what it looked at and found, short; "" = none
}

// Verdict is what scoring made of an episode. Total is nil when any component with a weight has no score.
type Verdict struct {
	Total   *float64
	Rewards []Reward
}
