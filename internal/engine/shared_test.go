package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
)

// Prompts with common beginnings that come at once get the same answers as alone, also
// where sequences are preempted.
func TestSharedPromptsAtOnce(t *testing.T) {
	const block = 16
	r := seeded(t)
	e, _ := start(t, engine.Config{NumBlocks: 60, MaxBatchTokens: 37}, mock.Options{BlockSize: block})
	var prompts [][]uint32
	var streams []*engine.Stream
	for i := range 40 {
		p := prompt(r, 20+r.IntN(200))
		if i > 0 {
			from := prompts[r.IntN(i)]
			p = append(slices.Clone(from[:r.IntN(len(from)+1)]), p[:1+r.IntN(20)]...)
		}
		prompts = append(prompts, p)
		streams = append(streams, submit(t, e, request(fmt.Sprint(i), p, 20)))
	}
	for i, s := range streams {
		if tokens, _, _ := collect(t, s); !equal(tokens, mock.Continue(prompts[i], 20, vocab)) {
			t.Errorf("prompt %d of %d tokens is answered otherwise than alone", i, len(prompts[i]))
		}
	}
}
