package frontend

import (
	"context"
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

// loaded is a request whose images come at once.
type loaded struct{ bad *apiError }

func (loaded) hasImages() bool { return true }
func (loaded) free()           {}
func (l loaded) load(context.Context, *Frontend, *servedModel, string) *apiError {
	return l.bad
}

// A request gives its turn back while its images are loaded, and has none to give back when it
// gets no other.
func TestTurnsAroundImages(t *testing.T) {
	refused := pastDeadline()
	for name, tc := range map[string]struct {
		load, turn *apiError
		want       string // the turns that were given back
	}{
		"loaded":     {nil, nil, "first again"},
		"not loaded": {refused, nil, "first"},
		"no turn":    {nil, refused, "first"},
	} {
		given := ""
		leave, bad := (&job{}).loadImages(t.Context(), loaded{tc.load}, nil, func() { given += "first" }, func() (func(), *apiError) {
			if tc.turn != nil {
				return nil, tc.turn
			}
			return func() { given += " again" }, nil
		})
		leave()
		if given != tc.want || (bad == nil) != (tc.load == nil && tc.turn == nil) {
			t.Errorf("%s: gave back %q, %v", name, given, bad)
		}
	}
	given := 0 // one that cannot wait keeps its turn
	leave, bad := (&job{}).loadImages(t.Context(), loaded{}, nil, func() { given++ }, nil)
	if leave(); given != 1 || bad != nil {
		t.Errorf("gave back %d turns, %v", given, bad)
	}
}

// The last position of a prompt is for the decode worker, which then computes the whole image.
func TestPromptThatEndsWithAnImage(t *testing.T) {
	if why := pictured(1, 5, 16).prefill(t.Context(), Settings{}, nil); why != whyEndsWithImage {
		t.Errorf("prefilled elsewhere: %q", why)
	}
}
