package inference

import (
	"encoding/json"
	"testing"
)

func TestCountsThatAreNoneAreUnknown(t *testing.T) {
	for text, want := range map[string]int32{
		"0": 0, "17": 17, "10.0": 10, "2147483647": 2147483647, "-5": -1, "3.7": -1, "2147483648": -1, `"12"`: -1, "[]": -1, "1e400": -1,
	} {
		var u wireUsage
		if err := json.Unmarshal([]byte(`{"prompt_tokens": `+text+`}`), &u); err != nil {
			t.Errorf("%s: %v: the answer would be lost", text, err)
			continue
		}
		var got *int32
		newest(&got, u.Prompt)
		if (got == nil) != (want < 0) || (got != nil && *got != want) {
			t.Errorf("%s is taken as %v, want %d (-1 = unknown)", text, got, want)
		}
	}
	var u wireUsage
	if err := json.Unmarshal([]byte(`{"prompt_tokens": null}`), &u); err != nil || u.Prompt != nil {
		t.Errorf("null is %v, %v", u.Prompt, err)
	}
}
