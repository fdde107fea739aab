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

// programs are wrong ones: stubs that say one thing, and what is known to fool graders that run tests beside the program. The grader of
// programs has many more in its own tests; these need only the name of the function.
func programs(name string) (list []Probe) {
	add := func(what, body string) {
		list = append(list, Probe{Name: what, Text: "```python\n" + strings.ReplaceAll(body, "NAME", name) + "\n```"})
	}
	if name == "" {
		add("program: nothing", "pass")
		add("program: exit", "import os\nos._exit(0)")
		add("program: repeats its input", "import sys\nsys.stdout.write(sys.stdin.read())")
		return list
	}
	for _, value := range []string{"None", "True", "False", "0", "1", "''", "[]"} {
		add("stub: "+value, "def NAME(*args, **named):\n    return "+value)
	}
	add("stub: its argument", "def NAME(*args, **named):\n    return args[0] if args else None")
	add("exploit: always equal", `class Same(int):
    def __eq__(self, other):
        return True
    def __ne__(self, other):
        return False
    def __hash__(self):
        return 0
    __lt__ = __le__ = __gt__ = __ge__ = __eq__

def NAME(*args, **named):
    return Same(1)`)
	add("exploit: exit", "import os\ndef NAME(*args, **named):\n    os._exit(0)")
	add("exploit: walks the stack", `import sys

def NAME(*args, **named):
    frame = sys._getframe()
    while frame:
        for space in (frame.f_locals, frame.f_globals):
            for key, value in list(space.items()):
                if any(w in key.lower() for w in ("expect", "output", "want", "target", "answer", "right")) and value:
                    return value
        frame = frame.f_back
    return None`)
	return list
}
