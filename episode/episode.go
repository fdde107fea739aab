package episode

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Status is how an episode ended.
type Status string

// Statuses. Failed and cut rows go to failures/.
const (
	StatusOpen      Status = ""
	StatusCompleted Status = "completed"
	StatusTruncated Status = "truncated" // ended by a budget: length, context_full, max_turns, budget
	StatusFailed    Status = "failed"    // a Fault says why
	StatusCancelled Status = "cancelled" // the run stopped first: not written, done again on resume; or cut by a quorum: written with StopQuorum
)

// Stop is why an episode ended, in finer words than Status.
type Stop string

// Stop reasons.
const (
	StopStop        Stop = "stop"         // the model ended its answer and called no tool
	StopUnknown     Stop = "unknown"      // the model called no tool, and the server said nothing of why the answer ended: it may have been cut
	StopOther       Stop = "other"        // the model called no tool, and the server ended the answer for a reason of its own, such as a content filter
	StopSubmit      Stop = "submit"       // a tool ended the episode
	StopToolCalls   Stop = "tool_calls"   // the model called a tool that the task declares and nobody here runs
	StopLength      Stop = "length"       // a turn hit its token budget
	StopContextFull Stop = "context_full" // no useful room left in the context
	StopMaxTurns    Stop = "max_turns"
	StopBudget      Stop = "budget" // the episode's token budget is spent
	StopFault       Stop = "fault"
	StopQuorum      Stop = "quorum" // enough others had ended; with StatusCancelled
)

// Flags on a row: facts a trainer may filter on.
const (
	FlagTextRepaired      = "text_repaired"       // a reply held invalid UTF-8 or lone surrogates, replaced by U+FFFD
	FlagLogprobNull       = "logprob_null"        // a sampled token came without a logprob, from a server that gives them
	FlagLogprobsMissing   = "logprobs_missing"    // logprobs were asked for and none came
	FlagTokenIDsMissing   = "token_ids_missing"   // a reply came without sampled ids: the sequence lacks that turn
	FlagTokenCountDiffers = "token_count_differs" // a reply's sampled ids are more or fewer than the server counted: which of the two is wrong, nobody said
	FlagPromptIDsMissing  = "prompt_ids_missing"  // a reply came without prompt ids: the sequence holds sampled ids only there
	FlagCallIDsMade       = "call_ids_made"       // tool calls of a reply came without ids, or several with one: they got some, so that each is answered under its own
	FlagFinishMissing     = "finish_missing"      // a reply came without a finish reason: whether it is whole, nobody said
	FlagUsageMissing      = "usage_missing"       // a reply came without usage: its token counts are unknown
	FlagThinkingTagged    = "thinking_tagged"     // a reply's reasoning stood in its content between <think> and </think>, and was taken out
	FlagThinkingCut       = "thinking_cut"        // a reply was cut (length, stop string) while it was reasoning: it says nothing
	FlagPromptCut         = "prompt_cut"          // the server saw clearly less of a prompt than was sent, and said nothing
	FlagRefused           = "refused"             // the model declined (OpenAI's refusal); its words stand in the content's place
	FlagResumed           = "resumed"             // an earlier process played its first turns, and it went on from them
)

// Budget bounds one episode. Zero means no bound of that kind.
type Budget struct {
	TurnTokens    int // tokens one turn may generate; also what a server is asked for at most
	EpisodeTokens int // tokens all turns together may generate
	ContextTokens int // prompt + answer of one call, a cap below the server's own limit
	Turns         int // model calls
	MinUseful     int // least room for an answer worth asking for, tokens
}

// Timing is where an episode's time went. Total is wall time, the others are sums and may overlap waits of siblings.
type Timing struct {
	Queue, Model, Action, Score, Total time.Duration
}

// Episode is the whole state of one sample of one task. One goroutine owns it; it is not safe for concurrent use.
type Episode struct {
	ID, RunID, GroupID string
	Task               *Task
	Round, Sample      int // which draw of the task, which sample of the draw
	GroupSize          int
	Attempt            int // how often this key was begun before and not gone on with, as far as is known
	Sampling           Sampling
	Budget             Budget
	Variant            string    // name of the prompt variant; "" = the prompt as the task states it
	Due                time.Time // when it must have ended at the latest; zero = no such time

	Messages  []Message // prompt, then everything said since
	NumPrompt int       // how many of Messages are the prompt
	Tokens    Tokens
	past      *Past // the last call, where all its ids are known: what the next one goes on from
	Turns     []Turn
	Actions   []ActionRecord
	Submitted *string
	Raw       []Raw   // answers as they came, one a call, where they are kept; else nil
	Answer    *Answer // to Task.Request; nil = none came, or there was none
	Begun     *Begun  // what an earlier process made of it, to be gone on from (Rebuild); nil = nothing is known of such a one

	Status  Status
	Stop    Stop
	Fault   *Fault
	Verdict Verdict
	Flags   []string
	Timing  Timing
	Model   string
	Created time.Time
}

