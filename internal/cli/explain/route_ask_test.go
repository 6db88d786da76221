package explain

import (
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

// A question that was not sent has a line for the prompt and one for each image, which says
// whether anybody would have to encode it.
func TestAskedRoute(t *testing.T) {
	image := func(change func(*AskedImage)) AskedImage {
		x := AskedImage{Content: "3fe1a20b77c4ffff", Rows: 64, Reader: "worker-2", Encoder: "worker-1", Why: "first by content"}
		change(&x)
		return x
	}
	r := AskedRoute{
		Decision: cluster.RouterDecision{PromptToks: 1200, Blocks: 18, PrefillWhy: "long"}, Decode: "worker-3", Prefill: "worker-2",
		Images: []AskedImage{
			image(func(x *AskedImage) { x.InHand = 2 }), image(func(x *AskedImage) { x.Cached = true }), image(func(x *AskedImage) { x.Held, x.Encoder, x.Why = true, "", "" }),
			image(func(x *AskedImage) { x.Encoder, x.Why = "worker-2", "no encode worker" }), image(func(x *AskedImage) { x.Encoder, x.Why = "", "no encode worker" }),
		},
	}
	const head, named = "prompt of 1,200 tok = 18 blocks, not sent", "image 3fe1a20b77c4, 64 rows: "
	want := []string{
		head, "computed at worker-2 (long)", named + "worker-1 would encode it (first by content), with 2 images in hand",
		named + "worker-1 would give its embeddings, which it has (first by content)", named + "worker-2 has its embeddings",
		named + "worker-2 would encode it itself (no encode worker)", named + "nobody can encode it: no encode worker",
	}
	if got := r.lines(); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	r.Prefill, r.Decision.PrefillWhy, r.Images = "worker-3", "ends with an image", nil
	if got, want := r.lines(), []string{head, "computed by worker-3 itself (ends with an image)"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	r.Prefill, r.Decision.PrefillWhy, r.Images = "", "", []AskedImage{image(func(x *AskedImage) { x.Reader = "worker-3" })}
	want = []string{
		head, "whether a prefill worker computes it, worker-3 decides when it comes: disagg.strategy is decode-first",
		named + "worker-1 would encode it (first by content), with 0 images in hand", "a prefill worker would ask the same encode worker for an image, unless it has much in hand for it",
	}
	if got := r.lines(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	r.Images[0].Encoder, r.Images[0].Why = "worker-3", "no encode worker"
	want = []string{head, want[1], named + "worker-3 would encode it itself (no encode worker)"}
	if got := r.lines(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
