package interop

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tranche/episode"
	"tranche/sampler/taskfile"
	"tranche/storage"
)

// TestTasksOfForeignWriters reads task files that pyarrow, pandas, polars, DuckDB and datasets wrote of the same rows, each in several ways: all are
// the tasks of the text file of these rows, their content hashes included.
func TestTasksOfForeignWriters(t *testing.T) {
	dir := t.TempDir()
	f := runPython(t, "write_tasks.py", dir)
	want := tasksOf(t, filepath.Join(dir, "tasks.jsonl"))
	if n := f.number(t, "rows"); len(want) != int(n) {
		t.Fatalf("%d tasks of %v rows", len(want), n)
	}
	files := f["files"].([]any)
	for _, name := range files {
		t.Run(name.(string), func(t *testing.T) {
			got := tasksOf(t, filepath.Join(dir, name.(string)+".parquet"))
			if len(got) != len(want) {
				t.Fatalf("%d tasks, expected %d", len(got), len(want))
			}
			for i, task := range got {
				if task.ID != want[i].ID || task.Hash != want[i].Hash {
					t.Fatalf("task %d:\n%s\nexpected\n%s", i, shown(task), shown(want[i]))
				}
			}
		})
	}
	t.Run("types", func(t *testing.T) { everyType(t, filepath.Join(dir, "types.parquet")) })
	t.Run("bad text", func(t *testing.T) { badText(t, filepath.Join(dir, "bad-text.parquet")) })
	t.Logf("%d files of %d rows", len(files), len(want))
}

// everyType holds the texts that values of all other types get as columns of a task.
func everyType(t *testing.T, path string) {
	tasks := tasksOf(t, path)
	const want = `{"bool":false,"bytes":"AP8=","clock":"22:05:01.234567","date":"2026-11-30","decimal":"-12.50","decimal_small":"7",` +
		`"decimal_wide":"1234567890123456789012345678901234567890.5","duration":90000000,"fixed":"AQID","fixed_list":[1,2],"float":0.1,"half":0.5,` +
		`"infinite":"-Inf","int64":-9223372036854775808,"int8":-128,"json":{"a":[null],"b":1},"lists":[[1],null,[]],"map":[{"key":"a","value":1},{"key":"b"}],` +
		`"nan":"NaN","time_ms":"2026-11-30T22:05:01.234","time_ns":"2025-11-30T22:05:01.234567891","time_s_zone":"2026-11-30T22:05:01Z",` +
		`"time_us_zone":"2026-11-30T22:05:01.234567Z","uint64":18446744073709551615,"uuid":"00000000-0000-0000-0000-000000000005"}`
	if len(tasks) != 2 || string(tasks[0].Extra) != want || tasks[1].Extra != nil {
		t.Fatalf("%d tasks\n%s\nexpected\n%s\nand then nothing, got %s", len(tasks), tasks[0].Extra, want, tasks[1].Extra)
	}
}

// badText is a fault of its row, which --skip-bad leaves out, and not of the file.
func badText(t *testing.T, path string) {
	cfg := taskfile.Config{Paths: []string{path}, OpenRows: storage.ReadObjects, SkipBad: true}
	rep, err := taskfile.Check(t.Context(), cfg)
	if err != nil || rep.Tasks != 2 || rep.Bad.Rows != 1 || rep.Bad.Listed[0].Where.Line != 2 || !strings.Contains(rep.Bad.Listed[0].Error(), "not valid UTF-8") {
		t.Errorf("%d tasks, %d bad %v, %v; want 2 tasks and row 2 bad", rep.Tasks, rep.Bad.Rows, rep.Bad.Listed, err)
	}
}

// tasksOf reads a task file as a run does.
func tasksOf(t *testing.T, path string) (tasks []*episode.Task) {
	t.Helper()
	r, err := taskfile.Open(t.Context(), taskfile.Config{Paths: []string{path}, OpenRows: storage.ReadObjects})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		task, err := r.Next()
		if errors.Is(err, io.EOF) {
			return tasks
		}
		if err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, task)
	}
}

func shown(t *episode.Task) string {
	out := t.ID + " " + t.DataSource + " " + t.Split + " " + t.Style
	for _, m := range t.Messages {
		out += "\n  " + m.Role + ": " + m.Text()
	}
	answer := "(none)"
	if t.Answer != nil {
		answer = *t.Answer
	}
	return out + "\n  answer " + answer + "\n  tools " + string(t.Tools) + "\n  extra " + string(t.Extra)
}

// TestForeignFilesReadAsPyarrowReadsThem compares each value of the official test files, and of those that parquet-go brings along, that our reader takes
// with what pyarrow says it is.
func TestForeignFilesReadAsPyarrowReadsThem(t *testing.T) {
	python(t)
	t.Run("parquet-testing", func(t *testing.T) {
		compareForeign(t, 54, data(t, "parquet-testing", "data"), data(t, "parquet-testing", "bad_data"))
	})
	t.Run("parquet-go", func(t *testing.T) {
		dir := moduleDir(t, "github.com/parquet-go/parquet-go")
		compareForeign(t, 46, filepath.Join(dir, "testdata"), filepath.Join(dir, "testdata", "*"))
	})
}

// compareForeign wants at least so many files read by both, and every one of them with pyarrow's values. Files of several MB take longer than they tell.
func compareForeign(t *testing.T, least int, folders ...string) {
	dir := t.TempDir()
	var files, args []string
	for _, folder := range folders {
		found, err := filepath.Glob(filepath.Join(folder, "*.parquet"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.Size() < 1<<20 {
				files = append(files, path)
			}
		}
	}
	for i, path := range files {
		ours := filepath.Join(dir, fmt.Sprint(i))
		if err := objectsInto(ours, path); err != nil {
			t.Logf("refused: %v", err)
			continue
		}
		args = append(args, ours, path)
	}
	f := runPython(t, "compare_foreign.py", args...)
	compared := len(args) / 2
	for i := 1; i < len(args); i += 2 {
		if why, isText := f[filepath.Base(args[i])].(string); isText {
			compared--
			t.Logf("read by us and not by pyarrow: %s: %s", filepath.Base(args[i]), why)
		}
	}
	if compared < least {
		t.Errorf("only %d of %d files were compared", compared, len(files))
	}
	t.Logf("%d of %d files read, %d compared, %v checks", len(args)/2, len(files), compared, f["checks"])
}

// moduleDir is where the sources of a module that we depend on lie.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatalf("go list -m %s: %v", module, err)
	}
	return strings.TrimSpace(string(out))
}

// objectsInto writes what our reader gives of a file, an object a line.
func objectsInto(to, path string) error {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	for o, err := range storage.ReadObjects(path) {
		if err != nil {
			return err
		}
		w.Write(append(o, '\n'))
	}
	return w.Flush()
}
