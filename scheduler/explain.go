package scheduler

import (
	"cmp"
	"fmt"
	"slices"
)

// Bound is what kept more work from an endpoint for a while.
type Bound int

// Bounds.
const (
	BoundKV        Bound = iota // calls waited for room in its KV memory
	BoundSequences              // it ran as many sequences as the server runs at once
	BoundCalls                  // it had as many calls in flight as the client lets it have
	BoundEpisodes               // nothing waited: the client had as many episodes open as it lets itself have, or opened them too slowly
	BoundActions                // nothing waited: most open episodes were in actions or being graded
	BoundTail                   // nothing waited, and no more was to come: the last episodes ran
	BoundDown                   // it was dead, had asked to be left alone, or most episodes were waiting to try a failed call again
	BoundNone                   // calls waited, but none of them could go there
	BoundBatch                  // it pads: calls waited until the batch that ran had ended, or until the next was full
	BoundQueue                  // nothing waited here, but calls did in the server's own queue, for what it does not tell
	bounds
)

// AllBounds lists them in the order in which they are shown.
func AllBounds() []Bound {
	all := make([]Bound, bounds)
	for b := range all {
		all[b] = Bound(b)
	}
	return all
}

// String is the name in JSON and tables.
func (b Bound) String() string {
	return [...]string{"kv", "sequences", "calls", "episodes", "actions", "tail", "down", "no_work", "batch", "queue"}[b]
}

// says is what the bound means and what helps; the share of the time goes in front.
func (b Bound) says() string {
	return [...]string{
		"bound by KV memory: more or larger endpoints or shorter contexts help; a cap would not",
		"bound by the sequences the server runs at once: raise its limit (vLLM: --max-num-seqs) or add endpoints",
		"bound by the client's limit of calls in flight: raise --concurrency, if the server can run more at once",
		"bound by the client, which had too few episodes open: raise --open-episodes, unless this machine itself was busy",
		"bound by actions and grading: make them faster, give them more workers (--action-workers, --score-workers), or raise --open-episodes",
		"in the tail, when the last episodes ran and no more were to come: more endpoints would not help; more tasks in one run, or a shorter limit on answers, would",
		"down, asked to be left alone, or with failed calls waiting for another attempt: see the failed attempts and the server's log",
		"without work it could take: what waited was too long for its context or was waiting for its own endpoint",
		"bound by padded batches, which end with their longest answer: more rows, answers of like length, a shorter limit on answers or more endpoints help",
		"with calls in the server's own queue though its KV memory was not full: it does not tell what they waited for; raise its limits (vLLM: --max-num-seqs, --max-num-batched-tokens), lower --concurrency, or add endpoints",
	}[b]
}

// Account says how long what kept more work from one endpoint.
type Account struct {
	Endpoint string
	Spent    [bounds]Time // by Bound; together the time accounted for
	Calls    Time         // in flight, summed over the calls: over the total time, the mean number in flight
}

// Total is the time accounted for.
func (a Account) Total() Time {
	sum := Time(0)
	for _, t := range a.Spent {
		sum += t
	}
	return sum
}

// Share is the bound's part of the time, 0..1; 0 where no time was accounted for.
func (a Account) Share(b Bound) float64 {
	if total := a.Total(); total > 0 {
		return float64(a.Spent[b]) / float64(total)
	}
	return 0
}

// MeanCalls is how many calls were in flight there on average.
func (a Account) MeanCalls() float64 {
	if total := a.Total(); total > 0 {
		return float64(a.Calls) / float64(total)
	}
	return 0
}

// Plus is both accounts together, under the name of a.
func (a Account) Plus(o Account) Account {
	for b := range a.Spent {
		a.Spent[b] += o.Spent[b]
	}
	a.Calls += o.Calls
	return a
}

// worthTelling is the least share of the time that gets a sentence; the largest share gets one in any case.
const worthTelling = 0.2

