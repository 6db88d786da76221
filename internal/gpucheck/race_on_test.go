//go:build race

package gpucheck

// raceDetector says that the tests run under the race detector.
const raceDetector = true
