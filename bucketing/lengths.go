package bucketing

import "math"

// Lengths learns lengths per cell by running means and variances (Welford's method), and answers with the cell's mean shrunk
// towards the mean over all cells: a cell seen k times counts k/(k+Weight). Never a raw peak of few observations.
type Lengths[K comparable] struct {
	// Weight is how many observations the overall mean is worth; 0 = 8.
	Weight float64
	// Prior is the answer before anything was seen, tokens.
	Prior float64

	all   moments
	cells map[K]*moments
}

type moments struct {
	n, mean, m2 float64
}

func (m *moments) add(x float64) {
	m.n++
	d := x - m.mean
	m.mean += d / m.n
	m.m2 += d * (x - m.mean)
}

// Add records one length, in tokens.
func (l *Lengths[K]) Add(cell K, tokens int) {
	if l.cells == nil {
		l.cells = make(map[K]*moments)
	}
	m := l.cells[cell]
	if m == nil {
		m = &moments{}
		l.cells[cell] = m
	}
	m.add(float64(tokens))
	l.all.add(float64(tokens))
}

// Mean is the expected length of the cell, in tokens.
func (l *Lengths[K]) Mean(cell K) float64 {
	w := l.Weight
	if w == 0 {
		w = 8
	}
	base := shrink(l.all, l.Prior, 1)
	m := l.cells[cell]
	if m == nil {
		return base
	}
	return shrink(*m, base, w)
}

func shrink(m moments, towards, weight float64) float64 {
	return (m.n*m.mean + weight*towards) / (m.n + weight)
}

// Seen is the number of observations of the cell.
func (l *Lengths[K]) Seen(cell K) int {
	if m := l.cells[cell]; m != nil {
		return int(m.n)
	}
	return 0
}

// Deviation is the standard deviation of the cell's lengths, tokens; of all lengths while the cell has fewer than two.
func (l *Lengths[K]) Deviation(cell K) float64 {
	m := l.cells[cell]
	if m == nil || m.n < 2 {
		m = &l.all
	}
	if m.n < 2 {
		return 0
	}
	return math.Sqrt(m.m2 / (m.n - 1))
}

// Of is the plain mean of the cell's lengths, tokens; 0 when it has none.
func (l *Lengths[K]) Of(cell K) float64 {
	if m := l.cells[cell]; m != nil {
		return m.mean
	}
	return 0
}

// Forget drops a cell that will not be asked for again; the mean over all keeps what it taught.
func (l *Lengths[K]) Forget(cell K) { delete(l.cells, cell) }
