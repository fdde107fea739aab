package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Plot writes makespan against load as an SVG into a folder and returns its path: a line for each policy, one for the best static cap
// at each load, one for the lower bound. With a single load there is one point each.
func (r Report) Plot(dir string) (string, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%s, %d replicas", r.Workload, r.Replicas)
	p.X.Label.Text, p.Y.Label.Text = "episodes open per replica", "makespan, s"
	p.Y.Min = 0
	p.Legend.XOffs, p.Legend.YOffs = -vg.Points(4), vg.Points(4) // the lower right is empty: times start at 0
	for i, s := range r.series() {
		line, points, err := plotter.NewLinePoints(s.points)
		if err != nil {
			return "", fmt.Errorf("plot %s: %w", s.name, err)
		}
		line.Color, points.Color = plotutil.Color(i), plotutil.Color(i)
		line.Dashes, points.Shape = plotutil.Dashes(i), plotutil.Shape(i)
		p.Add(line, points)
		p.Legend.Add(s.name, line, points)
	}
	p.Add(plotter.NewGrid())
	return r.save(p, dir)
}

func (r Report) save(p *plot.Plot, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the folder for plots: %w", err)
	}
	name := strings.Map(func(c rune) rune {
		if c == ' ' || c == ',' || c == '/' {
			return '-'
		}
		return c
	}, r.Workload)
	path := filepath.Join(dir, name+".svg")
	canvas := vgsvg.New(18*vg.Centimeter, 12*vg.Centimeter)
	p.Draw(draw.New(canvas))
	f, err := os.Create(path)
	if err != nil {
		return "", fmt.Errorf("write a plot: %w", err)
	}
	_, err = canvas.WriteTo(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	return path, nil
}

type series struct {
	name   string
	points plotter.XYs
}

// series are the lines: static caps are many, so only the best at each load is drawn.
func (r Report) series() []series {
	var all []series
	add := func(name string, load int, seconds float64) {
		for i := range all {
			if all[i].name == name {
				all[i].points = append(all[i].points, plotter.XY{X: float64(load), Y: seconds})
				return
			}
		}
		all = append(all, series{name, plotter.XYs{{X: float64(load), Y: seconds}}})
	}
	for _, l := range r.Levels {
		load := l.Load
		if load == 0 {
			load = (r.Episodes + r.Replicas - 1) / r.Replicas
		}
		add("lower bound", load, l.Bound.Mean)
		for _, x := range l.Rows {
			switch {
			case x.Failed != "":
			case x.Policy == l.BestCap:
				add("best static cap", load, x.Makespan.Mean)
			case !strings.HasPrefix(x.Policy, "cap-"):
				add(x.Policy, load, x.Makespan.Mean)
			}
		}
	}
	return all
}
