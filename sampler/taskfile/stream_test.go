package taskfile

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// TestStream: rows are tasks as they come; what came before is passed over; a fault names its line; an empty stream is no fault; close is
// called once, at the end or before.
func TestStream(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		ids   string
		fault string
	}{
		"some":      {`{"id":"a","prompt":"A"}` + "\n\n" + `{"id":"b","prompt":"B"}`, "ab", ""},
		"repeated":  {strings.Repeat(`{"id":"a","prompt":"A"}`+"\n"+`{"id":"b","prompt":"B"}`+"\n", 3), "ab", ""},
		"other":     {`{"id":"a","prompt":"A"}` + "\n" + `{"id":"a","prompt":"B"}` + "\n", "a", "tasks command:2"},
		"bad":       {`{"id":"a","prompt":"A"}` + "\nx\n", "a", "tasks command:2"},
		"empty":     {"", "", ""},
		"no prompt": {`{"id":"a"}`, "", "tasks command:1"},
	} {
		closed := 0
		r, err := Stream(t.Context(), Config{Paths: []string{"tasks command"}}, strings.NewReader(c.text), func() error { closed++; return nil })
		if err != nil {
			t.Fatal(err)
		}
		ids := ""
		for {
			task, err := r.Next()
			if err == io.EOF && c.fault == "" {
				break
			}
			if err != nil {
				var in *InputError
				if c.fault == "" || !errors.As(err, &in) || !strings.Contains(err.Error(), c.fault) {
					t.Errorf("%s: %v", name, err)
				}
				break
			}
			ids += task.ID
		}
		if err := r.Close(); err != nil || closed != 1 || ids != c.ids {
			t.Errorf("%s: tasks %q, closed %d times, %v", name, ids, closed, err)
		}
	}
}
