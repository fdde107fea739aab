package codegrade

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"strconv"
	"strings"
)

// files is a file tree in memory: path to content.
type files map[string]string

// patch is what a unified diff does to one file.
type patch struct {
	old, new string // paths; "" = there is none on that side
	hunks    []hunk
}

// hunk is one place of a patch.
type hunk struct {
	line     int      // where it begins in the old file, from 1
	old, new []string // lines with their ends
}

// mostDiff is how long a diff may be, bytes.
const mostDiff = 4 << 20

// parseDiff reads a unified diff, git's extended headers too. What stands before, between and behind is passed over, as patch does.
func parseDiff(text string) ([]patch, error) {
	if len(text) > mostDiff {
		return nil, fmt.Errorf("the diff has more than %d bytes", mostDiff)
	}
	d := diffReader{lines: strings.SplitAfter(text, "\n")}
	var list []patch
	for d.more() {
		p, ok, err := d.file()
		if err != nil {
			return nil, fmt.Errorf("line %d of the diff: %w", d.at, err)
		}
		if ok {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("there is no diff")
	}
	return list, nil
}

type diffReader struct {
	lines []string
	at    int
}

func (d *diffReader) more() bool {
	return d.at < len(d.lines) && (d.lines[d.at] != "" || d.at+1 < len(d.lines))
}

// peek is the next line without its end; "" at the end.
func (d *diffReader) peek() string {
	if d.at >= len(d.lines) {
		return ""
	}
	return strings.TrimRight(d.lines[d.at], "\r\n")
}

// file reads one file's part; ok is false where the line begins none.
func (d *diffReader) file() (p patch, ok bool, err error) {
	line := d.peek()
	if strings.HasPrefix(line, "diff --git ") {
		d.at++
		p = d.extended()
		line = d.peek()
		ok = p.old != "" || p.new != ""
	}
	if !strings.HasPrefix(line, "--- ") || d.at+1 >= len(d.lines) || !strings.HasPrefix(d.lines[d.at+1], "+++ ") {
		if !ok {
			d.at++
		}
		return p, ok, nil
	}
	p.old = side(line[4:])
	d.at++
	p.new = side(d.peek()[4:])
	d.at++
	for strings.HasPrefix(d.peek(), "@@ ") {
		h, err := d.hunk()
		if err != nil {
			return p, false, err
		}
		p.hunks = append(p.hunks, h)
	}
	return p, p.old != "" || p.new != "", nil
}

// extended reads git's lines between "diff --git" and "---": of them only renames, and files without content, say more than what follows.
func (d *diffReader) extended() (p patch) {
	both := strings.TrimPrefix(d.lines[max(d.at-1, 0)], "diff --git ")
	from, to, _ := strings.Cut(strings.TrimSpace(both), " ")
	for ; d.at < len(d.lines); d.at++ {
		line := d.peek()
		switch {
		case strings.HasPrefix(line, "rename from "):
			p.old = line[len("rename from "):]
		case strings.HasPrefix(line, "rename to "):
			p.new = line[len("rename to "):]
		case strings.HasPrefix(line, "new file mode"):
			p.new = side(to)
		case strings.HasPrefix(line, "deleted file mode"):
			p.old = side(from)
		case strings.HasPrefix(line, "index "), strings.HasPrefix(line, "similarity index"), strings.HasPrefix(line, "old mode"), strings.HasPrefix(line, "new mode"),
			strings.HasPrefix(line, "dissimilarity index"):
		default:
			return p
		}
	}
	return p
}

// side is a path of a header, without git's a/ or b/ and without what follows a tab.
func side(text string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(text), "\t")
	if name == "/dev/null" {
		return ""
	}
	for _, prefix := range []string{"a/", "b/"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return rest
		}
	}
	return name
}

// hunk reads "@@ -l,n +l,n @@" and the lines that it announces.
func (d *diffReader) hunk() (h hunk, err error) {
	words := strings.Fields(d.peek())
	if len(words) < 4 || words[3] != "@@" {
		return h, errors.New("expected @@ -line,count +line,count @@")
	}
	line, olds, err1 := span(words[1], "-")
	_, news, err2 := span(words[2], "+")
	if err := errors.Join(err1, err2); err != nil {
		return h, err
	}
	h.line = line
	d.at++
	for olds > 0 || news > 0 {
		if d.at >= len(d.lines) {
			return h, errors.New("the hunk ends early")
		}
		text := d.lines[d.at]
		mark := " "
		if text != "" && text != "\n" && text != "\r\n" {
			mark, text = text[:1], text[1:]
		}
		switch mark {
		case " ":
			h.old, h.new = append(h.old, text), append(h.new, text)
			olds, news = olds-1, news-1
		case "-":
			h.old = append(h.old, text)
			olds--
		case "+":
			h.new = append(h.new, text)
			news--
		default:
			return h, fmt.Errorf("a line of a hunk begins with %q", mark)
		}
		d.at++
		h.ends(d)
	}
	if olds < 0 || news < 0 {
		return h, errors.New("the hunk has other lines than it says")
	}
	return h, nil
}

