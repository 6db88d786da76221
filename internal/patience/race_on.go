//go:build race

package patience

// slowdown is that of the race detector, with other packages' tests beside.
const slowdown = 8