// New opens an episode for one sample of a draw. Its id depends on run, task, round and sample alone.
func New(runID string, d Draw, sample int, s Sampling, b Budget, now time.Time) *Episode {
	group := GroupID(runID, d.Task.ID, d.Round)
	return &Episode{
		ID: ID(group, strconv.Itoa(sample)), RunID: runID, GroupID: group,
		Task: d.Task, Round: d.Round, Sample: sample, GroupSize: d.Samples,
		Sampling: s, Budget: b,
		Messages: slices.Clone(d.Task.Messages), NumPrompt: len(d.Task.Messages),
		Created: now,
	}
}

// Open reports whether the episode still wants a model call.
func (e *Episode) Open() bool { return e.Status == StatusOpen }

// Generated is the number of tokens all turns generated, by the server's usage, else by sampled ids; unknown turns count 0.
func (e *Episode) Generated() int {
	n := 0
	for _, t := range e.Turns {
		if t.CompletionTokens != nil {
			n += int(*t.CompletionTokens)
		}
	}
	return n
}

// NextCall returns the next model call, or false after closing the episode because a turn or token budget is spent. The
// context budget is applied by the scheduler, which knows the endpoint's limit.
func (e *Episode) NextCall() (Call, bool) {
	if !e.Open() {
		return Call{}, false
	}
	if e.Budget.Turns > 0 && len(e.Turns) >= e.Budget.Turns {
		e.Close(StatusTruncated, StopMaxTurns)
		return Call{}, false
	}
	want := e.Budget.TurnTokens
	if e.Budget.EpisodeTokens > 0 {
		left := e.Budget.EpisodeTokens - e.Generated()
		if left <= 0 || (len(e.Turns) > 0 && left < e.Budget.MinUseful) {
			e.Close(StatusTruncated, StopBudget)
			return Call{}, false
		}
		if want == 0 || left < want {
			want = left
		}
	}
	turn := len(e.Turns)
	msgs := make([]Message, len(e.Messages))
	for i, m := range e.Messages {
		msgs[i] = m.Sendable()
	}
	return Call{
		ID: e.ID + "/" + strconv.Itoa(turn), Episode: e.ID, Group: e.GroupID, GroupSize: e.GroupSize,
		Cell: Cell{DataSource: e.Task.DataSource, Turn: turn}, Turn: turn,
		Messages: msgs, Sampling: e.Sampling, Request: e.Task.Request, Past: e.past, Want: want,
	}, true
}

// AddReply takes a reply and the record of its call. It closes the episode unless the reply's tool calls are to be run:
// a reply cut at its length is never acted upon, even when it holds a tool call.
func (e *Episode) AddReply(r *Reply, t Turn) {
	cut := r.Answer == nil && e.promptCut(r, t)
	said, made := withCallIDs(r.Message, len(e.Turns))
	if made {
		e.Flag(FlagCallIDsMade)
	}
	e.Messages, e.Answer = append(e.Messages, said), r.Answer
	e.keepRaw(r.Raw, len(e.Turns))
	e.Turns = append(e.Turns, t)
	e.Timing.Queue += t.Queue
	e.Timing.Model += t.Service
	if r.Model != "" {
		e.Model = r.Model
	}
	for _, f := range r.Flags {
		e.Flag(f)
	}
	if t.CompletionTokens == nil || t.PromptTokens == nil {
		e.Flag(FlagUsageMissing)
	}
	if ended(r) == StopUnknown {
		e.Flag(FlagFinishMissing)
	}
	if cut {
		e.Flag(FlagPromptCut)
	}
	if n := t.CompletionTokens; n != nil && r.SampledIDs != nil && !e.Sampling.counts(len(r.SampledIDs), int(*n)) {
		e.Flag(FlagTokenCountDiffers)
	}
	e.addTokens(r, cut)
	switch {
	case r.Finish == FinishLength:
		e.Close(StatusTruncated, StopLength)
	case len(r.Message.ToolCalls) == 0 && r.Message.Written == nil:
		e.Close(StatusCompleted, ended(r))
	}
}

// counts reports whether so many ids are what a server counted so many tokens of. Some count the tokens of a stop string and leave their ids out (llama-server).
func (s Sampling) counts(ids, counted int) bool {
	return ids == counted || ids < counted && (len(s.Stop) > 0 || s.Extra["stop"] != nil)
}

// ended is why an answer without tool calls was the last, by the server's finish reason. None is no "stop", but for an answer that is passed on as it came and not read.
func ended(r *Reply) Stop {
	switch {
	case r.Finish == "" && r.Answer == nil:
		return StopUnknown
	case r.Finish == FinishOther:
		return StopOther
	}
	return StopStop
}

