package storage

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"tranche/episode"
)

// FlagNonFinite marks a row with a score or weight that was NaN or infinite: the score is stored as null ("no verdict"),
// the weight as 0, because neither may poison a mean.
const FlagNonFinite = "non_finite"

// RowOf converts a closed episode into the row that is stored. The row shares no memory that the episode may still change
// except the immutable texts. All text is valid UTF-8 afterwards; a repair sets episode.FlagTextRepaired on the row.
func RowOf(e *episode.Episode) Row {
	r := rowBesideTokens(e)
	r.setTokens(&e.Tokens)
	return r
}

// rowBesideTokens is the row without its four columns of tokens.
func rowBesideTokens(e *episode.Episode) Row {
	var fix repairer
	r := Row{SchemaVersion: SchemaVersion, NumBranches: 1}
	r.setKeys(e, &fix)
	r.setTask(e.Task, &fix)
	r.setMessages(e, &fix)
	r.PromptLen, r.PrefixBreak = int32(e.Tokens.PromptLen), clone(e.Tokens.Break)
	r.setBreaks(e.Tokens.Breaks)
	r.setTurns(e, &fix)
	r.setActions(e.Actions, &fix)
	r.setVerdict(e.Verdict, &fix)
	r.setEnd(e, &fix)
	r.setSampling(e.Sampling, e.Budget.TurnTokens, &fix)
	r.setRaw(e.Raw, &fix)
	r.Flags = flagsOf(e.Flags, &fix)
	return r
}

func (r *Row) setKeys(e *episode.Episode, fix *repairer) {
	r.RunID, r.EpisodeID, r.GroupID = fix.text(e.RunID), fix.text(e.ID), fix.text(e.GroupID)
	r.Round, r.SampleIndex, r.GroupSize = int32(e.Round), int32(e.Sample), int32(e.GroupSize)
	r.Attempt = int32(e.Attempt)
	r.NumPromptMessages = int32(e.NumPrompt)
	r.CreatedAt = time.Unix(0, 0).UTC() // a time that nobody set
	if at := stamp(e.Created); at != nil {
		r.CreatedAt = *at
	}
	r.Model, r.Variant = fix.some(e.Model), fix.some(e.Variant)
}

func (r *Row) setTask(t *episode.Task, fix *repairer) {
	if t == nil {
		return
	}
	r.TaskID, r.TaskHash = fix.text(t.ID), fix.text(t.Hash)
	r.DataSource, r.EnvClass, r.Split = fix.text(t.DataSource), fix.text(t.EnvClass), fix.text(t.Split)
	r.Tools, r.ExtraInfo = fix.raw(t.Tools), fix.raw(t.Extra)
	r.RewardModel = RewardModel{Style: fix.some(t.Style), GroundTruth: fix.opt(t.Answer)}
}

func (r *Row) setMessages(e *episode.Episode, fix *repairer) {
	r.Messages = make([]Message, len(e.Messages))
	for i, m := range e.Messages {
		r.Messages[i] = Message{
			Role: fix.some(m.Role), Content: fix.opt(m.Content), ReasoningContent: fix.opt(m.ReasoningContent),
			Name: fix.opt(m.Name), ToolCallID: fix.opt(m.ToolCallID), ToolCalls: toolCalls(m.ToolCalls, fix),
		}
		if f := formOf(i, m, fix); f != nil {
			r.Forms = append(r.Forms, *f)
		}
	}
}

func toolCalls(calls []episode.ToolCall, fix *repairer) []ToolCall {
	if calls == nil {
		return nil
	}
	out := make([]ToolCall, len(calls))
	for i, c := range calls {
		out[i] = ToolCall{ID: fix.text(c.ID), Type: fix.text(c.Type),
			Function: Function{Name: fix.text(c.Function.Name), Arguments: fix.text(c.Function.Arguments)}}
	}
	return out
}

