//go:build ignore

// Generate writes tasks.jsonl: 12 sums whose truth is not written as a calculator says it, and 16 tasks whose answer is an
// expression, an interval, a set and the like. Run it here:
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
	Tools       []string `json:"tools,omitempty"`
	RewardModel truth    `json:"reward_model"`
	DataSource  string   `json:"data_source"`
}

type truth struct {
	Style       string `json:"style"`
	GroundTruth string `json:"ground_truth"`
}

func main() {
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for i, t := range append(sums(), others()...) {
		t.ID = fmt.Sprintf("math-%02d", i+1)
		t.RewardModel.Style = "rule"
		if err := out.Encode(t); err != nil {
			log.Fatal(err)
		}
	}
}

// sums have whole results, written as fractions, with marks between thousands, with a unit, as powers of ten.
func sums() []task {
	rng := rand.New(rand.NewPCG(36, 1))
	forms := []func(n int) string{
		func(n int) string { return fmt.Sprintf(`\frac{%d}{4}`, 4*n) },
		func(n int) string { return fmt.Sprintf(`%d{,}%03d`, n/1000, n%1000) },
		func(n int) string { return fmt.Sprintf(`%d\text{ dollars}`, n) },
		func(n int) string { return fmt.Sprintf(`x = %d`, n) },
	}
	var ts []task
	for i := range 12 {
		a, b := 40+rng.IntN(50), 40+rng.IntN(50)
		t := task{Prompt: fmt.Sprintf("What is %d * %d? Use the calculator, then submit the result.", a, b), Tools: []string{"calculator", "submit"}, DataSource: "math/sums"}
		t.RewardModel.GroundTruth = forms[i%len(forms)](a * b)
		ts = append(ts, t)
	}
	return ts
}

func others() []task {
	var ts []task
	for _, q := range [][2]string{
		{`Expand $(x+3)^2$.`, `x^2+6x+9`},
		{`Solve $x^2-5x+6=0$.`, `x=2 \text{ or } x=3`},
		{`Solve $2x-1<5$; give the solution as an interval.`, `(-\infty,3)`},
		{`For which real $x$ is $x^2>4$?`, `(-\infty,-2)\cup(2,\infty)`},
		{`Simplify $\sqrt{72}$.`, `6\sqrt{2}`},
		{`What is the exact value of $\sin 60^\circ$?`, `\frac{\sqrt{3}}{2}`},
		{`What is the area of a circle with radius 3 cm?`, `9\pi\text{ cm}^2`},
		{`What is 3/8 in per cent?`, `37.5\%`},
		{`Solve $x+y=5$, $x-y=1$; give $(x,y)$.`, `(3,2)`},
		{`List the prime numbers below 12.`, `\{2,3,5,7,11\}`},
		{`Give the line through $(0,1)$ and $(2,5)$ as an equation.`, `y=2x+1`},
		{`What are the roots of $x^2-2x-1$?`, `1\pm\sqrt{2}`},
		{`How many ways are there to choose 3 of 8 books?`, `56`},
		{`Differentiate $x\sin x$.`, `\sin x+x\cos x`},
		{`What is the inverse of $\begin{pmatrix}2&0\\0&4\end{pmatrix}$?`, `\begin{pmatrix}\frac12&0\\0&\frac14\end{pmatrix}`},
		{`How fast are 90 km in 1.5 hours?`, `60 \text{ km/h}`},
	} {
		ts = append(ts, task{Prompt: q[0] + ` Put the final answer in \boxed{}.`, RewardModel: truth{GroundTruth: q[1]}, DataSource: "math/forms"})
	}
	return ts
}
