package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tranche/episode"
	"tranche/storage"
)

// promptServer renders messages into token ids, and reads ids.
type promptServer interface {
	PromptIDs(ctx context.Context, c *episode.Call) ([]int32, error)
	Text(ctx context.Context, ids []int32) (string, error)
}

// toolOffers makes the tool definitions that a task's episodes were offered.
type toolOffers interface {
	Tools(t *episode.Task) (defs []byte, runnable bool, err error)
}

// tokenAudit is what came of comparing stored ids with those that a server renders.
type tokenAudit struct {
	Dir         string  `json:"dir"`
	RunID       string  `json:"run_id"`
	Endpoint    string  `json:"endpoint"`
	Model       string  `json:"model"`
	Dataset     int     `json:"dataset_rows"`
	WithoutIDs  int     `json:"rows_without_ids"`
	Rows        int     `json:"rows"` // looked at
	Same        int     `json:"same"`
	Retokenised int     `json:"retokenised"`
	Rewritten   int     `json:"rewritten"`
	Prompt      int     `json:"prompt"`
	Breaks      int     `json:"prefix_breaks"` // of the rows looked at
	Tagged      int     `json:"thinking_tagged"`
	IDs         int64   `json:"ids"`        // compared
	Behind      int64   `json:"ids_behind"` // behind the first that differs
	Drifts      []drift `json:"drifts"`
}

// Verdicts on a row.
const (
	driftSame        = "same"
	driftRetokenised = "retokenised"
	driftRewritten   = "rewritten"
	driftPrompt      = "prompt"
)

// drift is one row whose ids are not those that the server renders.
type drift struct {
	Episode  string `json:"episode_id"`
	Task     string `json:"task_id"`
	Sample   int32  `json:"sample_index"`
	Kind     string `json:"kind"`
	At       int    `json:"at"`      // first id that differs
	Sampled  bool   `json:"sampled"` // the policy sampled it
	IDs      int    `json:"ids"`     // compared
	Rendered int    `json:"rendered"`
	Stored   string `json:"stored_text"` // from a little before the place on
	Server   string `json:"server_text"`
}

// look compares one row.
func (t *tokenAudit) look(ctx context.Context, s promptServer, tools toolOffers, row *storage.Row) error {
	c, answers, err := callOf(row, tools)
	if err != nil {
		return fmt.Errorf("episode %s: %w", row.EpisodeID, err)
	}
	stored := beforeLastAnswer(row)
	if answers == 0 || len(stored) == 0 { // it failed before its first answer
		t.WithoutIDs++
		return nil
	}
	rendered, err := s.PromptIDs(ctx, c)
	if err != nil {
		return err
	}
	t.Rows++
	t.IDs += int64(len(stored))
	if row.PrefixBreak != nil {
		t.Breaks++
	}
	if unknownTags(row) {
		t.Tagged++
	}
	if slices.Equal(stored, rendered) {
		t.Same++
		return nil
	}
	d := drift{Episode: row.EpisodeID, Task: row.TaskID, Sample: row.SampleIndex, At: firstDifference(stored, rendered), IDs: len(stored), Rendered: len(rendered)}
	d.Sampled = d.At < len(stored) && row.LossMask[d.At] == 1
	if err := d.judge(ctx, s, row, stored, rendered); err != nil {
		return err
	}
	t.count(d)
	return nil
}

func (t *tokenAudit) count(d drift) {
	switch d.Kind {
	case driftRetokenised:
		t.Retokenised++
	case driftRewritten:
		t.Rewritten++
	case driftPrompt:
		t.Prompt++
	}
	t.Behind += int64(d.IDs - d.At)
	t.Drifts = append(t.Drifts, d)
}

// around is how many ids before a difference are shown with it, and most how many from there on.
const (
	around = 8
	most   = 24
)

// judge says what kind of difference it is: of tokens, or of the text that they stand for.
func (d *drift) judge(ctx context.Context, s promptServer, row *storage.Row, stored, rendered []int32) error {
	was, err := s.Text(ctx, stored)
	if err != nil {
		return err
	}
	is, err := s.Text(ctx, rendered)
	if err != nil {
		return err
	}
	switch {
	case d.At < int(row.PromptLen):
		d.Kind = driftPrompt
	case was == is:
		d.Kind = driftRetokenised
	default:
		d.Kind = driftRewritten
	}
	if d.Stored, err = s.Text(ctx, excerpt(stored, d.At)); err != nil {
		return err
	}
	d.Server, err = s.Text(ctx, excerpt(rendered, d.At))
	return err
}