// setTokens leaves the four lists empty, not null, when the server gave no ids: "no ids" is known, and readers can take
// the length without a null check.
func (r *Row) setTokens(t *episode.Tokens) {
	r.TokenIDs, r.LossMask, r.Versions = fresh(t.IDs), fresh(t.Mask), fresh(t.Versions)
	r.Logprobs = make([]*float32, len(t.Logprobs))
	values := make([]float32, len(t.Logprobs)) // one allocation for all of a row's logprobs
	for i, lp := range t.Logprobs {
		if lp.Known {
			values[i] = lp.Value
			r.Logprobs[i] = &values[i]
		}
	}
}

// lendTokens has the row share the episode's lists instead of copying them, and leaves logprobs, of which a row's list is of another type.
func (r *Row) lendTokens(t *episode.Tokens) {
	r.TokenIDs, r.LossMask, r.Versions = t.IDs, t.Mask, t.Versions
}

// setBreaks leaves the list null where no prompt broke the sequence. A logprob that is no finite number is null here: JSON of a row has no word for it.
func (r *Row) setBreaks(breaks []episode.Broken) {
	for _, b := range breaks {
		out := Broken{Turn: int16(b.Turn), At: int32(b.At), TokenIDs: fresh(b.IDs), LossMask: fresh(b.Mask), Versions: fresh(b.Versions), Logprobs: make([]*float32, len(b.Logprobs))}
		for i, lp := range b.Logprobs {
			if v := float64(lp.Value); lp.Known && !math.IsInf(v, 0) && !math.IsNaN(v) {
				out.Logprobs[i] = episode.Ptr(lp.Value)
			}
		}
		r.Breaks = append(r.Breaks, out)
	}
}

func (r *Row) setTurns(e *episode.Episode, fix *repairer) {
	r.Turns = make([]Turn, len(e.Turns))
	for i, t := range e.Turns {
		r.Turns[i] = Turn{
			PromptTokens: clone(t.PromptTokens), CompletionTokens: clone(t.CompletionTokens), CachedTokens: clone(t.CachedTokens),
			FinishReason: fix.some(t.Finish), StopReason: fix.opt(t.StopSeq), Endpoint: fix.some(t.Endpoint),
			QueueMS: millis(t.Queue), TTFTMS: optMillis(t.TTFT), ServiceMS: millis(t.Service),
			Retries: t.Retries, Class: t.Class,
			VersionStart: clone(t.VersionStart), VersionEnd: clone(t.VersionEnd), Hedged: t.Hedged, Exchange: fix.some(string(t.Exchange)), LogprobsOf: fix.some(string(t.LogprobsOf)),
		}
	}
	r.NumTurns = int32(len(e.Turns))
	r.NumInputTokens = sum(e.Turns, func(t episode.Turn) *int32 { return t.PromptTokens })
	r.NumOutputTokens = outputTokens(e)
}

// outputTokens is the server's own count; where a turn came without usage, the number of sampled ids, but only when they
// are known for every turn and none was cut off at a prefix break. Else it is unknown.
func outputTokens(e *episode.Episode) *int32 {
	if n := sum(e.Turns, func(t episode.Turn) *int32 { return t.CompletionTokens }); n != nil {
		return n
	}
	complete := e.Sampling.TokenIDs && e.Tokens.Break == nil && !slices.Contains(e.Flags, episode.FlagTokenIDsMissing)
	if !complete {
		return nil
	}
	return episode.Ptr(int32(e.Tokens.Sampled()))
}

// sum adds one count over all turns; nil when any of them is unknown.
func sum(turns []episode.Turn, count func(episode.Turn) *int32) *int32 {
	var n int32
	for _, t := range turns {
		c := count(t)
		if c == nil {
			return nil
		}
		n += *c
	}
	return &n
}

func (r *Row) setActions(acts []episode.ActionRecord, fix *repairer) {
	r.Actions = make([]Action, len(acts))
	for i, a := range acts {
		r.Actions[i] = Action{
			Turn: a.Turn, CallID: fix.some(a.CallID), Name: fix.some(a.Name), Status: fix.some(a.Status),
			ExitCode: clone(a.ExitCode), WallMS: millis(a.Wall), CPUMS: optMillis(a.CPU),
			OutBytes: a.OutBytes, Truncated: a.Truncated, Tier: fix.some(a.Tier), Rootfs: fix.some(a.Rootfs),
		}
		r.Actions[i].setFootprint(a.Footprint)
	}
}

