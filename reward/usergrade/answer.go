package usergrade

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"

	"tranche/internal/jsonschema"
	"tranche/reward"
)

// answer is what a grader says.
type answer struct {
	ID        *int64     `json:"id"`
	Score     *float64   `json:"score"`
	Raw       *float64   `json:"raw"`
	Evidence  string     `json:"evidence"`
	Parts     []part     `json:"parts"`
	Turns     []*float64 `json:"turns"` // null = no credit for that turn
	NoVerdict string     `json:"no_verdict"`
	Detail    string     `json:"detail"`
	Retry     bool       `json:"retry"`
}

type part struct {
	Name     string   `json:"name"`
	Score    *float64 `json:"score"`
	Weight   float64  `json:"weight"`
	Raw      *float64 `json:"raw"`
	Evidence string   `json:"evidence"`
}

// maxAnswer bounds an answer, bytes.
const maxAnswer = 1 << 20

// reasonWord is what no_verdict may say: outcomes are counted by it.
var reasonWord = regexp.MustCompile(`^[a-z][a-z0-9_]{0,40}$`)

// read takes an answer apart. What is no such answer is the grader's failure.
func read(raw []byte) (answer, error) {
	var a answer
	if len(raw) > maxAnswer {
		return a, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return a, errors.New("there is no answer")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return a, fmt.Errorf(`expected {"score", "raw", "evidence", "parts", "turns"} or {"no_verdict", "detail", "retry"}: %w`, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return a, errors.New("something stands behind the answer")
	}
	if err := checkKeys(raw); err != nil {
		return a, err
	}
	switch {
	case a.NoVerdict == "" && a.Score == nil:
		return a, errors.New("score: is missing; expected 0 to 1, or no_verdict with a reason")
	case a.NoVerdict != "" && a.Score != nil:
		return a, errors.New("score and no_verdict: expected one of them")
	case a.NoVerdict != "" && !reasonWord.MatchString(a.NoVerdict):
		return a, errors.New("no_verdict: expected one word of small letters, digits and _")
	}
	return a, nil
}

// keyWord is how keys of an answer are written. The decoder takes other letters of one name for the same.
var keyWord = regexp.MustCompile(`^[a-z_]+$`)

// checkKeys refuses what the decoder takes: a key in capital letters, and one that stands twice in an object, of which it would take the last.
func checkKeys(raw []byte) error {
	if name, twice := jsonschema.Twice(string(raw)); twice {
		return fmt.Errorf("%q stands twice in one object", reward.Clip(name, 60))
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(raw, &top); err != nil {
		return err
	}
	objects := []map[string]json.RawMessage{top}
	if list, ok := top["parts"]; ok {
		var parts []map[string]json.RawMessage
		if err := json.Unmarshal(list, &parts); err != nil {
			return err
		}
		objects = append(objects, parts...)
	}
	for _, o := range objects {
		for _, name := range slices.Sorted(maps.Keys(o)) {
			if !keyWord.MatchString(name) {
				return fmt.Errorf("%q: unknown key; names are in small letters", name)
			}
		}
	}
	return nil
}

// finding is an answer as the Scorer takes it, which checks the figures. hide takes secrets out.
func (a answer) finding(hide func(string) string) (reward.Finding, error) {
	if a.NoVerdict != "" {
		return reward.Finding{}, &reward.Unjudged{Reason: a.NoVerdict, Detail: hide(a.Detail), Retry: a.Retry}
	}
	f := reward.Finding{Score: *a.Score, Raw: a.Raw, Evidence: hide(a.Evidence)}
	for _, p := range a.Parts {
		f.Parts = append(f.Parts, reward.Part{Name: p.Name, Score: p.Score, Weight: p.Weight, Raw: p.Raw, Evidence: hide(p.Evidence)})
	}
	if a.Turns != nil {
		f.Turns = make([]float64, len(a.Turns))
		for i, c := range a.Turns {
			if f.Turns[i] = math.NaN(); c != nil {
				f.Turns[i] = *c
			}
		}
	}
	return f, nil
}
