package sampler

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Schedule is a number that changes with a run's draws. The zero value is none: the number that is set stays.
//
//	linear:1.2:0.7:10000      from 1.2 at the first draw to 0.7 at draw 10000, in a straight line; 0.7 after that
//	cosine:1.2:0.7:10000      the same ends, slow at both of them
//	steps:0=1,5000=0.8        1 up to draw 4999, 0.8 from there
type Schedule struct {
	shape string
	steps []step // linear and cosine: the two ends
}

// step is a value and the draw from which it holds.
type step struct {
	draw  int64
	value float64
}

// Shapes of a schedule.
const (
	shapeLinear = "linear"
	shapeCosine = "cosine"
	shapeSteps  = "steps"
)

// On says whether there is a schedule.
func (s Schedule) On() bool { return s.shape != "" }

// ParseSchedule reads the form above; "" is no schedule.
func ParseSchedule(text string) (Schedule, error) {
	shape, rest, _ := strings.Cut(text, ":")
	var s Schedule
	var err error
	switch shape {
	case "":
		return s, nil
	case shapeLinear, shapeCosine:
		s, err = parseEnds(shape, rest)
	case shapeSteps:
		s, err = parseSteps(rest)
	default:
		err = errors.New("no such shape")
	}
	if err != nil {
		return Schedule{}, fmt.Errorf("schedule %q: %w; expected linear:FROM:TO:DRAWS, cosine:FROM:TO:DRAWS or steps:0=VALUE,DRAW=VALUE", text, err)
	}
	return s, nil
}

func parseEnds(shape, text string) (Schedule, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return Schedule{}, errors.New("three values follow the shape")
	}
	from, err1 := finite(parts[0])
	to, err2 := finite(parts[1])
	draws, err3 := strconv.ParseInt(parts[2], 10, 64)
	if err3 == nil && draws < 1 {
		err3 = fmt.Errorf("%d draws: at least 1", draws)
	}
	return Schedule{shape, []step{{0, from}, {draws, to}}}, errors.Join(err1, err2, err3)
}

func parseSteps(text string) (Schedule, error) {
	s := Schedule{shape: shapeSteps}
	for part := range strings.SplitSeq(text, ",") {
		at, value, ok := strings.Cut(part, "=")
		draw, err := strconv.ParseInt(at, 10, 64)
		if !ok || err != nil {
			return s, fmt.Errorf("step %q is not DRAW=VALUE", part)
		}
		v, err := finite(value)
		if err != nil {
			return s, err
		}
		s.steps = append(s.steps, step{draw, v})
	}
	for i, st := range s.steps {
		if i == 0 && st.draw != 0 || i > 0 && st.draw <= s.steps[i-1].draw {
			return s, errors.New("the steps begin with draw 0 and rise")
		}
	}
	return s, nil
}

func finite(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q is no number", text)
	}
	return v, nil
}

// At is the value at a draw, from 0.
func (s Schedule) At(draw int64) float64 {
	if s.shape == shapeSteps {
		v := s.steps[0].value
		for _, st := range s.steps {
			if st.draw <= draw {
				v = st.value
			}
		}
		return v
	}
	from, to := s.steps[0].value, s.steps[1].value
	done := min(max(float64(draw)/float64(s.steps[1].draw), 0), 1)
	if s.shape == shapeCosine {
		done = (1 - math.Cos(math.Pi*done)) / 2
	}
	return from*(1-done) + to*done
}

// within says why a value of the schedule is outside what the parameter takes; nil = all are inside. The ends bound what is between.
func (s Schedule) within(name string, fits func(float64) bool, expected string) error {
	for _, st := range s.steps {
		if !fits(st.value) {
			return fmt.Errorf("%s: %v at draw %d: expected %s", name, st.value, st.draw, expected)
		}
	}
	return nil
}

// String is the form that ParseSchedule reads.
func (s Schedule) String() string {
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	switch s.shape {
	case "":
		return ""
	case shapeSteps:
		var parts []string
		for _, st := range s.steps {
			parts = append(parts, fmt.Sprintf("%d=%s", st.draw, number(st.value)))
		}
		return shapeSteps + ":" + strings.Join(parts, ",")
	}
	return fmt.Sprintf("%s:%s:%s:%d", s.shape, number(s.steps[0].value), number(s.steps[1].value), s.steps[1].draw)
}
