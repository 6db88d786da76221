package prepare

import (
	"fmt"
	"math"

	"github.com/dynctl/dynctl/internal/media/picture"
)

// patches is the family of Qwen2-VL and its successors: the picture keeps its ratio,
// both sides become multiples of a block of merged patches, and the tower gets patches.
type patches struct {
	plain
	colors       *colors
	filter       picture.Filter
	patch        int // pixels of a side
	times        int // frames in a patch; a still is repeated
	merge        int // patches of a side that become one token
	fewest, most int // pixels
}

func loadPatches(l *loader) family {
	l.want("Qwen2VLImageProcessor")
	l.processorFields()
	s := l.settings
	s.must("do_resize")
	p := &patches{
		plain: l.plain, colors: l.colors, filter: s.filter("resample"),
		patch: s.count("patch_size", 0, 1, 256),
		times: s.count("temporal_patch_size", 0, 1, 16),
		merge: s.count("merge_size", 0, 1, 16),
	}
	// Files give the bounds by either name; the older one counts where both stand.
	const limit = 1 << 26
	size := s.size("size", "", limit)
	p.fewest = s.count("min_pixels", 0, 0, limit)
	p.most = s.count("max_pixels", 0, 0, limit)
	if p.fewest == 0 {
		p.fewest = size.ShortestEdge
	}
	if p.most == 0 {
		p.most = size.LongestEdge
	}
	block := p.patch * p.merge
	if p.fewest < 1 || p.most < p.fewest || p.most < block*block {
		s.fail("size", ErrConfig, fmt.Sprintf("from %d to %d pixels leaves no size", p.fewest, p.most))
	}
	return p
}

// maxRatio is that of the sides, above which Qwen's processor refuses.
const maxRatio = 200

// resized returns the size that patches are cut from. Halves are rounded to even, as
// Python does.
func (p *patches) resized(w, h int) (int, int) {
	block := float64(p.patch * p.merge)
	fw, fh := float64(w), float64(h)
	rw, rh := math.RoundToEven(fw/block)*block, math.RoundToEven(fh/block)*block
	switch {
	case rw*rh > float64(p.most):
		beta := math.Sqrt(fw * fh / float64(p.most))
		rw = max(block, math.Floor(fw/beta/block)*block)
		rh = max(block, math.Floor(fh/beta/block)*block)
	case rw*rh < float64(p.fewest):
		beta := math.Sqrt(float64(p.fewest) / (fw * fh))
		rw = math.Ceil(fw*beta/block) * block
		rh = math.Ceil(fh*beta/block) * block
	}
	return int(rw), int(rh)
}

func (p *patches) plan(w, h int) (Plan, error) {
	if float64(max(w, h))/float64(min(w, h)) > maxRatio {
		return Plan{}, fmt.Errorf("%w: one side is over %d times the other", ErrPicture, maxRatio)
	}
	w, h = p.resized(w, h)
	g := Grid{T: 1, H: h / p.patch, W: w / p.patch}
	tokens := g.H * g.W / (p.merge * p.merge)
	return Plan{Tokens: tokens, W: w, H: h, Grid: g, Places: p.places(g)}, nil
}

// places returns how the tokens of a grid of patches stand.
func (p *patches) places(g Grid) [3]int { return [3]int{g.T, g.H / p.merge, g.W / p.merge} }

// planRows says how rows that come ready-made stand, too.
func (p *patches) planRows(n int, grid [3]int) (Plan, error) {
	if grid == [3]int{} {
		return Plan{}, fmt.Errorf("%w: embeddings for this model need the grid of their patches beside them: image_grid_thw, with frames, rows and columns", ErrPicture)
	}
	plan := Plan{Tokens: n, Grid: Grid{T: grid[0], H: grid[1], W: grid[2]}}
	plan.Text = p.text(plan)
	plan.Places = p.places(plan.Grid)
	if grid[0] != 1 || grid[1]%p.merge != 0 || grid[2]%p.merge != 0 || plan.Places[1]*plan.Places[2] != n {
		return Plan{}, fmt.Errorf("%w: a grid of %d × %d × %d patches, of which %d × %d become a row, for %d rows", ErrPicture, grid[0], grid[1], grid[2], p.merge, p.merge, n)
	}
	return plan, nil
}

func (p *patches) cuts() (patch, frames, merge int) { return p.patch, p.times, p.merge }

func (p *patches) prepare(m *picture.Image, in *Input) error {
	m, err := m.Resize(in.W, in.H, p.filter)
	if err != nil {
		return err
	}
	in.PatchSize = 3 * p.times * p.patch * p.patch
	in.Patches = make([]float32, 0, in.Grid.H*in.Grid.W*in.PatchSize)
	for y := 0; y < in.Grid.H; y += p.merge {
		for x := 0; x < in.Grid.W; x += p.merge {
			for r := range p.merge {
				for c := range p.merge {
					in.Patches = p.append(in.Patches, m, (x+c)*p.patch, (y+r)*p.patch)
				}
			}
		}
	}
	return nil
}

// append adds the patch whose upper left corner is at (x, y).
func (p *patches) append(to []float32, m *picture.Image, x, y int) []float32 {
	for c := range p.colors {
		table, start := &p.colors[c], len(to)
		for row := range p.patch {
			from := m.Pix[3*((y+row)*m.W+x)+c:]
			for i := range p.patch {
				to = append(to, table[from[3*i]])
			}
		}
		still := to[start:]
		for range p.times - 1 {
			to = append(to, still...)
		}
	}
	return to
}
