//go:build !race

package patience

// RaceDetector says that the tests run under the race detector.
const RaceDetector = false

const slowdown = 1
