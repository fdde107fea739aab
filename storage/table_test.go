package storage

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

type tableRecord struct {
	Name  *string     `parquet:"name,optional"`
	IDs   []int32     `parquet:"ids,list" parquet-element:",plain"`
	Parts []tablePart `parquet:"parts,optional,list"`
	Inner tablePart   `parquet:"inner"`
}

type tablePart struct {
	Key  string   `parquet:"key"`
	Tags []string `parquet:"tags,optional,list"`
}

// What another reader finds in a Table is what was added, null and empty told apart; row groups close by bytes.
func TestTableReadsBack(t *testing.T) {
	t.Run("type known", func(t *testing.T) {
		tableReadsBack(t, func(w io.Writer) (func(tableRecord) error, func() error) {
			table := NewTable[tableRecord](w)
			return table.Add, table.Close
		})
	})
	t.Run("type made", func(t *testing.T) {
		tableReadsBack(t, func(w io.Writer) (func(tableRecord) error, func() error) {
			table := NewTableOf(w, tableRecord{})
			return func(r tableRecord) error { return table.Add(r) }, table.Close
		})
	})
}

func tableReadsBack(t *testing.T, open func(io.Writer) (add func(tableRecord) error, finish func() error)) {
	name, long := "a", strings.Repeat("x", 3<<20)
	records := []tableRecord{
		{Name: &name, IDs: []int32{1, -2}, Parts: []tablePart{{"k", []string{"t"}}, {"l", nil}}, Inner: tablePart{Key: "i", Tags: []string{}}},
		{IDs: []int32{}, Parts: []tablePart{}},
		{Name: &long}, {Name: &long}, {Name: &long}, {Name: &name},
	}
	want := []string{
		`{"name":"a","ids":[1,-2],"parts":[{"key":"k","tags":["t"]},{"key":"l","tags":null}],"inner":{"key":"i","tags":[]}}`,
		`{"name":null,"ids":[],"parts":[],"inner":{"key":"","tags":null}}`,
	}
	path := filepath.Join(t.TempDir(), "t.parquet")
	var out bytes.Buffer
	add, finish := open(&out)
	for _, r := range records {
		if err := add(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := finish(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := CheckTable(path, int64(len(records))); err != nil {
		t.Error(err)
	}
	if err := CheckTable(path, 3); err == nil {
		t.Error("a wrong number of rows is not seen")
	}
	var got []string
	for o, err := range ReadObjects(path) {
		if err != nil {
			t.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, o); err != nil {
			t.Fatal(err)
		}
		got = append(got, compact.String())
	}
	if len(got) != len(records) || !slices.Equal(got[:2], want) {
		t.Errorf("read %d rows, the first two\n%s\nwant\n%s", len(got), strings.Join(got[:2], "\n"), strings.Join(want, "\n"))
	}
	f, err := disk{}.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pf, err := openParquet(f)
	if err != nil || len(pf.RowGroups()) != 2 {
		t.Errorf("%d row groups, error %v", len(pf.RowGroups()), err)
	}
	damaged := slices.Clone(out.Bytes())
	damaged[len(damaged)/2] ^= 1
	if err := os.WriteFile(path, damaged, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := CheckTable(path, int64(len(records))); err == nil {
		t.Error("a changed byte is not seen")
	}
}

// Heads is Rows with fewer columns: same rows, same order, from parts, failures and the journal.
func TestHeadsAreTheRowsInLittle(t *testing.T) {
	dir := t.TempDir()
	m := made{run: "r", group: 2, failing: func(task, sample int) bool { return task == 1 && sample == 1 }}
	w := mustOpen(t, testConfig(dir))
	for task := range 3 {
		for sample := range 2 {
			if task < 2 || sample == 0 { // the last group stays in the journal
				mustWrite(t, w, m.episode(task, sample))
			}
		}
	}
	mustClose(t, w)
	run, err := OpenRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	var heads []*Row
	for h, err := range run.Heads() {
		if err != nil {
			t.Fatal(err)
		}
		heads = append(heads, h)
	}
	n := 0
	for r, err := range run.Rows() {
		if err != nil {
			t.Fatal(err)
		}
		if n == len(heads) {
			t.Fatalf("there are more rows than heads (%d)", n)
		}
		h := heads[n]
		n++
		same := h.RunID == r.RunID && h.EpisodeID == r.EpisodeID && h.GroupID == r.GroupID && h.TaskID == r.TaskID && h.TaskHash == r.TaskHash && h.Round == r.Round &&
			h.SampleIndex == r.SampleIndex && h.GroupSize == r.GroupSize && h.DataSource == r.DataSource && h.Split == r.Split &&
			text(h.Status) == text(r.Status) && text(h.StopReason) == text(r.StopReason) && slices.Equal(h.Flags, r.Flags) &&
			(h.Reward == nil) == (r.Reward == nil) && (h.Tools == nil) == (r.Tools == nil)
		if !same || len(h.Messages) != 0 {
			t.Errorf("head %+v of row %+v", h, r)
		}
	}
	if n != 5 || n != len(heads) {
		t.Errorf("%d rows, %d heads, want 5", n, len(heads))
	}
}
