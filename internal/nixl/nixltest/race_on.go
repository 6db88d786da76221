//go:build race

package nixltest

// shrink divides the sizes of big transfers: the race detector makes moving bytes
// many times slower.
const shrink = 4
