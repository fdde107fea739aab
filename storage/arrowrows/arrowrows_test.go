package arrowrows

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"tranche/storage"
)

// anyRow fills every field of a row by chance: null, empty, short, and numbers at their ends.
func anyRow(rng *rand.Rand) *storage.Row {
	r := new(storage.Row)
	fill(rng, reflect.ValueOf(r).Elem(), 0)
	return r
}

func fill(rng *rand.Rand, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if rng.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(rng, v.Elem(), depth)
		}
	case reflect.Slice:
		if rng.IntN(4) == 0 {
			return
		}
		n := rng.IntN(4)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		if v.Type() == reflect.TypeFor[[]byte]() {
			v.SetBytes(fmt.Append([]byte{}, strings.Repeat("\xff", rng.IntN(3))))
			return
		}
		for i := range v.Len() {
			fill(rng, v.Index(i), depth+1)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.UnixMicro(rng.Int64N(1 << 51)).UTC()))
			return
		}
		for i := range v.NumField() {
			fill(rng, v.Field(i), depth)
		}
	case reflect.String:
		v.SetString([]string{"", "a", "é😀", "{\"a\":1}", strings.Repeat("long ", 50)}[rng.IntN(5)])
	case reflect.Bool:
		v.SetBool(rng.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		bits := v.Type().Bits()
		v.SetInt([]int64{0, 1, -1, math.MaxInt64 >> (64 - bits), math.MinInt64 >> (64 - bits)}[rng.IntN(5)])
	case reflect.Float32, reflect.Float64:
		v.SetFloat([]float64{0, -1.5, math.Inf(-1), math.Inf(1), -0.25}[rng.IntN(5)])
	default:
		panic(v.Kind())
	}
}

func anyRows(seed uint64, n int) []*storage.Row {
	rng := rand.New(rand.NewPCG(seed, 9))
	rows := make([]*storage.Row, n)
	for i := range rows {
		rows[i] = anyRow(rng)
	}
	return rows
}

func all(rows []*storage.Row) iter.Seq2[*storage.Row, error] {
	return func(yield func(*storage.Row, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// sameRows compares rows; a NaN does not come up.
func sameRows(t *testing.T, got, want []*storage.Row) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}
	for i := range want {
		if reflect.DeepEqual(got[i], want[i]) {
			continue
		}
		g, w := reflect.ValueOf(got[i]).Elem(), reflect.ValueOf(want[i]).Elem()
		for k := range g.NumField() {
			if !reflect.DeepEqual(g.Field(k).Interface(), w.Field(k).Interface()) {
				t.Errorf("row %d, %s: %+v, want %+v", i, g.Type().Field(k).Name, g.Field(k).Interface(), w.Field(k).Interface())
			}
		}
	}
}

// Whatever a row holds, it comes back, and no memory is left behind.
func TestRowsComeBack(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	b, err := NewBuilder(mem)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(40) {
		want := anyRows(seed, 1+int(seed%7))
		for _, r := range want {
			if err := b.Append(r); err != nil {
				t.Fatal(err)
			}
		}
		batch := b.Batch(nil)
		got, err := RowsOf(batch)
		batch.Release()
		if err != nil {
			t.Fatal(err)
		}
		sameRows(t, got, want)
	}
	b.Release()
	mem.AssertSize(t, 0)
}

// readBack reads an IPC file or stream, batch by batch.
func readBack(t *testing.T, b []byte, file bool) (rows []*storage.Row, batches []arrow.RecordBatch) {
	t.Helper()
	take := func(batch arrow.RecordBatch) {
		list, err := RowsOf(batch)
		if err != nil {
			t.Fatal(err)
		}
		rows, batches = append(rows, list...), append(batches, batch)
	}
	if file {
		in, err := ipc.NewFileReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		for i := range in.NumRecords() {
			batch, err := in.RecordBatchAt(i)
			if err != nil {
				t.Fatal(err)
			}
			take(batch)
		}
		return rows, batches
	}
	in, err := ipc.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	for in.Next() {
		batch := in.RecordBatch()
		batch.Retain()
		take(batch)
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	return rows, batches
}

func TestFilesAndStreams(t *testing.T) {
	want := anyRows(3, 60)
	for name, c := range map[string]struct {
		file    bool
		cfg     Config
		batches int
	}{
		"stream":             {false, Config{}, 1},
		"stream, zstd":       {false, Config{Zstd: true}, 1},
		"stream, small":      {false, Config{BatchBytes: 1}, 60},
		"file":               {true, Config{}, 1},
		"file, zstd":         {true, Config{Zstd: true}, 1},
		"file, small, zstd":  {true, Config{Zstd: true, BatchBytes: 1}, 60},
		"stream, a few rows": {false, Config{BatchBytes: 20_000}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
			c.cfg.Mem = mem
			var b bytes.Buffer
			write := WriteStream
			if c.file {
				write = WriteFile
			}
			n, err := write(&b, all(want), c.cfg)
			if err != nil || n != 60 {
				t.Fatalf("%d rows, %v", n, err)
			}
			mem.AssertSize(t, 0)
			rows, batches := readBack(t, b.Bytes(), c.file)
			sameRows(t, rows, want)
			if len(batches) != c.batches && c.batches > 0 {
				t.Errorf("%d batches, want %d", len(batches), c.batches)
			}
			at := 0
			for _, batch := range batches {
				size := int64(0)
				for _, r := range want[at : at+int(batch.NumRows())] {
					size += r.Bytes()
				}
				if at += int(batch.NumRows()); c.cfg.BatchBytes > 0 && batch.NumRows() > 1 && size > c.cfg.BatchBytes {
					t.Errorf("a batch of %d bytes, most %d", size, c.cfg.BatchBytes)
				}
			}
		})
	}
}

func TestNoRowsHaveASchema(t *testing.T) {
	for _, file := range []bool{true, false} {
		var b bytes.Buffer
		write := WriteStream
		if file {
			write = WriteFile
		}
		if _, err := write(&b, all(nil), Config{}); err != nil {
			t.Fatal(err)
		}
		rows, _ := readBack(t, b.Bytes(), file)
		if len(rows) != 0 {
			t.Errorf("%d rows", len(rows))
		}
	}
}

func TestSomeColumns(t *testing.T) {
	want := anyRows(5, 20)
	var b bytes.Buffer
	if _, err := WriteStream(&b, all(want), Config{Columns: []string{"reward", "token_ids", "messages"}}); err != nil {
		t.Fatal(err)
	}
	rows, batches := readBack(t, b.Bytes(), false)
	for i, r := range rows {
		sameRows(t, []*storage.Row{r}, []*storage.Row{{Reward: want[i].Reward, TokenIDs: want[i].TokenIDs, Messages: want[i].Messages}})
	}
	var names []string
	for _, f := range batches[0].Schema().Fields() {
		names = append(names, f.Name)
	}
	if !slices.Equal(names, []string{"reward", "token_ids", "messages"}) {
		t.Errorf("columns %v", names)
	}
	for _, bad := range [][]string{{"rewad"}, {"reward", "reward"}, {""}, {"messages.role"}} {
		if _, err := NewStream(io.Discard, Config{Columns: bad}); err == nil {
			t.Errorf("columns %q are taken", bad)
		}
	}
	if err := CheckColumns([]string{"rewad"}); !strings.Contains(fmt.Sprint(err), `"rewad"`) || !strings.Contains(fmt.Sprint(err), "token_ids, prompt_len") {
		t.Errorf("the message names neither what is wrong nor what there is: %v", err)
	}
}

// What goes with a batch comes with it.
func TestMetadataGoesWithABatch(t *testing.T) {
	var b bytes.Buffer
	w, err := NewStream(&b, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Add(anyRows(1, 1)[0]), w.Flush(map[string]string{"cursor": "x-1"}), w.Flush(map[string]string{"cursor": "x-2"}), w.Close()); err != nil {
		t.Fatal(err)
	}
	_, batches := readBack(t, b.Bytes(), false)
	var got []string
	for _, batch := range batches {
		meta := batch.(arrow.RecordBatchWithMetadata).Metadata()
		cursor, _ := meta.GetValue("cursor")
		got = append(got, fmt.Sprint(batch.NumRows(), " ", cursor))
	}
	if !slices.Equal(got, []string{"1 x-1", "0 x-2"}) {
		t.Errorf("batches %v", got)
	}
}

func TestWhatIsTooLargeIsRefused(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	row := &storage.Row{}
	for range 1025 { // a string has one memory, however often it is named
		row.Messages = append(row.Messages, storage.Message{Content: &huge})
	}
	b, err := NewBuilder(memory.DefaultAllocator)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	if err := b.Append(row); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a row of %d bytes: %v", row.Bytes(), err)
	}
	if err := b.Append(&storage.Row{}); err != nil || b.Rows() != 1 {
		t.Errorf("the next row: %v, %d rows", err, b.Rows())
	}
}

