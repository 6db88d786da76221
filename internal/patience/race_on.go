//go:build race

package patience

// RaceDetector says that the tests run under the race detector: what would only compute
// something else in the same goroutines is left to a run without it.
const RaceDetector = true

// slowdown is that of the race detector, with other packages' tests beside.
const slowdown = 4
