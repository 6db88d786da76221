//go:build race

package dynamod

// raceDetector says that the tests run under the race detector.
const raceDetector = true
