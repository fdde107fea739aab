package bench

import (
	"fmt"
	"io"
	"text/tabwriter"

	"tranche/scheduler"
)

// Bounded is what bounded one replica, over all seeds.
type Bounded struct {
	Replica   string             `json:"replica"`
	Shares    map[string]float64 `json:"share_of_time"` // by scheduler.Bound; together 1
	MeanCalls float64            `json:"mean_calls_in_flight"`
	Advice    []string           `json:"advice"`

	account scheduler.Account
}

// boundsOf adds the accounts of several runs on one fleet; nil where a run has none.
func boundsOf(runs []Result) []Bounded {
	var all []Bounded
	for n, r := range runs {
		for i, a := range r.Accounts {
			if n == 0 {
				all = append(all, Bounded{account: a})
			} else if i < len(all) {
				all[i].account = all[i].account.Plus(a)
			}
		}
	}
	for i := range all {
		b := &all[i]
		b.Replica, b.MeanCalls, b.Advice, b.Shares = b.account.Endpoint, b.account.MeanCalls(), b.account.Advice(), map[string]float64{}
		for _, x := range scheduler.AllBounds() {
			b.Shares[x.String()] = b.account.Share(x)
		}
	}
	return all
}

// Explain writes, for each policy that tells, what bounded each replica.
func (r Report) Explain(w io.Writer) error {
	for _, l := range r.Levels {
		for _, x := range l.Rows {
			if len(x.Bounds) == 0 {
				continue
			}
			fmt.Fprintf(w, "\n%s at load %d: what kept more work from each replica, %% of the time\n", x.Policy, l.Load)
			if err := explainTable(w, x.Bounds); err != nil {
				return fmt.Errorf("write the explanation: %w", err)
			}
		}
	}
	return nil
}

func explainTable(w io.Writer, all []Bounded) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "replica\t")
	for _, b := range scheduler.AllBounds() {
		fmt.Fprintf(t, "%v\t", b)
	}
	fmt.Fprintln(t, "calls in flight\t")
	for _, x := range all {
		fmt.Fprintf(t, "%s\t", x.Replica)
		for _, b := range scheduler.AllBounds() {
			fmt.Fprintf(t, "%.0f\t", 100*x.account.Share(b))
		}
		fmt.Fprintf(t, "%.1f\t\n", x.MeanCalls)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, x := range all {
		for _, said := range x.Advice {
			fmt.Fprintf(w, "%s: %s\n", x.Replica, said)
		}
	}
	return nil
}
