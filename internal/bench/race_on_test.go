//go:build race

package bench

// raceDetector says that the tests run under the race detector.
const raceDetector = true
