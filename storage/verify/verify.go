package verify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"tranche/storage"
)

// Config says what is verified and how much of it.
type Config struct {
	// Dir is the run directory.
	Dir string
	// Quick looks at the manifest, sizes and footers alone, and reads no row. Default false.
	Quick bool
	// Allow names checks whose findings are told and do not count.
	Allow []string
	// Places is how many places of each finding are kept; the count goes on. Default 5.
	Places int

	// RunID is that of run.yaml; "" = not known, and rows are not held to it.
	RunID string
	// Total makes the reward of its components by the run's rule; nil = the rule is not known, and rewards are not recomputed.
	Total Total
	// TotalOf is the rule of a row's run, by its id, where rows are of several runs and Total is nil; nil = none is known.
	TotalOf func(runID string) Total
	// TotalOfSet is the rule of a set of rescored rewards, by what the set keeps of it; nil = none is known.
	TotalOfSet func(rule json.RawMessage) Total
	// Ended are the sizes that the record of draws says groups were ended with, by key of the group; nil = none.
	Ended map[storage.Key]int32
	// Broken are findings of the caller's own, of files that it alone can read.
	Broken []Broken
}

// Broken is a finding from outside.
type Broken struct {
	Check string // name of one in the catalogue
	Place
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("verify: Dir is empty: expected a run directory"))
	}
	if c.Places < 0 {
		errs = append(errs, fmt.Errorf("verify: Places is %d: expected 0 (default) or more", c.Places))
	}
	for _, name := range c.Allow {
		if !known(name) {
			errs = append(errs, fmt.Errorf("verify: Allow: no check %q; there are: %s", name, strings.Join(names(), ", ")))
		}
	}
	for _, b := range c.Broken {
		if !known(b.Check) {
			errs = append(errs, fmt.Errorf("verify: Broken: no check %q", b.Check))
		}
	}
	return errors.Join(errs...)
}

func known(name string) bool { return slices.Contains(names(), name) }

func names() (list []string) {
	for _, c := range Checks() {
		list = append(list, c.Name)
	}
	return list
}

// Place is where something was found.
type Place struct {
	File     string `json:"file,omitempty"`      // relative to the run directory
	RowGroup *int   `json:"row_group,omitempty"` // of a Parquet file, from 0
	Row      *int64 `json:"row,omitempty"`       // of the file, from 0
	Offset   *int64 `json:"offset,omitempty"`    // of a journal file, bytes
	Episode  string `json:"episode_id,omitempty"`
	Column   string `json:"column,omitempty"`
	What     string `json:"what"`
}

// Finding is what one check found.
type Finding struct {
	Check
	Count   int64   `json:"count"` // rows or files
	Allowed bool    `json:"allowed,omitempty"`
	Places  []Place `json:"places"` // the first ones
}

// Note is something that is no fault and that one may want to know.
type Note struct {
	What   string  `json:"what"`
	Count  int64   `json:"count"`
	Places []Place `json:"places"`
}

// Unchecked is a check that could not be made, of all or of some rows.
type Unchecked struct {
	Check string `json:"check"`
	Why   string `json:"why"`
	Rows  int64  `json:"rows,omitempty"` // 0 = of none could it be made
}

// Report is what came of it.
type Report struct {
	Dir       string      `json:"dir"`
	RunID     string      `json:"run_id,omitempty"`
	Quick     bool        `json:"quick,omitempty"`
	Live      bool        `json:"live,omitempty"` // a process is writing the run
	Files     int64       `json:"files"`
	Bytes     int64       `json:"bytes"`
	Rows      int64       `json:"rows"`              // read, those of reward sets too
	Journal   int64       `json:"journal_rows"`      // of Rows
	Findings  []Finding   `json:"findings"`          // in the order of the catalogue
	Notes     []Note      `json:"notes"`             //
	Unchecked []Unchecked `json:"not_checked"`       //
	Gravest   *Class      `json:"gravest,omitempty"` // of the findings that count; nil = there is none
	Unread    string      `json:"unread,omitempty"`  // why it is not all there is to find; "" = it is
}

// Verifier verifies one run, once.
type Verifier struct {
	cfg     Config
	now     time.Time
	run     *storage.Run
	report  Report
	checks  map[string]Check
	found   map[string]*Finding
	notes   map[string]*Note
	misses  map[string]*Unchecked
	books   *books
	rows    []Check   // those that look at single rows
	partial bool      // rows of groups were left out on purpose
	unread  bool      // some rows could not be read: what counts all of them is not checked
	latest  time.Time // when the last row was created
	summary storage.Summary
	index   map[storage.Key]journalEntry // what the journal holds, by episode

	generation int64 // of the manifest that was read

	rowsDone, bytesDone, bytesAll atomic.Int64
}

// New makes a Verifier.
func New(cfg Config) (*Verifier, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Places = cmp.Or(cfg.Places, 5)
	v := &Verifier{
		cfg: cfg, now: time.Now(), report: Report{Dir: cfg.Dir, RunID: cfg.RunID, Quick: cfg.Quick}, checks: map[string]Check{},
		found: map[string]*Finding{}, notes: map[string]*Note{}, misses: map[string]*Unchecked{}, books: newBooks(), index: map[storage.Key]journalEntry{},
	}
	for _, c := range Checks() {
		v.checks[c.Name] = c
		if c.row != nil {
			v.rows = append(v.rows, c)
		}
	}
	return v, nil
}

// Progress is how far Run is: rows read, bytes of files done and in all. It may be called meanwhile.
func (v *Verifier) Progress() (rows, done, all int64) {
	return v.rowsDone.Load(), v.bytesDone.Load(), v.bytesAll.Load()
}

