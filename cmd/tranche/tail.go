package main

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"tranche/scheduler"
)

// What to do with the tail: over-provision and cut, or send stragglers twice. Both are opt-in, and what they cost and how they bias
// the lengths is reported.

// Answers to --on-quorum.
const (
	quorumDrop  = "drop"
	quorumDefer = "defer"
)

// drawn is the samples of one draw: what is over-provisioned included.
func (s *Settings) drawn() int {
	return max(int(math.Ceil(float64(s.Samples)*s.Oversample-1e-9)), s.Samples)
}

// oversampled says what --oversample comes to where whole samples make it more than was asked for; else "".
func (s *Settings) oversampled(tasks int64) string {
	begun := s.drawn()
	if begun == s.Samples || float64(begun) < float64(s.Samples)*s.Oversample+1e-9 {
		return ""
	}
	of := tasks * int64(s.Rounds)
	return fmt.Sprintf("--oversample %g of %d: samples are whole, so %d of each task are begun, %.3g times as many: %d episodes to keep %d",
		s.Oversample, s.Samples, begun, float64(begun)/float64(s.Samples), of*int64(begun), of*int64(s.Samples))
}

// cuts says whether the settings end some episodes before they are done.
func (s *Settings) cuts() bool { return s.drawn() > s.Samples || s.Quorum < 1 }

func (s *Settings) validateTail(f *faults) {
	if !(s.Oversample >= 1 && s.Oversample <= 16) {
		f.add("oversample: expected 1 (no more samples than asked for) to 16, found %g", s.Oversample)
	}
	if !(s.Quorum > 0 && s.Quorum <= 1) {
		f.add("quorum: expected a share over 0, at most 1 (all are waited for), found %g", s.Quorum)
	}
	if !(s.Hedge >= 0 && s.Hedge <= 1) {
		f.add("hedge: expected a share from 0 (none) to 1, found %g", s.Hedge)
	}
	if s.OnQuorum == quorumDefer && !s.cuts() {
		f.add("on-quorum: says what becomes of what quorum or oversample cut, and neither is set")
	}
	if s.Hedge > 0 && s.hedgeable() < 2 {
		f.add("hedge: a second attempt goes to another endpoint that does not pad; there must be two of these, and there are %d", s.hedgeable())
	}
	if s.EarlyYield && len(s.Tools) > 0 {
		f.add("early-yield: orders single answers; with tools an episode has many")
	}
	if s.Padded > mostRows {
		f.add("padded: expected at most %d rows, found %d", mostRows, s.Padded)
	}
	if s.Padded > 0 && s.Concurrency > 0 && s.Concurrency < s.Padded {
		f.add("concurrency: %d calls at once are fewer than the %d rows of a padded batch; give fewer rows", s.Concurrency, s.Padded)
	}
}

// mostRows is the most rows of a padded batch that make sense.
const mostRows = 4096

// hedgeable is how many endpoints a second attempt can go to or come from; the embedded engine is one.
func (s *Settings) hedgeable() int {
	if len(s.Endpoint) == 0 && s.Padded == 0 {
		return 1
	}
	n := 0
	for _, e := range s.Endpoint {
		if rows, _ := e.padded(s.Padded); rows == 0 {
			n++
		}
	}
	return n
}

// quorum is what the scheduler is told. The run's share is of the episodes that are wanted, those of earlier invocations included.
func (s *session) quorum() scheduler.Quorum {
	q := scheduler.Quorum{Defer: s.set.OnQuorum == quorumDefer}
	if s.set.drawn() > s.set.Samples {
		q.Samples = s.set.Samples
	}
	if s.set.Quorum < 1 {
		wanted := float64(s.tasks.Tasks * int64(s.set.Samples) * int64(s.set.Rounds))
		left := int64(math.Ceil(s.set.Quorum*wanted-1e-9)) - s.writer.Counts().Good
		if q.Episodes = max(left, 1); left <= 0 && q.Defer {
			q.Episodes = 0 // the last round was stopped: it goes on, and nothing is cut in it
		}
	}
	return q
}

// hedges counts the second attempts of this invocation, told by the scheduler's trace.
type hedges struct {
	launched, won, lost atomic.Int64
	wasted              atomic.Int64 // tokens generated for nothing, counted or estimated
	wastedTime          atomic.Int64 // nanoseconds
}

func (h *hedges) lose(took time.Duration) {
	h.lost.Add(1)
	h.wastedTime.Add(int64(took))
}

// tailReport is what the opt-in rules for the tail did: in this invocation, or in all sessions of a run.
type tailReport struct {
	Quorum *quorumReport `json:"quorum,omitempty"`
	Hedge  *hedgeReport  `json:"hedge,omitempty"`
}

