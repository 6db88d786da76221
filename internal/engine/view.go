package engine

import "errors"

// ErrView is returned for a view that a model cannot read: one of another size than its
// vision part takes, or with pixels or a mask that do not fit its size.
var ErrView = errors.New("unusable view of an image")

// View is what a model's vision part reads at a time: an image, or a tile of one, in the
// size that the model wants, as normalized pixels.
type View struct {
	W, H   int       // pixels
	Pixels []float32 // [channel][row][column], 3 channels
	// Patches replaces Pixels for a model that takes an image of any size as patches, which is
	// cut into them: [patch][channel][frame][row][column]. Patches of a square that
	// becomes one row follow each other, as the squares do, from left to right, then down.
	Patches []float32
	// Mask tells the patches that show the image, row by row, from padding below and to
	// the right of them; nil if there is no padding.
	Mask []bool
}
