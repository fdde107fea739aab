package taskfile

import (
	"fmt"
	"strings"

	"tranche/episode"
)

// RowError is one fault of one row, or of a whole file where Where.Line is 0.
type RowError struct {
	Where   episode.Position
	Field   string // path of the faulty field, like messages[1].content; "" = the row as a whole
	Problem string // what is wrong and what was expected

	conflict string // the id, when the fault is that another row used it
}

func (e *RowError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%s: %s", e.Where, e.Problem)
	}
	return fmt.Sprintf("%s: field %q: %s", e.Where, e.Field, e.Problem)
}

// InputError is what Check and Reader.Next return when the task files are not fit to run: the first faults and the number of all.
// Reach it with errors.As.
type InputError struct {
	Listed []*RowError // the first MaxListedErrors faults, in the order of the input
	Total  int64       // all faults
}

// MaxListedErrors is how many faults an InputError lists; MaxListedBad is how many skipped ones a Report lists.
const (
	MaxListedErrors = 20
	MaxListedBad    = 100
)

func (e *InputError) Error() string {
	lines := make([]string, 0, len(e.Listed)+1)
	for _, r := range e.Listed {
		lines = append(lines, r.Error())
	}
	if more := e.Total - int64(len(e.Listed)); more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more faults (%d in all)", more, e.Total))
	}
	return strings.Join(lines, "\n")
}

func (e *InputError) add(faults ...*RowError) {
	for _, f := range faults {
		e.Total++
		if len(e.Listed) < MaxListedErrors {
			e.Listed = append(e.Listed, f)
		}
	}
}