// tailRules are the rules themselves; in a report where any of them is on.
type tailRules struct {
	Begun    int     `json:"samples_begun"` // of each task and round
	Kept     int     `json:"samples_kept"`
	Quorum   float64 `json:"quorum"`    // of the run; 1 = all are waited for
	OnQuorum string  `json:"on_quorum"` // drop, defer
	Hedge    float64 `json:"hedge"`     // second attempts for each call at most; 0 = none
}

// tailRules are the settings' rules; nil without any.
func (s *Settings) tailRules() *tailRules {
	if !s.cuts() && s.Hedge == 0 {
		return nil
	}
	return &tailRules{s.drawn(), s.Samples, s.Quorum, s.OnQuorum, s.Hedge}
}

// String tells the rules to a person.
func (r *tailRules) String() string {
	var said []string
	if r.Begun > r.Kept {
		said = append(said, fmt.Sprintf("%d samples of each task begun, the first %d to end well kept", r.Begun, r.Kept))
	}
	if r.Quorum < 1 {
		said = append(said, fmt.Sprintf("enough when %g %% of the run have ended well", 100*r.Quorum))
	}
	if len(said) > 0 && r.OnQuorum == quorumDefer {
		said = append(said, "what is cut is played again at the end")
	} else if len(said) > 0 {
		said = append(said, "what is cut is dropped")
	}
	if r.Hedge > 0 {
		said = append(said, fmt.Sprintf("at most %g second attempts for each call", r.Hedge))
	}
	return strings.Join(said, "; ")
}

// tailSums is what the rules did, to be added up over sessions: account.json holds it. Of a session that was killed it holds nothing.
type tailSums struct {
	Sessions int   `json:"sessions"`
	Kept     int64 `json:"kept"`
	Cut      int64 `json:"cut"`
	Unbegun  int64 `json:"cut_before_begin"`
	Deferred int64 `json:"deferred"`

	KeptTokens    int64   `json:"kept_tokens"`
	CutTokens     int64   `json:"cut_tokens"`
	KeptUncounted int64   `json:"kept_uncounted"`
	CutUncounted  int64   `json:"cut_uncounted"`
	KeptSeconds   float64 `json:"kept_s"`
	CutSeconds    float64 `json:"cut_s"`

	Hedges *hedgeReport `json:"hedges,omitempty"` // absent without hedging
}

// tailSums are this invocation's; nil where no rule is on.
func (s *session) tailSums() *tailSums {
	if s.set.tailRules() == nil {
		return nil
	}
	b := s.totals.Bias
	t := &tailSums{
		Sessions: 1, Kept: b.Kept, Cut: b.Cut, Unbegun: b.Unbegun, Deferred: b.Deferred, KeptTokens: b.KeptTokens, CutTokens: b.CutTokens,
		KeptUncounted: b.KeptUncounted, CutUncounted: b.CutUncounted, KeptSeconds: b.KeptTime.Seconds(), CutSeconds: b.CutTime.Seconds(),
	}
	if s.set.Hedge > 0 {
		h := &s.hedges
		t.Hedges = &hedgeReport{h.launched.Load(), h.won.Load(), h.lost.Load(), h.wasted.Load(), time.Duration(h.wastedTime.Load()).Seconds()}
	}
	return t
}

// plus is both together; nil stands for nothing.
func (t *tailSums) plus(o *tailSums) *tailSums {
	if t == nil || o == nil {
		return cmp.Or(t, o)
	}
	sum := *t
	sum.Sessions += o.Sessions
	sum.Kept, sum.Cut, sum.Unbegun, sum.Deferred = t.Kept+o.Kept, t.Cut+o.Cut, t.Unbegun+o.Unbegun, t.Deferred+o.Deferred
	sum.KeptTokens, sum.CutTokens = t.KeptTokens+o.KeptTokens, t.CutTokens+o.CutTokens
	sum.KeptUncounted, sum.CutUncounted = t.KeptUncounted+o.KeptUncounted, t.CutUncounted+o.CutUncounted
	sum.KeptSeconds, sum.CutSeconds = t.KeptSeconds+o.KeptSeconds, t.CutSeconds+o.CutSeconds
	sum.Hedges = t.Hedges.plus(o.Hedges)
	return &sum
}

// report is what a person is told; nil where the rules did nothing.
func (t *tailSums) report() *tailReport {
	if t == nil || t.Kept+t.Cut+t.Unbegun == 0 && t.Hedges == nil {
		return nil
	}
	r := &tailReport{Hedge: t.Hedges}
	if t.Kept+t.Cut+t.Unbegun > 0 {
		r.Quorum = t.quorum()
	}
	return r
}

