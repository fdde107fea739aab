package bench

import (
	"slices"
	"sort"
	"time"

	"tranche/episode"
	"tranche/scheduler"
)

// batches feeds engines that pad: whenever a replica is idle it gets one launch of at most as many calls as it has rows, all of one
// class. Without bounds there is one class and launches are in order of arrival: what a loop over model.generate does. With bounds at
// the quantiles of the lengths it is the classic bucketing by equal counts (bucket_by_sequence_length and its like); with bounds
// from bucketing.LeastPadding, the best that hard classes can be. A class with a full launch goes first, of those the one that waits longest;
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
