package reward

import (
	"math"

	"tranche/episode"
)

// Rules of Config.Total. Over the components that count (weight above 0), with score s and weight w:
//
//	weighted_sum  Σ w·s / Σ w
//	gate          the same when every component with a threshold has s ≥ threshold, else 0; one with a threshold is needed
//	              whatever its weight
//	product       Π s; weights only say what counts
//	minimum       min s; likewise
//
// Each is nil when a component that is needed has no score, also where the others would settle it.
const (
	WeightedSum = "weighted_sum"
	Gate        = "gate"
	Product     = "product"
	Minimum     = "minimum"
)

// Combine makes the reward of stored components by the configuration's rule, as its Scorer does; nil = there is none.
func (c Config) Combine(rs []episode.Reward) *float64 {
	c = c.withDefaults()
	return total(c.Total, rs, c.thresholds())
}

// thresholds are those of the graders that have one, by name.
func (c Config) thresholds() map[string]float64 {
	list := map[string]float64{}
	for _, spec := range c.Graders {
		if spec.Threshold != nil {
			list[spec.Name] = *spec.Threshold
		}
	}
	return list
}

// total applies a rule. thresholds holds those of Config.Graders by the component's name.
func total(rule string, rs []episode.Reward, thresholds map[string]float64) *float64 {
	var counted []episode.Reward
	open := true
	for _, r := range rs {
		threshold, gates := thresholds[r.Name]
		if r.Weight == 0 && !gates {
			continue
		}
		if r.Score == nil {
			return nil
		}
		open = open && (!gates || *r.Score >= threshold)
		if r.Weight > 0 {
			counted = append(counted, r)
		}
	}
	if len(counted) == 0 {
		return nil
	}
	switch rule {
	case Product:
		return episode.Ptr(product(counted))
	case Minimum:
		return episode.Ptr(minimum(counted))
	}
	if !open {
		return episode.Ptr(0.0)
	}
	return mean(counted)
}

// mean is nil when the weights are too large to be added.
func mean(rs []episode.Reward) *float64 {
	sum, weight := 0.0, 0.0
	for _, r := range rs {
		sum += r.Weight * *r.Score
		weight += r.Weight
	}
	if math.IsInf(weight, 0) {
		return nil
	}
	return episode.Ptr(sum / weight)
}

// credit is the mean by weight of what the process graders that count say of each turn; nil when there are none.
func credit(rs []episode.Reward) []float64 {
	var sum []float64
	weight := 0.0
	for _, r := range rs {
		if r.Credit == nil || r.Weight == 0 {
			continue
		}
		if sum == nil {
			sum = make([]float64, len(r.Credit))
		}
		for i, c := range r.Credit {
			sum[i] += r.Weight * c // NaN stays NaN
		}
		weight += r.Weight
	}
	for i := range sum {
		sum[i] /= weight
	}
	return sum
}

func product(rs []episode.Reward) float64 {
	p := 1.0
	for _, r := range rs {
		p *= *r.Score
	}
	return p
}

func minimum(rs []episode.Reward) float64 {
	least := 1.0
	for _, r := range rs {
		least = min(least, *r.Score)
	}
	return least
}
