//go:build ignore

// Generate writes tasks.jsonl: 120 small problems in three domains of different sizes, some of each held out. Run it here:
//
//	go run generate.go > tasks.jsonl
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"strings"
)

type task struct {
	ID         string `json:"id"`
	Prompt     string `json:"prompt"`
	Answer     string `json:"answer"`
	DataSource string `json:"data_source"`
	Split      string `json:"split"`
	Priority   int    `json:"priority"`
}

const ending = " End with a line that holds #### and the result."

func main() {
	rng := rand.New(rand.NewPCG(2, 40))
	out := json.NewEncoder(os.Stdout)
	for _, domain := range []struct {
		name  string
		tasks int
		make  func(*rand.Rand) (prompt, answer string)
	}{{"add", 70, add}, {"multiply", 35, multiply}, {"letters", 15, letters}} {
		for i := range domain.tasks {
			t := task{ID: fmt.Sprintf("%s-%02d", domain.name, i+1), DataSource: domain.name, Split: "train"}
			t.Prompt, t.Answer = domain.make(rng)
			t.Prompt += ending
			if i%5 == 4 {
				t.Split = "test"
			}
			if i < 3 { // what should be seen to work first
				t.Priority = 1
			}
			if err := out.Encode(t); err != nil {
				log.Fatal(err)
			}
		}
	}
}

func add(rng *rand.Rand) (string, string) {
	a, b := 10+rng.IntN(90), 10+rng.IntN(90)
	return fmt.Sprintf("What is %d + %d?", a, b), fmt.Sprint(a + b)
}

func multiply(rng *rand.Rand) (string, string) {
	a, b := 11+rng.IntN(89), 11+rng.IntN(89)
	return fmt.Sprintf("What is %d times %d?", a, b), fmt.Sprint(a * b)
}

func letters(rng *rand.Rand) (string, string) {
	words := []string{"letter", "banana", "committee", "parallel", "tranche", "sampler", "mississippi"}
	w := words[rng.IntN(len(words))]
	l := string(w[rng.IntN(len(w))])
	return fmt.Sprintf("How often is the letter %q in the word %q?", l, w), fmt.Sprint(strings.Count(w, l))
}
