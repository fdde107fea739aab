package storage

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// A file of rows is like a part: the same schema, whole groups in row groups of bounded size, and the rows come back.
func TestRowFileIsLikeAPart(t *testing.T) {
	var want []Row
	for i := range 60 {
		want = append(want, RowOf(made{run: "r", group: 3, text: 600 << 10}.episode(i/3, i%3)))
	}
	var b bytes.Buffer
	n, err := WriteRows(&b, func(yield func(*Row, error) bool) {
		for i := range want {
			if !yield(&want[i], nil) {
				return
			}
		}
	})
	if err != nil || n != 60 {
		t.Fatalf("%d rows, %v", n, err)
	}
	pf, err := parquet.OpenFile(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	var got []Row
	if err := eachRow(pf, func(r *Row) error { got = append(got, *r); return nil }); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("other rows come back")
	}
	if pf.Schema().String() != parquet.SchemaOf(Row{}).String() {
		t.Error("another schema")
	}
	at := int64(0)
	for _, g := range pf.RowGroups() {
		size := int64(0)
		for _, r := range got[at : at+g.NumRows()] {
			size += r.rawBytes()
		}
		if at += g.NumRows(); size > rowFileGroup+3*(1<<20) || at%3 != 0 {
			t.Errorf("a row group of %d bytes ends behind row %d", size, at)
		}
	}
	if n := len(pf.RowGroups()); n < 4 {
		t.Errorf("%d row groups", n)
	}
}

// A group that readers could not count in 32 bits is cut between its rows, as in a part.
func TestRowFileCutsALargeGroup(t *testing.T) {
	var b bytes.Buffer
	f := newRowFile(&b)
	if f.most != maxRowGroup {
		t.Errorf("a row group takes %d bytes", f.most)
	}
	f.most = 10_000
	for sample := range 8 { // one group
		r := RowOf(made{run: "r", group: 8, text: 3000}.episode(1, sample))
		if err := f.add(&r); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	pf, err := parquet.OpenFile(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil || pf.NumRows() != 8 || len(pf.RowGroups()) != 4 {
		t.Errorf("%d rows in %d row groups, %v", pf.NumRows(), len(pf.RowGroups()), err)
	}
}
