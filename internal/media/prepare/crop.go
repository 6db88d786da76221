package prepare

import (
	"strings"

	"github.com/dynctl/dynctl/internal/media/picture"
)

// whole prepares a picture as one view of a fixed size: CLIP and SigLIP.
type whole struct {
	colors   *colors
	filter   picture.Filter
	w, h     int // of the view
	shortest int // the edge to resize to before the middle is cut out; 0: straight to the size
	resizeW  int // straight to this size
	resizeH  int
}

// loadWhole reads the settings that CLIP, SigLIP, Gemma 3 and LLaVA-1.6 share.
func loadWhole(l *loader) *whole {
	s := l.settings
	s.must("do_resize")
	v := &whole{colors: l.colors, filter: s.filter("resample")}
	number := "shortest_edge"
	if !s.has("do_center_crop") {
		number = "" // SigLIP and Gemma 3: a number means a square
	}
	size := s.size("size", number, maxSide)
	v.resizeW, v.resizeH = size.Width, size.Height
	switch {
	case size.LongestEdge != 0:
		s.fail("size", ErrUnsupported, "longest_edge for this class")
	case size.Width != 0 && size.Height != 0:
	case size.ShortestEdge != 0:
		v.shortest = size.ShortestEdge
	default:
		s.fail("size", ErrConfig, "want height and width, or shortest_edge")
	}
	v.w, v.h = v.resizeW, v.resizeH
	if s.boolean("do_center_crop") {
		crop := s.size("crop_size", "", maxSide)
		v.w, v.h = crop.Width, crop.Height
		if v.w == 0 || v.h == 0 {
			s.fail("crop_size", ErrConfig, "want height and width")
		}
	} else if v.shortest != 0 {
		s.fail("size", ErrUnsupported, "shortest_edge without a crop, which leaves no fixed size")
	}
	return v
}

// resized is the size before the middle is cut out.
func (v *whole) resized(w, h int) (int, int) {
	switch {
	case v.shortest == 0:
		return v.resizeW, v.resizeH
	case w <= h:
		return v.shortest, int(float64(v.shortest*h) / float64(w))
	}
	return int(float64(v.shortest*w) / float64(h)), v.shortest
}

// view resizes and cuts. A side that is shorter than the view is padded, the odd pixel
// first.
func (v *whole) view(m *picture.Image) (View, error) {
	w, h := v.resized(m.W, m.H)
	x, y := (w-v.w)>>1, (h-v.h)>>1 // rounded down, as in Python
	m, err := m.ResizeWindow(w, h, v.filter, x, y, v.w, v.h)
	if err != nil {
		return View{}, err
	}
	return v.colors.view(m), nil
}

// crop is LLaVA-1.5: one view, and a token for each patch of it.
type crop struct {
	plain
	*whole
	tokens int
}

func loadCrop(l *loader) family {
	l.want("CLIPImageProcessor", "SiglipImageProcessor")
	c := &crop{plain: l.plain, whole: loadWhole(l)}
	c.tokens = l.tower().tokens(c.w, c.h)
	if c.tokens < 1 {
		l.processor.fail("patch_size", ErrConfig, "no patch fits into a view")
	}
	return c
}

// tower is what LLaVA's processors know of the vision tower.
type tower struct {
	patch, additional int // pixels of a patch; tokens beside patches
	drop              int // tokens that the language model does not get
}

func (l *loader) tower() (t tower) {
	l.processorFields("image_token", "num_additional_image_tokens", "patch_size", "vision_feature_select_strategy")
	if image := l.plain.image; l.processor.text("image_token", image) != image {
		l.processor.fail("image_token", ErrUnsupported, "want "+image)
	}
	t.patch = l.processor.count("patch_size", l.vision.count("patch_size", 0, 1, maxSide), 1, maxSide)
	if t.patch == 0 {
		l.processor.fail("patch_size", ErrConfig, "missing, in vision_config of "+configName+", too")
		t.patch = 1
	}
	// Older files leave it to the program to know that CLIP has a class token.
	additional := 1
	if l.vision.text("model_type", "clip_vision_model") != "clip_vision_model" {
		additional = 0
	}
	t.additional = l.processor.count("num_additional_image_tokens", additional, 0, 64)
	switch s := l.processor.text("vision_feature_select_strategy", l.config.text("vision_feature_select_strategy", "default")); s {
	case "default":
		t.drop = 1
	case "full":
	default:
		l.processor.fail("vision_feature_select_strategy", ErrUnsupported, s)
	}
	return t
}

// tokens counts those of a view.
func (t tower) tokens(w, h int) int { return (w/t.patch)*(h/t.patch) + t.additional - t.drop }

func (c *crop) plan(_, _ int) (Plan, error) {
	return Plan{Tokens: c.tokens, Views: 1, W: c.w, H: c.h}, nil
}

func (c *crop) prepare(m *picture.Image, in *Input) error {
	v, err := c.view(m)
	in.Views = []View{v}
	return err
}

// gemma is Gemma 3: one view, whose patches are pooled into a fixed number of tokens.
type gemma struct {
	plain
	*whole
	tokens int
}

func loadGemma(l *loader) family {
	l.want("Gemma3ImageProcessor")
	l.processorFields("image_seq_length")
	g := &gemma{plain: l.plain, whole: loadWhole(l)}
	if l.settings.boolean("do_pan_and_scan") {
		l.settings.fail("do_pan_and_scan", ErrUnsupported, "true")
	}
	of := l.config.count("mm_tokens_per_image", 256, 1, 1<<16)
	g.tokens = l.processor.count("image_seq_length", of, 1, 1<<16)
	return g
}

func (g *gemma) plan(_, _ int) (Plan, error) {
	return Plan{Tokens: g.tokens, Views: 1, W: g.w, H: g.h}, nil
}

func (g *gemma) text(p Plan) string {
	return "\n\n<start_of_image>" + strings.Repeat("<image_soft_token>", p.Tokens) + "<end_of_image>\n\n"
}

// planRows tells the model where the picture begins and ends.
func (g *gemma) planRows(n int, _ [3]int) (Plan, error) {
	p := Plan{Tokens: n}
	p.Text = g.text(p)
	return p, nil
}

func (g *gemma) prepare(m *picture.Image, in *Input) error {
	v, err := g.view(m)
	in.Views = []View{v}
	return err
}
