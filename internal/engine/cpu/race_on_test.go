//go:build race

package cpu

// raceDetector says that the tests run under the race detector.
const raceDetector = true
