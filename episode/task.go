package episode

import (
	"encoding/json"
	"fmt"
)

// Task is one problem as the input file stated it, after templates were applied. A Task is read-only once it has left
// its source: many episodes share one.
type Task struct {
	ID    string   // unique within a run; the input's id, custom_id, or the content hash
	Hash  string   // hex content hash of all that can change a result: prompt, tools, answer, params
	Index int64    // position in the input, from 0
	Where Position // where it was read, for messages to people

	Messages []Message       // the prompt, system message first when there is one
	Tools    json.RawMessage // JSON list: OpenAI tool definitions, or names of built-in tools as strings; nil = none
	Answer   *string         // ground truth for graders; nil = the task states none
	Style    string          // reward_model.style: which grader the task asks for; "" = the run's own

	DataSource string // domain label (verl, SkyRL name)
	EnvClass   string // environment label (SkyRL name)
	Split      string // train, test, …

	Request *Request // a call that goes out as it is, in the place of one made of Messages; nil = none

	Params json.RawMessage // request fields the task itself sets (OpenAI batch body without messages, model, tools); nil = none
	Extra  json.RawMessage // JSON object of every input column that has no field above; nil = none
}

// Position names a place in an input file.
type Position struct {
	File string
	Line int // 1-based line of a text file, 1-based row of a Parquet file; 0 = unknown
}

func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Draw is one decision of the sampler: this task, this many samples, together one group.
type Draw struct {
	Task    *Task
	Round   int   // how often this task was drawn before
	Samples int   // group size n
	From    int   // the first sample to play; those before it came with an earlier draw of the same group
	To      int   // the sample to stop before; 0 = all of the group
	Number  int64 // place in the run's sequence of groups, from 0: what schedules go by
	HeldOut bool  // an evaluation: nothing is to be trained on it
}

// Span is the samples to play now: from the first to the one before the last.
func (d Draw) Span() (from, to int) {
	if d.To == 0 {
		return d.From, d.Samples
	}
	return d.From, d.To
}
