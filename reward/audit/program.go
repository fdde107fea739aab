package audit

import (
	"encoding/json"
	"strings"

	"tranche/episode"
)

// entry is the function that a task's tests call: named by a column, or the first that an assert calls. "" = a program that reads and
// writes.
func entry(t *episode.Task) string {
	row := fields(t)
	for _, n := range []string{"entry_point", "fn_name", "func_name"} {
		var s string
		if json.Unmarshal(row[n], &s) == nil && s != "" {
			return s
		}
	}
	var tests []string
	if json.Unmarshal(row["test_list"], &tests) == nil {
		for _, line := range tests {
			if name := called(line); name != "" {
				return name
			}
		}
	}
	return ""
}

// called is the first name before a parenthesis that is no word of Python's own.
func called(line string) string {
	line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "assert"))
	for {
		name, rest, ok := strings.Cut(line, "(")
		if !ok {
			return ""
		}
		fields := strings.FieldsFunc(name, func(r rune) bool {
			return !(r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
		})
		if len(fields) > 0 {
			switch last := fields[len(fields)-1]; last {
			case "not", "set", "sorted", "abs", "list", "tuple", "len", "round", "math", "isclose", "str", "int", "float", "sum", "all", "any":
			default:
				return last
			}
		}
		line = rest
	}
}

// programs are wrong ones that say one thing. They need only the name of the function.
func programs(name string) (list []Probe) {
	add := func(what, body string) {
		list = append(list, Probe{Name: what, Text: "```python\n" + strings.ReplaceAll(body, "NAME", name) + "\n```"})
	}
	if name == "" {
		add("program: nothing", "pass")
		add("program: repeats its input", "import sys\nsys.stdout.write(sys.stdin.read())")
		return list
	}
	for _, value := range []string{"None", "True", "False", "0", "1", "''", "[]"} {
		add("stub: "+value, "def NAME(*args, **named):\n    return "+value)
	}
	add("stub: its argument", "def NAME(*args, **named):\n    return args[0] if args else None")
	return list
}
