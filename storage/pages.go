package storage

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// Checksums of Parquet pages. The reader of foreign files does not look at them, and the one of our own names a column but no page; here
// the bytes are walked page by page, without being decoded. Only what contradicts a checksum is reported: a page without one, or bytes
// that are no page, are for the decoder to judge.

// chunk is where the pages of one column of one row group begin.
type chunk struct {
	column string
	group  int
	start  int64
	values int64 // that its data pages hold together
}

// chunksOf lists those of one of our own files.
func chunksOf(pf *parquet.File) []chunk {
	var all []chunk
	for g, group := range pf.Metadata().RowGroups {
		for _, c := range group.Columns {
			m := c.MetaData
			start := m.DataPageOffset
			if m.DictionaryPageOffset > 0 {
				start = min(start, m.DictionaryPageOffset)
			}
			all = append(all, chunk{strings.Join(m.PathInSchema, "."), g, start, m.NumValues})
		}
	}
	return all
}

// brokenPage returns an error that names the first page whose bytes are not those its checksum was made of; nil when there is none.
func brokenPage(r io.ReaderAt, size int64, chunks []chunk) error {
	in := bufio.NewReaderSize(nil, 64<<10)
	for _, c := range chunks {
		if c.start < 0 || c.start >= size {
			continue
		}
		in.Reset(io.NewSectionReader(r, c.start, size-c.start))
		if page := c.broken(in); page > 0 {
			return fmt.Errorf("page %d of column %s in row group %d: its checksum says that bytes were changed", page, c.column, c.group)
		}
	}
	return nil
}

// broken walks the pages and returns the number of the first broken one, from 1; 0 = none that can be told.
func (c chunk) broken(in *bufio.Reader) (page int) {
	sum := crc32.NewIEEE()
	for seen := int64(0); seen < c.values; {
		page++
		header, ok := pageHeader(in)
		if !ok || header.CompressedPageSize < 0 || page == 1 && header.CRC == 0 { // who writes checksums writes one a page
			return 0
		}
		sum.Reset()
		if _, err := io.CopyN(sum, in, int64(header.CompressedPageSize)); err != nil {
			return 0
		}
		if header.CRC != 0 && uint32(header.CRC) != sum.Sum32() {
			return page
		}
		switch {
		case header.DataPageHeader.Valid:
			seen += int64(header.DataPageHeader.V.NumValues)
		case header.DataPageHeaderV2.Valid:
			seen += int64(header.DataPageHeaderV2.V.NumValues)
		case !header.DictionaryPageHeader.Valid: // no page that holds values: not to be walked for ever
			return 0
		}
	}
	return 0
}

// pageHeader reads the next header; not ok = that is none.
func pageHeader(in *bufio.Reader) (header format.PageHeader, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	err := thrift.NewDecoder(new(thrift.CompactProtocol).NewReader(in)).Decode(&header)
	return header, err == nil
}

// located puts the page in front of what a decoder said of a file of ours, where a checksum tells which it is.
func located(pf *parquet.File, err error) error {
	page := brokenPage(pf, pf.Size(), chunksOf(pf))
	switch {
	case page == nil:
		return err
	case errors.Is(err, parquet.ErrCorrupted): // it says the same, without the page
		return page
	}
	return fmt.Errorf("%w (%w)", page, err)
}
