package storage

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tranche/episode"
)

func filterRow(change ...func(*Row)) *Row {
	r := &Row{DataSource: "math", Split: "train", TaskID: "t1", Status: episode.Ptr("completed"), StopReason: episode.Ptr("stop"), Reward: episode.Ptr(0.5)}
	for _, c := range change {
		c(r)
	}
	return r
}

func TestFilter(t *testing.T) {
	flagged := func(flags ...string) func(*Row) { return func(r *Row) { r.Flags = flags } }
	ended := func(status, stop string) func(*Row) {
		return func(r *Row) { r.Status, r.StopReason, r.Reward = &status, &stop, nil }
	}
	reward := func(v float64) func(*Row) { return func(r *Row) { r.Reward = &v } }
	unscored := func(r *Row) { r.Reward = nil }
	for _, c := range []struct {
		name   string
		filter Filter
		row    *Row
		want   string // Refusal
	}{
		{"nothing asked for", Filter{}, filterRow(), ""},
		{"a row without a verdict is good", Filter{}, filterRow(unscored), ""},
		{"failed rows are left out", Filter{}, filterRow(ended("failed", "fault")), "failures"},
		{"cut rows too", Filter{}, filterRow(ended("cancelled", "quorum")), "failures"},
		{"unless wanted", Filter{Failures: true}, filterRow(ended("failed", "fault")), ""},
		{"or named", Filter{Status: []string{"failed"}}, filterRow(ended("failed", "fault")), ""},
		{"naming one status does not take the other", Filter{Status: []string{"failed"}}, filterRow(ended("cancelled", "quorum")), "failures"},
		{"nor with failures", Filter{Status: []string{"failed"}, Failures: true}, filterRow(ended("cancelled", "quorum")), "status"},
		{"status", Filter{Status: []string{"truncated"}}, filterRow(), "status"},
		{"one of several", Filter{Status: []string{"truncated", "completed"}}, filterRow(), ""},
		{"stop reason", Filter{Stops: []string{"length"}}, filterRow(), "stop_reason"},
		{"domain", Filter{DataSources: []string{"code", "math"}}, filterRow(), ""},
		{"other domain", Filter{DataSources: []string{"code"}}, filterRow(), "data_source"},
		{"no domain given", Filter{DataSources: []string{""}}, filterRow(func(r *Row) { r.DataSource = "" }), ""},
		{"split", Filter{Splits: []string{"test"}}, filterRow(), "split"},
		{"task", Filter{Tasks: []string{"t2"}}, filterRow(), "task_id"},
		{"least reward is taken", Filter{MinReward: episode.Ptr(0.5)}, filterRow(), ""},
		{"below it", Filter{MinReward: episode.Ptr(0.5)}, filterRow(reward(0.499)), "reward"},
		{"most reward is taken", Filter{MaxReward: episode.Ptr(0.5)}, filterRow(), ""},
		{"above it", Filter{MaxReward: episode.Ptr(0.4)}, filterRow(), "reward"},
		{"no verdict is not zero", Filter{MaxReward: episode.Ptr(1.0)}, filterRow(unscored), "reward"},
		{"scored", Filter{Scored: true}, filterRow(unscored), "reward"},
		{"zero is a verdict", Filter{Scored: true}, filterRow(reward(0)), ""},
		{"all flags", Filter{Flags: []string{"refused", "prompt_cut"}}, filterRow(flagged("refused")), "flags"},
		{"all flags there", Filter{Flags: []string{"refused"}}, filterRow(flagged("prompt_cut", "refused")), ""},
		{"no flag of these", Filter{NotFlags: []string{"refused", "prompt_cut"}}, filterRow(flagged("prompt_cut")), "flags"},
		{"another flag", Filter{NotFlags: []string{"refused"}}, filterRow(flagged("prompt_cut")), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.filter.Validate(); err != nil {
				t.Fatal(err)
			}
			if got := c.filter.Refusal(c.row); got != c.want || c.filter.Match(c.row) != (c.want == "") {
				t.Errorf("refused by %q, want %q", got, c.want)
			}
		})
	}
}

// A further condition never takes a row that was refused without it.
func TestFilterConditionsOnlyNarrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pick := func(name string, from ...string) []string {
			return rapid.SliceOfNDistinct(rapid.SampledFrom(from), 0, len(from), rapid.ID).Draw(t, name)
		}
		one := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(t, name) }
		status := one("row status", statuses()...)
		r := filterRow(func(r *Row) {
			r.Status, r.DataSource, r.Split, r.Flags = &status, one("row domain", "a", "b", ""), one("row split", "x", "y"), pick("row flags", "refused", "prompt_cut")
			if rapid.Bool().Draw(t, "unscored") {
				r.Reward = nil
			}
		})
		f := Filter{DataSources: pick("domains", "a", "b", ""), Splits: pick("splits", "x", "y"), Flags: pick("flags", "refused"), NotFlags: pick("not", "prompt_cut")}
		for name, narrow := range map[string]func(*Filter){
			"scored": func(f *Filter) { f.Scored = true }, "least": func(f *Filter) { f.MinReward = episode.Ptr(0.2) },
			"flag": func(f *Filter) { f.Flags = append(slices.Clone(f.Flags), "refused") }, "tasks": func(f *Filter) { f.Tasks = []string{"t2"} },
		} {
			more := f
			if narrow(&more); more.Match(r) && !f.Match(r) {
				t.Fatalf("%s: %+v takes %+v and %+v does not", name, more, r, f)
			}
		}
		wide := f
		if wide.Failures = true; f.Match(r) && !wide.Match(r) {
			t.Fatalf("with failures/ %+v takes fewer rows", f)
		}
	})
}

func TestFilterReportsEveryFault(t *testing.T) {
	nan := math.NaN()
	err := Filter{Status: []string{"done"}, Stops: []string{"tired"}, Flags: []string{"refused", "odd"}, NotFlags: []string{"refused"},
		MinReward: episode.Ptr(2.0), MaxReward: episode.Ptr(1.0)}.Validate()
	for _, want := range []string{`"done"`, "completed, truncated, failed, cancelled", `"tired"`, `"odd"`, "refused is wanted and not wanted", "least, 2, is over the most, 1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	if err := (Filter{MinReward: &nan}).Validate(); err == nil {
		t.Error("NaN is no bound")
	}
}

// A flag that the filter does not know could not be asked for: its list is that of the documented column.
func TestFilterKnowsEveryDocumentedFlag(t *testing.T) {
	doc, err := os.ReadFile("../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, ok := strings.Cut(string(doc), "| flags | list? of string | facts to filter on: ")
	if !ok {
		t.Fatal("docs/format.md does not list the flags")
	}
	list, _, _ = strings.Cut(list, ";")
	documented := strings.Split(list, ", ")
	known := rowFlags()
	slices.Sort(documented)
	slices.Sort(known)
	if !slices.Equal(documented, known) {
		t.Errorf("documented %v, known %v", documented, known)
	}
}
