package codegrade

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	_ "embed"

	"tranche/action/sandbox"
	"tranche/reward"
)

//go:embed repo.py
var repoScript string

// RepoOptions are the options of form repo: a file tree with tests of its own, and an answer that changes it.
type RepoOptions struct {
	// Tree is the column with the files, a map of paths to texts, or the name of a .tar or .tar.gz below Root. Default tree.
	Tree string `json:"tree"`
	Root string `json:"root"`
	// Tests are the columns with ids of tests that have to pass, a list or a text of JSON. Default FAIL_TO_PASS and PASS_TO_PASS, else tests.
	Tests []string `json:"tests"`
	// Files is the column with test files that are put in place behind the answer, a map of paths to texts. Default test_files.
	Files string `json:"files"`
	// Runner is pytest or unittest. Default pytest; it has to be in the sandbox's root file system.
	Runner string `json:"runner"`
	// Answer is diff (a unified diff) or files (a JSON map of paths to whole texts, null = removed). Default diff.
	Answer string `json:"answer"`
	// Protect are more files and folders that an answer may not change, as patterns (docs/*.md) or folders.
	Protect []string `json:"protect"`
	// Tampering says what becomes of an answer that changed what it may not: restore (the files are as before, and the tests decide) or zero.
	// Default restore. One that makes tests pass that cannot is 0 with either.
	Tampering string `json:"tampering"`
}

func (o RepoOptions) withDefaults() RepoOptions {
	o.Runner, o.Answer, o.Tampering = cmp.Or(o.Runner, "pytest"), cmp.Or(o.Answer, "diff"), cmp.Or(o.Tampering, "restore")
	return o
}

func (o RepoOptions) faults() (errs []error) {
	for _, c := range []struct {
		name, value string
		known       []string
	}{
		{"runner", o.Runner, []string{"pytest", "unittest"}}, {"answer", o.Answer, []string{"diff", "files"}}, {"tampering", o.Tampering, []string{"restore", "zero"}},
	} {
		if !slices.Contains(c.known, c.value) {
			errs = append(errs, fmt.Errorf("repo: %s: %q, expected %s", c.name, c.value, strings.Join(c.known, " or ")))
		}
	}
	for _, p := range o.Protect {
		if _, err := path.Match(p, ""); err != nil {
			errs = append(errs, fmt.Errorf("repo: protect: %q: %w", p, err))
		}
	}
	return errs
}

// yard is a repository task, read.
type yard struct {
	pure  files // as it was
	tests files // put in place behind the answer
	ids   []string
}

func (o RepoOptions) yard(r row) (yard, error) {
	var y yard
	var err error
	if y.pure, err = o.tree(r); err != nil {
		return y, err
	}
	if raw, ok := r.column(or(o.Files, "test_files")...); ok && json.Unmarshal(raw, &y.tests) != nil {
		return y, bad("the test files are no map of paths to texts")
	}
	for _, name := range sortedKeys(y.tests) {
		if !local(name) {
			return y, bad("the test file %q leads out of the tree", name)
		}
	}
	columns := o.Tests
	if len(columns) == 0 {
		columns = []string{"FAIL_TO_PASS", "PASS_TO_PASS"}
		if _, ok := r.column(columns[0]); !ok {
			columns = []string{"tests"}
		}
	}
	for _, c := range columns {
		raw, ok := r.column(c)
		if !ok {
			return y, missing("no column %s with ids of tests", c)
		}
		for _, e := range elements(raw) {
			var id string
			if json.Unmarshal(e, &id) != nil || id == "" {
				return y, bad("column %s: expected a list of ids", c)
			}
			y.ids = append(y.ids, id)
		}
	}
	if len(y.ids) == 0 {
		return y, missing("no test is named")
	}
	return y, nil
}

// built is the tree that is tested.
type built struct {
	tree     files
	tampered []string // protected files that the answer changed; they are as before
	dropped  int      // tests of its own
}

// build applies an answer to the pristine tree; what is protected stays as it was. The error is the answer's fault.
func (o RepoOptions) build(y yard, answer string) (built, error) {
	changed, err := o.changed(y.pure, answer)
	if err != nil {
		return built{}, err
	}
	g := guard{tests: map[string]bool{}, more: o.Protect, pure: y.pure}
	for name := range y.tests {
		g.tests[name] = true
	}
	b := built{tree: maps.Clone(y.pure)}
	names := sortedKeys(changed)
	for name := range y.pure {
		if _, ok := changed[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		b.take(g, name, changed)
	}
	for name, text := range y.tests {
		b.tree[name] = text
	}
	return b, b.tree.clash()
}

// clash tells of a path that would have to be a file and a folder.
func (f files) clash() error {
	for _, name := range sortedKeys(f) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := f[dir]; ok {
				return fmt.Errorf("%q is a file and a folder", dir)
			}
		}
	}
	return nil
}