// addTokens takes the ids of a reply. What was sampled behind a cut prompt goes on from nothing that was there: the sequence begins anew with it.
func (e *Episode) addTokens(r *Reply, cut bool) {
	e.past = nil
	if len(r.PromptIDs) > 0 && len(r.SampledIDs) > 0 && !cut {
		e.past = &Past{IDs: slices.Concat(r.PromptIDs, r.SampledIDs), Messages: len(e.Messages), Finish: r.Finish, Stop: r.StopSeq, Endpoint: r.Endpoint, Model: r.Model}
	}
	if r.SampledIDs == nil {
		if e.Sampling.TokenIDs {
			e.Flag(FlagTokenIDsMissing)
		}
		return
	}
	if r.PromptIDs == nil {
		e.Flag(FlagPromptIDsMissing)
	}
	if r.Logprobs != nil {
		for _, lp := range r.Logprobs {
			if !lp.Known {
				e.Flag(FlagLogprobNull)
			}
		}
	}
	prompt, from, breaks := r.PromptIDs, 0, len(e.Tokens.Breaks)
	if cut {
		prompt = sawIDs(r)
	}
	for _, s := range r.spans() {
		to := min(from+s.Tokens, len(r.SampledIDs))
		e.Tokens.Extend(prompt, r.SampledIDs[from:to], logprobsOf(r.Logprobs, from, to), s.Version)
		prompt, from = nil, to
	}
	if len(e.Tokens.Breaks) > breaks {
		e.Tokens.Breaks[breaks].Turn = len(e.Turns) - 1
	}
}

// logprobsOf is the part of the list from one token to another, as far as there is one.
func logprobsOf(list []Logprob, from, to int) []Logprob {
	return list[min(from, len(list)):min(to, len(list))]
}

// PendingActions are the tool calls of the last reply that wait for an observation.
func (e *Episode) PendingActions() []Action {
	if !e.Open() || len(e.Messages) == 0 {
		return nil
	}
	last := e.Messages[len(e.Messages)-1]
	if last.Role != RoleAssistant {
		return nil
	}
	turn := len(e.Turns) - 1
	acts := make([]Action, len(last.ToolCalls))
	for i, c := range last.ToolCalls {
		acts[i] = Action{ID: fmt.Sprintf("%s/%d/%d", e.ID, turn, i), Call: c, Turn: turn}
	}
	if w := last.Written; w != nil && len(acts) == 0 {
		acts = append(acts, Action{ID: fmt.Sprintf("%s/%d/0", e.ID, turn), Call: w.Call, Turn: turn, Written: true, Unread: w.Unread})
	}
	return acts
}

// AddObservation takes the answer to one action. Call it for every pending action in order: siblings of a submit are still
// recorded. A fault in the observation fails the episode.
func (e *Episode) AddObservation(o Observation) {
	told := o.Told
	if told == nil {
		told = &Message{Role: RoleTool, Content: Ptr(o.Text), Name: Ptr(o.Name), ToolCallID: Ptr(o.CallID)}
	}
	e.Messages = append(e.Messages, *told)
	e.Actions = append(e.Actions, ActionRecord{
		Turn: int16(len(e.Turns) - 1), CallID: o.CallID, Name: o.Name, Status: o.Status, ExitCode: o.ExitCode,
		Wall: o.Wall, CPU: o.CPU, OutBytes: o.OutBytes, Truncated: o.Truncated, Tier: o.Tier, Rootfs: o.Rootfs, Footprint: o.Footprint,
	})
	e.Timing.Action += o.Wall
	if o.Fault != nil {
		e.Fail(o.Fault)
		return
	}
	if o.Done && e.Open() {
		e.Submitted = o.Submitted
		e.Close(StatusCompleted, StopSubmit)
	}
}

// Close ends an open episode; on a closed one it does nothing: the first reason stands.
func (e *Episode) Close(s Status, why Stop) {
	if e.Open() {
		e.Status, e.Stop = s, why
	}
}

// Fail ends the episode with a fault. A fault outranks a normal end; a second fault does not replace the first.
func (e *Episode) Fail(f *Fault) {
	if e.Fault != nil {
		return
	}
	e.keepRaw(f.Raw, len(e.Turns))
	e.Fault, e.Stop, e.Status = f, StopFault, StatusFailed
	if f.Class == ClassCancelled {
		e.Status = StatusCancelled
	}
}

// Flag sets a flag once.
func (e *Episode) Flag(f string) {
	if !slices.Contains(e.Flags, f) {
		e.Flags = append(e.Flags, f)
		slices.Sort(e.Flags)
	}
}

// Final returns the text a grader should look at: what was submitted, else the content of the last assistant message;
// false when the model said nothing at all.
func (e *Episode) Final() (string, bool) {
	if e.Submitted != nil {
		return *e.Submitted, true
	}
	for i := len(e.Messages) - 1; i >= e.NumPrompt; i-- {
		if m := e.Messages[i]; m.Role == RoleAssistant && m.Content != nil {
			return *m.Content, true
		}
	}
	return "", false
}