// setFootprint leaves null what is not known.
func (a *Action) setFootprint(f *episode.Footprint) {
	if f == nil {
		return
	}
	a.QueueMS, a.SetupMS = millis(f.Queue), millis(f.Setup)
	a.OOMKills, a.RefusedForks, a.LeftBehind = episode.Ptr(int32(f.OOMKills)), episode.Ptr(int32(f.RefusedForks)), episode.Ptr(int32(f.LeftBehind))
	if f.PeakMemory > 0 {
		a.PeakMemory = episode.Ptr(f.PeakMemory)
	}
}

func (r *Row) setVerdict(v episode.Verdict, fix *repairer) {
	r.Reward = fix.finite(v.Total)
	r.Scored = episode.Ptr(r.Reward != nil)
	r.TurnCredit = credit(v.Credit)
	if v.Rewards == nil {
		return
	}
	r.Rewards = make([]Reward, len(v.Rewards))
	for i, c := range v.Rewards {
		r.Rewards[i] = component(c, fix)
		if c.Credit != nil {
			r.Credits = append(r.Credits, Credit{Name: r.Rewards[i].Name, Credit: credit(c.Credit)})
		}
	}
}

func component(c episode.Reward, fix *repairer) Reward {
	weight := c.Weight
	if fix.finite(&weight) == nil {
		weight = 0
	}
	r := Reward{Name: fix.some(c.Name), Score: fix.finite(c.Score), Weight: weight, Raw: fix.finite(c.Raw),
		Outcome: fix.some(c.Outcome), Grader: fix.some(c.Grader), Config: fix.some(c.Config), Evidence: fix.some(c.Evidence), Tier: fix.some(c.Tier)}
	if c.Tries == 0 { // nothing was asked, so nothing has a cost
		return r
	}
	r.Tries = episode.Ptr(int16(min(c.Tries, math.MaxInt16)))
	r.WallMS, r.CPUMS = millis(c.Cost.Wall), spent(c.Cost.CPU)
	if n := c.Cost.PromptTokens + c.Cost.CompletionTokens; n > 0 {
		r.PromptTokens, r.CompletionTokens = episode.Ptr(int32(c.Cost.PromptTokens)), episode.Ptr(int32(c.Cost.CompletionTokens))
	}
	return r
}

// spent is nil where no CPU time was measured.
func spent(d time.Duration) *float32 {
	if d == 0 {
		return nil
	}
	return millis(d)
}

// uncredit is what credit was made of.
func uncredit(turns []*float64) []float64 {
	if turns == nil {
		return nil
	}
	out := make([]float64, len(turns))
	for i, c := range turns {
		if out[i] = math.NaN(); c != nil {
			out[i] = *c
		}
	}
	return out
}

// credit is a list with null where a turn has none; null where there is no list.
func credit(turns []float64) []*float64 {
	if turns == nil {
		return nil
	}
	out := make([]*float64, len(turns))
	for i, c := range turns {
		if !math.IsNaN(c) && !math.IsInf(c, 0) {
			out[i] = episode.Ptr(c)
		}
	}
	return out
}

func (r *Row) setEnd(e *episode.Episode, fix *repairer) {
	r.Status, r.StopReason = fix.some(string(e.Status)), fix.some(string(e.Stop))
	r.Submitted = fix.opt(e.Submitted)
	t := e.Timing
	r.Timing = Timing{Queue: t.Queue.Seconds(), Model: t.Model.Seconds(), Action: t.Action.Seconds(),
		Score: t.Score.Seconds(), Total: t.Total.Seconds()}
	r.setFault(e.Fault, fix)
}

func (r *Row) setFault(f *episode.Fault, fix *repairer) {
	if f == nil {
		return
	}
	r.FaultStage, r.FaultClass = fix.some(string(f.Stage)), fix.some(string(f.Class))
	if f.Cause != nil {
		r.FaultDetail = episode.Ptr(fix.text(f.Cause.Error()))
	}
	r.Partial = fix.some(f.Partial)
	r.FaultAttempts = make([]Attempt, len(f.Attempts))
	for i, a := range f.Attempts {
		r.FaultAttempts[i] = Attempt{Endpoint: fix.some(a.Endpoint), Class: fix.some(string(a.Class)),
			Began: stamp(a.Began), Ended: stamp(a.Ended),
			Cause: fix.some(a.Cause)}
	}
}

