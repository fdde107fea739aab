package action

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"tranche/episode"
	"tranche/internal/workpool"
)

// observe turns how a run ended into what the model sees and what the record keeps.
func (s *Set) observe(act episode.Action, w *watched, e workpool.End[Result]) episode.Observation {
	o := s.observed(act, e.Value)
	o.Wall = e.Wall
	switch e.How {
	case workpool.Panicked:
		o.Status = episode.ActionPanic
		o.Text = "error: the tool crashed; this is no fault of yours"
		o.Fault = &episode.Fault{
			Stage: episode.StageAction, Class: episode.ClassActionPanic,
			Cause: fmt.Errorf("tool %q panicked: %s", o.Name, e.Panicked),
		}
	case workpool.TimedOut:
		o.Status, o.Done, o.Submitted = episode.ActionTimeout, false, nil
		s.say(&o, e.Value.Text, fmt.Sprintf("the tool was stopped: it ran for more than %s", w.limit))
	case workpool.Cancelled:
		o.Status, o.Done, o.Submitted = episode.ActionCanceled, false, nil
		s.say(&o, e.Value.Text, "the run is stopping")
	default:
		s.observeReturn(&o, e)
	}
	return o
}

func (s *Set) observed(act episode.Action, r Result) episode.Observation {
	return episode.Observation{
		CallID: act.Call.ID, Name: act.Call.Function.Name, Status: episode.ActionOK,
		Done: r.Done, Submitted: r.Submitted, ExitCode: r.ExitCode, CPU: r.CPU,
		OutBytes: max(r.OutBytes, int64(len(r.Text))), Truncated: r.Truncated, Tier: r.Tier, Rootfs: r.Rootfs, Footprint: r.Footprint,
	}
}

// observeReturn is for a run that returned in time.
func (s *Set) observeReturn(o *episode.Observation, e workpool.End[Result]) {
	var bad *badArgs
	var mistake *ToolError
	switch {
	case e.Err == nil:
		s.say(o, e.Value.Text, "")
		return
	case errors.As(e.Err, &bad):
		o.Status = episode.ActionBadArgs
		s.say(o, "", bad.text)
	case errors.As(e.Err, &mistake):
		o.Status = episode.ActionError
		if mistake.TimedOut {
			o.Status = episode.ActionTimeout
		}
		o.OutBytes = max(o.OutBytes, int64(len(e.Value.Text)+len(mistake.Text)))
		s.say(o, e.Value.Text, mistake.Text)
	default:
		o.Status = episode.ActionHarness
		o.Text = "error: the tool could not be run; this is no fault of yours"
		o.Fault = harnessFault(o.Name, e.Err)
	}
	o.Done, o.Submitted = false, nil
}

// say sets what the model sees: output, then an error line, cut to the cap. The error line is never what is cut away.
func (s *Set) say(o *episode.Observation, output, fault string) {
	limit := s.cfg.MaxObservationBytes
	var cutFault, cutOutput bool
	if fault != "" {
		share := limit
		if output != "" {
			share /= 2
		}
		fault, cutFault = cut("error: "+valid(fault), share)
		limit -= len(fault) + 1
	}
	text := ""
	if output != "" {
		text, cutOutput = cut(valid(output), limit)
	}
	o.Truncated = o.Truncated || cutFault || cutOutput
	if text != "" && fault != "" {
		text += "\n"
	}
	o.Text = text + fault
}

// refused is the observation of an action that never ran.
func (s *Set) refused(act episode.Action, status, why string) *episode.Observation {
	o := s.observed(act, Result{})
	o.Status = status
	s.say(&o, "", why)
	return &o
}

func harness(act episode.Action, err error) episode.Observation {
	return episode.Observation{
		CallID: act.Call.ID, Name: act.Call.Function.Name, Status: episode.ActionHarness,
		Text: "error: the tool could not be run; this is no fault of yours", Fault: harnessFault(act.Call.Function.Name, err),
	}
}

func harnessFault(tool string, err error) *episode.Fault {
	return &episode.Fault{
		Stage: episode.StageAction, Class: episode.ClassHarness,
		Cause: fmt.Errorf("running tool %q: %w", tool, err),
	}
}

// valid makes text fit for JSON: bytes that are no UTF-8 become U+FFFD.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// cut takes the middle out of a text that is longer than limit bytes and puts a line in its place that says how much is
// gone. The result is valid UTF-8 if text is, and at most limit bytes long; limit must hold the marker.
func cut(text string, limit int) (string, bool) {
	if len(text) <= limit {
		return text, false
	}
	room := limit - len(marker(len(text)))
	head := text[:runeFloor(text, room-room/2)]
	tail := text[runeCeil(text, len(text)-room/2):]
	return head + marker(len(text)-len(head)-len(tail)) + tail, true
}

func marker(bytes int) string { return fmt.Sprintf("\n… %d bytes cut …\n", bytes) }

// clip is cut for a short text inside a message: it keeps the beginning.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return text[:runeFloor(text, limit)] + "…"
}

func runeFloor(s string, i int) int {
	for i > 0 && i < len(s) && !utf8.RuneStart(s[i]) {
		i--
	}
	return i
}

func runeCeil(s string, i int) int {
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return i
}
