package storage

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"tranche/episode"
)

// python runs a program of readers that others wrote over args and decodes the JSON it prints.
func python(t *testing.T, program string, out any, args ...string) {
	t.Helper()
	interpreter := os.Getenv("TRANCHE_PYTHON")
	if interpreter == "" {
		interpreter = enginePython()
	}
	if msg, err := exec.Command(interpreter, "-c", "import pyarrow, duckdb, pandas, polars").CombinedOutput(); err != nil {
		t.Skipf("%s cannot import pyarrow, duckdb, pandas and polars (set TRANCHE_PYTHON to one that can): %v %s", interpreter, err, msg)
	}
	cmd := exec.Command(interpreter, append([]string{"-c", program}, args...)...)
	cmd.Stderr = os.Stderr
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("python: %v", err)
	}
	if err := json.Unmarshal(b, out); err != nil {
		t.Fatalf("python printed %q: %v", b, err)
	}
}

// enginePython is the environment that scripts of this repository install, where it is there.
func enginePython() string {
	root := os.Getenv("TRANCHE_ENGINES")
	if root == "" {
		home, _ := os.UserHomeDir()
		root = filepath.Join(home, ".cache", "tranche-engines")
	}
	path := filepath.Join(root, "py", "bin", "python")
	if _, err := os.Stat(path); err != nil {
		return "python3"
	}
	return path
}