// setRaw leaves the column null where nothing was kept. A body that cannot be inflated, which only a bug can make, is one that is
// not held.
func (r *Row) setRaw(raw []episode.Raw, fix *repairer) {
	for _, a := range raw {
		body, err := a.Body()
		if err != nil {
			body = nil
		}
		r.Raw = append(r.Raw, RawAnswer{Turn: a.Turn, Status: a.Status, Class: fix.some(string(a.Class)), Bytes: a.Bytes, Body: body})
	}
}

// setSampling stores the parameters as they went out, under their names on the wire. Extra fields win, as they do there, but
// for a token limit, which only lowers the one of the turn; turnTokens 0 = none. What a single call had left of a context or of
// the episode's budget may have been less.
func (r *Row) setSampling(s episode.Sampling, turnTokens int, fix *repairer) {
	sent := map[string]json.RawMessage{}
	put(sent, "temperature", s.Temperature, number)
	put(sent, "top_p", s.TopP, number)
	put(sent, "top_k", s.TopK, func(v int) json.RawMessage { return strconv.AppendInt(nil, int64(v), 10) })
	put(sent, "min_p", s.MinP, number)
	put(sent, "seed", s.Seed, func(v int64) json.RawMessage { return strconv.AppendInt(nil, v, 10) })
	if s.Stop != nil {
		sent["stop"] = mustJSON(s.Stop)
	}
	if s.Logprobs {
		sent["logprobs"] = json.RawMessage("true")
	}
	if s.TokenIDs {
		sent["return_token_ids"] = json.RawMessage("true")
	}
	for name, v := range s.Extra {
		if !json.Valid(v) {
			v = mustJSON(string(v))
		}
		sent[name] = v
	}
	limitTokens(sent, turnTokens)
	r.Seed = clone(s.Seed)
	r.Sampling = episode.Ptr(fix.text(object(sent)))
}

// limitTokens puts the turn's token limit, or the lower one of an extra field, under the name that the extra field chose. An extra
// limit that is no whole number is left as it is: no call went out with it.
func limitTokens(sent map[string]json.RawMessage, turnTokens int) {
	name, limit := "max_tokens", turnTokens
	for _, field := range []string{"max_tokens", "max_completion_tokens"} {
		raw, ok := sent[field]
		if !ok {
			continue
		}
		var n *int
		if err := json.Unmarshal(raw, &n); err != nil {
			return
		}
		delete(sent, field)
		if n == nil { // null says nothing
			continue
		}
		if name = field; limit == 0 || *n < limit {
			limit = *n
		}
	}
	if limit > 0 {
		sent[name] = strconv.AppendInt(nil, int64(limit), 10)
	}
}

func put[T any](to map[string]json.RawMessage, name string, v *T, text func(T) json.RawMessage) {
	if v != nil {
		to[name] = text(*v)
	}
}

// number writes v as JSON; JSON has no word for NaN and the infinities, so they become strings instead of vanishing.
func number(v float64) json.RawMessage {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return mustJSON(fmt.Sprint(v))
	}
	return mustJSON(v)
}

func object(fields map[string]json.RawMessage) string {
	out := []byte{'{'}
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, mustJSON(name)...)
		out = append(out, ':')
		out = append(out, fields[name]...)
	}
	return string(append(out, '}'))
}

// mustJSON marshals strings, lists of strings and finite numbers, which cannot fail.
func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic("storage: " + err.Error())
	}
	return b
}

// flagsOf adds what the conversion itself found. The list is never null.
func flagsOf(flags []string, fix *repairer) []string {
	out := make([]string, 0, len(flags)+2)
	for _, f := range flags {
		out = append(out, fix.text(f))
	}
	return addFlags(out, fix)
}

