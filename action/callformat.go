package action

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// CallFormat is how a model without tool calls of its own writes them into its text. The zero value reads no text: calls come as the
// server's tool calls.
type CallFormat struct {
	// Name is that of one of the formats known here (see NamedCallFormat); "" = a format of the user's own.
	Name string
	// Blocks are the forms of a call. Those whose tool an episode is not offered are plain text to it.
	Blocks []CallBlock
	// Tags adds a block for each tool offered: its name as a tag, <NAME>…</NAME>.
	Tags bool
	// Output is the user message that tells an observation; {output} stands for it. Its beginning is a stop string, so that the model
	// does not write its own. Default "<output>\n{output}\n</output>".
	Output string
	// Prompt is added to the system message where there is something to call: {tools} stands for the tools' definitions, a line each,
	// {calls} for the blocks, {output} for the form of Output. Default: a short text of all three; NoPrompt: nothing.
	Prompt string
	// Stop are more stop strings. Where one of them is the end of a block, a call that it ends is whole.
	Stop []string
}

// CallBlock is one form of a call: Open, a body, Close. Where Open begins with ``` or ~~~ both stand on lines of their own.
type CallBlock struct {
	Open, Close string
	// Tool is what the body is for; "" = the body names it: {"name": …, "arguments": {…}}.
	Tool string
	// Argument is the one that the body is, as it stands. Default: the only argument that the tool requires, where that may be a
	// string; else the body is a JSON object of the arguments.
	Argument string
}

// NoPrompt as a CallFormat's Prompt tells the model nothing: it knows, or the task says it.
const NoPrompt = "none"

const (
	outputMark     = "{output}"
	defaultOutput  = "<output>\n" + outputMark + "\n</output>"
	fencedOutput   = "```output\n" + outputMark + "\n```"
	defaultTelling = `You can use these tools:
<tools>
{tools}
</tools>
To use one, write this, and end your answer there:
{calls}
Only the first call of an answer is run. Its result comes in the next message, as
{output}`
)

// Names of the formats known here, besides CallsAPI: the server's own tool calls.
const (
	CallsAPI      = "api"
	CallsToolCall = "tool-call" // <tool_call>{"name": …, "arguments": {…}}</tool_call>
	CallsFenced   = "fenced"    // the same in a block ```tool
	CallsPython   = "python"    // code in a block ```python goes to the tool python, <answer>…</answer> to submit; ```tool for others
	CallsTags     = "tags"      // <NAME>…</NAME> for each tool, <answer>…</answer> to submit, <tool_call> for any
)

// CallFormatNames lists them.
func CallFormatNames() []string {
	return []string{CallsAPI, CallsToolCall, CallsFenced, CallsPython, CallsTags}
}

// NamedCallFormat returns a format known here; false = there is none of that name.
func NamedCallFormat(name string) (CallFormat, bool) {
	answer := CallBlock{Open: "<answer>", Close: "</answer>", Tool: "submit"}
	tagged := CallBlock{Open: "<tool_call>", Close: "</tool_call>"}
	fenced := CallBlock{Open: "```tool", Close: "```"}
	switch name {
	case CallsAPI:
		return CallFormat{}, true
	case CallsToolCall:
		return CallFormat{Name: name, Blocks: []CallBlock{tagged}}, true
	case CallsFenced:
		return CallFormat{Name: name, Blocks: []CallBlock{fenced}, Output: fencedOutput}, true
	case CallsPython:
		return CallFormat{Name: name, Blocks: []CallBlock{{Open: "```python", Close: "```", Tool: "python"}, answer, fenced}, Output: fencedOutput}, true
	case CallsTags:
		return CallFormat{Name: name, Blocks: []CallBlock{answer, tagged}, Tags: true}, true
	}
	return CallFormat{}, false
}

// reads reports whether calls are read from text at all.
func (f CallFormat) reads() bool { return len(f.Blocks) > 0 || f.Tags }

func (f CallFormat) withDefaults() CallFormat {
	if f.Output == "" {
		f.Output = defaultOutput
	}
	if f.Prompt == "" {
		f.Prompt = defaultTelling
	}
	return f
}

// Validate reports every fault of the format at once.
func (f CallFormat) Validate() error {
	var errs []error
	for i, b := range f.Blocks {
		switch {
		case strings.TrimSpace(b.Open) == "" || strings.TrimSpace(b.Close) == "":
			errs = append(errs, fmt.Errorf("calls: blocks[%d]: expected open and close, the texts a call stands between", i))
		case b.Open == b.Close && !b.fence():
			errs = append(errs, fmt.Errorf("calls: blocks[%d]: open and close are the same (%q): where one ends could not be told", i, b.Open))
		case b.Argument != "" && b.Tool == "":
			errs = append(errs, fmt.Errorf("calls: blocks[%d]: argument %q is given without the tool that it is for", i, b.Argument))
		}
		if slices.ContainsFunc(f.Blocks[:i], func(o CallBlock) bool { return o.Open == b.Open }) {
			errs = append(errs, fmt.Errorf("calls: blocks[%d]: open %q is that of another block", i, b.Open))
		}
	}
	if f.Output != "" && strings.Count(f.Output, outputMark) != 1 {
		errs = append(errs, fmt.Errorf("calls: output: expected %s in it, once, where the result goes", outputMark))
	}
	for _, s := range f.Stop {
		if s == "" {
			errs = append(errs, errors.New("calls: stop: a stop string must not be empty"))
		}
	}
	if !f.reads() && (f.Output != "" || f.Prompt != "" || len(f.Stop) > 0) {
		errs = append(errs, errors.New("calls: blocks: is missing; expected the forms of a call, or a format by name"))
	}
	return errors.Join(errs...)
}

// check finds what can only be told with the tools at hand.
func (f CallFormat) check(all map[string]registered) error {
	var errs []error
	for i, b := range f.Blocks {
		if r, ok := all[b.Tool]; f.Name == "" && b.Tool != "" && !ok {
			errs = append(errs, fmt.Errorf("calls: blocks[%d]: no tool %q; there are: %s", i, b.Tool, strings.Join(names(all), ", ")))
		} else if ok && b.Argument != "" && !r.shape.has(b.Argument) {
			errs = append(errs, fmt.Errorf("calls: blocks[%d]: tool %q has no argument %q; it has: %s", i, b.Tool, b.Argument, strings.Join(r.shape.arguments(), ", ")))
		}
	}
	return errors.Join(errs...)
}

// stops are the stop strings of the format: what an observation begins with, then those given.
func (f CallFormat) stops() []string {
	var list []string
	before, _, _ := strings.Cut(f.Output, outputMark)
	if s := strings.TrimSpace(before); s != "" {
		list = append(list, s)
	}
	return append(list, f.Stop...)
}

func (b CallBlock) fence() bool {
	return strings.HasPrefix(b.Open, "```") || strings.HasPrefix(b.Open, "~~~")
}