// Advice is one sentence for each bound that mattered, the weightiest first.
func (a Account) Advice() []string {
	all := AllBounds()
	slices.SortStableFunc(all, func(x, y Bound) int { return cmp.Compare(a.Spent[y], a.Spent[x]) })
	var said []string
	for i, b := range all {
		if a.Spent[b] > 0 && (i == 0 || a.Share(b) >= worthTelling) {
			said = append(said, fmt.Sprintf("%.0f %% of the time %s", 100*a.Share(b), b.says()))
		}
	}
	return said
}

// book is one replica's account in the making. What Next found holds until the next Next.
type book struct {
	Account
	bound    Bound
	inFlight int
	wanted   bool // a waiting call may go there
}

// charge books the time since the last decision.
func (c *Core) charge(now Time) {
	passed := max(now-c.booked, 0)
	c.booked = max(now, c.booked)
	if passed == 0 {
		return
	}
	for _, r := range c.replicas {
		r.book.Spent[r.book.bound] += passed
		r.book.Calls += Time(r.book.inFlight) * passed
	}
}

// judgeBounds notes what keeps more from each replica, now that all that may go has gone.
func (c *Core) judgeBounds(now Time) {
	for _, r := range c.replicas {
		r.book.wanted, r.book.inFlight = false, r.running
	}
	for _, p := range c.order {
		if p.queue.Len() > 0 {
			for _, i := range p.members {
				c.replicas[i].book.wanted = true
			}
		}
	}
	for _, r := range c.replicas {
		r.book.bound = c.boundOf(r, now)
	}
}

func (c *Core) boundOf(r *replica, now Time) Bound {
	outside := c.acting + c.scoring
	full, why := r.serverFull(now, c.rules.StaleAfter)
	switch {
	case r.open || r.book.wanted && !r.ready(now):
		return BoundDown
	case r.book.wanted && r.Rows > 0:
		return BoundBatch
	case r.book.wanted && r.MaxCalls > 0 && r.running >= r.MaxCalls:
		if r.Capacity.Sequences > 0 && r.MaxCalls >= r.Capacity.Sequences {
			return BoundSequences
		}
		return BoundCalls
	case r.book.wanted:
		return BoundKV
	case full:
		return why
	case c.byAge.Len() > 0:
		return BoundNone
	case 2*(outside+len(c.delayed)) > len(c.lives)+c.scoring && len(c.delayed) > outside:
		return BoundDown
	case 2*(outside+len(c.delayed)) > len(c.lives)+c.scoring:
		return BoundActions
	case c.noMore && len(c.lives) == 0:
		return BoundNone
	case c.noMore:
		return BoundTail
	}
	return BoundEpisodes
}

// serverFull says, from a fresh reading, whether the server itself makes calls wait, and for what.
func (r *replica) serverFull(now, stale Time) (bool, Bound) {
	l := r.load
	switch {
	case !r.fresh(now, stale) || l.Waiting == nil || *l.Waiting == 0:
		return false, 0
	case l.KVUsed != nil && *l.KVUsed >= 0.9:
		return true, BoundKV
	case l.Running != nil && r.Capacity.Sequences > 0 && *l.Running >= r.Capacity.Sequences:
		return true, BoundSequences
	}
	return true, BoundQueue
}

// NoMore tells that no episode will come that has not come yet: what is open is the tail.
func (c *Core) NoMore() { c.noMore = true }

// Score tells that an episode that has left goes into grading (+1) or comes out of it (-1): it is open and makes no call.
func (c *Core) Score(change int) { c.scoring += change }

// Accounts says what kept more work from each replica until now.
func (c *Core) Accounts(now Time) []Account {
	c.charge(now)
	all := make([]Account, 0, len(c.replicas))
	for _, r := range c.replicas {
		a := r.book.Account
		a.Endpoint = r.Name
		all = append(all, a)
	}
	return all
}
