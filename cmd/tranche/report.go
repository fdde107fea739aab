package main

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tranche/storage"
)

// document is the JSON of run, resume and view, and what summary.json holds.
type document struct {
	Dataset storage.Summary `json:"dataset"` // everything on disk
	Run     *report         `json:"run"`
}

// report is the result of run, resume and view; as text, it is the summary a person reads. Counts of the dataset are of
// everything on disk, those of the session of this invocation alone.
type report struct {
	State   string `json:"state"` // complete, incomplete, damaged
	Ended   string `json:"ended"` // why the session ended; "" when it played everything
	RunID   string `json:"run_id"`
	Dir     string `json:"dir"`
	Model   string `json:"model"`
	Made    string `json:"answers_by"` // "embedded simulated engine" or "endpoints"
	Total   int64  `json:"episodes"`   // of the whole run
	Left    int64  `json:"episodes_left"`
	Command string `json:"resume_with,omitempty"`

	Session   *sessionReport  `json:"session,omitempty"`    // absent in view
	TailRules *tailRules      `json:"tail_rules,omitempty"` // absent where all episodes are waited for and no call is hedged
	Account   *account        `json:"account,omitempty"`    // what kept more work from the endpoints, over all sessions; absent where nothing was played
	Dataset   storage.Summary `json:"-"`                    // beside it in the document
	StdErr    *float64        `json:"reward_std_error"`     // of the dataset's mean; null below two scored rows
	Files     files           `json:"files"`
	Skipped   skippedRows     `json:"input"`
	Notes     []string        `json:"notes,omitempty"`

	program string // how to call this program again
}

// sessionReport is what one invocation did. Done + Failed + Cancelled + Skipped + Cut = Sum.
type sessionReport struct {
	Done      int64 `json:"done"`
	Failed    int64 `json:"failed"`
	Cancelled int64 `json:"cancelled"` // begun, not finished, not stored; done again on resume
	Skipped   int64 `json:"skipped"`   // finished before
	Cut       int64 `json:"cut"`       // by a quorum, and dropped: stored as such
	Sum       int64 `json:"sum"`

	WallSeconds     float64          `json:"wall_s"`
	GoodTokensOut   int64            `json:"good_tokens_out"`
	UnknownRows     int64            `json:"good_rows_with_unknown_tokens"`
	TokensPerSecond *float64         `json:"tokens_per_s_of_good_rows"` // null when the servers do not tell
	Endpoints       []endpointReport `json:"endpoints"`
	Tail            *tailReport      `json:"tail,omitempty"`    // absent without a quorum and without hedging
	Cutting         *cuttingReport   `json:"cutting,omitempty"` // absent where no answer was cut
}

type endpointReport struct {
	Name     string  `json:"name"`
	Model    string  `json:"model"`
	Kind     string  `json:"kind"`
	Calls    int64   `json:"calls"`          // attempts that brought a reply
	Failed   int64   `json:"failed"`         // attempts that failed
	MeanCall float64 `json:"mean_service_s"` // of the good ones
	AtOnce   int     `json:"calls_at_once"`  // limit
}

type files struct {
	Parts    string `json:"parts"`
	Failures string `json:"failures"`
	Manifest string `json:"manifest"`
	Summary  string `json:"summary,omitempty"` // absent while there is none
}

type skippedRows struct {
	Tasks      int64 `json:"tasks"`
	Bad        int64 `json:"bad_rows_skipped"`
	Duplicates int64 `json:"duplicate_rows_dropped"`
}

// States of a run.
const (
	stateComplete   = "complete"
	stateIncomplete = "incomplete"
	stateDamaged    = "damaged" // files are missing or broken; only what can be read is counted
)

func filesIn(dir string) files {
	return files{filepath.Join(dir, "parts"), filepath.Join(dir, "failures"), filepath.Join(dir, "manifest.json"), filepath.Join(dir, "summary.json")}
}

// stdError is the standard error of a mean.
func stdError(m storage.Mean) *float64 {
	sd, ok := m.StdDev()
	if !ok {
		return nil
	}
	if math.IsInf(sd, 0) || math.IsNaN(sd) { // scores that large have no such number
		return nil
	}
	e := sd / math.Sqrt(float64(m.N))
	return &e
}

