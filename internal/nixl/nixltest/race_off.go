//go:build !race

package nixltest

// shrink divides the sizes of big transfers.
const shrink = 1
