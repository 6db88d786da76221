//go:build race

package amxtest

// raceDetector says that the tests run under the race detector.
const raceDetector = true
