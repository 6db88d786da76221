// Package idefics has what transformers assumes of Idefics 3 and SmolVLM where config.json says
// nothing: Idefics3Config and Idefics3VisionConfig. Whoever counts the rows of an image must
// assume the same as whoever computes them.
package idefics

const (
	// ScaleFactor is how many patches of a side become one row.
	ScaleFactor = 2
	// ImageSize is the side of a view, in pixels.
	ImageSize = 224
	// PatchSize is the side of a patch, in pixels.
	PatchSize = 32
)
