package storage

import (
	"encoding/json"
	"time"

	"tranche/episode"
)

// Episode is the closed episode of a row as far as graders look at it: task, messages, turns, actions, how it ended and its verdict.
// Token sequences, sampling parameters and times of day are not in it. The prompt of its task is the one that was sent, also where the
// task states another (a prompt variant); rows of before the column forms lack what that holds.
func (r *Row) Episode() *episode.Episode {
	e := &episode.Episode{
		ID: r.EpisodeID, RunID: r.RunID, GroupID: r.GroupID, Task: r.task(), Round: int(r.Round), Sample: int(r.SampleIndex),
		GroupSize: int(r.GroupSize), Attempt: int(r.Attempt), Messages: r.messages(), NumPrompt: int(r.NumPromptMessages),
		Submitted: r.Submitted, Status: episode.Status(text(r.Status)), Stop: episode.Stop(text(r.StopReason)), Model: text(r.Model),
		Flags: r.Flags, Created: r.CreatedAt, Verdict: r.Verdict(),
	}
	if r.FaultClass != nil {
		e.Fault = &episode.Fault{Stage: episode.Stage(text(r.FaultStage)), Class: episode.Class(*r.FaultClass)}
	}
	for _, t := range r.Turns {
		e.Turns = append(e.Turns, t.episode())
	}
	for _, a := range r.Actions {
		e.Actions = append(e.Actions, a.episode())
	}
	return e
}

func (r *Row) task() *episode.Task {
	n := min(max(int(r.NumPromptMessages), 0), len(r.Messages))
	t := &episode.Task{
		ID: r.TaskID, Hash: r.TaskHash, Messages: r.messages()[:n], Answer: r.RewardModel.GroundTruth, Style: text(r.RewardModel.Style),
		DataSource: r.DataSource, EnvClass: r.EnvClass, Split: r.Split,
	}
	if r.Tools != nil {
		t.Tools = json.RawMessage(*r.Tools)
	}
	if r.ExtraInfo != nil {
		t.Extra = json.RawMessage(*r.ExtraInfo)
	}
	return t
}

func (r *Row) messages() []episode.Message {
	out := make([]episode.Message, len(r.Messages))
	for i, m := range r.Messages {
		out[i] = episode.Message{
			Role: text(m.Role), Content: m.Content, ReasoningContent: m.ReasoningContent, Name: m.Name, ToolCallID: m.ToolCallID,
		}
		for _, c := range m.ToolCalls {
			call := episode.ToolCall{ID: c.ID, Type: c.Type}
			call.Function.Name, call.Function.Arguments = c.Function.Name, c.Function.Arguments
			out[i].ToolCalls = append(out[i].ToolCalls, call)
		}
	}
	for _, f := range r.Forms {
		if i := int(f.Message); i >= 0 && i < len(out) {
			f.restore(&out[i])
		}
	}
	return out
}

func (t *Turn) episode() episode.Turn {
	return episode.Turn{
		PromptTokens: t.PromptTokens, CompletionTokens: t.CompletionTokens, CachedTokens: t.CachedTokens, Finish: text(t.FinishReason),
		StopSeq: t.StopReason, Endpoint: text(t.Endpoint), Retries: t.Retries, Class: t.Class,
		VersionStart: t.VersionStart, VersionEnd: t.VersionEnd, Hedged: t.Hedged, Exchange: episode.Exchange(text(t.Exchange)), LogprobsOf: episode.Spread(text(t.LogprobsOf)),
	}
}

func (a *Action) episode() episode.ActionRecord {
	r := episode.ActionRecord{
		Turn: a.Turn, CallID: text(a.CallID), Name: text(a.Name), Status: text(a.Status), ExitCode: a.ExitCode, Wall: fromMillis(a.WallMS),
		OutBytes: a.OutBytes, Truncated: a.Truncated, Tier: text(a.Tier), Rootfs: text(a.Rootfs),
	}
	if a.CPUMS != nil {
		r.CPU = episode.Ptr(fromMillis(a.CPUMS))
	}
	return r
}

func fromMillis(ms *float32) time.Duration {
	if ms == nil {
		return 0
	}
	return time.Duration(float64(*ms) * float64(time.Millisecond))
}

// Verdict is what the row holds of it. Whether a grader failed, which only a run that goes on asks, is not in it.
func (r *Row) Verdict() episode.Verdict {
	v := episode.Verdict{Total: r.Reward, Credit: uncredit(r.TurnCredit)}
	credits := map[string][]float64{}
	for _, c := range r.Credits {
		credits[text(c.Name)] = uncredit(c.Credit)
	}
	for _, c := range r.Rewards {
		x := episode.Reward{
			Name: text(c.Name), Score: c.Score, Weight: c.Weight, Raw: c.Raw, Outcome: text(c.Outcome), Grader: text(c.Grader),
			Config: text(c.Config), Evidence: text(c.Evidence), Tier: text(c.Tier), Credit: credits[text(c.Name)],
		}
		if c.Tries != nil {
			x.Tries = int(*c.Tries)
		}
		x.Cost = episode.Cost{PromptTokens: number32(c.PromptTokens), CompletionTokens: number32(c.CompletionTokens), CPU: fromMillis(c.CPUMS), Wall: fromMillis(c.WallMS)}
		v.Rewards = append(v.Rewards, x)
	}
	return v
}

func number32(n *int32) int {
	if n == nil {
		return 0
	}
	return int(*n)
}

// SetVerdict puts another verdict in the place of the one the row has.
func (r *Row) SetVerdict(v episode.Verdict) {
	var fix repairer
	r.Rewards, r.Credits = nil, nil
	r.setVerdict(v, &fix)
	r.Flags = addFlags(r.Flags, &fix)
}
