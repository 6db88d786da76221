package drawn

import (
	"image/color"
	"math/rand/v2"
)

// colorNames are what shapes, bars and doors are painted with; the first [shapeColors] of
// them are those of shapes and bars.
var colorNames = []string{"red", "green", "blue", "yellow", "purple", "orange", "brown", "gray", "white"}

const shapeColors = 6

var palette = []color.RGBA{
	{210, 35, 35, 255}, {35, 150, 50, 255}, {40, 80, 215, 255}, {235, 215, 45, 255}, {140, 45, 165, 255}, {245, 130, 20, 255},
	{115, 72, 38, 255}, {125, 125, 128, 255}, {240, 240, 236, 255},
}

// paint returns about the color of that number.
func paint(r *rand.Rand, n int) color.RGBA {
	c := palette[n]
	c = shift(c, r.IntN(25)-12)
	c.R, c.G, c.B = clamp(int(c.R)+r.IntN(15)-7), clamp(int(c.G)+r.IntN(15)-7), clamp(int(c.B)+r.IntN(15)-7)
	return c
}

// shift makes a color brighter or darker.
func shift(c color.RGBA, by int) color.RGBA {
	return color.RGBA{clamp(int(c.R) + by), clamp(int(c.G) + by), clamp(int(c.B) + by), 255}
}

func clamp(v int) uint8 { return uint8(min(max(v, 0), 255)) }

// gray returns a gray of about that brightness.
func gray(r *rand.Rand, v int) color.RGBA {
	c := color.RGBA{uint8(v), uint8(v), uint8(v), 255}
	c.R, c.G, c.B = clamp(v+r.IntN(13)-6), clamp(v+r.IntN(13)-6), clamp(v+r.IntN(13)-6)
	return c
}

// paper returns a background that every color of shapes stands out from.
func paper(r *rand.Rand) color.RGBA {
	if r.IntN(2) == 0 {
		return gray(r, 236+r.IntN(16))
	}
	return gray(r, 10+r.IntN(30))
}

// ink returns a plate and digits that stand out from it.
func ink(r *rand.Rand) (plate, digits color.RGBA) {
	dark, light := gray(r, r.IntN(60)), gray(r, 205+r.IntN(45))
	if r.IntN(4) == 0 {
		dark = shift(palette[[]int{0, 1, 2, 4}[r.IntN(4)]], -35)
	}
	if r.IntN(2) == 0 {
		return dark, light
	}
	return light, dark
}
