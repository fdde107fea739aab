package codegrade

import (
	"maps"
	"strings"
	"testing"
)

func TestDiffsAreApplied(t *testing.T) {
	pure := files{"a.py": "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "dir/b.py": "x = 1\n", "end": "no end"}
	with := func(changes files, without ...string) files {
		out := maps.Clone(pure)
		maps.Copy(out, changes)
		for _, name := range without {
			delete(out, name)
		}
		return out
	}
	cases := []struct {
		name, diff string
		want       files
		fault      string // part of the error
	}{
		{"one line", "--- a/a.py\n+++ b/a.py\n@@ -2,3 +2,3 @@\n 2\n-3\n+three\n 4\n", with(files{"a.py": "1\n2\nthree\n4\n5\n6\n7\n8\n9\n"}), ""},
		{"git's header", "diff --git a/dir/b.py b/dir/b.py\nindex 1..2 100644\n--- a/dir/b.py\n+++ b/dir/b.py\n@@ -1 +1,2 @@\n-x = 1\n+x = 2\n+y = 3\n", with(files{"dir/b.py": "x = 2\ny = 3\n"}), ""},
		{"two hunks", "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,3 @@\n 1\n+one and a half\n 2\n@@ -8,2 +9,1 @@\n 8\n-9\n", with(files{"a.py": "1\none and a half\n2\n3\n4\n5\n6\n7\n8\n"}), ""},
		{"wrong line numbers", "--- a/a.py\n+++ b/a.py\n@@ -40,2 +40,2 @@\n-7\n+seven\n 8\n", with(files{"a.py": "1\n2\n3\n4\n5\n6\nseven\n8\n9\n"}), ""},
		{"new file", "--- /dev/null\n+++ b/new.py\n@@ -0,0 +1,2 @@\n+a\n+b\n", with(files{"new.py": "a\nb\n"}), ""},
		{"removed file", "--- a/dir/b.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x = 1\n", with(nil, "dir/b.py"), ""},
		{"renamed", "diff --git a/end b/start\nsimilarity index 100%\nrename from end\nrename to start\n", with(files{"start": "no end"}, "end"), ""},
		{"new file without content", "diff --git a/e.py b/e.py\nnew file mode 100644\nindex 0..1\n", with(files{"e.py": ""}), ""},
		{"without a line end", "--- a/end\n+++ b/end\n@@ -1 +1 @@\n-no end\n\\ No newline at end of file\n+an end\n", with(files{"end": "an end\n"}), ""},
		{"words around", "Here is the fix:\n\n--- a/dir/b.py\n+++ b/dir/b.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n\nThat is all.", with(files{"dir/b.py": "x = 2\n"}), ""},
		{"no prefixes", "--- dir/b.py\n+++ dir/b.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n", with(files{"dir/b.py": "x = 2\n"}), ""},
		{"empty context line without its space", "--- a/s\n+++ b/s\n@@ -0,0 +1,3 @@\n+a\n+\n+b\n", nil, "no file"},
		{"does not fit", "--- a/a.py\n+++ b/a.py\n@@ -2,2 +2,2 @@\n 2\n-4\n+four\n", nil, "does not fit"},
		{"out of the tree", "--- /dev/null\n+++ b/../x\n@@ -0,0 +1 @@\n+a\n", nil, "leads out"},
		{"an absolute path", "--- /dev/null\n+++ /etc/passwd\n@@ -0,0 +1 @@\n+a\n", nil, "leads out"},
		{"is there already", "--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+a\n", nil, "there already"},
		{"hunk that ends early", "--- a/a.py\n+++ b/a.py\n@@ -1,5 +1,5 @@\n 1\n", nil, "ends early"},
		{"no diff", "just words", nil, "no diff"},
		{"empty", "", nil, "no diff"},
	}
	for _, c := range cases {
		list, err := parseDiff(c.diff)
		var got files
		if err == nil {
			got, err = pure.apply(list)
		}
		switch {
		case c.fault != "":
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s: %v, want an error with %q", c.name, err, c.fault)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case !maps.Equal(got, c.want):
			t.Errorf("%s:\n%q\nwant\n%q", c.name, got, c.want)
		}
	}
	if len(pure) != 3 || pure["a.py"] != "1\n2\n3\n4\n5\n6\n7\n8\n9\n" {
		t.Errorf("applying a diff changed the tree it was applied to: %q", pure)
	}
}

// Whatever is read as a diff leaves no file outside the tree, and applying it does not change the tree it is applied to.
func FuzzDiff(f *testing.F) {
	f.Add("--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n 1\n-2\n+two\n")
	f.Add("diff --git a/a.py b/b.py\nrename from a.py\nrename to ../b.py\n")
	f.Add("--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n")
	f.Add("--- a/a.py\n+++ b/a.py\n@@ -9999999999,1 +1 @@\n-1\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseDiff(text)
		if err != nil {
			return
		}
		pure := files{"a.py": "1\n2\n3\n"}
		out, err := pure.apply(list)
		if pure["a.py"] != "1\n2\n3\n" || len(pure) != 1 {
			t.Fatal("the tree was changed")
		}
		if err != nil {
			return
		}
		for name := range out {
			if !local(name) {
				t.Fatalf("%q is outside the tree", name)
			}
		}
	})
}