// ends takes the line end off what a "\ No newline at end of file" speaks of.
func (h *hunk) ends(d *diffReader) {
	if d.at >= len(d.lines) || !strings.HasPrefix(d.lines[d.at], `\`) {
		return
	}
	last := d.lines[d.at-1]
	cut := func(lines []string) {
		if n := len(lines); n > 0 {
			lines[n-1] = strings.TrimRight(lines[n-1], "\r\n")
		}
	}
	if !strings.HasPrefix(last, "+") {
		cut(h.old)
	}
	if !strings.HasPrefix(last, "-") {
		cut(h.new)
	}
	d.at++
}

// span reads -3,4 or -3.
func span(text, mark string) (line, count int, err error) {
	text, ok := strings.CutPrefix(text, mark)
	first, second, two := strings.Cut(text, ",")
	line, err1 := strconv.Atoi(first)
	count = 1
	var err2 error
	if two {
		count, err2 = strconv.Atoi(second)
	}
	if !ok || err1 != nil || err2 != nil || line < 0 || count < 0 {
		return 0, 0, fmt.Errorf("%q is no %sline,count", text, mark)
	}
	return line, count, nil
}

// apply does what a diff says to a copy of a tree.
func (f files) apply(list []patch) (files, error) {
	out := maps.Clone(f)
	for _, p := range list {
		if err := out.patch(p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (f files) patch(p patch) error {
	for _, name := range []string{p.old, p.new} {
		if name != "" && !local(name) {
			return fmt.Errorf("%q leads out of the tree", name)
		}
	}
	before, there := f[p.old]
	switch {
	case p.old != "" && !there:
		return fmt.Errorf("there is no file %q", p.old)
	case p.old == "" && f[p.new] != "":
		return fmt.Errorf("the file %q is there already", p.new)
	}
	after, err := p.change(before)
	if err != nil {
		return fmt.Errorf("%s: %w", cmp.Or(p.old, p.new), err)
	}
	delete(f, p.old)
	if p.new != "" {
		f[p.new] = after
	}
	return nil
}

// change applies the hunks in their order; each where it says, or at the nearest place behind the hunk before where its lines stand.
func (p patch) change(text string) (string, error) {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	var out strings.Builder
	done, shift := 0, 0
	for i, h := range p.hunks {
		want := h.line - 1 + shift
		if len(h.old) == 0 {
			want++ // it stands behind the line that it names
		}
		at, ok := find(lines, h.old, done, want)
		if !ok {
			return "", fmt.Errorf("hunk %d does not fit", i+1)
		}
		shift = at - (h.line - 1)
		if len(h.old) == 0 {
			shift--
		}
		out.WriteString(strings.Join(lines[done:at], ""))
		out.WriteString(strings.Join(h.new, ""))
		done = at + len(h.old)
	}
	out.WriteString(strings.Join(lines[done:], ""))
	return out.String(), nil
}

// farthest is how many lines away from where it says a hunk may be.
const farthest = 5000

// find is the place nearest to want, not before from, where the lines stand.
func find(lines, some []string, from, want int) (int, bool) {
	last := len(lines) - len(some)
	if len(some) == 0 {
		return want, want >= from && want <= len(lines)
	}
	want = max(from, min(want, last))
	for off := 0; off <= min(len(lines), farthest); off++ {
		for _, at := range []int{want - off, want + off} {
			if at >= from && at <= last && stands(lines[at:], some) {
				return at, true
			}
		}
	}
	return 0, false
}

// stands tells whether lines begin with others; the last may lack its end in either, since diffs written by hand forget to say so.
func stands(lines, some []string) bool {
	for i, s := range some {
		if lines[i] != s && strings.TrimRight(lines[i], "\r\n") != strings.TrimRight(s, "\r\n") {
			return false
		}
	}
	return true
}

// local tells whether a path stays below its folder and is written as it should be.
func local(name string) bool {
	return name != "" && name != "." && !strings.HasPrefix(name, "/") && path.Clean(name) == name && name != ".." && !strings.HasPrefix(name, "../") &&
		!strings.ContainsAny(name, "\x00\\")
}