// quorumReport compares what was kept with what was cut: the cut ones are of the long ones.
type quorumReport struct {
	Kept        int64    `json:"kept"`
	Cut         int64    `json:"cut"`                     // a call had been sent
	Unbegun     int64    `json:"cut_before_begin"`        // none had
	Deferred    int64    `json:"deferred"`                // of both: played again
	CutShare    float64  `json:"cut_share"`               // cut of all that began
	KeptTokens  *float64 `json:"kept_mean_tokens"`        // generated; null when nothing was kept or a server does not count
	CutTokens   *float64 `json:"cut_mean_tokens_so_far"`  // of those whose tokens are known, all but those in a call that was not streamed; null when none are
	KeptSeconds *float64 `json:"kept_mean_seconds"`       // from opening to the end
	CutSeconds  *float64 `json:"cut_mean_seconds_so_far"` // from opening to the cut
}

type hedgeReport struct {
	Launched      int64   `json:"launched"`       // second attempts
	Won           int64   `json:"won"`            // answered before the first attempt
	Lost          int64   `json:"attempts_lost"`  // attempts that were for nothing
	WastedTokens  int64   `json:"wasted_tokens"`  // generated by these, counted or estimated
	WastedSeconds float64 `json:"wasted_seconds"` // their time
}

func (h *hedgeReport) plus(o *hedgeReport) *hedgeReport {
	if h == nil || o == nil {
		return cmp.Or(h, o)
	}
	return &hedgeReport{h.Launched + o.Launched, h.Won + o.Won, h.Lost + o.Lost, h.WastedTokens + o.WastedTokens, h.WastedSeconds + o.WastedSeconds}
}

func (t *tailSums) quorum() *quorumReport {
	mean := func(sum float64, n int64) *float64 {
		if n == 0 {
			return nil
		}
		m := sum / float64(n)
		return &m
	}
	q := &quorumReport{
		Kept: t.Kept, Cut: t.Cut, Unbegun: t.Unbegun, Deferred: t.Deferred, CutTokens: mean(float64(t.CutTokens), t.Cut-t.CutUncounted),
		KeptSeconds: mean(t.KeptSeconds, t.Kept), CutSeconds: mean(t.CutSeconds, t.Cut),
	}
	if n := t.Kept + t.Cut; n > 0 {
		q.CutShare = float64(t.Cut) / float64(n)
	}
	if t.KeptUncounted == 0 {
		q.KeptTokens = mean(float64(t.KeptTokens), t.Kept)
	}
	return q
}

// tail is what the rules did: this time, or where nothing was played this time, in all sessions whose end is known.
func (r *report) tail() (did *tailReport, sessions string) {
	switch a := r.Account; {
	case r.Session != nil && r.Session.Tail != nil:
		return r.Session.Tail, ""
	case a == nil || a.Tail == nil:
		return nil, ""
	case a.Tail.Sessions < a.Sessions:
		return a.Tail.report(), fmt.Sprintf(" (in %d of %s: the others were killed or had no such rule)", a.Tail.Sessions, sessionsText(a.Sessions))
	default:
		return a.Tail.report(), ""
	}
}

func (r *report) tailText(p *printer) {
	if r.TailRules != nil {
		p.line("  rules      %s", r.TailRules)
	}
	did, sessions := r.tail()
	if did == nil {
		return
	}
	if q := did.Quorum; q != nil {
		p.line("  quorum     %d kept, %d cut (%.1f%% of those begun), %d cut before they began; %d of the cut played again%s", q.Kept, q.Cut, 100*q.CutShare, q.Unbegun, q.Deferred, sessions)
		if q.Deferred < q.Cut+q.Unbegun {
			p.line("  bias       kept: %s, %s an episode; cut so far: %s, %s: those cut were still going on, so what is kept is of the short ones",
				tokensMean(q.KeptTokens), secondsMean(q.KeptSeconds), tokensMean(q.CutTokens), secondsMean(q.CutSeconds))
		}
	}
	if h := did.Hedge; h != nil {
		p.line("  hedging    %d second attempts, %d of them answered first; %d attempts for nothing, %s and about %d tokens%s", h.Launched, h.Won, h.Lost, seconds(h.WastedSeconds), h.WastedTokens, sessions)
	}
}

func tokensMean(m *float64) string {
	if m == nil {
		return "tokens unknown"
	}
	return fmt.Sprintf("%.0f tokens", *m)
}

func secondsMean(m *float64) string {
	if m == nil {
		return "–"
	}
	return seconds(*m)
}
