//go:build !race

package patience

const slowdown = 1
