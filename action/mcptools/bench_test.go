package mcptools

import (
	"os"
	"testing"

	"tranche/action"
)

// What a call of a server on stdio costs, one after the other and many at once.
func BenchmarkMCPCall(b *testing.B) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	b.Setenv(asServer, "1")
	s, err := Open(b.Context(), Config{Name: "test", Run: []string{exe, "-test.run=^$"}, Env: []string{asServer}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	offered, err := Tools([]*Server{s}, none)
	if err != nil {
		b.Fatal(err)
	}
	call := func() {
		if r, err := offered[0].Run(b.Context(), []byte(`{"text":"x"}`), action.Env{}); err != nil {
			b.Errorf("%v %v", r, err)
		}
	}
	b.Run("serial", func(b *testing.B) {
		for b.Loop() {
			call()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				call()
			}
		})
	})
}
