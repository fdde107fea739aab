package enginesim

import (
	"cmp"
	"maps"
	"strings"
)

// AnswerTable makes a Config.Answer from questions and their answers: a text is answered when a question occurs in it. Of
// several, the one that ends last counts (few-shot prompts put the real question last), then the longest. Empty questions
// are ignored. A look-up costs about one pass over the text, whatever the size of the table.
func AnswerTable(pairs map[string]string) func(text string) (string, bool) {
	t := answerTable{pairs: maps.Clone(pairs), heads: map[string][]string{}}
	for q := range t.pairs {
		switch {
		case q == "":
		case len(q) < headLen:
			t.short = append(t.short, q)
		default:
			t.heads[q[:headLen]] = append(t.heads[q[:headLen]], q)
		}
	}
	return t.find
}

// headLen is how many first bytes of a question find it.
const headLen = 16

type answerTable struct {
	pairs map[string]string
	heads map[string][]string // first bytes → the questions that begin with them
	short []string            // questions too short for that
}

func (t answerTable) find(text string) (string, bool) {
	best, end := "", -1
	consider := func(q string, at int) {
		if e := at + len(q); cmp.Or(cmp.Compare(e, end), cmp.Compare(len(q), len(best))) > 0 {
			best, end = q, e
		}
	}
	for i := 0; i+headLen <= len(text); i++ {
		for _, q := range t.heads[text[i:i+headLen]] {
			if strings.HasPrefix(text[i:], q) {
				consider(q, i)
			}
		}
	}
	for _, q := range t.short {
		if at := strings.LastIndex(text, q); at >= 0 {
			consider(q, at)
		}
	}
	if end < 0 {
		return "", false
	}
	return t.pairs[best], true
}