// text is the report for a person. It explains its own words.
func (r *report) text(colour bool) string {
	p := &printer{colour: colour, width: 100}
	p.line("%s", p.paint(bold, "Run "+r.RunID+" in "+r.Dir+": "+r.headline()))
	r.episodesText(p)
	r.rewardText(p)
	r.tokensText(p)
	r.timeText(p)
	r.tailText(p)
	r.cuttingText(p)
	r.sourcesText(p)
	r.endpointsText(p)
	r.boundsText(p)
	r.flagsText(p)
	r.nextText(p)
	return p.b.String()
}

func (r *report) headline() string {
	switch {
	case r.State == stateDamaged:
		return "damaged; only the rows that can be read are counted"
	case r.State == stateComplete && r.Dataset.Failed > 0:
		return "finished, some episodes failed"
	case r.State == stateComplete:
		return "finished"
	case r.Ended != "":
		return "not finished: " + r.Ended
	}
	return "not finished"
}

func (r *report) episodesText(p *printer) {
	d := r.Dataset
	p.line("  episodes   %d of %d stored: %d good, %d failed%s; %d left", d.Rows, r.Total, d.Good, d.Failed, some(d.Cut, ", %d cut by the quorum"), r.Left)
	p.line("  ended as   %s", orDash(counts(d.Status)))
	p.line("  because    %s", orDash(counts(d.Stops)))
	if d.Failed > 0 {
		p.line("  %s   %s", p.paint(red, "failures"), counts(d.Failures))
	}
	if s := r.Session; s != nil {
		p.line("  this time  %d done + %d failed + %d cancelled + %d skipped (finished before)%s = %d", s.Done, s.Failed, s.Cancelled, s.Skipped, some(s.Cut, " + %d cut"), s.Sum)
	}
	if r.Skipped.Bad > 0 || r.Skipped.Duplicates > 0 {
		p.line("  input      %d tasks; %d bad rows skipped, %d repeated rows dropped", r.Skipped.Tasks, r.Skipped.Bad, r.Skipped.Duplicates)
	}
}

func (r *report) rewardText(p *printer) {
	p.line("  reward     %s", meanText(r.Dataset.Reward))
}

// meanText never shows a mean without what it stands on.
func meanText(m storage.Mean) string {
	if m.N == 0 {
		return fmt.Sprintf("none: no verdict on any of %d rows", m.Of)
	}
	text := fmt.Sprintf("mean %.4f", m.Average)
	if e := stdError(m); e != nil {
		text += fmt.Sprintf(" ± %.4f (standard error)", *e)
	}
	return text + fmt.Sprintf(", n=%d scored of %d rows (coverage %.1f%%)", m.N, m.Of, 100*m.Coverage())
}

func (r *report) tokensText(p *printer) {
	t := r.Dataset.Tokens
	p.line("  tokens     in %s, out %s (good rows, by the servers' own count)", tokenCount(t.In, t.UnknownIn, r.Dataset.Good), tokenCount(t.Out, t.UnknownOut, r.Dataset.Good))
	if s := r.Session; s != nil && s.Done > 0 {
		rate := "unknown: the servers do not report usage"
		if s.TokensPerSecond != nil {
			rate = fmt.Sprintf("%.1f tokens/s generated, from the %d good rows of this time only, over %.1fs", *s.TokensPerSecond, s.Done, s.WallSeconds)
		}
		p.line("  speed      %s", rate)
	}
}

// tokenCount says how many rows a sum leaves out; a sum of nothing known is unknown, not 0.
func tokenCount(sum, unknown, good int64) string {
	switch {
	case unknown == 0:
		return fmt.Sprint(sum)
	case unknown >= good:
		return "unknown"
	}
	return fmt.Sprintf("%d + unknown of %d rows", sum, unknown)
}

func (r *report) timeText(p *printer) {
	t := r.Dataset.Time
	n := float64(max(r.Dataset.Rows, 1))
	p.line("  time       an episode on average: queue %s, model %s, action %s, score %s; %s in all", seconds(t.Queue/n), seconds(t.Model/n), seconds(t.Action/n), seconds(t.Score/n), seconds(t.Total/n))
}

