package model

import (
	"math"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/model/idefics"
)

// Vision is the shape of the part of a model that turns images into rows of text
// embeddings: a tower, which is a transformer over patches in which every patch attends to
// all others, and a projector from its output to the text model. Its layers have norms,
// attention with biases, and an MLP of linear layers with biases.
type Vision struct {
	Tower  string // model_type of the tower
	Hidden int
	FFN    int
	Heads  int // divides Hidden
	// Layers is the number of layers that are computed. Checkpoints may hold more: those
	// behind the layer whose output the projector reads.
	Layers    int
	ImageSize int // pixels of a side of a whole view
	PatchSize int // pixels of a side of a patch
	NormEps   float64
	Act       Activation // of the MLP
	// ClassToken: a learned row precedes the patches. The projector does not read it
	// unless KeepClass is set.
	ClassToken, KeepClass bool
	// PatchBias: patch embeddings add a bias.
	PatchBias bool
	// PreNorm and PostNorm: a norm before the first layer and one behind the last.
	PreNorm, PostNorm bool
	// Bucketed: a view may have fewer patches than a whole one. Its patches then take the
	// positions at the same fractions of the sides.
	Bucketed bool
	// Mutual: in the text model the rows of one image attend to each other both ways.
	Mutual bool
	// Newline: a learned row ends each line of the tiles of an image.
	Newline bool
	// Grid: in place of views the tower takes patches of images of any size. Those of the
	// squares that the projector merges follow each other. Queries and keys turn by rows and
	// columns; there are no learned positions, and no ImageSize. The rows of an image take the
	// positions of their grid in the text model, too.
	Grid bool
	// Frames is the number of pictures in a patch, which stills repeat; 0 means 1.
	Frames int
	// RMSNorm: norms have no mean and no bias.
	RMSNorm bool
	// Gated: the MLP multiplies what passes the activation by a second linear layer.
	Gated bool
	// Window is the number of patches along each side of a window; patches of layers in
	// Windowed attend to those of their window. Windowed has an entry for each layer, or is
	// nil.
	Window    int
	Windowed  []bool
	Projector Projector
	// ImageToken stands in a prompt for each row that an image takes.
	ImageToken uint32
}

// Projector describes how the tower's output becomes rows of text embeddings.
type Projector struct {
	Kind ProjectorKind
	// Factor is the number of patches, along each side of a view, that make one row.
	Factor int
	// Act and Bias belong to [ProjectMLP] and [ProjectMerge].
	Act  Activation
	Bias bool
	// NormEps belongs to [ProjectPool] and [ProjectMerge].
	NormEps float64
}

// ProjectorKind names an arithmetic.
type ProjectorKind string

const (
	// ProjectShuffle concatenates squares of patches, row by row, and multiplies.
	ProjectShuffle ProjectorKind = "shuffle"
	// ProjectMLP passes each patch through two linear layers.
	ProjectMLP ProjectorKind = "mlp"
	// ProjectPool averages squares of patches, passes an RMS norm, and multiplies.
	ProjectPool ProjectorKind = "pool"
	// ProjectMerge passes each patch through a norm, concatenates squares of them, and
	// passes these through two linear layers.
	ProjectMerge ProjectorKind = "merge"
)

// Side returns the patches along one side of a whole view.
func (v Vision) Side() int { return v.ImageSize / v.PatchSize }

// Positions returns the number of learned positions.
func (v Vision) Positions() int {
	if v.ClassToken {
		return v.Side()*v.Side() + 1
	}
	return v.Side() * v.Side()
}

// Rows returns the number of rows that a view of the given patches along each side makes.
func (v Vision) Rows(side int) int {
	n := side / v.Projector.Factor
	if v.KeepClass {
		return n*n + 1
	}
	return n * n
}

// PatchValues returns the number of values of a patch.
func (v Vision) PatchValues() int { return 3 * max(v.Frames, 1) * v.PatchSize * v.PatchSize }

// Tokens returns the number of rows that a whole view makes; 0 with Grid.
func (v Vision) Tokens() int { return v.Rows(v.Side()) }

// tower describes a kind of tower: the defaults of its fields, and what no field says.
type tower struct {
	modelTypes                 []string // the first one is that of the class
	hidden, ffn, layers, heads int
	image, patch               int
	eps                        float64
	act                        Activation
	class, patchBias, preNorm  bool
	bucketed                   bool
}

