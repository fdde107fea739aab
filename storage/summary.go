package storage

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"tranche/episode"
)

// Summary counts a whole dataset: every key once. Sums of tokens are of good rows only; a mean always comes with its n.
type Summary struct {
	Rows   int64 `json:"rows"`   // good, failed and cut
	Good   int64 `json:"good"`   // in parts/, or on the way there
	Failed int64 `json:"failed"` // in failures/, or on the way there
	Cut    int64 `json:"cut"`    // by a quorum: in failures/ too, without a verdict

	Status   map[string]int64 `json:"status"`
	Failures map[string]int64 `json:"failures"` // failed rows by fault class
	Stops    map[string]int64 `json:"stops"`    // all rows by stop reason
	Flags    map[string]int64 `json:"flags"`    // all rows; one row may have several

	Reward Mean   `json:"reward"`
	Tokens Tokens `json:"tokens"`
	Turns  int64  `json:"turns"`

	Components map[string]Component `json:"components"` // of the verdicts, by name
	Time       Timing               `json:"time_s"`     // sums over all rows, seconds; stages of different episodes overlap

	DataSources map[string]Share `json:"data_sources"`
	Classes     map[string]Share `json:"classes"` // by the length class of the last turn; "none" for rows without a turn
}

// Component is what one grader, or a part of its judgements, came to.
type Component struct {
	Score   Mean             `json:"score"`   // of the rows that have the component
	Reasons map[string]int64 `json:"reasons"` // of there being no verdict, by their number
	Tokens  Tokens           `json:"tokens"`  // of a model that judged
	Wall    float64          `json:"wall_s"`  // sum, all tries, seconds
	Again   int64            `json:"again"`   // rows for which the grader was asked more than once
}

// Share is a part of the dataset.
type Share struct {
	Rows   int64  `json:"rows"`
	Failed int64  `json:"failed"`
	Reward Mean   `json:"reward"`
	Tokens Tokens `json:"tokens"`
}

// Tokens are sums over good rows, by the server's count. A row whose count is unknown is in UnknownIn or UnknownOut and adds
// nothing to the sum.
type Tokens struct {
	In         int64 `json:"in"`
	Out        int64 `json:"out"`
	UnknownIn  int64 `json:"unknown_in"`
	UnknownOut int64 `json:"unknown_out"`
}

// Mean is a mean with what it stands on: n rows with a verdict, of so many. The zero value has no mean.
type Mean struct {
	N       int64
	Of      int64 // rows in all, scored or not
	Average float64
	spread  float64 // sum of squared distances from Average (Welford)
}

// Add counts a row, with its value or without.
func (m *Mean) Add(v *float64) {
	m.Of++
	if v == nil {
		return
	}
	m.N++
	d := *v - m.Average
	m.Average += d / float64(m.N)
	m.spread += d * (*v - m.Average)
}

// amend counts a value for a row that was counted without one.
func (m *Mean) amend(before, after *float64) {
	if before == nil && after != nil {
		m.Of--
		m.Add(after)
	}
}

// Coverage is the share of rows with a verdict, 0..1; 0 for no rows.
func (m Mean) Coverage() float64 {
	if m.Of == 0 {
		return 0
	}
	return float64(m.N) / float64(m.Of)
}

// StdDev is the sample standard deviation; false below two values.
func (m Mean) StdDev() (float64, bool) {
	if m.N < 2 {
		return 0, false
	}
	return math.Sqrt(m.spread / float64(m.N-1)), true
}

