package storage

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"tranche/episode"
)

// The tokens of a row in the journal are four lists, each of which begins with a uvarint, the number of its entries:
//
//	ids       uint32 each
//	mask      runs: uvarint length, varint value
//	versions  likewise
//	logprobs  runs: uvarint how many are null, uvarint how many follow that are not; then these, float32 each
//
// Ids and logprobs hardly repeat and are copied as they are; mask and versions are one number for a whole turn. Varints are encoding/binary's.

func appendIDs(dst []byte, ids []int32) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ids)))
	at := len(dst)
	dst = slices.Grow(dst, 4*len(ids))[:at+4*len(ids)]
	for i, id := range ids {
		binary.LittleEndian.PutUint32(dst[at+4*i:], uint32(id))
	}
	return dst
}

func appendRuns[T int8 | int32](dst []byte, list []T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n] == list[0] {
			n++
		}
		dst = binary.AppendVarint(binary.AppendUvarint(dst, uint64(n)), int64(list[0]))
		list = list[n:]
	}
	return dst
}

func appendLogprobs(dst []byte, list []episode.Logprob) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for len(list) > 0 {
		null, some := 0, 0
		for null < len(list) && !list[null].Known {
			null++
		}
		list = list[null:]
		for some < len(list) && list[some].Known {
			some++
		}
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(null)), uint64(some))
		at := len(dst)
		dst = slices.Grow(dst, 4*some)[:at+4*some]
		for i, lp := range list[:some] {
			binary.LittleEndian.PutUint32(dst[at+4*i:], math.Float32bits(lp.Value))
		}
		list = list[some:]
	}
	return dst
}

// tokenLists is memory for the columns of tokens of one row, to be used again when nobody needs that row any more.
type tokenLists struct {
	ids      []int32
	mask     []int8
	versions []int32
	logprobs []*float32
	values   []float32 // what logprobs points to
}

// sized makes a list n long, an empty one for none: null is something else in a column. What was in it stays there.
func sized[T any](list *[]T, n int) []T {
	if *list == nil || cap(*list) < n {
		*list = make([]T, n)
	}
	return (*list)[:n:n]
}

// decodeTokens allocates no more than a small multiple of b, whatever b says.
func decodeTokens(b []byte, r *Row, lists *tokenLists) error {
	in := &listReader{rest: b}
	r.TokenIDs = in.ids(&lists.ids)
	n := len(r.TokenIDs)
	r.LossMask = takeRuns(in, n, &lists.mask)
	r.Versions = takeRuns(in, n, &lists.versions)
	r.Logprobs = in.logprobs(n, lists)
	if in.err == nil && len(in.rest) > 0 {
		in.err = fmt.Errorf("%d bytes stand behind its tokens", len(in.rest))
	}
	return in.err
}

// listReader reads one list after the other. After its first error it gives nothing any more.
type listReader struct {
	rest []byte
	err  error
}

func (in *listReader) fail(err error) {
	if in.err == nil {
		in.err, in.rest = err, nil
	}
}

// number reads a uvarint that is at most limit.
func (in *listReader) number(limit int) int {
	v, n := binary.Uvarint(in.rest)
	if n <= 0 {
		in.fail(errCut)
		return 0
	}
	in.rest = in.rest[n:]
	if v > uint64(limit) {
		in.fail(fmt.Errorf("a list of its tokens says %d where there is room for %d", v, limit))
		return 0
	}
	return int(v)
}

// words reads n numbers of four bytes.
func (in *listReader) words(n int) []byte {
	if n > len(in.rest)/4 {
		in.fail(errCut)
		return nil
	}
	b := in.rest[:4*n]
	in.rest = in.rest[4*n:]
	return b
}

func (in *listReader) ids(into *[]int32) []int32 {
	b := in.words(in.number(math.MaxInt / 4))
	ids := sized(into, len(b)/4)
	for i := range ids {
		ids[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return ids
}

// entries reads how many entries a list has, which must be as many as there are ids.
func (in *listReader) entries(n int) bool {
	if got := in.number(math.MaxInt); in.err == nil && got != n {
		in.fail(fmt.Errorf("it has %d token ids and a list of %d", n, got))
	}
	return in.err == nil
}

func takeRuns[T int8 | int32](in *listReader, n int, into *[]T) []T {
	if !in.entries(n) {
		return nil
	}
	list := sized(into, n)
	for at := 0; at < n && in.err == nil; {
		run := list[at : at+in.number(n-at)]
		v, size := binary.Varint(in.rest)
		if size <= 0 {
			in.fail(errCut)
			return nil
		}
		if int64(T(v)) != v {
			in.fail(fmt.Errorf("%d is no value of its list", v))
			return nil
		}
		in.rest = in.rest[size:]
		for i := range run {
			run[i] = T(v)
		}
		at += len(run)
	}
	return list
}

func (in *listReader) logprobs(n int, into *tokenLists) []*float32 {
	if !in.entries(n) {
		return nil
	}
	list, values := sized(&into.logprobs, n), sized(&into.values, n)
	for at := 0; at < n && in.err == nil; {
		null := in.number(n - at)
		clear(list[at : at+null])
		at += null
		b := in.words(in.number(n - at))
		for i := range len(b) / 4 {
			values[at+i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
			list[at+i] = &values[at+i]
		}
		at += len(b) / 4
	}
	return list
}
