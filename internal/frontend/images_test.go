package frontend

import (
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// pictured is a request for 16 equal tokens, of which some are an image.
func pictured(key byte, start, end int) *generation {
	return &generation{
		m:   &servedModel{card: cluster.ModelCard{BlockSize: 4, HashSeed: 1}},
		req: protocol.PreprocessedRequest{TokenIDs: make([]uint32, 16), Media: []protocol.MediaPart{{Start: start, End: end, Rows: end - start, Key: blockhash.Key{key}}}},
	}
}

// The router looks for the blocks that workers have: those with the images of the prompt.
func TestRoutedWithImages(t *testing.T) {
	g := pictured(1, 5, 11)
	want := blockhash.Chain{BlockSize: 4, Seed: 1, Media: []blockhash.Media{{Start: 5, End: 11, Key: blockhash.Key{1}}}}
	want.Extend(g.req.TokenIDs)
	if got := g.routed().Hashes; !slices.Equal(got, want.Seq) {
		t.Errorf("%x, want %x", got, want.Seq)
	}
	if other := pictured(2, 5, 11).routed().Hashes; other[0] != want.Seq[0] || other[1] == want.Seq[1] {
		t.Errorf("another image: %x, that one %x", other, want.Seq)
	}
}

// The last position of a prompt is for the decode worker, which then computes the whole image.
func TestPromptThatEndsWithAnImage(t *testing.T) {
	if why := pictured(1, 5, 16).prefill(t.Context(), Settings{}, nil); why != whyEndsWithImage {
		t.Errorf("prefilled elsewhere: %q", why)
	}
}