// A failing disk or connection leaves no memory behind.
func TestAFailingWriterFreesItsMemory(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	for room := range 40 {
		_, err := WriteStream(&narrow{room * 997}, all(anyRows(1, 30)), Config{Mem: mem, BatchBytes: 5000, Zstd: room%2 == 0})
		if room < 3 && err == nil {
			t.Errorf("%d bytes were enough", room*997)
		}
	}
	broken := errors.New("broken")
	_, err := WriteFile(io.Discard, func(yield func(*storage.Row, error) bool) { _ = yield(anyRows(1, 1)[0], nil) && yield(nil, broken) }, Config{Mem: mem})
	if !errors.Is(err, broken) {
		t.Errorf("rows that cannot be read: %v", err)
	}
	mem.AssertSize(t, 0)
}

type narrow struct{ room int }

func (n *narrow) Write(p []byte) (int, error) {
	if n.room -= len(p); n.room < 0 {
		return 0, errors.New("full")
	}
	return len(p), nil
}

func TestRowsOfRefusesOtherTypes(t *testing.T) {
	other := arrow.NewSchema([]arrow.Field{{Name: "reward", Type: arrow.BinaryTypes.String}}, nil)
	unknown := arrow.NewSchema([]arrow.Field{{Name: "score", Type: arrow.PrimitiveTypes.Float64}}, nil)
	for _, schema := range []*arrow.Schema{other, unknown} {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		batch := b.NewRecordBatch()
		b.Release()
		if _, err := RowsOf(batch); err == nil {
			t.Errorf("%v is taken for rows", schema)
		}
		batch.Release()
	}
}

// BenchmarkRecord: 64 rows of 3,600 tokens into one batch.
func BenchmarkRecord(b *testing.B) {
	const tokens = 3600
	row := &storage.Row{TokenIDs: make([]int32, tokens), LossMask: make([]int8, tokens), Versions: make([]int32, tokens), Logprobs: make([]*float32, tokens)}
	values := make([]float32, tokens)
	for i := range values {
		row.Logprobs[i] = &values[i]
	}
	builder, err := NewBuilder(memory.DefaultAllocator)
	if err != nil {
		b.Fatal(err)
	}
	defer builder.Release()
	for b.Loop() {
		for range 64 {
			if err := builder.Append(row); err != nil {
				b.Fatal(err)
			}
		}
		builder.Batch(nil).Release()
	}
	b.ReportMetric(float64(b.N)*64*tokens/b.Elapsed().Seconds(), "tokens/s")
}
