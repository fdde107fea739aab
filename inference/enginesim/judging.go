package enginesim

import "strings"

// judged is the answer to a prompt that asks whether two answers state the same result, or whether an answer states that of a reference, and
// wants a line "Verdict: yes" or "Verdict: no". It compares what really stands there: the last number of each, else the words. Of any other
// prompt it knows nothing.
func judged(asked string) (text string, ok bool) {
	if !strings.Contains(asked, "\nVerdict: yes") || !strings.Contains(asked, "\nVerdict: no") {
		return "", false
	}
	for _, tags := range [][2]string{{"answer_a", "answer_b"}, {"reference", "answer"}} {
		a, there := inTag(asked, tags[0])
		b, too := inTag(asked, tags[1])
		if !there || !too {
			continue
		}
		if sameResult(a, b) {
			return "Both state the same result.\nVerdict: yes", true
		}
		return "They do not state the same result.\nVerdict: no", true
	}
	return "", false
}

// inTag is what stands between <name> and </name>.
func inTag(text, name string) (string, bool) {
	_, rest, ok := strings.Cut(text, "<"+name+">")
	inside, _, closed := strings.Cut(rest, "</"+name+">")
	return strings.TrimSpace(inside), ok && closed
}

func sameResult(a, b string) bool {
	_, x, numA := lastNumber(a)
	_, y, numB := lastNumber(b)
	if !numA && !numB {
		return strings.EqualFold(strings.Join(strings.Fields(a), " "), strings.Join(strings.Fields(b), " "))
	}
	return numA && numB && x.Cmp(y) == 0
}
