package scheduler

import (
	"math"
	"time"

	"tranche/episode"
)

// answers learns how long answers get, per cell, from those that ended and from those still running: short ones end first, so
// the mean of the ended alone is far too small for as long as the long ones run. The estimate is the tokens generated so far, by
// both, divided by the number that ended: the maximum-likelihood mean of exponential lengths under right censoring.
type answers struct {
	cells map[episode.Cell]*answered
	rate  float64 // tokens a second one call generates, a running mean that starts at nought
	rates int     // observations in it
}

// pace is the rate without the weight of its start.
func (a *answers) pace() float64 {
	if a.rates == 0 {
		return 0
	}
	return a.rate / (1 - math.Pow(1-rateStep, float64(a.rates)))
}

// rateStep is the weight of one observation in the running mean.
const rateStep = 0.05

type answered struct {
	ended, tokens float64
	running       int
	began         time.Duration // sum of the running calls' launch times
}

// Weight of the prior, in ended calls, and the prior as a share of the most an answer may have.
const (
	answerWeight = 4
	answerShare  = 8
	answerPrior  = 256 // tokens, where nothing bounds the answer
)

func (a *answers) of(c episode.Cell) *answered {
	s := a.cells[c]
	if s == nil {
		s = &answered{}
		a.cells[c] = s
	}
	return s
}

func (a *answers) launched(c episode.Cell, now Time) {
	s := a.of(c)
	s.running++
	s.began += now
}

// left takes a call out of the running; generated < 0 = it failed and teaches nothing.
func (a *answers) left(c episode.Cell, launched, now Time, generated int) {
	s := a.of(c)
	s.running--
	s.began -= launched
	if generated < 0 {
		return
	}
	s.ended++
	s.tokens += float64(generated)
	if took := (now - launched).Seconds(); took > 0 && generated > 8 {
		a.rate += rateStep * (float64(generated)/took - a.rate)
		a.rates++
	}
}

// mean is the expected length of an answer in the cell that may have at most `want` tokens (0 = not bounded).
func (a *answers) mean(c episode.Cell, want int, now Time) float64 {
	prior := priorAnswer(want)
	s := a.of(c)
	running := 0.0
	if s.running > 0 {
		running = a.rate * (time.Duration(s.running)*now - s.began).Seconds()
	}
	m := (s.tokens + running + answerWeight*prior) / (s.ended + answerWeight)
	if want > 0 {
		m = min(m, float64(want))
	}
	return m
}

// priorAnswer is the length that an answer of at most `want` tokens (0 = not bounded) is believed to have before any was seen.
func priorAnswer(want int) float64 {
	if want == 0 {
		return answerPrior
	}
	return max(float64(want)/answerShare, min(answerPrior, float64(want)))
}
