//go:build race

package device_test

// raceDetector says that the tests run under the race detector.
const raceDetector = true