// writePart publishes rows as one file, bypassing RowOf, so that any null can be asked for.
func writePart(t *testing.T, dir, name string, rows ...Row) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, partsDir), 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := newPartWriter(disk{}, dir, partName(partsDir, 0), partOptions())
	if err != nil {
		t.Fatal(err)
	}
	w.part.Path = filepath.ToSlash(filepath.Join(partsDir, name))
	for i := range rows {
		if err := w.add(&rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.publish(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, partsDir, name)
}

func withCalls(task int, arguments ...string) Row {
	e := made{run: "r"}.episode(task, 0)
	for i, a := range arguments {
		e.Messages = append(e.Messages, episode.Message{Role: "assistant", ToolCalls: []episode.ToolCall{
			{ID: fmt.Sprint(i), Type: "function", Function: episode.Function{Name: "f", Arguments: a}}}})
	}
	return RowOf(e)
}

// PQ-o1, PQ-o3: one table over files with and without tool calls, and one without rows, arguments as the same texts.
func TestForeignReadersSeeOneTable(t *testing.T) {
	dir := t.TempDir()
	arguments := []string{`{"a":1}`, `{"b":{"c":[2]}}`, `{ "spaced" : 1.0 }`, `not json`}
	var plain, calling []Row
	for i := range 5 {
		plain = append(plain, withCalls(i))
		calling = append(calling, withCalls(10+i, arguments...))
	}
	a := writePart(t, dir, "part-00000.parquet", plain...)
	b := writePart(t, dir, "part-00001.parquet", calling...)
	writePart(t, dir, "part-00002.parquet")
	var got struct {
		SameSchema            bool
		Arrow, Duck           int
		Pandas, Polars        int
		Arguments, DuckArgs   []string
		NoCalls, EmptyNotNull int
		MeanReward            float64
	}
	python(t, `
import sys, json, pyarrow.parquet as pq, pyarrow.dataset as ds, duckdb, pandas, polars
a, b, d = sys.argv[1:]
t = ds.dataset(d, format="parquet").to_table()
calls = [c for row in t.column("messages").to_pylist() for m in row for c in (m["tool_calls"] or [])]
q = duckdb.sql(f"select * from read_parquet('{d}/*.parquet')")
duck = duckdb.sql(f"""select unnest(tool_calls)['function']['arguments'] from
   (select unnest(messages)['tool_calls'] as tool_calls, task_id from read_parquet('{d}/*.parquet') order by task_id)""").fetchall()
print(json.dumps({
  "SameSchema": pq.read_schema(a).equals(pq.read_schema(b)),
  "Arrow": t.num_rows, "Duck": len(q.fetchall()),
  "Pandas": len(pandas.read_parquet(d)), "Polars": polars.read_parquet(f"{d}/*.parquet").height,
  "Arguments": [c["function"]["arguments"] for c in calls],
  "DuckArgs": [r[0] for r in duck],
  "NoCalls": sum(m["tool_calls"] is None for row in t.column("messages").to_pylist() for m in row),
  "MeanReward": duckdb.sql(f"select avg(reward) from read_parquet('{d}/*.parquet')").fetchall()[0][0],
}))`, &got, a, b, filepath.Join(dir, partsDir))
	var want []string
	for range 5 {
		want = append(want, arguments...)
	}
	if !got.SameSchema || got.Arrow != 10 || got.Duck != 10 || got.Pandas != 10 || got.Polars != 10 {
		t.Errorf("same schema %v, %d rows in pyarrow, %d in DuckDB, %d in pandas, %d in polars", got.SameSchema, got.Arrow, got.Duck, got.Pandas, got.Polars)
	}
	inOrder := slices.Equal(got.Arguments, want)
	slices.Sort(want)
	slices.Sort(got.DuckArgs) // SQL promises no order
	if !inOrder || !slices.Equal(got.DuckArgs, want) {
		t.Errorf("arguments came back as\n%q\n%q\nwant\n%q", got.Arguments, got.DuckArgs, want)
	}
	if got.NoCalls != 20 || got.MeanReward != 1 {
		t.Errorf("%d messages with null calls, want 20; mean reward %v", got.NoCalls, got.MeanReward)
	}
}

// PQ-o2 and every kind of null.
func TestForeignReadersTellNullFromEmpty(t *testing.T) {
	dir := t.TempDir()
	one, three := float32(1), float32(3)
	base := RowOf(made{run: "r"}.episode(1, 0))
	with := func(lps []*float32, n int) Row {
		r := base
		r.TokenIDs, r.LossMask, r.Versions = make([]int32, n), make([]int8, n), make([]int32, n)
		r.Logprobs = lps
		if lps == nil { // all four null, so that their lengths stay equal
			r.TokenIDs, r.LossMask, r.Versions = nil, nil, nil
		}
		return r
	}
	null, empty, full := with(nil, 0), with([]*float32{}, 0), with([]*float32{&one, nil, &three}, 3)
	null.Reward, null.Submitted, null.Rewards = nil, nil, nil
	empty.Reward, empty.Submitted, empty.Rewards = episode.Ptr(0.0), episode.Ptr(""), []Reward{}
	path := writePart(t, dir, "part-00000.parquet", null, empty, full)
	type table struct {
		Logprobs  [][]*float64
		Rewards   []json.RawMessage
		Reward    []*float64
		Submitted []*string
	}
	var got struct{ Arrow, Duck table }
	python(t, `
import sys, json, pyarrow.parquet as pq, duckdb
t = pq.read_table(sys.argv[1])
d = duckdb.sql(f"select logprobs, rewards, reward, submitted from read_parquet('{sys.argv[1]}')").fetchall()
print(json.dumps({
  "Arrow": {"Logprobs": t["logprobs"].to_pylist(), "Rewards": t["rewards"].to_pylist(), "Reward": t["reward"].to_pylist(), "Submitted": t["submitted"].to_pylist()},
  "Duck": {"Logprobs": [r[0] for r in d], "Rewards": [r[1] for r in d], "Reward": [r[2] for r in d], "Submitted": [r[3] for r in d]}}))`, &got, path)
	for name, g := range map[string]table{"pyarrow": got.Arrow, "DuckDB": got.Duck} {
		l := g.Logprobs
		if len(l) != 3 || l[0] != nil || l[1] == nil || len(l[1]) != 0 || len(l[2]) != 3 || *l[2][0] != 1 || l[2][1] != nil || *l[2][2] != 3 {
			t.Errorf("%s: logprobs %v", name, l)
		}
		if g.Reward[0] != nil || g.Reward[1] == nil || *g.Reward[1] != 0 || g.Submitted[0] != nil || g.Submitted[1] == nil {
			t.Errorf("%s: reward %v, submitted %v", name, g.Reward, g.Submitted)
		}
		if string(g.Rewards[0]) != "null" || string(g.Rewards[1]) != "[]" {
			t.Errorf("%s: rewards %s", name, g.Rewards)
		}
	}
	rows := partRows(t, path)
	for i, want := range []Row{null, empty, full} {
		if !reflect.DeepEqual(*rows[i], want) {
			t.Errorf("our own reader: row %d differs", i)
		}
	}
}

// The whole life of a run as others see it: values, types and the directory as one data set.
func TestForeignReadersReadARun(t *testing.T) {
	dir := t.TempDir()
	m := made{run: "r", group: 2, failing: func(task, _ int) bool { return task == 3 }}
	w := mustOpen(t, testConfig(dir))
	tokens, sum := 0, int64(0)
	for i := range 60 {
		e := m.episode(i/2, i%2)
		if e.Fault == nil {
			for _, id := range e.Tokens.IDs {
				tokens++
				sum += int64(id)
			}
		}
		mustWrite(t, w, e)
		if i == 29 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustClose(t, w)
	var got struct {
		Rows, Failed, Tokens int
		Sum                  int64
		Created, Types       string
		NullSplit            int
		Datasets             *int
	}
	python(t, `
import sys, json, duckdb, pyarrow.dataset as ds
d = sys.argv[1]
t = ds.dataset(d + "/parts", format="parquet").to_table()
n, s = duckdb.sql(f"select count(*), sum(id) from (select unnest(token_ids) as id from read_parquet('{d}/parts/*.parquet'))").fetchall()[0]
have = None
try:
    import datasets, tempfile
    have = datasets.load_dataset("parquet", data_dir=d + "/parts", split="train", cache_dir=tempfile.mkdtemp()).num_rows
except ImportError:
    pass
print(json.dumps({"Rows": t.num_rows, "Failed": ds.dataset(d + "/failures", format="parquet").count_rows(), "Tokens": n, "Sum": int(s),
  "Created": str(t["created_at"][0].as_py()), "Types": "|".join(str(t.schema.field(c).type) for c in ("created_at", "loss_mask", "logprobs", "seed")),
  "Datasets": have}))`, &got, dir)
	if got.Rows != 58 || got.Failed != 2 || got.Tokens != tokens || got.Sum != sum {
		t.Errorf("%+v, want 58 rows, 2 failed, %d tokens with sum %d", got, tokens, sum)
	}
	if got.Created != "2026-11-30 12:00:00.123456+00:00" {
		t.Errorf("created_at %s", got.Created)
	}
	if want := "timestamp[us, tz=UTC]|list<element: int8 not null>|list<element: float>|int64"; got.Types != want {
		t.Errorf("types %s, want %s", got.Types, want)
	}
	if got.Datasets != nil && *got.Datasets != 58 {
		t.Errorf("Hugging Face datasets loads %d rows", *got.Datasets)
	}
}

// The encodings the format document names, and page checksums: a flipped bit in a page is an error, not a wrong value.
func TestEncodings(t *testing.T) {
	dir := t.TempDir()
	var rows []Row
	for i := range 50 {
		rows = append(rows, RowOf(made{run: "r"}.episode(i, 0)))
	}
	path := writePart(t, dir, "part-00000.parquet", rows...)
	f, err := disk{}.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pf, err := openParquet(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range pf.Metadata().RowGroups[0].Columns {
		md := c.MetaData
		names := fmt.Sprint(md.Encoding)
		switch md.PathInSchema[0] {
		case "logprobs":
			if !strings.Contains(names, "BYTE_STREAM_SPLIT") || strings.Contains(names, "RLE_DICTIONARY") {
				t.Errorf("logprobs: %s", names)
			}
		case "token_ids", "loss_mask", "versions":
			if !strings.Contains(names, "PLAIN") || strings.Contains(names, "RLE_DICTIONARY") {
				t.Errorf("%s: %s", md.PathInSchema[0], names)
			}
		}
		if md.Codec.String() != "ZSTD" {
			t.Errorf("%v: codec %v", md.PathInSchema, md.Codec)
		}
		bloom := md.BloomFilterOffset > 0
		if want := md.PathInSchema[0] == "task_id" || md.PathInSchema[0] == "episode_id"; bloom != want {
			t.Errorf("%v: bloom filter %v", md.PathInSchema, bloom)
		}
	}
}

// A flipped bit in any page of a part is an error or has no effect; it never is another value. What has no checksum of its own, the headers of
// pages and the footer, is held by the file's sha256 in the manifest alone.
func TestFlippedBitsAreNoticed(t *testing.T) {
	var rows []Row
	for i := range 30 {
		rows = append(rows, RowOf(made{run: "r"}.episode(i, 0)))
	}
	path := writePart(t, t.TempDir(), "part-00000.parquet", rows...)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read := func(b []byte) (got []Row, err error) {
		defer guard(&err)
		pf, err := parquet.OpenFile(bytesAt(b), int64(len(b)))
		if err != nil {
			return nil, err
		}
		err = eachRow(pf, func(r *Row) error { got = append(got, *r); return nil })
		return got, err
	}
	pages := withinPages(t, whole)
	noticed := 0
	for i := range 120 {
		b := slices.Clone(whole)
		at := pages[len(pages)*i/120]
		b[at] ^= 1 << (i % 8)
		got, err := read(b)
		switch {
		case err != nil:
			noticed++
		case !reflect.DeepEqual(got, rows):
			t.Errorf("bit %d of byte %d flipped: other values and no error", i%8, at)
		}
	}
	if noticed < 100 {
		t.Errorf("%d of 120 noticed", noticed)
	}
}

// withinPages lists the offsets of all bytes in the first pages of the columns, their headers left out.
func withinPages(t *testing.T, whole []byte) (at []int) {
	t.Helper()
	pf, err := parquet.OpenFile(bytesAt(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chunksOf(pf) {
		rest := bytes.NewReader(whole[c.start:])
		in := bufio.NewReaderSize(rest, 16)
		header, ok := pageHeader(in)
		if !ok {
			t.Fatalf("column %s has no first page", c.column)
		}
		start := len(whole) - rest.Len() - in.Buffered()
		for i := range int(header.CompressedPageSize) {
			at = append(at, start+i)
		}
	}
	return at
}
