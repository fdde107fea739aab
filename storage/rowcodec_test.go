package storage

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// drawValue fills a value of any type that a row has: zero, empty, null and what is at the ends of its range come often.
func drawValue(rng *rand.Rand, v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		if rng.IntN(4) > 0 {
			v.Set(reflect.ValueOf(time.Unix(rng.Int64N(1<<40)-1<<39, rng.Int64N(1e9)).UTC()))
		}
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(rng.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		bits := v.Type().Bits()
		v.SetInt([]int64{0, 1, -1 << (bits - 1), 1<<(bits-1) - 1, int64(rng.Uint64()) >> (64 - bits)}[rng.IntN(5)])
	case reflect.Float32, reflect.Float64:
		v.SetFloat([]float64{0, math.Copysign(0, -1), 1, math.Inf(-1), float64(float32(rng.NormFloat64()))}[rng.IntN(5)])
	case reflect.String:
		v.SetString(strings.Repeat("ä", []int{0, 1, 63, 64, 9000}[rng.IntN(5)]))
	case reflect.Pointer:
		if rng.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			drawValue(rng, v.Elem())
		}
	case reflect.Slice:
		if n := rng.IntN(5) - 1; n >= 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				drawValue(rng, v.Index(i))
			}
		}
	case reflect.Uint8:
		v.SetUint(rng.Uint64N(256))
	case reflect.Struct:
		for i := range v.NumField() {
			drawValue(rng, v.Field(i))
		}
	default:
		panic(v.Type().String())
	}
}

// drawRow is a row of any content with lists of equal length.
func drawRow(rng *rand.Rand) *Row {
	r := new(Row)
	drawValue(rng, reflect.ValueOf(r).Elem())
	n := []int{0, 1, 7, 300}[rng.IntN(4)]
	r.TokenIDs, r.LossMask, r.Logprobs, r.Versions = drawTokens(rng, n)
	for i := range r.Breaks {
		b := &r.Breaks[i]
		b.TokenIDs, b.LossMask, b.Logprobs, b.Versions = drawTokens(rng, rng.IntN(4))
	}
	return r
}

func drawTokens(rng *rand.Rand, n int) (ids []int32, mask []int8, logprobs []*float32, versions []int32) {
	ids, mask, logprobs, versions = make([]int32, n), make([]int8, n), make([]*float32, n), make([]int32, n)
	change := 1 + rng.IntN(20)
	for i := range ids {
		ids[i] = int32(rng.Uint32())
		if i > 0 {
			mask[i], versions[i] = mask[i-1], versions[i-1]
		}
		if rng.IntN(change) == 0 {
			mask[i], versions[i] = int8(rng.Uint32()), int32(rng.Uint32())
		}
		if mask[i] > 0 {
			lp := []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), -rng.Float32()}[rng.IntN(4)]
			logprobs[i] = &lp
		}
	}
	return ids, mask, logprobs, versions
}