// MarshalJSON writes null for a mean of nothing, a deviation of fewer than two, and either one when it is too large for a float64.
func (m Mean) MarshalJSON() ([]byte, error) {
	out := struct {
		N        int64    `json:"n"`
		Rows     int64    `json:"rows"`
		Coverage float64  `json:"coverage"`
		Mean     *float64 `json:"mean"`
		StdDev   *float64 `json:"std_dev"`
	}{N: m.N, Rows: m.Of, Coverage: m.Coverage()}
	if m.N > 0 && finite(m.Average) {
		out.Mean = &m.Average
	}
	if sd, ok := m.StdDev(); ok && finite(sd) {
		out.StdDev = &sd
	}
	return json.Marshal(out)
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// Add counts one row.
func (s *Summary) Add(r *Row) {
	d := digestOf(r)
	s.add(&d)
}

func (s *Summary) add(d *digest) {
	failed := d.failed()
	s.Rows++
	switch {
	case text(d.Status) == string(episode.StatusCancelled):
		s.Cut++
	case failed:
		s.Failed++
		tally(&s.Failures, text(d.FaultClass))
	default:
		s.Good++
	}
	tally(&s.Status, text(d.Status))
	tally(&s.Stops, text(d.StopReason))
	for _, f := range d.Flags {
		tally(&s.Flags, f)
	}
	s.Reward.Add(d.Reward)
	s.addComponents(d.Rewards)
	s.Tokens.add(d, failed)
	s.Turns += int64(d.NumTurns)
	s.Time.add(d.Timing)
	share(&s.DataSources, d.DataSource, d, failed)
	share(&s.Classes, d.class(), d, failed)
}

// amend counts what a row's verdict was still lacking when the row was counted.
func (s *Summary) amend(before, after *digest) {
	s.Reward.amend(before.Reward, after.Reward)
	for _, f := range after.Flags {
		if !slices.Contains(before.Flags, f) {
			tally(&s.Flags, f)
		}
	}
	amendShare(s.DataSources, after.DataSource, before, after)
	amendShare(s.Classes, after.class(), before, after)
	counted := map[string]bool{}
	for _, r := range before.Rewards {
		counted[text(r.Name)] = !r.open()
	}
	s.addComponents(slices.DeleteFunc(slices.Clone(after.Rewards), func(r componentDigest) bool { return counted[text(r.Name)] }))
}

func amendShare(m map[string]Share, name string, before, after *digest) {
	s := m[name]
	s.Reward.amend(before.Reward, after.Reward)
	m[name] = s
}

// open components are counted when they are settled.
func (r componentDigest) open() bool { return text(r.Outcome) == episode.GroupOpen }

func (s *Summary) addComponents(list []componentDigest) {
	for _, r := range list {
		if r.open() {
			continue
		}
		if s.Components == nil {
			s.Components = map[string]Component{}
		}
		name := text(r.Name)
		c := s.Components[name]
		c.add(r)
		s.Components[name] = c
	}
}

func (c *Component) add(r componentDigest) {
	c.Score.Add(r.Score)
	if r.Score == nil {
		_, reason, _ := strings.Cut(text(r.Outcome), ": ")
		tally(&c.Reasons, reason)
	}
	if r.PromptTokens != nil && r.CompletionTokens != nil {
		c.Tokens.In += int64(*r.PromptTokens)
		c.Tokens.Out += int64(*r.CompletionTokens)
	}
	if r.WallMS != nil {
		c.Wall += float64(*r.WallMS) / 1000
	}
	if r.Tries != nil && *r.Tries > 1 {
		c.Again++
	}
}

func (c Component) clone() Component {
	c.Reasons = copyMap(c.Reasons)
	return c
}

func (t *Tokens) add(d *digest, failed bool) {
	if failed {
		return
	}
	count(&t.In, &t.UnknownIn, d.NumInputTokens)
	count(&t.Out, &t.UnknownOut, d.NumOutputTokens)
}

func count(sum, unknown *int64, n *int32) {
	if n == nil {
		*unknown++
		return
	}
	*sum += int64(*n)
}

func (t *Timing) add(o Timing) {
	t.Queue += o.Queue
	t.Model += o.Model
	t.Action += o.Action
	t.Score += o.Score
	t.Total += o.Total
}

func tally(m *map[string]int64, name string) {
	if *m == nil {
		*m = map[string]int64{}
	}
	(*m)[name]++
}

func share(m *map[string]Share, name string, d *digest, failed bool) {
	if *m == nil {
		*m = map[string]Share{}
	}
	s := (*m)[name]
	s.Rows++
	if failed {
		s.Failed++
	}
	s.Reward.Add(d.Reward)
	s.Tokens.add(d, failed)
	(*m)[name] = s
}

func (s *Summary) clone() Summary {
	c := *s
	c.Status, c.Failures, c.Stops, c.Flags = copyMap(s.Status), copyMap(s.Failures), copyMap(s.Stops), copyMap(s.Flags)
	c.DataSources, c.Classes = copyMap(s.DataSources), copyMap(s.Classes)
	c.Components = make(map[string]Component, len(s.Components))
	for name, v := range s.Components {
		c.Components[name] = v.clone()
	}
	return c
}

// copyMap never returns nil: a summary of nothing has empty objects, not null ones.
func copyMap[V any](m map[string]V) map[string]V {
	c := make(map[string]V, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

// digest is the few columns of a row that keys and summaries need; it is read from parts without touching the rest.
type digest struct {
	EpisodeID       string      `parquet:"episode_id"`
	DataSource      string      `parquet:"data_source"`
	Status          *string     `parquet:"status,optional"`
	StopReason      *string     `parquet:"stop_reason,optional"`
	FaultClass      *string     `parquet:"fault_class,optional"`
	Flags           []string    `parquet:"flags,optional,list"`
	Reward          *float64    `parquet:"reward,optional"`
	NumInputTokens  *int32      `parquet:"num_input_tokens,optional"`
	NumOutputTokens *int32      `parquet:"num_output_tokens,optional"`
	NumTurns        int32       `parquet:"num_turns"`
	Timing          Timing      `parquet:"timing"`
	Turns           []turnClass `parquet:"turns,optional,list"`

	Rewards []componentDigest `parquet:"rewards,optional,list"`
}

// componentDigest is what a summary needs of a component.
type componentDigest struct {
	Name             *string  `parquet:"name,optional"`
	Score            *float64 `parquet:"score,optional"`
	Outcome          *string  `parquet:"outcome,optional"`
	Tries            *int16   `parquet:"tries,optional"`
	PromptTokens     *int32   `parquet:"prompt_tokens,optional"`
	CompletionTokens *int32   `parquet:"completion_tokens,optional"`
	WallMS           *float32 `parquet:"wall_ms,optional"`
}

type turnClass struct {
	Class int16 `parquet:"class"`
}

func digestOf(r *Row) digest {
	d := digest{
		EpisodeID: r.EpisodeID, DataSource: r.DataSource, Status: r.Status, StopReason: r.StopReason, FaultClass: r.FaultClass,
		Flags: r.Flags, Reward: r.Reward, NumInputTokens: r.NumInputTokens, NumOutputTokens: r.NumOutputTokens,
		NumTurns: r.NumTurns, Timing: r.Timing,
	}
	for _, c := range r.Rewards {
		d.Rewards = append(d.Rewards, componentDigest{c.Name, c.Score, c.Outcome, c.Tries, c.PromptTokens, c.CompletionTokens, c.WallMS})
	}
	if n := len(r.Turns); n > 0 {
		d.Turns = []turnClass{{r.Turns[n-1].Class}}
	}
	return d
}

func (d *digest) class() string {
	if len(d.Turns) == 0 {
		return "none"
	}
	return strconv.Itoa(int(d.Turns[len(d.Turns)-1].Class))
}

func (d *digest) failed() bool { return bad(d.Status) }

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
