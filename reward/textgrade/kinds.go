package textgrade

import (
	"encoding/json"
	"fmt"
	"strings"

	"tranche/episode"
	"tranche/reward"
)

// Kinds lists the graders of this package, to be passed to reward.New.
func Kinds() []reward.Kind {
	return []reward.Kind{
		{Name: "f1", Make: newF1},
		{Name: "choice", Make: newChoice},
		{Name: "json_schema", Make: newJSONSchema},
		{Name: "tool_match", Make: newToolMatch},
		{Name: "ifeval", Make: newIFEval},
		{Name: "format", Make: newFormat},
		{Name: "length_ramp", Make: newLengthRamp},
		{Name: "repetition", Make: newRepetition},
	}
}

// maxText is how much of a text is judged, bytes. What is longer is no verdict: a grade of a part could be a wrong one.
const maxText = 8 << 20

// judged returns the text of an answer; done is true when there is a verdict without looking at it.
func judged(in reward.Input) (text string, f reward.Finding, done bool, err error) {
	switch {
	case strings.TrimSpace(in.Text) == "":
		return "", reward.Finding{Evidence: "no final text"}, true, nil
	case len(in.Text) > maxText:
		return "", f, true, &reward.Unjudged{Reason: "too_long", Detail: fmt.Sprintf("%d bytes of text, at most %d are judged", len(in.Text), maxText)}
	}
	return in.Text, f, false, nil
}

// truths are the task's right answers: its ground truth, or each member of it where it is a JSON list of strings, or verl's {"target": […]}.
func truths(t *episode.Task) ([]string, error) {
	if t.Answer == nil || strings.TrimSpace(*t.Answer) == "" {
		return nil, &reward.Unjudged{Reason: reward.MissingTruth}
	}
	var list []string
	if err := json.Unmarshal([]byte(*t.Answer), &list); err == nil && len(list) > 0 {
		return list, nil
	}
	if list, ok := reward.Targets(*t.Answer); ok {
		return list, nil
	}
	return []string{*t.Answer}, nil
}

// column is an input column of the task that has no field of its own.
func column(t *episode.Task, name string) (json.RawMessage, bool) {
	var cols map[string]json.RawMessage
	if json.Unmarshal(t.Extra, &cols) != nil {
		return nil, false
	}
	raw, ok := cols[name]
	return raw, ok
}

func badTruth(format string, args ...any) error {
	return &reward.Unjudged{Reason: reward.BadTruth, Detail: fmt.Sprintf(format, args...)}
}

// afterMarker is what follows the last marker of a text, all of it where there is none or no marker is set.
func afterMarker(text, marker string) string {
	if i := strings.LastIndex(text, marker); marker != "" && i >= 0 {
		return text[i+len(marker):]
	}
	return text
}

// recorded is a part that counts in no total.
func recorded(name string, score float64, raw *float64) reward.Part {
	return reward.Part{Name: name, Score: &score, Raw: raw}
}

func boolScore(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