// take carries out one change, or does not.
func (b *built) take(g guard, name string, changed files) {
	after, there := changed[name]
	before, was := g.pure[name]
	if there == was && after == before {
		return
	}
	switch g.judge(name) {
	case tamper:
		b.tampered = append(b.tampered, name)
	case dropped:
		b.dropped++
	default:
		delete(b.tree, name)
		if there {
			b.tree[name] = after
		}
	}
}

// changed is the whole tree as the answer wants it.
func (o RepoOptions) changed(pure files, answer string) (files, error) {
	marks := []string{"diff", "patch"}
	if o.Answer == "files" {
		marks = []string{"json"}
	}
	text, ok := fenced(answer, marks...)
	if !ok {
		text = answer
	}
	if o.Answer == "diff" {
		list, err := parseDiff(text)
		if err != nil {
			return nil, err
		}
		return pure.apply(list)
	}
	var given map[string]*string
	if err := json.Unmarshal([]byte(text), &given); err != nil {
		return nil, errors.New("it is no JSON map of paths to texts")
	}
	out := maps.Clone(pure)
	for _, name := range sortedKeys(given) {
		if !local(name) {
			return nil, fmt.Errorf("%q leads out of the tree", clip(name))
		}
		delete(out, name)
		if text := given[name]; text != nil {
			out[name] = *text
		}
	}
	return out, nil
}

// gradeRepo runs a repository's named tests on the tree that an answer made of it.
func (g *Grader) gradeRepo(ctx context.Context, in reward.Input) (reward.Finding, error) {
	began := time.Now()
	y, err := g.opt.Repo.yard(readRow(in.Task))
	if err != nil {
		return reward.Finding{}, err
	}
	s, m := &suite{form: FormRepo, checks: make([]check, len(y.ids))}, marks{}
	b, err := g.opt.Repo.build(y, in.Text)
	switch {
	case err != nil:
		m.why = clip(err.Error())
	case len(b.tampered) > 0 && g.opt.Repo.Tampering == "zero":
		m.why = "it changed what it may not"
	default:
		m.compiled = true
		if err := g.inBox(ctx, func(box sandbox.Sandbox) error { return g.runRepo(ctx, box, y, &b, &m) }); err != nil {
			return reward.Finding{}, err
		}
	}
	chosen := g.chosen(in.Task.ID, s)
	if m.passed == nil {
		m.passed = make([]bool, len(y.ids))
	}
	m.passed = picked(m.passed, chosen)
	f := g.finding(m, s, chosen)
	f.Parts = append(f.Parts, reward.Part{Name: "tampered", Score: ptr(one(len(b.tampered) > 0)), Raw: ptr(float64(len(b.tampered))), Evidence: strings.Join(b.tampered, " ")})
	f.Cost.Wall = time.Since(began)
	return f, nil
}

func picked(passed []bool, chosen []int) []bool {
	out := make([]bool, len(chosen))
	for i, at := range chosen {
		out[i] = passed[at]
	}
	return out
}

// repoJob tells repo.py what to run.
type repoJob struct {
	Runner   string   `json:"runner"`
	IDs      []string `json:"ids"`
	Canaries []string `json:"canaries"`
}

// runRepo puts the tree into a fresh box and runs the tests there, with canaries behind them: tests of which one has to pass and two to fail.
func (g *Grader) runRepo(ctx context.Context, box sandbox.Sandbox, y yard, b *built, m *marks) error {
	job := repoJob{Runner: g.opt.Repo.Runner, IDs: y.ids}
	bird := newCanary(g.opt.Repo.Runner, y.ids[0], b.tree)
	job.Canaries = bird.ids
	put := []sandbox.File{{Path: bird.path, Data: []byte(bird.text)}}
	for _, name := range sortedKeys(b.tree) {
		put = append(put, sandbox.File{Path: name, Data: []byte(b.tree[name])})
	}
	if err := box.Put(ctx, put...); err != nil {
		return died("put the tree into the sandbox", err)
	}
	p, err := begin(ctx, box, wireScript+repoScript, g.opt.CPU, g.opt.Wall)
	if err != nil {
		return died("start the tests", err)
	}
	outcomes, spent, why, err := g.report(ctx, p, job)
	res, serr := p.stop(why)
	m.cpu, m.peak, m.tier = res.Usage.CPU, res.Usage.PeakMemory, res.Tier
	switch {
	case err != nil:
		return err
	case serr != nil:
		return died("run the tests", serr)
	case why == sandbox.StatusWallLimit && spent.starved(g.opt.Wall):
		return tooBusy()
	}
	m.read(y.ids, outcomes, bird, why, b)
	return nil
}

