package codegrade

import (
	"regexp"
	"slices"
	"strings"
)

// fenced finds what a model wrote between fences: the last block that is marked as one of the wanted languages, else the last unmarked one,
// else the last. A block is closed, or goes to the end.
func fenced(text string, wanted ...string) (string, bool) {
	const marked, plain, other = 2, 1, 0
	best, at := "", -1
	for rest := text; ; {
		body, info, after, ok := nextFence(rest)
		if !ok {
			return best, at >= 0
		}
		rank := other
		if slices.Contains(wanted, info) {
			rank = marked
		} else if info == "" {
			rank = plain
		}
		if rank >= at {
			best, at = body, rank
		}
		rest = after
	}
}

// pythonMarks are what a block of Python is marked with.
func pythonMarks() []string { return []string{"python", "python3", "py", "py3"} }

// nextFence takes the first fenced block of a text: a line that begins with ``` or ~~~, up to a line of the same that has nothing behind it.
func nextFence(text string) (body, info, after string, ok bool) {
	for len(text) > 0 {
		line, rest, _ := strings.Cut(text, "\n")
		text = rest
		mark := fenceMark(line)
		if mark == "" {
			continue
		}
		words := strings.Fields(strings.TrimLeft(strings.TrimSpace(line), "`~"))
		if len(words) > 0 {
			info = strings.ToLower(strings.Trim(words[0], "{}."))
		}
		body, after = untilFence(rest, mark)
		return body, info, after, true
	}
	return "", "", "", false
}

// fenceMark is the run of ` or ~ that a line begins with; "" where it is no fence.
func fenceMark(line string) string {
	line = strings.TrimLeft(line, " \t")
	for _, c := range []string{"`", "~"} {
		n := len(line) - len(strings.TrimLeft(line, c))
		if n >= 3 && !strings.Contains(line[n:], c) {
			return line[:n]
		}
	}
	return ""
}

func untilFence(text, mark string) (body, after string) {
	for at := 0; at < len(text); {
		line, _, found := strings.Cut(text[at:], "\n")
		if m := fenceMark(line); len(m) >= len(mark) && m[0] == mark[0] && strings.TrimSpace(strings.TrimLeft(line, " \t")) == m {
			end := at + len(line)
			if found {
				end++
			}
			return text[:at], text[end:]
		}
		at += len(line) + 1
	}
	return text, ""
}

// program makes the source that is run of an answer.
func (o Options) program(text string, s *suite) (string, bool) {
	code := text
	if o.Extract != "all" {
		block, ok := fenced(text, pythonMarks()...)
		if !ok && o.Extract == "only" {
			return "", false
		}
		if ok {
			code = block
		}
	}
	if strings.TrimSpace(code) == "" {
		return "", false
	}
	if o.joins(s) {
		code = joined(s.prompt, code, s.entry)
	}
	return code, true
}

func (o Options) joins(s *suite) bool {
	switch o.Join {
	case "always":
		return true
	case "never":
		return false
	}
	return s.form == FormAsserts && s.entry != "" && defines(s.prompt, s.entry)
}

// defines tells whether code defines a function at its left margin.
func defines(code, name string) bool {
	found, err := regexp.MatchString(`(?m)^(async[ \t]+)?(def|class)[ \t]+`+regexp.QuoteMeta(name)+`\b`, code)
	return err == nil && found
}

// joined is a prompt with the answer behind it: as its continuation, or as a program of its own that has the prompt's imports and helpers
// before it.
func joined(prompt, code, entry string) string {
	if !defines(code, entry) {
		return prompt + code
	}
	if i := strings.LastIndex(prompt, "\n"); strings.TrimSpace(prompt[i+1:]) == "" { // the prompt ends behind a docstring, or without a body
		return prompt + "    pass\n" + code
	}
	return prompt + "\n    pass\n" + code
}
