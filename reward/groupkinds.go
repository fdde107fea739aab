package reward

import (
	"context"
	"fmt"
	"math/big"
)

// Kinds of graders of groups that come with the program. They are only recorded unless they are given a weight.
//
//	majority      the share of the other samples that give the same answer: a reward without a ground truth
//	group_length  how much shorter the shortest right sample is, from 0 to 1; 0 for one that is not right
const (
	KindMajority    = "majority"
	KindGroupLength = "group_length"
)

// groupKinds are built in and take their options as kinds of other packages do.
func groupKinds() []Kind {
	return []Kind{
		{Name: KindMajority, MakeGroup: func(s Spec) (GroupGrader, error) {
			m := majority{Marker: defaultMarker}
			err := ReadOptions(s, &m)
			if err == nil && m.Marker == "" {
				err = fmt.Errorf("marker: is empty; expected what stands before an answer")
			}
			return m, err
		}},
		{Name: KindGroupLength, MakeGroup: func(s Spec) (GroupGrader, error) {
			g := groupLength{Right: 1}
			err := ReadOptions(s, &g)
			if err == nil && !(g.Right > 0 && g.Right <= 1) {
				err = fmt.Errorf("right: %v, expected over 0 to 1", g.Right)
			}
			return g, err
		}},
	}
}

// majority: the others that agree. What answers are equal is decided without a ground truth: numbers by value, else text without
// case and spacing.
type majority struct {
	Marker string `json:"marker"` // what stands before the answer; the last one counts
}

func (majority) ID() string { return "majority/1" }

func (m majority) GradeGroup(_ context.Context, members []Member) ([]Judged, error) {
	votes := map[string]int{}
	answers := make([]string, len(members))
	for i, x := range members {
		if answers[i] = m.answer(x.Text); answers[i] != "" {
			votes[answers[i]]++
		}
	}
	most, tie := 0, false
	for _, n := range votes {
		most, tie = max(most, n), n == most || tie && n < most
	}
	out := make([]Judged, len(members))
	for i, a := range answers {
		out[i] = m.judge(a, votes[a], most, tie, len(members))
	}
	return out, nil
}

// judge is of one member: how many of the others say the same, and whether that is what most say, which a tie leaves open.
func (m majority) judge(answer string, same, most int, tie bool, members int) Judged {
	if members < 2 {
		return Judged{Err: &Unjudged{Reason: "no_siblings", Detail: "a majority needs two samples that ended well"}}
	}
	if answer == "" {
		return Judged{Finding: Finding{Evidence: "no answer", Raw: new(float64), Parts: []Part{{Name: "voted", Score: new(float64)}}}}
	}
	n := float64(same)
	voted := Part{Name: "voted", Evidence: "most say the same"}
	switch score := 0.0; {
	case same == most && tie:
		voted.Evidence = "a tie"
	case same == most:
		score = 1
		voted.Score = &score
	default:
		voted.Score, voted.Evidence = &score, "most say something else"
	}
	return Judged{Finding: Finding{
		Score: (n - 1) / float64(members-1), Raw: &n, Parts: []Part{voted},
		Evidence: fmt.Sprintf("%s is the answer of %d of %d", Clip(answer, 80), same, members),
	}}
}

// answer is what a text says in the end, in a form that is equal where the answers are; "" = nothing.
func (m majority) answer(text string) string {
	part, where := answerPart(text, m.Marker)
	var number *big.Rat
	ok := false
	if where != "" {
		number, ok = truthNumber(part, m.Marker)
	} else if f, found := lastNumber(text); found {
		number, ok = f.value()
	}
	if ok {
		return number.RatString()
	}
	if part = normalize(part, []string{trim, lower, spaces}); part != "" {
		return fmt.Sprintf("%q", part)
	}
	return ""
}

// groupLength: the shortest right sample has 1, one of twice its length 0.5.
type groupLength struct {
	Right float64 `json:"right"` // least score that makes a sample a right one
}

func (groupLength) ID() string { return "group_length/1" }

func (g groupLength) GradeGroup(_ context.Context, members []Member) ([]Judged, error) {
	shortest := 0
	for _, m := range members {
		if n, known := generated(m.Input); known && g.right(m) && n > 0 && (shortest == 0 || n < shortest) {
			shortest = n
		}
	}
	out := make([]Judged, len(members))
	for i, m := range members {
		out[i] = g.judge(m, shortest)
	}
	return out, nil
}

func (g groupLength) right(m Member) bool { return m.Score != nil && *m.Score >= g.Right }

func (g groupLength) judge(m Member, shortest int) Judged {
	n, known := generated(m.Input)
	length := float64(n)
	switch {
	case m.Score == nil:
		return Judged{Err: &Unjudged{Reason: "no_base_verdict", Detail: "whether it is right is not known"}}
	case !known:
		return Judged{Err: &Unjudged{Reason: "length_unknown", Detail: "the server did not count the tokens of every turn"}}
	case !g.right(m):
		return Judged{Finding: Finding{Raw: &length, Evidence: fmt.Sprintf("not right (%v)", *m.Score)}}
	case n == 0:
		return Judged{Finding: Finding{Score: 1, Raw: &length, Evidence: "0 tokens"}}
	}
	return Judged{Finding: Finding{Score: float64(shortest) / length, Raw: &length, Evidence: fmt.Sprintf("%d tokens, the shortest right one has %d", n, shortest)}}
}

// generated is what all turns generated; there has to be one.
func generated(in Input) (tokens int, known bool) {
	total, _, unknown := in.Generated()
	return total, unknown < 0 && len(in.Turns) > 0
}
