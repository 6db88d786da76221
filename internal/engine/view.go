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
	// Mask tells the patches that show the image, row by row, from padding below and to
	// the right of them; nil if there is no padding.
	Mask []bool
}
