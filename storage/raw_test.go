package storage

import (
	"bytes"
	"compress/flate"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/parquet-go/parquet-go"

	"tranche/episode"
)

func deflated(t *testing.T, body string) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte(body))
	_ = w.Close()
	return out.Bytes()
}

// Raw answers are any bytes, and come out of journal and parts as they went in; without them the column is null.
func TestRawAnswersAreStored(t *testing.T) {
	body := "data: \xff\x00é\r\n\n"
	e := made{run: "r"}.episode(1, 0)
	e.Raw = []episode.Raw{
		{Turn: 0, Status: 200, Bytes: int64(len(body)), Held: int64(len(body)), Deflated: deflated(t, body)},
		{Turn: 1, Status: 503, Class: episode.ClassUnavailable, Bytes: 9_000_000},
	}
	want := []RawAnswer{
		{Turn: 0, Status: 200, Bytes: int64(len(body)), Body: []byte(body)},
		{Turn: 1, Status: 503, Class: episode.Ptr("unavailable"), Bytes: 9_000_000},
	}
	with, without := RowOf(e), RowOf(made{run: "r"}.episode(2, 0))
	if !reflect.DeepEqual(with.Raw, want) || without.Raw != nil || with.rawBytes() < int64(len(body)) {
		t.Fatalf("%+v and %+v", with.Raw, without.Raw)
	}
	payload, err := appendRow(nil, 1, keyOf(with.EpisodeID), &with)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := decodeRow(payload); err != nil || !reflect.DeepEqual(back.Raw, want) {
		t.Fatalf("out of the journal: %+v, %v", back.Raw, err)
	}
	path := writePart(t, t.TempDir(), "x", with, without)
	rows := readPart[Row](t, path)
	if len(rows) != 2 || !reflect.DeepEqual(rows[0].Raw, want) || rows[1].Raw != nil {
		t.Fatalf("out of the part: %+v", rows)
	}
}

// A run that was begun before the column existed is read, and gone on with: here a part is written again without it.
func TestPartsOfAnEarlierSchema(t *testing.T) {
	full := RowOf(made{run: "r"}.episode(1, 0))
	path := writePart(t, t.TempDir(), "x", full)
	columns := parquet.Group{}
	for _, f := range parquet.SchemaOf(Row{}).Fields() {
		if f.Name() != "raw" {
			columns[f.Name()] = f
		}
	}
	earlier := parquet.NewSchema("Row", columns)
	conversion, err := parquet.Convert(earlier, parquet.SchemaOf(Row{}))
	if err != nil {
		t.Fatal(err)
	}
	now, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	var out bytes.Buffer
	w := parquet.NewWriter(&out, earlier)
	if _, err := parquet.CopyRows(w, parquet.ConvertRowReader(parquet.NewReader(now), conversion)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(t.TempDir(), "old.parquet")
	if err := os.WriteFile(old, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	rows := readPart[Row](t, old)
	if len(rows) != 1 || !reflect.DeepEqual(rows[0], readPart[Row](t, path)[0]) || rows[0].EpisodeID != full.EpisodeID {
		t.Fatalf("%+v", rows)
	}
}

func readPart[T any](t *testing.T, path string) (rows []T) {
	t.Helper()
	f, err := disk{}.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pf, err := openParquet(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := eachRow(pf, func(r *T) error { rows = append(rows, *r); return nil }); err != nil {
		t.Fatal(err)
	}
	return rows
}

// Programs of others find a raw answer by task, sample and turn, with the query of docs/format.md, and get its bytes.
func TestForeignReadersFindRawAnswers(t *testing.T) {
	dir := t.TempDir()
	with := made{run: "r"}.episode(1, 0)
	for turn, body := range []string{"one", "", "drei é", "\xff"} {
		with.Raw = append(with.Raw, episode.Raw{Turn: int16(turn), Status: 200, Bytes: int64(len(body)), Held: int64(len(body)), Deflated: deflated(t, body)})
	}
	path := writePart(t, dir, "part-00000.parquet", RowOf(with), RowOf(made{run: "r"}.episode(2, 0)))
	var got struct {
		Duck  string
		Arrow []string // hex; "-" = null
		Null  int
	}
	python(t, `
import sys, json, pyarrow.parquet as pq, duckdb
f = sys.argv[1]
t = pq.read_table(f, columns=["task_id", "raw"]).to_pylist()
print(json.dumps({
  "Duck": duckdb.sql(f"select decode(a.body) from (select unnest(raw) a from '{f}' where task_id = 'task-0001' and sample_index = 0) where a.turn = 2").fetchall()[0][0],
  "Arrow": ["-" if a["body"] is None else a["body"].hex() for r in t for a in (r["raw"] or [])],
  "Null": sum(r["raw"] is None for r in t),
}))`, &got, path)
	if got.Duck != "drei é" || got.Null != 1 || !reflect.DeepEqual(got.Arrow, []string{"6f6e65", "-", "6472656920c3a9", "ff"}) {
		t.Errorf("%+v", got)
	}
}
