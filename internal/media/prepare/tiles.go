package prepare

import (
	"fmt"
	"math"
	"strings"

	"github.com/dynctl/dynctl/internal/media/picture"
	"github.com/dynctl/dynctl/internal/model/idefics"
)

// tiles is the family of Idefics3 and SmolVLM: the picture is resized to a longest edge
// and to whole tiles, and is cut into these; the whole, as large as a tile, comes last.
type tiles struct {
	plain
	colors  *colors
	filter  picture.Filter
	longest int // pixels of the longest edge
	side    int // pixels of a tile
	split   bool
	tokens  int // of a tile
}

// maxEdge caps the longest edge of Idefics3 and SmolVLM, whatever their file says.
const maxEdge = 4096

func loadTiles(l *loader) family {
	l.want("Idefics3ImageProcessor")
	l.processorFields("image_seq_len")
	s := l.settings
	s.must("do_resize")
	t := &tiles{plain: l.plain, colors: l.colors, filter: s.filter("resample"), split: s.boolean("do_image_splitting")}
	t.longest = s.size("size", "longest_edge", maxSide).LongestEdge
	t.side = s.size("max_image_size", "longest_edge", maxSide).LongestEdge
	if t.longest == 0 {
		s.fail("size", ErrUnsupported, "want longest_edge")
	}
	if t.side == 0 {
		s.fail("max_image_size", ErrUnsupported, "want longest_edge")
	}
	t.tokens = l.processor.count("image_seq_len", l.tileTokens(), 1, 1<<16)
	const most = 32 // tiles from edge to edge
	if t.side > 0 && min(t.longest, maxEdge) > most*t.side {
		s.fail("max_image_size", ErrConfig, "over 32 tiles from edge to edge")
	}
	return t
}

// tileTokens computes from config.json what the tower makes of a tile. Without that file it is
// the default of the class.
func (l *loader) tileTokens() int {
	if l.config.raw == nil {
		return 169
	}
	image := l.vision.count("image_size", idefics.ImageSize, 1, maxSide)
	patch := l.vision.count("patch_size", idefics.PatchSize, 1, maxSide)
	scale := l.config.count("scale_factor", idefics.ScaleFactor, 1, 64)
	n := image / patch / scale
	if n == 0 {
		l.config.fail("scale_factor", ErrConfig, "an image of the tower has fewer patches")
	}
	return n * n
}

// longestEdge is the first size: the longest edge as the file says, the other one even,
// and none over the cap.
func (t *tiles) longestEdge(w, h int) (int, int) {
	ratio := float64(w) / float64(h)
	if w >= h {
		w = t.longest
		h = int(float64(w) / ratio)
		h += h % 2
	} else {
		h = t.longest
		w = int(float64(h) * ratio)
		w += w % 2
	}
	w, h = max(w, 1), max(h, 1)
	ratio = float64(w) / float64(h)
	switch {
	case w >= h && w > maxEdge:
		w, h = maxEdge, int(maxEdge/ratio)
	case h > w && h > maxEdge:
		w, h = int(maxEdge*ratio), maxEdge
	}
	return max(w, 1), max(h, 1)
}

// wholeTiles is the second size: the longer side in whole tiles, the other one in the
// same ratio, rounded up to whole tiles.
func (t *tiles) wholeTiles(w, h int) (int, int) {
	ratio := float64(w) / float64(h)
	if w >= h {
		w = t.up(w)
		h = t.up(int(float64(w) / ratio))
	} else {
		h = t.up(h)
		w = t.up(int(float64(h) * ratio))
	}
	return w, h
}

func (t *tiles) up(n int) int { return int(math.Ceil(float64(n)/float64(t.side))) * t.side }

// grid returns the rows and columns of tiles; none for a picture that is not cut.
func (t *tiles) grid(w, h int) (rows, cols int) {
	if w, h = t.wholeTiles(t.longestEdge(w, h)); t.split && (w > t.side || h > t.side) {
		return h / t.side, w / t.side
	}
	return 0, 0
}

func (t *tiles) plan(w, h int) (Plan, error) {
	rows, cols := t.grid(w, h)
	views := rows*cols + 1
	return Plan{Tokens: views * t.tokens, Views: views, W: t.side, H: t.side, Grid: Grid{H: rows, W: cols}}, nil
}

func (t *tiles) text(p Plan) string {
	const around = "<fake_token_around_image>"
	image := strings.Repeat(t.image, t.tokens)
	var text strings.Builder
	for r := range p.Grid.H {
		for c := range p.Grid.W {
			fmt.Fprintf(&text, "%s<row_%d_col_%d>%s", around, r+1, c+1, image)
		}
		text.WriteString("\n")
	}
	if p.Grid.H > 0 {
		text.WriteString("\n")
	}
	text.WriteString(around + "<global-img>" + image + around)
	return text.String()
}

// low computes the whole alone.
func (t *tiles) low() family {
	if !t.split {
		return nil
	}
	whole := *t
	whole.split = false
	return &whole
}

func (t *tiles) prepare(m *picture.Image, in *Input) error {
	w, h := t.longestEdge(m.W, m.H)
	m, err := m.Resize(w, h, t.filter)
	if err != nil {
		return err
	}
	if t.split {
		w, h = t.wholeTiles(w, h)
		if m, err = m.Resize(w, h, t.filter); err != nil {
			return err
		}
	}
	for r := range in.Grid.H {
		for c := range in.Grid.W {
			v := t.colors.view(m.Window(c*t.side, r*t.side, t.side, t.side))
			v.Row, v.Col = r+1, c+1
			in.Views = append(in.Views, v)
		}
	}
	whole, err := m.Resize(t.side, t.side, t.filter)
	if err != nil {
		return err
	}
	in.Views = append(in.Views, t.colors.view(whole))
	return nil
}