func excerpt(ids []int32, at int) []int32 {
	return ids[min(len(ids), max(0, at-around)):min(len(ids), at+most)]
}

func firstDifference(a, b []int32) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// beforeLastAnswer are the stored ids up to the last answer: the last call's prompt.
func beforeLastAnswer(row *storage.Row) []int32 {
	end := len(row.TokenIDs)
	for end > 0 && row.LossMask[end-1] == 1 {
		end--
	}
	return row.TokenIDs[:end]
}

// callOf is the last call of a row as it was sent, and how many answers the row has.
func callOf(row *storage.Row, tools toolOffers) (c *episode.Call, answers int, err error) {
	c = &episode.Call{ID: row.EpisodeID, Episode: row.EpisodeID}
	last := 0
	for i, m := range row.Messages {
		if or(m.Role, "") == episode.RoleAssistant && i >= int(row.NumPromptMessages) {
			last, answers = i, answers+1
		}
	}
	for _, m := range row.Episode().Messages[:last] {
		if m.ReasoningContent != nil && unknownTags(row) {
			m.Tagged = &episode.Tagged{Open: "<think>", Closed: true}
		}
		c.Messages = append(c.Messages, m.Sendable())
	}
	task := &episode.Task{ID: row.TaskID}
	if row.Tools != nil {
		task.Tools = json.RawMessage(*row.Tools)
	}
	if c.Tools, _, err = tools.Tools(task); err != nil {
		return nil, 0, err
	}
	if row.Sampling != nil {
		if err := json.Unmarshal([]byte(*row.Sampling), &c.Sampling.Extra); err != nil {
			return nil, 0, fmt.Errorf("sampling: %w", err)
		}
	}
	return c, answers, nil
}

// unknownTags says that reasoning stood inside the content, in a row of before it was stored how.
func unknownTags(row *storage.Row) bool {
	return row.Forms == nil && slices.Contains(row.Flags, episode.FlagThinkingTagged)
}

// shownDrifts is how many rows that differ are told of; --json has all.
const shownDrifts = 5

// text is the audit for people.
func (t *tokenAudit) text(colour bool) string {
	p := &printer{colour: colour, width: 100}
	p.line("%s", p.paint(bold, fmt.Sprintf("Token ids of run %s in %s, rendered again by %s (model %s)", t.RunID, t.Dir, t.Endpoint, t.Model)))
	p.line("  rows         %d looked at of %d; %d without token ids", t.Rows, t.Dataset, t.WithoutIDs)
	for _, k := range []struct {
		name, means string
		n           int
	}{
		{driftSame, "not one id differs", t.Same},
		{driftRetokenised, "the same text, cut into other tokens: training on the text again would train on other ids", t.Retokenised},
		{driftRewritten, "the chat template makes another text of earlier turns", t.Rewritten},
		{driftPrompt, "the ids before the first answer differ: another template, model or setting than the run's", t.Prompt},
	} {
		p.line("  %-12s %d (%s) %s", k.name, k.n, share(k.n, t.Rows), k.means)
	}
	p.line("  ids          %d compared, %d of them behind a difference (%s)", t.IDs, t.Behind, share(int(t.Behind), int(t.IDs)))
	p.line("  prefix break in %d of these rows as they were played", t.Breaks)
	if t.Tagged > 0 {
		p.line("  note         %d rows had reasoning inside the content; how its opening tag was written was not stored yet, and <think> was taken", t.Tagged)
	}
	for i, d := range t.Drifts {
		if i == shownDrifts {
			p.line("  … %d more; --json has them all", len(t.Drifts)-i)
			break
		}
		who := "said to the model"
		if d.Sampled {
			who = "sampled"
		}
		p.line("")
		p.line("  %s: task %s, sample %d, id %d of %d (%s)", d.Kind, d.Task, d.Sample, d.At, d.IDs, who)
		p.line("    stored  %s", oneLine(d.Stored))
		p.line("    server  %s", oneLine(d.Server))
	}
	return p.b.String()
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "⏎") }

func share(n, of int) string {
	if of == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(of))
}
