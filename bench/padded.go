package bench

import (
	"math"
	"slices"
	"sort"
	"time"

	"tranche/episode"
	"tranche/scheduler"
)

// batches feeds engines that pad: whenever a replica is idle it gets one launch of at most as many calls as it has rows, all of one
// class. Without bounds there is one class and launches are in order of arrival: what a loop over model.generate does. With bounds at
// the quantiles of the lengths it is the classic bucketing by equal counts (bucket_by_sequence_length and its like); with bounds
// from LeastPadding, the best that hard classes can be. A class with a full launch goes first, of those the one that waits longest;
// when none is full the longest waiting goes as it is: no replica idles while there is work.
type batches struct {
	bounds   []int // rising; class k holds lengths up to bounds[k], the last all longer ones
	length   func(scheduler.Request) int
	replicas []scheduler.ReplicaConfig
	queues   [][]waitingCall
	arrivals int
	running  []int
	on       map[scheduler.Ticket]waitingCall
	down     []scheduler.Time
}

type waitingCall struct {
	scheduler.Request
	arrival, replica int
}

// NewBatches returns the policy with these class bounds, tokens, on the given length of a call; nil = its prompt. The replicas' number
// of sequences must be told.
func NewBatches(told Told, bounds []int, length func(scheduler.Request) int) Policy {
	if length == nil {
		length = func(r scheduler.Request) int { return r.Prompt }
	}
	n := len(told.Replicas)
	return &batches{
		bounds: bounds, length: length, replicas: told.Replicas, queues: make([][]waitingCall, len(bounds)+1),
		running: make([]int, n), on: map[scheduler.Ticket]waitingCall{}, down: make([]scheduler.Time, n),
	}
}

func (b *batches) Offer(r scheduler.Request, _ scheduler.Time) {
	b.arrivals++
	b.enqueue(waitingCall{r, b.arrivals, -1})
}

func (b *batches) enqueue(w waitingCall) {
	class := sort.SearchInts(b.bounds, b.length(w.Request))
	q := b.queues[class]
	at, _ := slices.BinarySearchFunc(q, w.arrival, func(x waitingCall, arrival int) int { return x.arrival - arrival })
	b.queues[class] = slices.Insert(q, at, w)
}

func (b *batches) Next(now scheduler.Time) ([]scheduler.Launch, []scheduler.Reject, scheduler.Time) {
	var launches []scheduler.Launch
	wait := scheduler.Time(-1)
	for i, r := range b.replicas {
		if b.down[i] > now {
			wait = sooner(wait, b.down[i]-now)
			continue
		}
		rows := max(r.Capacity.Sequences, 1)
		if b.running[i] > 0 {
			continue
		}
		class := b.choose(rows)
		if class < 0 {
			break
		}
		n := min(rows, len(b.queues[class]))
		for _, w := range b.queues[class][:n] {
			w.replica = i
			b.on[w.Ticket] = w
			launches = append(launches, scheduler.Launch{Ticket: w.Ticket, Replica: i, Class: class, Attempt: 1})
		}
		b.queues[class] = b.queues[class][n:]
		b.running[i] = n
	}
	return launches, nil, wait
}

// choose is the class of the next launch; -1 when nothing waits.
func (b *batches) choose(rows int) int {
	best := -1
	for k, q := range b.queues {
		if len(q) == 0 {
			continue
		}
		full := len(q) >= rows
		if best < 0 || full && len(b.queues[best]) < rows || full == (len(b.queues[best]) >= rows) && q[0].arrival < b.queues[best][0].arrival {
			best = k
		}
	}
	return best
}

func (b *batches) Settle(t scheduler.Ticket, o Outcome, now scheduler.Time) scheduler.Decision {
	w := b.on[t]
	delete(b.on, t)
	b.running[w.replica]--
	switch f := o.Fault; {
	case f == nil:
		return scheduler.Finished
	case f.Class == episode.ClassOverflow:
		return scheduler.Full
	case !f.Retry:
		return scheduler.Finished
	}
	b.down[w.replica] = now + time.Second
	b.enqueue(w)
	return scheduler.Retrying
}

func (b *batches) Withdraw(t scheduler.Ticket) bool {
	for k, q := range b.queues {
		if i := slices.IndexFunc(q, func(w waitingCall) bool { return w.Ticket == t }); i >= 0 {
			b.queues[k] = slices.Delete(q, i, i+1)
			return true
		}
	}
	return false
}

func (*batches) Act(string, string, scheduler.Time)        {}
func (*batches) Observe(int, episode.Load, scheduler.Time) {}
func (*batches) Leave(string, scheduler.Time)              {}

// EqualCount is the bounds, tokens, of classes that hold equally many of the lengths each; fewer where lengths repeat.
func EqualCount(lengths []int, classes int) []int {
	sorted := slices.Sorted(slices.Values(lengths))
	var bounds []int
	for k := 1; k < classes && len(sorted) > 0; k++ {
		bounds = append(bounds, sorted[share(float64(k)/float64(classes), len(sorted))-1])
	}
	return slices.Compact(bounds)
}

// LeastPadding is the bounds, tokens, of at most so many classes for which the lengths, each padded to the longest of its class, sum up
// to the least: dynamic programming over the distinct lengths, of which at most 1,024 quantiles are considered.
func LeastPadding(lengths []int, classes int) []int {
	sorted := slices.Sorted(slices.Values(lengths))
	edges := EqualCount(lengths, min(1024, len(lengths))) // candidates: a class may end at any of them, or at the longest
	if len(sorted) == 0 {
		return nil
	}
	edges = slices.Compact(append(edges, sorted[len(sorted)-1]))
	upTo := make([]int, len(edges)+1) // lengths within the first k edges
	for k, e := range edges {
		upTo[k+1] = sort.SearchInts(sorted, e+1)
	}
	// least[c][k]: tokens, padding included, of the first k edges in c classes.
	least, from := make([][]float64, classes+1), make([][]int, classes+1)
	for c := range least {
		least[c], from[c] = make([]float64, len(edges)+1), make([]int, len(edges)+1)
		for k := range least[c] {
			least[c][k] = math.Inf(1)
		}
	}
	least[0][0] = 0
	for c := 1; c <= classes; c++ {
		for k := 1; k <= len(edges); k++ {
			for j := range k {
				if t := least[c-1][j] + float64(edges[k-1]*(upTo[k]-upTo[j])); t < least[c][k] {
					least[c][k], from[c][k] = t, j
				}
			}
		}
	}
	var bounds []int
	c := min(classes, len(edges))
	for k := from[c][len(edges)]; c > 1 && k > 0; k = from[c][k] {
		bounds = append(bounds, edges[k-1])
		c--
	}
	slices.Reverse(bounds)
	return bounds
}
