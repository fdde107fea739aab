//go:build linux && (amd64 || arm64)

package codegrade

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tranche/reward"
)

const (
	lib      = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return a * 2\n"
	libTests = "import unittest\n\nfrom calc.ops import add, double\n\n\nclass Ops(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n\n" +
		"    def test_double(self):\n        self.assertEqual(double(4), 8)\n"
)

// repository is a tree with a fault in calc/ops.py, and tests that show it.
func repository() map[string]any {
	return map[string]any{
		"tree":         files{"calc/__init__.py": "", "calc/ops.py": lib, "tests/__init__.py": "", "tests/test_ops.py": libTests, ".git/HEAD": "ref", "setup.cfg": "[x]\n"},
		"FAIL_TO_PASS": []string{"tests.test_ops.Ops.test_add"}, "PASS_TO_PASS": `["tests.test_ops.Ops.test_double"]`,
		"test_files": files{"tests/test_ops.py": libTests},
	}
}

// rewrite is an answer that gives whole files.
func rewrite(given map[string]any) string {
	text, err := json.Marshal(given)
	if err != nil {
		panic(err)
	}
	return string(text)
}

const fixed = "def add(a, b):\n    return a + b\n\n\ndef double(a):\n    return a * 2\n"

func TestRepositoryTests(t *testing.T) {
	patched := "import unittest\n"
	cases := []struct {
		name     string
		answer   map[string]any
		share    float64
		tampered float64
	}{
		{"the fix", map[string]any{"calc/ops.py": fixed}, 1, 0},
		{"no change", map[string]any{}, .5, 0},
		{"the fix, and a test of its own", map[string]any{"calc/ops.py": fixed, "tests/test_more.py": "raise SystemExit"}, 1, 0},
		{"the fix, and other tests in the place of the task's", map[string]any{"calc/ops.py": fixed, "tests/test_ops.py": "raise ValueError"}, 1, 1},
		{"only other tests", map[string]any{"tests/test_ops.py": "import unittest\nclass Ops(unittest.TestCase):\n    def test_add(self): pass\n    def test_double(self): pass\n"}, .5, 1},
		{"the tests removed", map[string]any{"tests/test_ops.py": nil}, .5, 1},
		{"hooks", map[string]any{"conftest.py": "x", "sitecustomize.py": "import os; os._exit(0)", "evil.pth": "import os", "tox.ini": "", ".git/hooks/x": ""}, .5, 1},
		{"a library's name", map[string]any{"unittest/__init__.py": "class TestCase: pass\ndef main(): pass\n", "json.py": "def loads(x): return 1\n"}, .5, 1},
		{"a module that the runner needs", map[string]any{"calc/ops.py": fixed, "fnmatch.py": "raise ImportError('no')\n"}, 1, 0},
		{"the same, and no fix", map[string]any{"fnmatch.py": "raise ImportError('no')\n"}, .5, 0},
		{"a file in the place of a folder", map[string]any{"calc": "x"}, 0, 0},
		{"out of the tree", map[string]any{"../x": "y"}, 0, 0},
		{"exit on import", map[string]any{"calc/ops.py": "import os\nos._exit(0)\n"}, 0, 0},
		{"exit in a test", map[string]any{"calc/ops.py": "import sys\ndef add(a, b): sys.exit(0)\ndef double(a): sys.exit(0)\n"}, 0, 0},
		{"skips", map[string]any{"calc/ops.py": patched + "def add(a, b): raise unittest.SkipTest\ndouble = lambda a: add(a, a)\n"}, 0, 0},
		{"asserts that always hold", map[string]any{"calc/ops.py": patched + "unittest.TestCase.assertEqual = lambda *a: None\n" + lib}, 0, 1},
		{"a result that is always good", map[string]any{"calc/ops.py": "import unittest\nfor n in ('addFailure', 'addError', 'addSkip'):\n" +
			"    for c in [unittest.TestResult] + unittest.TestResult.__subclasses__():\n        setattr(c, n, lambda self, test, *a: c.addSuccess(self, test))\n" + lib}, 0, 1},
		{"always good from the first call on", map[string]any{"calc/ops.py": "def add(a, b):\n    import unittest\n    unittest.TestCase.assertEqual = lambda *a: None\n    return 0\n\ndef double(a):\n    return add(a, a)\n"}, 0, 1},
		{"a report of its own", map[string]any{"calc/ops.py": "import os\nfor fd in range(3, 200):\n    try:\n        os.write(fd, b'000000000000013\\n{\"done\":true}')\n" +
			"        os.write(fd, b'000000000000055\\n{\"nonce\":\"\",\"outcomes\":{\"tests.test_ops.Ops.test_add\":1}}')\n    except OSError:\n        pass\n" + lib}, 0, 0},
	}
	g := newGrader(t, Options{Form: FormRepo, Tiers: map[string]float64{"share": 1}, CPU: 20 * time.Second, Wall: time.Minute, Repo: RepoOptions{Runner: "unittest", Answer: "files"}})
	for _, c := range cases {
		f, err := g.judge(task(c.name, repository(), ""), rewrite(c.answer))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if f.Score != c.share || score(f, "tampered") != c.tampered {
			t.Errorf("%s: score %v, tampered %v, want %v and %v: %s", c.name, f.Score, score(f, "tampered"), c.share, c.tampered, f.Evidence)
		}
	}
}

