package storage

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// Other people's files with checksums: the right ones are read, the wrong ones refused with the page.
func TestReadObjectsHoldsForeignPagesToTheirChecksums(t *testing.T) {
	dir := filepath.Join(dataDir(t, "parquet-testing"), "data")
	for name, want := range map[string]string{
		"datapage_v1-snappy-compressed-checksum.parquet": "",
		"datapage_v1-uncompressed-checksum.parquet":      "",
		"plain-dict-uncompressed-checksum.parquet":       "",
		"rle-dict-snappy-checksum.parquet":               "",
		"datapage_v1-corrupt-checksum.parquet":           "page 1 of column a in row group 0: its checksum",
		"rle-dict-uncompressed-corrupt-checksum.parquet": "page 1 of column long_field in row group 0: its checksum",
	} {
		path := filepath.Join(dir, name)
		switch err := drain(path); {
		case want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case want != "" && (!errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want the file and %q", name, err, want)
		}
	}
}

// Wherever in its pages a bit is flipped, the file is refused before its first row.
func TestReadObjectsNoticesEveryFlippedBit(t *testing.T) {
	whole, err := os.ReadFile(writeForeign(t, 300, 10))
	if err != nil {
		t.Fatal(err)
	}
	pf, err := parquet.OpenFile(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`page 1 of column [a-z_.]+ in row group 0`)
	path := filepath.Join(t.TempDir(), "damaged.parquet")
	flipped := 0
	for _, c := range chunksOf(pf) {
		rest := bytes.NewReader(whole[c.start:])
		in := bufio.NewReaderSize(rest, 16)
		header, ok := pageHeader(in) // it has no checksum of its own
		if !ok {
			t.Fatalf("column %s has no first page", c.column)
		}
		start := len(whole) - rest.Len() - in.Buffered()
		size := int(header.CompressedPageSize)
		for at := start; at < start+size; at += 1 + size/8 {
			b := append([]byte(nil), whole...)
			b[at] ^= 1 << (at % 8)
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
			rows := 0
			var refused error
			for _, err := range ReadObjects(path) {
				if refused = err; err == nil {
					rows++
				}
			}
			if refused == nil || rows > 0 || !named.MatchString(refused.Error()) || !strings.Contains(refused.Error(), c.column) {
				t.Errorf("a bit of %s at byte %d: %d rows, then %v", c.column, at, rows, refused)
			}
			flipped++
		}
	}
	if flipped < 50 {
		t.Errorf("only %d bits were flipped", flipped)
	}
}

// A file of ours that was changed is named with its page by view and by what resume reads.
func TestDamagedPartNamesItsPage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "part.parquet")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := parquet.NewGenericWriter[Row](f, partOptions()...)
	for i := range 40 {
		text := strings.Repeat("x", i)
		if _, err := w.Write([]Row{{EpisodeID: "e" + text, TaskID: "t", Messages: []Message{{Content: &text}}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pf, err := parquet.OpenFile(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range pf.Metadata().RowGroups[0].Columns {
		column := strings.Join(c.MetaData.PathInSchema, ".")
		if column != "episode_id" && column != "messages.list.element.content" {
			continue
		}
		b := append([]byte(nil), whole...)
		b[chunksOf(pf)[i].start+c.MetaData.TotalCompressedSize-1] ^= 4
		broken, err := parquet.OpenFile(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		want := "page 1 of column " + column + " in row group 0"
		if err := eachRow(broken, func(*Row) error { return nil }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("view: %v, want %q", err, want)
		}
		if err := eachRow(broken, func(*digest) error { return nil }); column == "episode_id" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("resume: %v, want %q", err, want)
		}
	}
}

func FuzzBrokenPage(f *testing.F) {
	f.Add([]byte{0x15, 0x04, 0x15, 0x00, 0x15, 0x00, 0x00}, int64(3))
	f.Fuzz(func(t *testing.T, b []byte, values int64) {
		_ = brokenPage(bytes.NewReader(b), int64(len(b)), []chunk{{"c", 0, 0, values}}) // ends, and does not panic
	})
}
