package judge

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tranche/reward"
)

// agreement is the part that tells the share of votes for what was decided.
const agreement = "agreement"

// line is a line of a verdict: the name of an item, and a word. Judges like to set it in bold.
var line = regexp.MustCompile(`(?i)^[\s*_#>-]*verdict(?:\s+([a-z][a-z0-9_-]*))?\s*:[\s*_]*([a-z0-9]+)[\s*_]*\.?[\s*_]*$`)

// read takes the verdict out of an answer: the last lines, one for each thing that was asked, and no other line that says something else. Words
// are in small letters.
func (j *Judge) read(text string) (map[string]string, error) {
	wanted := []string{""}
	if j.opt.Form == Rubric {
		wanted = nil
		for _, it := range j.opt.Items {
			wanted = append(wanted, strings.ToLower(it.Name))
		}
	}
	var lines []string
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	words := map[string]string{}
	for i, l := range lines {
		m := line.FindStringSubmatch(l)
		if m == nil {
			if i >= len(lines)-len(wanted) {
				return nil, fmt.Errorf("it ends with %q, expected a verdict", reward.Clip(lines[len(lines)-1], 60))
			}
			continue
		}
		name, word := strings.ToLower(m[1]), strings.ToLower(m[2])
		if before, twice := words[name]; twice && before != word {
			return nil, fmt.Errorf("it says %q and %q", before, word)
		}
		if !slices.Contains(wanted, name) || !j.knows(word) {
			return nil, fmt.Errorf("it says %q, which was not asked", reward.Clip(l, 60))
		}
		words[name] = word
	}
	if len(words) != len(wanted) {
		return nil, fmt.Errorf("it has %d verdicts of %d", len(words), len(wanted))
	}
	return words, nil
}

// knows tells whether a word is one that was asked for.
func (j *Judge) knows(word string) bool {
	switch j.opt.Form {
	case Prefer:
		return word == "a" || word == "b" || word == "same"
	case Scale:
		n, err := strconv.Atoi(word)
		return err == nil && n >= 0 && n <= j.opt.Scale
	}
	return word == "yes" || word == "no"
}

// count makes a finding of all replies.
func (j *Judge) count(votes [][]reply) (reward.Finding, error) {
	switch j.opt.Form {
	case Scale:
		return j.median(votes), nil
	case Rubric:
		return j.rubric(votes), nil
	}
	tally := map[string]int{}
	for _, vote := range votes {
		tally[j.word(vote)]++
	}
	for _, word := range []string{"yes", "no", "better", "same", "worse"} {
		if n := tally[word]; 2*n > len(votes) {
			return j.finding(j.worth(word), n, votes, word), nil
		}
	}
	detail := fmt.Sprintf("of %d votes %s", len(votes), counted(tally))
	if j.opt.Disagree == DisagreeZero {
		f := j.finding(0, max(tally["yes"], tally["no"], tally["better"], tally["same"], tally["worse"]), votes, "no majority")
		f.Evidence = detail
		return f, nil
	}
	return reward.Finding{}, &reward.Unjudged{Reason: Disagree, Detail: detail}
}

// split is the word of a vote that says one thing in one order and another in the other.
const split = "split by order"

// word is what one vote says of the answer, whatever the order.
func (j *Judge) word(vote []reply) string {
	first := j.seen(vote[0].words[""], 0)
	for order, r := range vote {
		if j.seen(r.words[""], order) != first {
			return split
		}
	}
	return first
}

// seen says a word of prefer from the answer's side: it is B in the first order and A in the second.
func (j *Judge) seen(word string, order int) string {
	if j.opt.Form != Prefer || word == "same" {
		return word
	}
	if (word == "b") == (order == 0) {
		return "better"
	}
	return "worse"
}

func (j *Judge) worth(word string) float64 {
	switch word {
	case "yes", "better":
		return 1
	case "same":
		return *j.opt.Tie
	}
	return 0
}

// finding is a verdict that n of the votes support.
func (j *Judge) finding(score float64, n int, votes [][]reply, word string) reward.Finding {
	share := float64(n) / float64(len(votes))
	return reward.Finding{
		Score: score, Evidence: fmt.Sprintf("%s, %d of %d: %s", word, n, len(votes), reward.FirstLine(votes[0][0].text)),
		Parts: []reward.Part{{Name: agreement, Score: &share}},
	}
}

// median is the number in the middle; the votes that say it support it.
func (j *Judge) median(votes [][]reply) reward.Finding {
	var numbers []int
	for _, vote := range votes {
		n, _ := strconv.Atoi(vote[0].words[""]) // read has checked it
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	middle, same := numbers[len(numbers)/2], 0
	for _, n := range numbers {
		if n == middle {
			same++
		}
	}
	f := j.finding(float64(middle)/float64(j.opt.Scale), same, votes, strconv.Itoa(middle))
	raw := float64(middle)
	f.Raw = &raw
	return f
}

// rubric is the mean of the items by weight; each is a part. Raw is how many are met.
func (j *Judge) rubric(votes [][]reply) reward.Finding {
	var parts []reward.Part
	sum, weight, met, agree := 0.0, 0.0, 0.0, 0.0
	for _, it := range j.opt.Items {
		yes := 0
		for _, vote := range votes {
			if vote[0].words[strings.ToLower(it.Name)] == "yes" {
				yes++
			}
		}
		score := 0.0
		if 2*yes > len(votes) {
			score = 1
		}
		sum, weight, met = sum+score**it.Weight, weight+*it.Weight, met+score
		agree += float64(max(yes, len(votes)-yes)) / float64(len(votes))
		parts = append(parts, reward.Part{Name: it.Name, Score: &score, Evidence: fmt.Sprintf("%d of %d say yes", yes, len(votes))})
	}
	agree /= float64(len(j.opt.Items))
	return reward.Finding{
		Score: sum / weight, Raw: &met, Evidence: fmt.Sprintf("%g of %d items met: %s", met, len(parts), reward.FirstLine(votes[0][0].text)),
		Parts: append(parts, reward.Part{Name: agreement, Score: &agree}),
	}
}

// counted lists a tally for people, in a fixed order.
func counted(tally map[string]int) string {
	var list []string
	for _, word := range []string{"yes", "no", "better", "same", "worse", split} {
		if n := tally[word]; n > 0 {
			list = append(list, fmt.Sprintf("%d say %s", n, word))
		}
	}
	return strings.Join(list, ", ")
}
