package export

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"tranche/storage"
)

// BenchmarkShapes makes and encodes groups of 8 rows of 2,048 ids and 4 KiB of text, without reading a run. Bytes are those of the ids.
func BenchmarkShapes(b *testing.B) {
	var rows []*storage.Row
	rng := rand.New(rand.NewPCG(1, 2))
	for s := range 8 {
		text := bytes.Repeat([]byte("some words of an answer "), 170)
		r := chat(sibling(int32(s), ptr(float64(s%2)), fmt.Sprint(s, string(text))))
		r.GroupSize, r.TokenIDs, r.LossMask, r.Logprobs, r.Versions, r.Turns = 8, nil, nil, nil, nil, nil
		for i := range 2048 {
			r.TokenIDs, r.LossMask, r.Versions = append(r.TokenIDs, rng.Int32N(150_000)), append(r.LossMask, int8(min(i/512, 1))), append(r.Versions, 7)
			r.Logprobs = append(r.Logprobs, ptr(-rng.Float32()))
		}
		rows = append(rows, r)
	}
	for _, shape := range Shapes() {
		for _, format := range shape.Formats {
			b.Run(shape.Name+"/"+format, func(b *testing.B) {
				e, err := New(Config{Shape: shape.Name, Format: format, Tools: AsText})
				if err != nil {
					b.Fatal(err)
				}
				out, err := e.sink(b.Context(), nil, &counter{})
				if err != nil {
					b.Fatal(err)
				}
				units := [][]*storage.Row{rows}
				if shape.unit != eachGroup {
					units = slices.Collect(slices.Chunk(rows, 1))
				}
				b.SetBytes(8 * 2048 * 4)
				for b.Loop() {
					for _, u := range units {
						if err := e.add(u, out); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(float64(8*2048*b.N)/b.Elapsed().Seconds()/1e6, "Mtokens/s")
				if err := out.close(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) { c.n += int64(len(p)); return len(p), nil }
