//go:build ignore

// Generate writes tasks.jsonl: 24 problems to be worked out with Python, with their exact results. Run it here:
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
	ID          string `json:"id"`
	Prompt      string `json:"prompt"`
	RewardModel reward `json:"reward_model"`
	DataSource  string `json:"data_source"`
}

type reward struct {
	Style       string `json:"style"`
	GroundTruth string `json:"ground_truth"`
}

func main() {
	rng := rand.New(rand.NewPCG(2, 24))
	out := json.NewEncoder(os.Stdout)
	for n := range 24 {
		a, b, c, d := rng.IntN(90)+10, rng.IntN(90)+10, rng.IntN(900)+100, rng.IntN(9)+2
		err := out.Encode(task{
			ID:          fmt.Sprintf("py-%02d", n+1),
			Prompt:      fmt.Sprintf("What is (%d + %d) * %d - %d * %d? Work it out with Python, then submit the result.", a, b, d, c, d),
			RewardModel: reward{"numeric", fmt.Sprint((a+b)*d - c*d)}, DataSource: "python-tool",
		})
		if err != nil {
			log.Fatal(err)
		}
	}
}