// Run verifies. Errors: storage.ErrNotRun, ctx, a disk that cannot be read. What is wrong with the run is in the report, as far as it was looked at.
func (v *Verifier) Run(ctx context.Context) (Report, error) {
	for _, b := range v.cfg.Broken {
		v.find(b.Check, b.Place)
	}
	err := v.all(ctx)
	if err != nil && !errors.Is(err, storage.ErrNotRun) {
		v.report.Unread = err.Error()
	}
	return v.done(), err
}

func (v *Verifier) all(ctx context.Context) error {
	_, before := storage.Writing(v.cfg.Dir) // a run may end, or be gone on with, while its manifest is read
	m, journal, err := v.open()
	if err != nil || journal == nil {
		return err
	}
	defer journal.Close()
	_, after := storage.Writing(v.cfg.Dir)
	v.report.Live, v.generation = before || after, m.Generation
	v.manifest(m)
	v.partial = m.Made != nil && m.Made.PartialGroups
	if err := errors.Join(v.strays(m), v.records()); err != nil {
		return err
	}
	for _, p := range slices.Concat(m.Parts, m.Failures, setParts(m)) {
		v.bytesAll.Add(p.Bytes)
	}
	if !v.cfg.Quick {
		if err := v.indexJournal(ctx, journal); err != nil {
			return err
		}
		if err := v.turns(); err != nil {
			return err
		}
	}
	if err := v.files(ctx, m); err != nil || v.cfg.Quick {
		return err
	}
	if err := v.countJournal(ctx, journal); err != nil {
		return err
	}
	v.conclude()
	return nil
}

// done puts the report in order.
func (v *Verifier) done() Report {
	r := v.report
	r.Findings, r.Notes, r.Unchecked = []Finding{}, []Note{}, []Unchecked{}
	for _, c := range Checks() {
		f := v.found[c.Name]
		if f == nil {
			continue
		}
		f.Allowed = slices.Contains(v.cfg.Allow, c.Name)
		r.Findings = append(r.Findings, *f)
		if !f.Allowed && (r.Gravest == nil || c.Class < *r.Gravest) {
			r.Gravest = &c.Class
		}
	}
	for _, n := range v.notes {
		r.Notes = append(r.Notes, *n)
	}
	slices.SortFunc(r.Notes, func(a, b Note) int { return cmp.Compare(a.What, b.What) })
	for _, u := range v.misses {
		r.Unchecked = append(r.Unchecked, *u)
	}
	slices.SortFunc(r.Unchecked, func(a, b Unchecked) int {
		return cmp.Or(cmp.Compare(a.Check, b.Check), cmp.Compare(a.Why, b.Why))
	})
	return r
}

// find enters a finding. A check that is not in the catalogue is a bug here.
func (v *Verifier) find(check string, at Place) {
	f := v.found[check]
	if f == nil {
		c, ok := v.checks[check]
		if !ok {
			panic("verify: no check " + check)
		}
		f = &Finding{Check: c}
		v.found[check] = f
	}
	f.Count++
	if len(f.Places) < v.cfg.Places {
		f.Places = append(f.Places, at)
	}
}

func (v *Verifier) note(what string, at Place) {
	n := v.notes[what]
	if n == nil {
		n = &Note{What: what}
		v.notes[what] = n
	}
	n.Count++
	if len(n.Places) < v.cfg.Places {
		n.Places = append(n.Places, at)
	}
}

// miss says that a check was not made; rows 0 = not at all.
func (v *Verifier) miss(check, why string, rows int64) {
	u := v.misses[check+why]
	if u == nil {
		u = &Unchecked{Check: check, Why: why}
		v.misses[check+why] = u
	}
	u.Rows += rows
}

// totalOfSet is the rule that made the rewards of a set; nil = it is not known.
func (v *Verifier) totalOfSet(set *storage.RewardSet) Total {
	if v.cfg.TotalOfSet == nil || len(set.Rule) == 0 {
		return nil
	}
	return v.cfg.TotalOfSet(set.Rule)
}

// totalOf is the rule that made a row's reward, where it has none of a set.
func (v *Verifier) totalOf(r *storage.Row) Total {
	if v.cfg.Total == nil && v.cfg.TotalOf != nil {
		return v.cfg.TotalOf(r.RunID)
	}
	return v.cfg.Total
}

// look makes the checks of one row.
func (v *Verifier) look(r *row, at Place) {
	r.run, r.now = v.cfg.RunID, v.now
	for _, c := range v.rows {
		column, what := c.row(r)
		if column == "" {
			continue
		}
		at.Column, at.What = column, what
		v.find(c.Name, at)
	}
	at.Column, at.What = "", ""
	v.tell(r, at)
	if v.latest.Before(r.CreatedAt) {
		v.latest = r.CreatedAt
	}
	v.rowsDone.Add(1)
	v.report.Rows++
}

// tell notes what of a row could not be checked, and what is no fault.
func (v *Verifier) tell(r *row, at Place) {
	if r.total == nil {
		v.miss("reward", "the rule that made the reward is not known", 1)
	}
	if len(r.spans()) < len(r.Turns) && r.trouble == "" {
		for _, check := range []string{"prefix", "turn-tokens"} {
			v.miss(check, "the row does not hold the ids of every turn's prompt and answer", 1)
		}
	}
	if notFinite(r) {
		at.Column = "logprobs"
		v.note("rows with a logprob that is NaN or -inf, stored as the server gave it", at)
	}
}
