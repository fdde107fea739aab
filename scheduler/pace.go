package scheduler

import "math"

// pace is what a batch costs on a replica that pads, learned from its own batches: with n rows, the longest prompt of P tokens and
// the longest answer of T,
//
//	seconds = step·T + read·n·(P·T + T²/2) + fill·n·P
//
// step is what a decoding step costs however many rows there are, read a context token that a row reads in a step, fill a prompt token.
// Which of them rules says how many rows a batch should have: where steps are dear, all that there are; where reading is, no more than
// end together. Least squares of relative errors, none below a fiftieth of what the prior makes it; older batches fade.
type pace struct {
	prior  [3]float64
	cost   [3]float64
	square [3][3]float64 // Σ of products of the three terms' shares in the time, at the prior
	sum    [3]float64
	slower logs // logarithms of how many times longer batches took than the prior says
}

// The prior counts for little beside batches; a batch's weight falls by a fiftieth with each later one.
const (
	paceKeeps = 0.98
	paceTrust = 0.005
	paceLeast = 0.02
	priorStep = 0.010 // s
	priorRead = 60e-9 // s
)

func newPace(fill float64) pace {
	p := pace{prior: [3]float64{priorStep, priorRead, fill}}
	p.cost = p.prior
	return p
}

// terms are the amounts that the three costs are multiplied with; t1 and t2 are the (expected) longest answer and its square.
func terms(rows, prompt, t1, t2 float64) [3]float64 {
	return [3]float64{t1, rows * (prompt*t1 + t2/2), rows * prompt}
}

// of is the time of a batch, seconds.
func (p *pace) of(rows, prompt, t1, t2 float64) float64 {
	x := terms(rows, prompt, t1, t2)
	return p.cost[0]*x[0] + p.cost[1]*x[1] + p.cost[2]*x[2]
}

// row is what one more row as long as the others adds, seconds.
func (p *pace) row(prompt, t1, t2 float64) float64 {
	return p.cost[1]*(prompt*t1+t2/2) + p.cost[2]*prompt
}

// learn takes up a batch that took so many seconds.
func (p *pace) learn(rows, prompt, longest int, took float64) {
	if took < 1e-6 { // no engine: nothing to learn
		return
	}
	t := float64(longest)
	x := terms(float64(rows), float64(prompt), t, t*t)
	whole := 0.0
	for i := range x {
		x[i] *= p.prior[i] / took
		whole += x[i]
	}
	p.slower = logs{p.slower.n * paceKeeps, p.slower.sum * paceKeeps}
	p.slower.add(-math.Log(max(whole, 1e-9)))
	for i := range x {
		p.sum[i] = p.sum[i]*paceKeeps + x[i]
		for k := range x {
			p.square[i][k] = p.square[i][k]*paceKeeps + x[i]*x[k]
		}
	}
	p.solve()
}

// solve finds the costs by Gauss-Seidel steps, each held above its least. The prior is that all three are as many times dearer as
// batches were.
func (p *pace) solve() {
	g := math.Exp(p.slower.mean(0, paceTrust))
	u := [3]float64{g, g, g}
	for range 128 {
		for i := range u {
			s, d := p.sum[i]+paceTrust/g, p.square[i][i]+paceTrust/(g*g)
			for k := range u {
				if k != i {
					s -= p.square[i][k] * u[k]
				}
			}
			u[i] = max(s/d, paceLeast*g)
		}
	}
	for i := range u {
		p.cost[i] = u[i] * p.prior[i]
	}
}