func addFlags(flags []string, fix *repairer) []string {
	if fix.repaired {
		flags = append(flags, episode.FlagTextRepaired)
	}
	if fix.nonFinite {
		flags = append(flags, FlagNonFinite)
	}
	slices.Sort(flags)
	return slices.Compact(flags)
}

func millis(d time.Duration) *float32 {
	return episode.Ptr(float32(float64(d) / float64(time.Millisecond)))
}

func optMillis(d *time.Duration) *float32 {
	if d == nil {
		return nil
	}
	return millis(*d)
}

// stamp is a time as a column holds it; nil for the zero time, which no column can hold.
func stamp(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return episode.Ptr(t.UTC().Truncate(time.Microsecond))
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return episode.Ptr(*p)
}

// fresh copies a list; nil becomes empty.
func fresh[T any](s []T) []T { return append(make([]T, 0, len(s)), s...) }

// check reports whether a row keeps the laws every reader builds on.
func (r *Row) check() error { return r.checkWith(len(r.Logprobs)) }

// checkWith is check for a row that has so many logprobs elsewhere.
func (r *Row) checkWith(logprobs int) error {
	n := len(r.TokenIDs)
	if len(r.LossMask) != n || logprobs != n || len(r.Versions) != n {
		return fmt.Errorf("episode %s: %d token ids, %d mask, %d logprobs, %d versions: the lengths must be equal",
			r.EpisodeID, n, len(r.LossMask), logprobs, len(r.Versions))
	}
	for i, b := range r.Breaks {
		if n := len(b.TokenIDs); len(b.LossMask) != n || len(b.Logprobs) != n || len(b.Versions) != n {
			return fmt.Errorf("episode %s: breaks[%d]: the lengths of its lists must be equal", r.EpisodeID, i)
		}
	}
	return nil
}

// failed says that the row goes to failures/: it failed, or was cut by a quorum.
func (r *Row) failed() bool { return bad(r.Status) }

func bad(status *string) bool { return IsLost(text(status)) }

// IsLost says whether rows of that status go to failures/.
func IsLost(status string) bool {
	return status == string(episode.StatusFailed) || status == string(episode.StatusCancelled)
}

// rawBytes estimates what the row holds before encoding: texts, four columns of tokens, and a flat sum for the numbers.
// Row groups and parts are cut by it.
func (r *Row) rawBytes() int64 {
	const numbers = 400
	n := numbers + len(r.RunID) + len(r.EpisodeID) + len(r.GroupID) + len(r.TaskID) + len(r.TaskHash) +
		len(r.DataSource) + len(r.EnvClass) + len(r.Split) + 13*len(r.TokenIDs) + 120*len(r.Turns) + 120*len(r.Actions)
	for _, s := range []*string{r.Tools, r.FaultDetail, r.Partial, r.Submitted, r.Sampling, r.ExtraInfo, r.RewardModel.GroundTruth} {
		n += size(s)
	}
	for _, m := range r.Messages {
		n += 16 + size(m.Role) + size(m.Content) + size(m.ReasoningContent) + size(m.Name) + size(m.ToolCallID)
		for _, c := range m.ToolCalls {
			n += len(c.ID) + len(c.Type) + len(c.Function.Name) + len(c.Function.Arguments)
		}
	}
	for _, f := range r.Forms {
		n += f.size()
	}
	for _, b := range r.Breaks {
		n += 16 + 13*len(b.TokenIDs)
	}
	for _, c := range r.Rewards {
		n += 80 + size(c.Name) + size(c.Outcome) + size(c.Grader) + size(c.Config) + size(c.Evidence) + size(c.Tier)
	}
	for _, c := range r.Credits {
		n += 16 + size(c.Name) + 9*len(c.Credit)
	}
	n += 9 * len(r.TurnCredit)
	for _, a := range r.FaultAttempts {
		n += 40 + size(a.Endpoint) + size(a.Cause)
	}
	for _, a := range r.Raw {
		n += 40 + len(a.Body)
	}
	return int64(n)
}

// Bytes estimates what the row holds in memory, for those who bound batches of rows.
func (r *Row) Bytes() int64 { return r.rawBytes() }

func size(s *string) int {
	if s == nil {
		return 0
	}
	return len(*s)
}