func seconds(s float64) string {
	switch {
	case s < 0.0995:
		return fmt.Sprintf("%.1fms", 1000*s)
	case s < 100:
		return fmt.Sprintf("%.2fs", s)
	}
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

// maxListed bounds the tables of the text; the JSON has every line.
const maxListed = 20

func (r *report) sourcesText(p *printer) {
	sources := r.Dataset.DataSources
	if len(sources) == 0 || len(sources) == 1 && sources[""].Rows > 0 {
		return
	}
	rows := [][]string{{"data_source", "rows", "failed", "reward", "n", "tokens out"}}
	for i, name := range slices.Sorted(maps.Keys(sources)) {
		if i == maxListed {
			rows = append(rows, []string{fmt.Sprintf("… %d more", len(sources)-i)})
			break
		}
		s := sources[name]
		mean := "none"
		if s.Reward.N > 0 {
			mean = fmt.Sprintf("%.4f", s.Reward.Average)
		}
		rows = append(rows, []string{or(nonEmpty(name), "(none)"), fmt.Sprint(s.Rows), fmt.Sprint(s.Failed), mean, fmt.Sprint(s.Reward.N), tokenCount(s.Tokens.Out, s.Tokens.UnknownOut, s.Rows-s.Failed)})
	}
	p.table(rows)
}

func (r *report) endpointsText(p *printer) {
	if r.Session == nil || len(r.Session.Endpoints) == 0 {
		return
	}
	rows := [][]string{{"endpoint", "calls", "failed attempts", "mean service", "at once at most"}}
	for i, e := range r.Session.Endpoints {
		if i == maxListed {
			rows = append(rows, []string{fmt.Sprintf("… %d more", len(r.Session.Endpoints)-i)})
			break
		}
		rows = append(rows, []string{e.Name, fmt.Sprint(e.Calls), fmt.Sprint(e.Failed), seconds(e.MeanCall), fmt.Sprint(e.AtOnce)})
	}
	p.table(rows)
}

// table writes rows in columns, the first row as the heading.
func (p *printer) table(rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	for i, row := range rows {
		var b strings.Builder
		for j, cell := range row {
			pad := strings.Repeat(" ", width[j]-len([]rune(cell)))
			if j == 0 {
				b.WriteString("  " + cell + pad)
			} else {
				b.WriteString("  " + pad + cell)
			}
		}
		line := strings.TrimRight(b.String(), " ")
		if i == 0 {
			p.line("%s", p.paint(dim, line))
			continue
		}
		p.line("%s", line)
	}
}

func (r *report) flagsText(p *printer) {
	if len(r.Dataset.Flags) > 0 {
		p.line("  flags      %s (docs/format.md explains them)", counts(r.Dataset.Flags))
	}
	for _, n := range r.Notes {
		p.line("  note       %s", n)
	}
	if r.Made == embeddedText {
		p.line("  %s", p.paint(yellow, "the answers were made up by the embedded simulated engine, not by a model"))
	}
}

const embeddedText = "embedded simulated engine"

func (r *report) nextText(p *printer) {
	p.line("  files      %s (the dataset), %s (rows that failed)%s", r.Files.Parts, r.Files.Failures, label(", ", r.Files.Summary))
	if r.State == stateDamaged {
		return
	}
	p.line("next:")
	if r.Command != "" {
		p.line("  %s", r.Command)
	} else if r.Left == 0 && r.Dataset.Failed > 0 {
		p.line("  %s resume %s --retry-failed    # play only the failed episodes again", r.program, quoted(r.Dir))
	}
	if r.Dataset.Failed > 0 {
		p.line("  %s view %s --failed", r.program, quoted(r.Dir))
	}
	p.line("  %s view %s --best", r.program, quoted(r.Dir))
	p.line("  python -c 'import pyarrow.dataset as ds; print(ds.dataset(%q).to_table().to_pandas())'", r.Files.Parts)
}

// quoted makes a path safe to paste into a shell.
func quoted(s string) string {
	if strings.IndexFunc(s, func(r rune) bool {
		return !(r == '/' || r == '.' || r == '-' || r == '_' || r == '~' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// some writes a number unless it is none.
func some(n int64, format string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(format, n)
}

// counts lists names with their numbers, the largest first.
func counts(m map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		if m[a] != m[b] {
			return int(min(max(m[b]-m[a], -1), 1))
		}
		return strings.Compare(a, b)
	})
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = fmt.Sprintf("%s %d", or(nonEmpty(n), "(none)"), m[n])
	}
	return strings.Join(parts, ", ")
}

func orDash(s string) string { return or(nonEmpty(s), "–") }