// Every column of a row comes back from the journal as it was, null, empty and zero told apart, also one that is added tomorrow; and the same row gives the same bytes.
func TestEveryColumnComesBackFromTheJournal(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var used tokenLists
	for i := range 120 {
		want := drawRow(rng)
		b, err := appendRow(nil, 5, keyOf(want.EpisodeID), want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeRowInto(b, &used) // what a longer row left in the lists does not show
		if err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
		if fresh, err := decodeRow(b); err != nil || !reflect.DeepEqual(fresh, want) {
			t.Fatalf("row %d, into new lists: %v\n%+v\n%+v", i, err, fresh, want)
		}
		// DeepEqual takes -0 for 0, so bytes count too.
		again, _ := appendRow(nil, 5, keyOf(want.EpisodeID), got)
		if !reflect.DeepEqual(got, want) || !slices.Equal(b, again) {
			t.Fatalf("row %d:\n%+v\n%+v", i, got, want)
		}
	}
}

// What Write encodes from an episode is what a row of it gives.
func TestEpisodesAreEncodedAsTheirRows(t *testing.T) {
	for task := range 8 {
		e := made{run: "r", failing: killFailing}.episode(task, 0)
		want := RowOf(e)
		whole, err := appendRow(nil, 5, keyOf(e.ID), &want)
		if err != nil {
			t.Fatal(err)
		}
		row := rowBesideTokens(e)
		row.lendTokens(&e.Tokens)
		lent, err := appendRowWith(nil, 5, keyOf(e.ID), &row, e.Tokens.Logprobs)
		if err != nil || !slices.Equal(whole, lent) {
			t.Errorf("task %d: %v\n%q\n%q", task, err, whole, lent)
		}
	}
}

func TestColumnsOfOtherPrograms(t *testing.T) {
	type now struct {
		Kept []string `json:"kept"`
		Text *string  `json:"text"`
		Gone int32    `json:"gone"`
	}
	type later struct {
		More []now    `json:"more"`
		Text *string  `json:"text"`
		Kept []string `json:"kept"`
		Last bool     `json:"last"`
	}
	empty := ""
	written := later{More: []now{{Gone: 3}, {}}, Text: &empty, Kept: []string{"a", "", "b"}, Last: true}
	b := fieldListOf(reflect.TypeFor[later]()).put(nil, reflect.ValueOf(written))
	var read now
	if err := fieldListOf(reflect.TypeFor[now]()).take(b, reflect.ValueOf(&read).Elem()); err != nil {
		t.Fatal(err)
	}
	if want := (now{Kept: written.Kept, Text: &empty}); !reflect.DeepEqual(read, want) {
		t.Errorf("read %+v, want %+v", read, want)
	}
}

// Whatever numbers a damaged record has in it, it is refused, and no memory is taken that its bytes do not account for.
func TestRecordsThatLieAreRefused(t *testing.T) {
	head, err := appendRow(nil, 5, key{}, &Row{})
	if err != nil {
		t.Fatal(err)
	}
	head = head[:len(head)-leastTokens]
	tokens := func(numbers ...uint64) []byte {
		b := slices.Clone(head)
		for _, n := range numbers {
			b = binary.AppendUvarint(b, n)
		}
		return b
	}
	text := func(fields string) []byte {
		b := binary.LittleEndian.AppendUint32(make([]byte, payloadHead), uint32(len(rowMark)+len(fields)))
		return append(append(append(b, rowMark...), fields...), 0, 0, 0, 0)
	}
	const much = 1 << 29
	for name, c := range map[string]struct {
		payload []byte
		want    string
	}{
		"nothing behind the head":    {make([]byte, payloadHead), "ends after"},
		"no tokens":                  {head, "too early"},
		"more ids than bytes":        {tokens(much), "too early"},
		"more ids than there can be": {tokens(math.MaxUint64), "room"},
		"a number that never ends":   {append(slices.Clone(head), slices.Repeat([]byte{0xff}, 20)...), "too early"},
		"a mask of another length":   {tokens(0, much), "a list of"},
		"a run beyond its list":      {append(tokens(1), 1, 0, 0, 0, 1, 2, 2), "room"},
		"a mask that is no int8":     {append(tokens(1), 1, 0, 0, 0, 1, 1, 0x80, 2), "no value"},
		"runs of nothing":            {append(tokens(1), append([]byte{1, 0, 0, 0, 1}, make([]byte, 40)...)...), "too early"},
		"logprobs beyond the ids":    {tokens(0, 0, 0, much), "a list of"},
		"logprobs beyond the bytes":  {append(tokens(1), 1, 0, 0, 0, 1, 1, 2, 1, 1, 0, 1, 0, 1, 9, 9), "too early"},
		"bytes behind":               {tokens(0, 0, 0, 0, 7), "behind"},
		"a name beyond the text":     {text("\xffrun"), "too early"},
		"a value beyond the text":    {text("\x06run_id\xff\xff\xff\x7f"), "too early"},
		"no size":                    {text("\x06run_id"), "too early"},
		"a number that is too large": {text("\x05round\x05\x80\x80\x80\x80\x20"), "round"},
		"bytes behind a number":      {text("\x05round\x02\x02\x02"), "round"},
		"bytes behind a time":        {text("\x0acreated_at\x03\x02\x00\x07"), "created_at"},
		"a list that is cut":         {text("\x05flags\x02\x09a"), "flags"},
		"a float of three bytes":     {text("\x06reward\x03abc"), "reward"},
		"a number in a list":         {text("\x06breaks\x10\x0f\x09token_ids\x04\x01\x02\x01\xff"), "breaks: [0]: token_ids: [1]"},
		"former: cut":                {append(make([]byte, payloadHead), 2, 0, 0, 0, '{', '}', 9, 0, 0, 0), "9 tokens"},
		"former: no JSON":            {append(make([]byte, payloadHead), 2, 0, 0, 0, '{', '{', 0, 0, 0, 0), "decode"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := decodeRow(c.payload)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q in it; row %+v", err, c.want, r)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
				t.Errorf("%d bytes were allocated for a record of %d", took, len(c.payload))
			}
		})
	}
}

// Bytes that were changed, lost or doubled anywhere in a record are refused or read as another row, and take no more memory than a record of that length
// may: what stands in a byte at the most is an entry of a list, a struct.
func TestRecordsChangedAnywhereAreHarmless(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	refused := 0
	for i := range 3000 {
		row := RowOf(made{run: "r", failing: killFailing, text: rng.IntN(300)}.episode(i%40, 0))
		b, err := appendRow(nil, 5, keyOf(row.EpisodeID), &row)
		if err != nil {
			t.Fatal(err)
		}
		for range 1 + rng.IntN(3) {
			at := payloadHead + rng.IntN(len(b)-payloadHead)
			switch rng.IntN(4) {
			case 0:
				b[at] = byte(rng.Uint32())
			case 1:
				b[at] = 0xff
			case 2:
				b = slices.Delete(b, at, min(len(b), at+rng.IntN(20)))
			case 3:
				b = slices.Insert(b, at, b[at:min(len(b), at+rng.IntN(20))]...)
			}
		}
		var before, after runtime.MemStats
		if i%100 == 0 { // it stops the world
			runtime.ReadMemStats(&before)
		}
		_, err = decodeRow(b)
		if i%100 == 0 {
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > uint64(256*len(b)+64<<10) {
				t.Errorf("%d bytes were allocated for a record of %d", took, len(b))
			}
		}
		if err != nil {
			refused++
		}
	}
	if refused < 500 || refused == 3000 {
		t.Errorf("%d of 3000 records were refused", refused)
	}
}
