package episode

import (
	"testing"
	"time"
)

func TestDeadlinesGrowWithTheCall(t *testing.T) {
	for _, c := range []struct {
		name           string
		prompt, answer int
		want           time.Duration
	}{
		{"an ordinary call has what was stated", 4096, 1024, time.Minute},
		{"nothing known", 0, 0, time.Minute},
		{"a long answer", 0, 32768, 4 * time.Minute},
		{"a long prompt alone is read fast", 131072, 1024, time.Minute},
		{"a very long prompt and a long answer", 262144, 16384, 3 * time.Minute},
	} {
		if got := Stretch(time.Minute, c.prompt, c.answer); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
