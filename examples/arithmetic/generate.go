//go:build ignore

// Generate writes tasks.jsonl: 40 arithmetic problems, 20 easy and 20 hard, with their exact results. Run it here:
//
//	go run generate.go > tasks.jsonl
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
)

type task struct {
	ID          string   `json:"id"`
	Prompt      string   `json:"prompt"`
	Tools       []string `json:"tools"`
	RewardModel reward   `json:"reward_model"`
	DataSource  string   `json:"data_source"`
	EnvClass    string   `json:"env_class"`
}

type reward struct {
	Style       string `json:"style"`
	GroundTruth string `json:"ground_truth"`
}

// term is a piece of an expression: its text, its value, and whether it binds more loosely than a product.
type term struct {
	text  string
	value int
	loose bool
}

func main() {
	rng := rand.New(rand.NewPCG(1, 40))
	out := json.NewEncoder(os.Stdout)
	for _, level := range []struct {
		name  string
		depth int
	}{{"easy", 1}, {"hard", 3}} {
		seen := map[string]bool{}
		for n := 0; n < 20; {
			t := expression(rng, level.depth)
			if seen[t.text] || t.value > 99999 || t.value < -9999 {
				continue
			}
			seen[t.text] = true
			n++
			if err := out.Encode(describe(level.name, n, t)); err != nil {
				log.Fatal(err)
			}
		}
	}
}

func describe(level string, n int, t term) task {
	return task{
		ID:          fmt.Sprintf("%s-%02d", level, n),
		Prompt:      fmt.Sprintf("What is %s? Use the calculator, then submit the result.", t.text),
		Tools:       []string{"calculator", "submit"},
		RewardModel: reward{Style: "numeric", GroundTruth: fmt.Sprint(t.value)},
		DataSource:  "arithmetic/" + level,
		EnvClass:    "arithmetic",
	}
}

// expression draws a tree of the given depth whose divisions all come out even.
func expression(rng *rand.Rand, depth int) term {
	if depth == 0 {
		n := 2 + rng.IntN(98)
		return term{fmt.Sprint(n), n, false}
	}
	a, b := expression(rng, depth-1), expression(rng, rng.IntN(depth))
	switch rng.IntN(4) {
	case 0:
		return term{a.text + " + " + b.tight(), a.value + b.value, true}
	case 1:
		return term{a.text + " - " + b.tight(), a.value - b.value, true}
	case 2:
		return term{a.tight() + " * " + b.tight(), a.value * b.value, false}
	}
	for d := 9; d > 1; d-- { // the largest small number that divides a
		if a.value%d == 0 {
			return term{a.tight() + " / " + fmt.Sprint(d), a.value / d, false}
		}
	}
	return term{a.tight() + " * " + b.tight(), a.value * b.value, false}
}

// tight is the text with parentheses where a neighbour would pull it apart.
func (t term) tight() string {
	if t.loose {
		return "(" + t.text + ")"
	}
	return t.text
}
