package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table writes a report for people, one block a load, fastest first.
func (r Report) Table(w io.Writer) error {
	kv := fmt.Sprintf("%d KV tokens each", r.KVTokens[0])
	if slices.Max(r.KVTokens) != slices.Min(r.KVTokens) {
		kv = fmt.Sprintf("KV tokens %v", r.KVTokens)
	}
	fmt.Fprintf(w, "%s: %d episodes, %d calls; %d replicas, %s; %d seeds, ± is half a 95 %% interval\n", r.Workload, r.Episodes, r.Calls, r.Replicas, kv, r.Seeds)
	for _, l := range r.Levels {
		if err := l.table(w); err != nil {
			return fmt.Errorf("write the table: %w", err)
		}
	}
	return nil
}

func (l Level) table(w io.Writer) error {
	load := "all episodes open at once"
	if l.Load > 0 {
		load = fmt.Sprintf("%d episodes open a replica", l.Load)
	}
	fmt.Fprintf(w, "\n%s; lower bound %s s", load, l.Bound)
	if l.BestCap != "" {
		fmt.Fprintf(w, "; best static cap: %s", l.BestCap)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\tmakespan s\tbound/it\tx flood\tx best cap\ttokens/s\tp50 turn s\tp99 turn s\tpreempted\tprefill x\thits\t90 % done s\t")
	rows := slices.Clone(l.Rows)
	slices.SortStableFunc(rows, func(a, b Row) int {
		switch {
		case (a.Failed == "") != (b.Failed == ""):
			return len(a.Failed) - len(b.Failed)
		case a.Makespan.Mean < b.Makespan.Mean:
			return -1
		case a.Makespan.Mean > b.Makespan.Mean:
			return 1
		}
		return 0
	})
	for _, x := range rows {
		if x.Failed == "" {
			fmt.Fprintln(t, strings.Join([]string{
				x.Policy, x.Makespan.String(), x.OfBound.String(), x.Speedup.String(), x.OverBestCap.String(), x.TokensPerSecond.String(),
				x.LatencyP50.String(), x.LatencyP99.String(), x.Preemptions.String(), x.Recomputed.String(), x.HitRate.String(), x.T90.String(), "",
			}, "\t"))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, x := range rows {
		if x.Failed != "" {
			fmt.Fprintf(w, "%s could not play: %s\n", x.Policy, x.Failed)
		} else if x.Rejected.Mean > 0 || x.Truncated.Mean > 0 {
			fmt.Fprintf(w, "%s did less than was asked for: %s episodes given up, %s answers cut short\n", x.Policy, x.Rejected, x.Truncated)
		}
	}
	return nil
}

// String is the mean with as many digits as make sense beside its interval.
func (m Mean) String() string {
	if m.Mean == 0 && m.Half == 0 {
		return "0"
	}
	digits := 2
	for scale := math.Abs(m.Mean); scale >= 10 && digits > 0; scale /= 10 {
		digits--
	}
	if m.Half == 0 {
		return fmt.Sprintf("%.*f", digits, m.Mean)
	}
	return fmt.Sprintf("%.*f ±%.*f", digits, m.Mean, digits, m.Half)
}