func TestRepositoryAnswersAsDiff(t *testing.T) {
	g := newGrader(t, Options{Form: FormRepo, CPU: 20 * time.Second, Wall: time.Minute, Repo: RepoOptions{Runner: "unittest", Tampering: "zero"}})
	fix := "```diff\n--- a/calc/ops.py\n+++ b/calc/ops.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n```\n"
	for _, c := range []struct {
		name, answer string
		want         float64
	}{
		{"the fix", fix, 1},
		{"the fix before an example", fix + "so that\n```python\nadd(1, 2)\n```\nprints\n```\n3\n```\n", 1},
		{"words", "I would change the sign.", 0},
		{"the fix and the tests", strings.Replace(fix, "```\n", "--- a/tests/test_ops.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-import unittest\n```\n", 1), 0},
	} {
		f, err := g.judge(task(c.name, repository(), ""), c.answer)
		if err != nil || f.Score != c.want {
			t.Errorf("%s: %+v, %v, want %v", c.name, f, err, c.want)
		}
	}
}

func TestRepositoryTasksThatCannotBe(t *testing.T) {
	g := newGrader(t, Options{Form: FormRepo, Repo: RepoOptions{Runner: "unittest"}})
	for name, c := range map[string]struct {
		change func(row map[string]any)
		want   string
	}{
		"no tree":                  {func(r map[string]any) { delete(r, "tree") }, reward.MissingTruth},
		"no tests":                 {func(r map[string]any) { delete(r, "FAIL_TO_PASS"); delete(r, "PASS_TO_PASS") }, reward.MissingTruth},
		"ids that are no list":     {func(r map[string]any) { r["FAIL_TO_PASS"] = []int{1} }, reward.BadTruth},
		"a tree that leads out":    {func(r map[string]any) { r["tree"] = files{"../x": ""} }, reward.BadTruth},
		"an archive and no folder": {func(r map[string]any) { r["tree"] = "x.tar" }, reward.BadTruth},
	} {
		row := repository()
		c.change(row)
		if _, err := g.judge(task(name, row, ""), "x"); reason(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// What is wrong with an answer is said in the same words each time, where several things are.
func TestFaultsOfATreeAreNamedInOrder(t *testing.T) {
	var o RepoOptions
	many, outside := files{}, map[string]any{}
	for _, name := range strings.Split("abcdefghijkl", "") {
		many[name], many[name+"/x"] = "", ""
		outside["../"+name] = ""
	}
	o.Answer = "files"
	for range 20 {
		if _, err := o.build(yard{pure: files{}, tests: many}, "{}"); err == nil || !strings.Contains(err.Error(), `"a"`) {
			t.Fatalf("%v, want the first clash", err)
		}
		if _, err := o.changed(files{}, rewrite(outside)); err == nil || !strings.Contains(err.Error(), `"../a"`) {
			t.Fatalf("%v, want the first path", err)
		}
		for _, column := range []string{"tree", "test_files"} {
			row := repository()
			row[column] = outside
			if _, err := o.yard(readRow(task("order", row, ""))); err == nil || !strings.Contains(err.Error(), `"../a"`) {
				t.Fatalf("%s: %v, want the first path", column, err)
			}
		}
	}
}

// pytestFiles is pytest and what it needs, as scripts/exploits.sh install leaves it: the sandbox of this test has no other.
func pytestFiles(t *testing.T) files {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	root := filepath.Join(cmp.Or(os.Getenv("TRANCHE_ENGINES"), filepath.Join(cache, "tranche-engines")), "exploits", "pytest")
	out := files{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".py" {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		out[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil || out["pytest/__init__.py"] == "" {
		t.Skipf("needs pytest as scripts/exploits.sh install leaves it: %v", err)
	}
	return out
}

func TestRepositoryTestsWithPytest(t *testing.T) {
	tree := pytestFiles(t)
	maps.Copy(tree, files{"calc/__init__.py": "", "calc/ops.py": lib})
	row := map[string]any{"tree": tree, "tests": []string{"tests/test_ops.py::test_add[2-3-5]", "tests/test_ops.py::test_double"},
		"test_files": files{"tests/test_ops.py": "import pytest\nfrom calc.ops import add, double\n\n\n@pytest.mark.parametrize('a,b,c', [(2, 3, 5)])\ndef test_add(a, b, c):\n    assert add(a, b) == c\n\n\n" +
			"def test_double():\n    assert double(4) == 8\n"}}
	g := newGrader(t, Options{Form: FormRepo, Tiers: map[string]float64{"share": 1}, CPU: 30 * time.Second, Wall: 2 * time.Minute, Repo: RepoOptions{Answer: "files"}})
	cases := []struct {
		name, ops string
		share     float64
		tampered  float64
	}{
		{"the fix", fixed, 1, 0},
		{"outcomes that are always good", "from _pytest.reports import TestReport\nold = TestReport.from_item_and_call.__func__\n@classmethod\ndef good(cls, item, call):\n    r = old(cls, item, call)\n" +
			"    r.outcome, r.longrepr = 'passed', None\n    return r\nTestReport.from_item_and_call = good\n" + lib, 0, 1},
		{"no fix", lib + "\n", .5, 0},
		{"skips", "import pytest\ndef add(a, b): pytest.skip('no')\ndef double(a): pytest.xfail('no')\n", 0, 0},
		{"exit", "import pytest\npytest.exit('all well', returncode=0)\n", 0, 0},
	}
	if os.Getenv("TRANCHE_REFERENCES") != "all" {
		cases = cases[:2] // python reads all of pytest anew for each
	}
	for _, c := range cases {
		f, err := g.judge(task(c.name, row, ""), rewrite(map[string]any{"calc/ops.py": c.ops}))
		if err != nil || f.Score != c.share || score(f, "tampered") != c.tampered {
			t.Errorf("%s: score %v, tampered %v, %v, want %v and %v: %s", c.name, f.Score, score(f, "tampered"), err, c.share, c.tampered, f.Evidence)
		}
	}
}