// noReport is the end of a run whose report was none of ours.
const noReport sandbox.Status = "no_report"

// report runs the tests and asks for what came of them, with a number that is sent only then.
func (g *Grader) report(ctx context.Context, p *program, job repoJob) (map[string]string, pace, sandbox.Status, error) {
	lim := limits{g.opt.CPU, g.opt.Wall}
	r, err := p.exchange(ctx, job, lim)
	if err != nil || r.end != "" {
		return nil, r.pace, r.end, err
	}
	var told struct{ Bad string }
	if json.Unmarshal(r.text, &told) != nil {
		return nil, r.pace, noReport, nil
	}
	if told.Bad != "" {
		return nil, r.pace, "", bad("the tests cannot be run in this sandbox: %s (its root file system needs %s)", clip(told.Bad), job.Runner)
	}
	number := nonce()
	if r, err = p.exchange(ctx, map[string]string{"nonce": number}, limits{lim.cpu, 10 * time.Second}); err != nil || r.end != "" {
		return nil, r.pace, r.end, err
	}
	var all struct {
		Nonce    string
		Outcomes map[string]string
	}
	if json.Unmarshal(r.text, &all) != nil || all.Nonce != number {
		return nil, r.pace, noReport, nil
	}
	return all.Outcomes, r.pace, "", nil
}

// read notes which of the named tests passed. One that is not reported, was skipped, or failed as expected has not.
func (m *marks) read(ids []string, outcomes map[string]string, bird canary, why sandbox.Status, b *built) {
	m.passed = make([]bool, len(ids))
	if why != "" {
		m.why = "no report: " + string(why)
		return
	}
	m.ran = true
	if wrong := bird.wrong(ids, outcomes); wrong != "" {
		b.tampered = append(b.tampered, "("+wrong+")")
		m.why = wrong
		return
	}
	for i, id := range ids {
		how := cmp.Or(outcomes[id], "not reported")
		if how == "passed" {
			how = ""
		}
		m.mark(i, i, reported(how))
	}
}

// reported bounds what a report says of a test.
func reported(how string) string {
	switch how {
	case "", "failed", "error", "skipped", "xfailed", "xpassed", "not reported":
		return how
	}
	return "reported as something else"
}

// canary is a file of tests with known ends, under names that nobody can know.
type canary struct {
	path, text string
	ids        []string // the first has to pass, the others to fail
}

func newCanary(runner, id string, tree files) canary {
	n := strings.ToLower(nonce())
	names := []string{"test_" + n[:6], "test_" + n[6:12], "test_" + n[12:18]}
	module := "test_" + n[18:]
	if runner == "pytest" {
		file, _, _ := strings.Cut(id, "::")
		c := canary{path: path.Join(path.Dir(file), module+".py")}
		c.text = fmt.Sprintf("def %s():\n    assert 1 + 1 == 2\n\n\ndef %s():\n    assert 1 + 1 == 3\n\n\ndef %s():\n    raise KeyError(1)\n", names[0], names[1], names[2])
		for _, name := range names {
			c.ids = append(c.ids, c.path+"::"+name)
		}
		return c
	}
	folder := ""
	for parts := strings.Split(id, "."); len(parts) > 0; parts = parts[:len(parts)-1] {
		if _, ok := tree[strings.Join(parts, "/")+".py"]; ok {
			folder = strings.Join(parts[:len(parts)-1], "/")
			break
		}
	}
	c := canary{path: path.Join(folder, module+".py")}
	c.text = fmt.Sprintf("import unittest\n\n\nclass Tests(unittest.TestCase):\n    def %s(self):\n        self.assertEqual(1 + 1, 2)\n\n    def %s(self):\n        self.assertEqual(1 + 1, 3)\n\n"+
		"    def %s(self):\n        raise KeyError(1)\n", names[0], names[1], names[2])
	prefix := strings.ReplaceAll(strings.TrimSuffix(c.path, ".py"), "/", ".") + ".Tests."
	for _, name := range names {
		c.ids = append(c.ids, prefix+name)
	}
	return c
}

// wrong says that a canary did not end as it had to; "" = all did. Where nothing passed, tests that were not run at all say nothing: a module
// that cannot be loaded ends pytest before the first.
func (c canary) wrong(ids []string, outcomes map[string]string) string {
	some := slices.ContainsFunc(ids, func(id string) bool { return outcomes[id] == "passed" })
	for i, id := range c.ids {
		switch how := outcomes[id]; {
		case how == "" && some:
			return "a test of ours was not run"
		case i == 0 && how != "" && how != "passed":
			return "a test that has to pass did not"
		case i > 0 && how == "passed":
			return "a test that has to fail passed"
		}
	}
	return ""
}