// Towers.
var (
	clipTower = tower{
		modelTypes: []string{"clip_vision_model"}, hidden: 768, ffn: 3072, layers: 12, heads: 12, image: 224, patch: 32,
		eps: 1e-5, act: QuickGELU, class: true, preNorm: true,
	}
	siglipTower = tower{
		modelTypes: []string{"siglip_vision_model"}, hidden: 768, ffn: 3072, layers: 12, heads: 12, image: 224, patch: 16,
		eps: 1e-6, act: GELUTanh, patchBias: true,
	}
	idefics3Tower = tower{
		modelTypes: []string{"idefics3_vision", "idefics3", "smolvlm_vision", "smolvlm"},
		hidden:     1152, ffn: 3072, layers: 12, heads: 16, image: idefics.ImageSize, patch: idefics.PatchSize,
		eps: 1e-6, act: GELUTanh, patchBias: true, bucketed: true,
	}
)

// maxPatches bounds the patches of a view.
const maxPatches = 4096

// readTower reads the vision_config of a checkpoint. Its model_type selects one of the
// towers; without one it is the first.
func readTower(f fields, towers ...tower) Vision {
	f, _ = f.object("vision_config")
	kind := f.text("model_type", towers[0].modelTypes[0])
	at := slices.IndexFunc(towers, func(t tower) bool { return slices.Contains(t.modelTypes, kind) })
	if at < 0 {
		var known []string
		for _, t := range towers {
			known = append(known, t.modelTypes...)
		}
		f.fail(ErrUnsupported, "model_type", "%q is unknown; known are %s", kind, strings.Join(known, ", "))
		return Vision{}
	}
	t := towers[at]
	v := Vision{
		Tower:      t.modelTypes[0],
		Hidden:     f.size("hidden_size", t.hidden, maxWidth),
		FFN:        f.size("intermediate_size", t.ffn, maxWidth),
		Layers:     f.size("num_hidden_layers", t.layers, maxLayers),
		Heads:      f.size("num_attention_heads", t.heads, maxHeads),
		ImageSize:  f.size("image_size", t.image, maxWidth),
		PatchSize:  f.size("patch_size", t.patch, maxWidth),
		NormEps:    f.positive("layer_norm_eps", t.eps),
		Act:        readGELU(f, "hidden_act", t.act),
		ClassToken: t.class,
		PatchBias:  t.patchBias,
		PreNorm:    t.preNorm,
		Bucketed:   t.bucketed,
	}
	if channels := f.size("num_channels", 3, maxWidth); channels != 3 {
		f.fail(ErrUnsupported, "num_channels", "%d, images have 3", channels)
	}
	if *f.err != nil {
		return v
	}
	if v.Hidden%v.Heads != 0 {
		f.fail(ErrConfig, "num_attention_heads", "%d does not divide hidden_size %d", v.Heads, v.Hidden)
	}
	if side := v.Side(); side == 0 || side > maxPatches || side*side > maxPatches {
		f.fail(ErrConfig, "patch_size", "an image of %d pixels has %d patches of %d along a side, want 1 to %d", v.ImageSize, side, v.PatchSize, intRoot(maxPatches))
	}
	return v
}

// readGELU reads an activation of a tower or projector.
func readGELU(f fields, field string, def Activation) Activation {
	switch act := Activation(f.text(field, string(def))); act {
	case GELU, GELUTanh, QuickGELU:
		return act
	case "gelu_new":
		return GELUTanh
	default:
		f.fail(ErrUnsupported, field, "%q is unknown; known are %s, %s, %s", act, GELU, GELUTanh, QuickGELU)
		return ""
	}
}

// readImageToken reads the token that stands for a row of an image, under the name of
// transformers 5 or the older one.
func readImageToken(f fields, c *Config, v *Vision, def int) {
	field := "image_token_index"
	if f.has("image_token_id") {
		field = "image_token_id"
	}
	n := f.count(field, def, maxVocab)
	if *f.err == nil && n >= c.Vocab {
		f.fail(ErrConfig, field, "%d is not below vocab_size %d", n, c.Vocab)
	}
	v.ImageToken = uint32(n)
}

// readFeatureLayer sets from vision_feature_layer which layer's output the projector
// reads: 0 is what the first one reads, and -1 the output of the last.
func readFeatureLayer(f fields, v *Vision, def int) {
	layer := def
	if !f.decode("vision_feature_layer", &layer, "one layer") && *f.err != nil {
		return
	}
	if layer < 0 {
		layer += v.Layers + 1
	}
	if layer < 0 || layer > v.Layers {
		f.fail(ErrConfig, "vision_feature_layer", "the tower has %d layers", v.Layers)
	}
	v.Layers = layer
}

// intRoot returns the whole root of a square number, -1 for other numbers.
func intRoot(n int) int {
	if root := int(math.Sqrt(float64(n)) + 0.5); root*root == n {
		return root
	}
	return -1
}

// SeesImages reports whether the model has a vision tower, which turns images into
// embeddings. Only then can it have encode workers.
func (c Config) SeesImages() bool { return c.Vision != nil }
