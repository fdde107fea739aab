package enginesim

import (
	"bufio"
	"cmp"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Word problems that the engine knows nothing about, solved at its rate with their answers as a table.
func TestAnswersOfAForeignTaskFile(t *testing.T) {
	path := filepath.Join(cmp.Or(os.Getenv("TRANCHE_DATA"), "../../../shared/data"), "tasks-gsm8k", "test.first660.jsonl")
	f, err := os.Open(path)
	if err != nil {
		t.Skipf("the GSM8K tasks are not here: %v", err)
	}
	defer f.Close()
	pairs := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var row struct{ Question, Answer string }
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		_, answer, _ := strings.Cut(row.Answer, "#### ")
		pairs[row.Question] = strings.ReplaceAll(answer, ",", "")
	}
	p := testPolicy(NewTokenizer())
	p.answer = AnswerTable(pairs)
	defs := tools(t, calcTools)
	withTools, inWords, draw := 0, 0, uint64(0)
	for question, answer := range pairs {
		draw = hashText(1, question)
		if got, _ := play(t, p, question, defs, draw); got == answer {
			withTools++
		}
		m, _ := reply(p, []chatMessage{says("user", "Solve this.\n\n"+question+"\n\nEnd with #### and the number.")}, nil, draw)
		if strings.HasSuffix(m.Content.text(), "#### "+answer) {
			inWords++
		}
	}
	n := float64(len(pairs))
	for how, right := range map[string]int{"with tools": withTools, "in words": inWords} {
		if off := math.Abs(float64(right)/n - p.solve); off > 4*math.Sqrt(p.solve*(1-p.solve)/n) {
			t.Errorf("%s: %d of %g right, want a share of %g", how, right, n, p.solve)
		}
	}
}
