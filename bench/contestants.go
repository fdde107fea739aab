package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tranche/bucketing"
	"tranche/scheduler"
)

// Contestant is a policy by name, made anew for every run.
type Contestant struct {
	Name  string
	About string // one line for people
	New   func(Told) (Policy, error)
}

// StaticCaps are the caps that count as tuning by hand, episodes a replica.
func StaticCaps() []int { return []int{4, 6, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64} }

// Contestants are all policies that can be compared, the scheduler's own first.
func Contestants() []Contestant {
	sure := func(p func(Told) Policy) func(Told) (Policy, error) {
		return func(t Told) (Policy, error) { return p(t), nil }
	}
	all := []Contestant{
		{"tranche", "the scheduler's own core, untuned", func(t Told) (Policy, error) { return NewCore(scheduler.Rules{}, t) }},
		{"tranche-uncut", "the same, answers made at one go also on engines that pad", func(t Told) (Policy, error) { return NewCore(scheduler.Rules{Uncut: true}, t) }},
		{"tranche-early", "the same with the shortest single answers first", func(t Told) (Policy, error) { return NewCore(scheduler.Rules{EarlyYield: true}, t) }},
		{"flood", "every call at once, round robin", sure(func(t Told) Policy { return NewFlood(t, false) })},
		{"flood-sticky", "every call at once, episodes stay on a replica", sure(func(t Told) Policy { return NewFlood(t, true) })},
		{"flood-grouped", "every call at once, groups stay together on a replica", sure(NewGroupFlood)},
		{"aimd", "a window of episodes per replica, steered by hit rate and KV use", sure(NewAIMD)},
		{"prime-rl", "prime-rl's adaptive cap", NewPrimeRL},
		{"thunder", "ThunderAgent's rules", func(t Told) (Policy, error) { return NewThunder(t, false) }},
		{"thunder-origin", "ThunderAgent's rules, resume on the origin only", func(t Told) (Policy, error) { return NewThunder(t, true) }},
		{"walls", "hard length buckets, half of the replicas each", NewWalls},
	}
	for _, n := range StaticCaps() {
		all = append(all, capOf(n))
	}
	return all
}

func capOf(n int) Contestant {
	return Contestant{"cap-" + strconv.Itoa(n), fmt.Sprintf("at most %d episodes a replica, sticky", n), func(t Told) (Policy, error) { return NewCap(t, n), nil }}
}

// paddedClasses is how many classes the hard length classes have.
const paddedClasses = 8

// Padded are the policies for engines that pad. The oracles know every answer's length beforehand.
func Padded() []Contestant {
	lengths := func(w Workload, of func(Turn) int) []int {
		var all []int
		for _, e := range w.Episodes {
			for _, t := range e.Turns {
				all = append(all, of(t))
			}
		}
		return all
	}
	prompt := func(t Turn) int { return t.New }
	answer := func(t Turn) int { return t.Out }
	oracle := func(w Workload) func(scheduler.Request) int {
		return func(r scheduler.Request) int {
			i, err := strconv.Atoi(r.Episode) // an episode's id is its place in the workload
			if err != nil || i >= len(w.Episodes) {
				panic(fmt.Sprintf("bench: episode %q is none of the workload", r.Episode))
			}
			return w.Episodes[i].Turns[r.Cell.Turn].Out
		}
	}
	classes := func(bounds func([]int, int) []int, of func(Turn) int, known bool) func(Told) (Policy, error) {
		return func(t Told) (Policy, error) {
			var length func(scheduler.Request) int
			if known {
				length = oracle(t.Played)
			}
			return NewBatches(t, bounds(lengths(t.Played, of), paddedClasses), length), nil
		}
	}
	return []Contestant{
		{"arrival", "full launches in order of arrival", func(t Told) (Policy, error) { return NewBatches(t, nil, nil), nil }},
		{"equal-count", "8 classes of prompt length, equally many calls each", classes(bucketing.EqualCount, prompt, false)},
		{"least-padding", "8 classes of prompt length, bounds that pad least", classes(bucketing.LeastPadding, prompt, false)},
		{"equal-count-oracle", "8 classes of true answer length, equally many calls each", classes(bucketing.EqualCount, answer, true)},
		{"least-padding-oracle", "8 classes of true answer length, bounds that pad least", classes(bucketing.LeastPadding, answer, true)},
	}
}

// Named returns contestants by name: those listed, "caps" for all static caps, "cap-N" for any N, "all", and
// "padded" for those that are for engines that pad.
func Named(names []string) ([]Contestant, error) {
	var chosen []Contestant
	for _, name := range names {
		found, err := named(name)
		if err != nil {
			return nil, err
		}
		for _, c := range found {
			if !slices.ContainsFunc(chosen, func(o Contestant) bool { return o.Name == c.Name }) {
				chosen = append(chosen, c)
			}
		}
	}
	return chosen, nil
}

func named(name string) ([]Contestant, error) {
	all := Contestants()
	if name == "all" {
		return all, nil
	}
	if name == "padded" {
		return Padded(), nil
	}
	if name == "caps" {
		return slices.DeleteFunc(all, func(c Contestant) bool { return !strings.HasPrefix(c.Name, "cap-") }), nil
	}
	for _, c := range append(all, Padded()...) {
		if c.Name == name {
			return []Contestant{c}, nil
		}
	}
	if number, ok := strings.CutPrefix(name, "cap-"); ok {
		if n, err := strconv.Atoi(number); err == nil && n > 0 {
			return []Contestant{capOf(n)}, nil
		}
	}
	known := []string{"all", "caps", "cap-N", "padded"}
	for _, c := range append(all, Padded()...) {
		if !strings.HasPrefix(c.Name, "cap-") {
			known = append(known, c.Name)
		}
	}
	return nil, fmt.Errorf("policy %q: expected one of %s", name, strings.Join(known, ", "))
}
