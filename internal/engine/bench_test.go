package engine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
)

// BenchmarkScheduler measures the engine's own cost for each token of eight decoding
// sequences, including the hash of the mock backend.
func BenchmarkScheduler(b *testing.B) {
	for _, text := range []string{"off", "ngram"} {
		b.Run(text, func(b *testing.B) {
			speculative, err := cluster.ParseSpeculative(text)
			if err != nil {
				b.Fatal(err)
			}
			backend := mock.New(mock.Options{VocabSize: vocab, MaxContext: 1 << 16})
			mem, err := backend.AllocKV(4096)
			if err != nil {
				b.Fatal(err)
			}
			e, err := engine.New(engine.Config{NumBlocks: 4096, Speculative: speculative}, backend)
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := contextWithCause(b)
			ended := make(chan error, 1)
			go func() { ended <- e.Run(ctx) }()
			r := rand.New(rand.NewPCG(1, 1))
			const most = 200 // tokens of one sequence: the mock reads all that came before
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; {
				var streams []*engine.Stream
				for i := range 8 {
					n := min(most, b.N-done)
					if done += n; n == 0 {
						break
					}
					s, err := e.Submit(ctx, request(fmt.Sprint(done, i), prompt(r, 20), n))
					if err != nil {
						b.Fatal(err)
					}
					streams = append(streams, s)
				}
				for _, s := range streams {
					for {
						if _, err := s.Next(ctx); err != nil {
							break
						}
					}
				}
			}
			b.StopTimer()
			cancel(nil)
			<-ended
			_ = mem.Close()
		})
	}
}
