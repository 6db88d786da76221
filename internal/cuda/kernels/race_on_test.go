//go:build race

package kernels_test

// raceDetector says that the tests run under the race detector.
const raceDetector = true
