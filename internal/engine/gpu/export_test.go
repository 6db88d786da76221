package gpu

// WithTwoShot has sums over ranks be two-shot from so many bytes of activations on.
func WithTwoShot(o Options, bytes int) Options {
	o.twoShotBytes = bytes
	return o
}

// Residuals are the addresses of the residual streams of all ranks, and of what joins them
// last.
func Residuals(b *Backend) (sums, x []uint64) {
	for _, r := range b.ranks {
		sums, x = append(sums, r.memory.sum), append(x, r.memory.x)
	}
	return sums, x
}
